"""Every operation by its id: its function, its command, its permission and its effect.

An id names a resource and a verb, such as `labels.answer`. Routes, tools for agents, policies and the audit log refer
to an operation by its id only, so that a command can be renamed without a change of any of them. Tests compare
commands, the Python API and routes with this table. A function is imported when it is used, so that help is quick.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache
from importlib import import_module
from typing import Any, get_type_hints

from wtb.core.access.roles import Permission as Permission
from wtb.core.classes.frozen import frozen


class Effect(StrEnum):
    """What an operation does to what the database holds, the gravest of it.

    A caller that is not a person may have to confirm the last two. Files that are written for the caller, as `export`
    does, are no effect: see `Operation.writes_files`. Nor is what the clock did: a question whose time is up is closed
    by whoever looks first, since without a scheduler nobody else would, and what is shown must not be past.
    """

    reads = "reads"
    changes = "changes"
    spends = "spends"
    destroys = "destroys"


@frozen
class Operation:
    """A verb that commands, Python and others call alike.

    Attributes:
        path: `module:function` under `wtb.operations`. The function takes a Context first, then what it acts on.
        command: Its command without `wtb`, with the option or argument that selects it, such as `files --diff`.
        summary: What it does, in one sentence: the first of its command's help.
        python: What of the Python API calls it, such as `SweepHandle.pause`.
        needs: What its caller must be allowed to do.
        effect: What it does to what is there.
        long: Whether it may take longer than a request should.
        writes_files: Whether it writes files on the machine of its caller. That it may needs the permission of that
            machine and not of the database; a server must have it write elsewhere, or not at all.
        preview: The function beside it that returns what it would do, and does nothing; for what destroys.
        everywhere: Whether it is about more than one project, so that whoever is limited to projects may not do it.
        shows_secret: Whether its result has a secret that is shown this once: no caller keeps a copy of it.
    """

    path: str
    command: str
    summary: str
    python: tuple[str, ...]
    needs: Permission = Permission.read
    effect: Effect = Effect.reads
    long: bool = False
    writes_files: bool = False
    preview: str | None = None
    everywhere: bool = False
    shows_secret: bool = False

    @property
    def function(self) -> Callable[..., Any]:
        """The function, imported."""
        return self._imported(self.path.partition(":")[2])

    @property
    def preview_function(self) -> Callable[..., Any]:
        """The function that says what it would do, imported; there must be one."""
        assert self.preview is not None
        return self._imported(self.preview)

    def _imported(self, name: str) -> Callable[..., Any]:
        module = import_module(f"wtb.operations.{self.path.partition(':')[0]}")
        function: Callable[..., Any] = getattr(module, name)
        return function

    @property
    def arguments(self) -> Mapping[str, inspect.Parameter]:
        """Its parameters by name, without the context."""
        return arguments_of(self.function)

    @property
    def result(self) -> Any:
        """The type of its result."""
        return get_type_hints(self.function)["return"]


def arguments_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of an operation by name, without the context."""
    parameters = dict(inspect.signature(function).parameters)
    parameters.pop("context")
    return parameters


# By id, in the order of the commands in `wtb --help`.
OPERATIONS: Mapping[str, Operation] = {
    "workflows.list": Operation(
        "inspection.workflows:list_published",
        "workflow list --published",
        "List the workflows and evaluators that workers publish.",
        ("Bench.published",),
    ),
    "workflows.show": Operation(
        "inspection.workflows:show_published",
        "workflow show --published",
        "Show what workers publish of a workflow: its graph, variants, parameters and fingerprints.",
        ("Bench.published_workflow",),
    ),
    "cases.read": Operation(
        "drafting.reading_cases:read_case_file",
        "cases",
        "Show how a sweep would read a file of cases.",
        ("Bench.read_case_file",),
        long=True,
    ),
    "evaluators.preview": Operation(
        "drafting.evaluator_preview:preview_evaluator",
        "try",
        "Score an output with a built-in evaluator.",
        ("Bench.preview_evaluator",),
    ),
    "sweeps.plan": Operation(
        "running.planning:plan",
        "plan",
        "Show what a sweep would run, before anything runs.",
        ("Bench.plan",),
        long=True,
    ),
    "sweeps.plan_published": Operation(
        "running.published:plan_published",
        "plan --published",
        "Show what a sweep would run, by what workers publish of its workflow.",
        ("Bench.plan",),
        long=True,
    ),
    "sweeps.run_pilot": Operation(
        "running.planning:run_pilot",
        "pilot",
        "Run a few cases, and estimate what all will cost.",
        ("Bench.plan",),
        needs=Permission.submit,
        effect=Effect.spends,
        long=True,
    ),
    "sweeps.run": Operation(
        "running.local:run",
        "run",
        "Run a sweep and show its matrix.",
        ("Bench.run",),
        needs=Permission.submit,
        effect=Effect.spends,
        long=True,
    ),
    "executions.start": Operation(
        "running.local:run",
        "start",
        "Run one input through a workflow, and show its state.",
        ("Bench.start",),
        needs=Permission.submit,
        effect=Effect.spends,
        long=True,
    ),
    "executions.create": Operation(
        "running.local:create",
        "execution create",
        "Store one input for a workflow, to be begun later by `resume`.",
        ("Bench.start",),
        needs=Permission.submit,
        effect=Effect.changes,
    ),
    "executions.start_published": Operation(
        "running.published:start_published",
        "start --published",
        "Give one input for a workflow that workers publish to them.",
        ("Bench.start",),
        needs=Permission.submit,
        effect=Effect.spends,
    ),
    "sweeps.submit": Operation(
        "running.submitting:submit",
        "submit",
        "Give a sweep to the workers, and print its id.",
        ("Bench.submit",),
        needs=Permission.submit,
        effect=Effect.spends,
    ),
    "sweeps.submit_published": Operation(
        "running.published:submit_published",
        "submit --published",
        "Give a sweep of a workflow that workers publish to them.",
        ("Bench.submit",),
        needs=Permission.submit,
        effect=Effect.spends,
    ),
    "sweeps.wait": Operation(
        "running.waiting:wait",
        "submit --wait",
        "Wait until a sweep that workers run ends or pauses.",
        ("SweepHandle.wait",),
        long=True,
    ),
    "sweeps.resume": Operation(
        "running.continuing:resume",
        "resume",
        "Continue a sweep or execution that was stopped or paused.",
        ("SweepHandle.resume", "ExecutionHandle.resume"),
        needs=Permission.steer,
        effect=Effect.spends,
        long=True,
    ),
    "sweeps.retry": Operation(
        "running.continuing:retry",
        "retry",
        "Run failed cells again, from their last good checkpoints.",
        ("SweepHandle.retry", "ExecutionHandle.retry"),
        needs=Permission.steer,
        effect=Effect.spends,
        long=True,
    ),
    "sweeps.extend": Operation(
        "growth.extending:extend",
        "extend",
        "Add cases, repeats or variants to a sweep.",
        ("SweepHandle.extend",),
        needs=Permission.submit,
        effect=Effect.spends,
        long=True,
    ),
    "sweeps.plan_extension": Operation(
        "growth.extending:plan_extension",
        "extend --dry-run",
        "Show what an extension would add: cells, node runs and their price.",
        ("SweepHandle.plan_extension",),
        long=True,
    ),
    "schedules.add": Operation(
        "schedules.schedules:add_schedule",
        "schedule add",
        "Run a sweep by the clock.",
        ("Bench.add_schedule",),
        needs=Permission.submit,
        effect=Effect.changes,
    ),
    "schedules.list": Operation(
        "schedules.schedules:list_schedules",
        "schedule list",
        "List schedules with their next and last fires.",
        ("Bench.schedules",),
    ),
    "schedules.show": Operation(
        "schedules.schedules:show_schedule",
        "schedule show",
        "Show a schedule: when it runs next, what it runs, and how the last runs ended.",
        ("Bench.schedule",),
    ),
    "schedules.pause": Operation(
        "schedules.schedules:pause_schedule",
        "schedule pause",
        "Make no fires until it is resumed; what already runs continues.",
        ("Bench.pause_schedule",),
        needs=Permission.submit,
        effect=Effect.changes,
    ),
    "schedules.resume": Operation(
        "schedules.schedules:resume_schedule",
        "schedule resume",
        "Fire again from now on; what its pause left out is skipped.",
        ("Bench.resume_schedule",),
        needs=Permission.submit,
        effect=Effect.changes,
    ),
    "schedules.remove": Operation(
        "schedules.schedules:remove_schedule",
        "schedule remove",
        "Remove a schedule with its history.",
        ("Bench.remove_schedule",),
        needs=Permission.submit,
        effect=Effect.destroys,
    ),
    "schedules.run_now": Operation(
        "schedules.schedules:run_now",
        "schedule run-now",
        "Fire at once, whatever the clock says, and wait for it where workers do not run it.",
        ("Bench.run_schedule",),
        needs=Permission.submit,
        effect=Effect.spends,
        long=True,
    ),
    "schedules.show_history": Operation(
        "schedules.history:history",
        "schedule history",
        "Show what the fires of a schedule came to, as a chart and a list, with where code changed.",
        ("Bench.schedule_history",),
    ),
    "schedules.check": Operation(
        "schedules.history:check_schedule",
        "schedule check",
        "Exit with 1 where the last fire was worse or failed, or where a fire is overdue, and say why.",
        ("Bench.check_schedule",),
    ),
    "schedules.run_due": Operation(
        "schedules.schedules:run_due",
        "schedule run-due",
        "Run the schedules that are due: for a line of crontab.",
        ("Bench.run_due_schedules",),
        needs=Permission.submit,
        everywhere=True,
        effect=Effect.spends,
        long=True,
    ),
    "sweeps.pause": Operation(
        "control.pause_cancel:pause",
        "pause",
        "Pause a sweep or execution until it is resumed.",
        ("SweepHandle.pause", "ExecutionHandle.pause"),
        needs=Permission.steer,
        effect=Effect.changes,
        long=True,
    ),
    "sweeps.cancel": Operation(
        "control.pause_cancel:cancel",
        "cancel",
        "End a sweep or execution for good; results so far stay.",
        ("SweepHandle.cancel", "ExecutionHandle.cancel"),
        needs=Permission.steer,
        effect=Effect.destroys,
        preview="preview_cancel",
    ),
    "combinations.stop": Operation(
        "growth.stopping:stop_combination",
        "combination stop",
        "Skip the open cells of some combinations; the others go on.",
        ("SweepHandle.stop_combination",),
        needs=Permission.steer,
        effect=Effect.changes,
    ),
    "breakpoints.list": Operation(
        "control.breakpoints:list_breakpoints",
        "breakpoint list",
        "List breakpoints, where executions pause.",
        ("SweepHandle.breakpoints", "ExecutionHandle.breakpoints"),
    ),
    "breakpoints.set": Operation(
        "control.breakpoints:set_breakpoints",
        "breakpoint set",
        "Add or remove breakpoints, where executions pause.",
        ("SweepHandle.set_breakpoints", "ExecutionHandle.set_breakpoints"),
        needs=Permission.steer,
        effect=Effect.changes,
    ),
    "questions.list": Operation(
        "control.questions:find_questions",
        "approvals",
        "List the questions that wait for a person, or show one.",
        ("Bench.questions", "SweepHandle.questions", "ExecutionHandle.questions", "QuestionHandle.details"),
    ),
    "questions.answer": Operation(
        "control.answers:answer",
        "answer",
        "Answer a question that waits for a person.",
        ("QuestionHandle.answer", "ExecutionHandle.answer"),
        needs=Permission.answer,
        effect=Effect.changes,
    ),
    "questions.answer_all": Operation(
        "control.answers:answer_all",
        "answer-all",
        "Answer several open questions alike.",
        ("Bench.answer_all",),
        needs=Permission.answer,
        effect=Effect.changes,
        preview="preview_answers",
    ),
    "checkpoints.name": Operation(
        "control.naming:name_checkpoint",
        "checkpoint",
        "Name a checkpoint, so that rollbacks and people find it.",
        ("ExecutionHandle.name_checkpoint",),
        needs=Permission.steer,
        effect=Effect.changes,
    ),
    "executions.rollback": Operation(
        "control.rollback:rollback",
        "rollback",
        "Take an execution back to a checkpoint, and undo its tools.",
        ("ExecutionHandle.rollback",),
        needs=Permission.steer,
        effect=Effect.changes,
        long=True,
    ),
    "executions.undo_rollback": Operation(
        "control.rollback:undo_rollback",
        "rollback --undo",
        "Undo the last rollback of an execution: it is at the end of the line that it left again.",
        ("ExecutionHandle.undo_rollback",),
        needs=Permission.steer,
        effect=Effect.changes,
        long=True,
    ),
    "executions.fork": Operation(
        "control.forks:fork",
        "fork",
        "Run on from a checkpoint with changes, beside the original.",
        ("ExecutionHandle.fork",),
        needs=Permission.steer,
        effect=Effect.spends,
        long=True,
    ),
    "combinations.add": Operation(
        "growth.added_rows:add_row",
        "fork --all-cases",
        "Run what differs in a fork for every case, as another row of its sweep.",
        ("ExecutionHandle.fork_all_cases",),
        needs=Permission.submit,
        effect=Effect.spends,
        long=True,
    ),
    "sweeps.list": Operation("inspection.sweeps:list_sweeps", "list", "List sweeps, newest first.", ("Bench.sweeps",)),
    "executions.list": Operation(
        "inspection.sweeps:list_runs", "list --runs", "List single executions, newest first.", ("Bench.executions",)
    ),
    "sweeps.show_status": Operation(
        "inspection.sweeps:status",
        "status",
        "Say how far a sweep or execution is, and what holds it up.",
        ("SweepHandle.status_details", "ExecutionHandle.status_details"),
    ),
    "sweeps.watch": Operation(
        "inspection.watching:watch",
        "watch",
        "Show live how sweeps, workers and queues stand.",
        ("Bench.watch",),
    ),
    "sweeps.show": Operation(
        "inspection.sweeps:show",
        "show",
        "Show a sweep, its cells, an execution or a checkpoint.",
        ("SweepHandle.details", "ExecutionHandle.details"),
    ),
    "cells.list": Operation(
        "inspection.sweeps:cells",
        "show --cells",
        "Return the cells of a sweep with their states and scores.",
        ("SweepHandle.cells",),
    ),
    "outputs.list": Operation(
        "outputs.side_by_side:outputs",
        "show --outputs",
        "Return the outputs of combinations side by side, a page of cases at a time.",
        ("SweepHandle.outputs",),
    ),
    "values.read": Operation(
        "outputs.side_by_side:read_value",
        "show --key",
        "Return one value of a state or a case in full.",
        ("ExecutionHandle.read_value", "SweepHandle.read_value"),
    ),
    "checkpoints.show": Operation(
        "inspection.history:show_checkpoint",
        "show CHECKPOINT",
        "Show the state and files of a checkpoint, who wrote it and what comes next.",
        ("Bench.checkpoint",),
    ),
    "events.list": Operation(
        "inspection.log:log",
        "log",
        "Read the events of a sweep, oldest first.",
        ("SweepHandle.log", "ExecutionHandle.log"),
    ),
    "events.count": Operation(
        "inspection.log:count_events",
        "log --summary",
        "Count the events of a sweep by kind and severity.",
        ("SweepHandle.count_events", "ExecutionHandle.count_events"),
    ),
    "checkpoints.list": Operation(
        "inspection.history:history",
        "history",
        "Show the checkpoints that led to where an execution is.",
        ("ExecutionHandle.history_details", "ExecutionHandle.history"),
    ),
    "executions.show_tree": Operation(
        "inspection.executions:tree",
        "tree",
        "Draw how executions share, fork and were rolled back.",
        ("SweepHandle.tree", "ExecutionHandle.tree"),
    ),
    "executions.compare": Operation(
        "inspection.executions:diff",
        "diff",
        "Compare two executions or checkpoints, step by step.",
        ("ExecutionHandle.diff",),
    ),
    "files.list": Operation(
        "inspection.files:list_files",
        "files",
        "List, read, export or compare the files that nodes left.",
        ("ExecutionHandle.list_files",),
    ),
    "files.read": Operation(
        "inspection.files:read_file",
        "files PATH",
        "Return the content of a file in blocks.",
        ("ExecutionHandle.read_file",),
    ),
    "files.export": Operation(
        "inspection.files:export_files",
        "files --export",
        "Write files to a new or empty directory of this machine.",
        ("ExecutionHandle.export_files",),
        writes_files=True,
    ),
    "files.compare": Operation(
        "inspection.files:compare_files",
        "files --diff",
        "Return what changes in the files from one place to another.",
        ("ExecutionHandle.compare_files",),
    ),
    "series.list": Operation(
        "results.series:series",
        "series",
        "Show series over time: ctx.metric, and memory and CPU of nodes.",
        ("SweepHandle.series", "ExecutionHandle.series"),
    ),
    "costs.show": Operation(
        "results.costs:costs",
        "costs",
        "Show what was spent, and for what.",
        ("Bench.costs", "SweepHandle.costs", "ExecutionHandle.costs"),
    ),
    "traces.export": Operation(
        "telemetry.export:export_traces",
        "telemetry export",
        "Send the traces of a sweep to a collector of OpenTelemetry.",
        ("SweepHandle.export_traces",),
        long=True,
    ),
    "matrices.show": Operation(
        "results.matrix:matrix",
        "matrix",
        "Show the figures of every combination, with intervals.",
        ("SweepHandle.matrix",),
    ),
    "reports.make": Operation(
        "results.matrix:report",
        "report",
        "Write the results as one file for others, or for CI.",
        ("SweepHandle.report",),
        long=True,
    ),
    "scores.compute": Operation(
        "results.scoring:score",
        "score",
        "Score finished cells again, without running a node.",
        ("SweepHandle.score",),
        needs=Permission.submit,
        effect=Effect.changes,
        long=True,
    ),
    "scorings.submit": Operation(
        "running.published_scoring:score_published",
        "score --published",
        "Have workers score finished cells again, by built-in evaluators and those that they publish.",
        ("SweepHandle.score_published",),
        needs=Permission.submit,
        effect=Effect.changes,
    ),
    "scorings.show": Operation(
        "running.published_scoring:show_scoring",
        "scoring show",
        "Say how far workers are with what they were asked to score.",
        ("SweepHandle.scoring",),
    ),
    "scorings.cancel": Operation(
        "running.published_scoring:cancel_scoring",
        "scoring cancel",
        "End what workers were asked to score; the scores that were written stay.",
        ("SweepHandle.cancel_scoring",),
        needs=Permission.submit,
        effect=Effect.changes,
    ),
    "labels.draw": Operation(
        "results.labelling:draw_labels",
        "label draw",
        "Show the answers to label, drawn at random and without their rows.",
        ("SweepHandle.draw_labels",),
    ),
    "labels.answer": Operation(
        "results.labelling:give_label",
        "label answer",
        "Label answers that were drawn at random, or take labels back.",
        ("SweepHandle.give_label",),
        needs=Permission.answer,
        effect=Effect.changes,
    ),
    "labels.import": Operation(
        "results.labelling:import_labels",
        "label import",
        "Take labels of a sweep from a file.",
        ("SweepHandle.import_labels",),
        needs=Permission.answer,
        effect=Effect.changes,
    ),
    "labels.list": Operation(
        "results.labelling:list_labels",
        "label export",
        "Export the labels of a sweep.",
        ("SweepHandle.labels",),
    ),
    "comments.add": Operation(
        "outputs.commenting:add_comment",
        "comment add",
        "Comment on a cell.",
        ("SweepHandle.add_comment",),
        needs=Permission.answer,
        effect=Effect.changes,
    ),
    "comments.list": Operation(
        "outputs.commenting:list_comments",
        "comment list",
        "List the comments on the cells of a sweep.",
        ("SweepHandle.comments",),
    ),
    "comments.delete": Operation(
        "outputs.commenting:delete_comment",
        "comment delete",
        "Delete a comment of yours.",
        ("SweepHandle.delete_comment",),
        needs=Permission.answer,
        effect=Effect.changes,
    ),
    "judges.check": Operation(
        "results.judging:check_judge",
        "judge check",
        "Hold the scores of a metric against labels of people.",
        ("SweepHandle.check_judge",),
    ),
    "combinations.rank": Operation(
        "results.ranking:rank",
        "judge rank",
        "Rank rows by comparisons of two at a time.",
        ("SweepHandle.rank",),
        long=True,
        writes_files=True,
    ),
    "sweeps.compare": Operation(
        "results.comparing:compare",
        "compare",
        "Show which results got worse or better between two sweeps.",
        ("Bench.compare", "SweepHandle.compare"),
        long=True,
    ),
    "combinations.compare": Operation(
        "results.comparing:compare_rows",
        "compare --row",
        "Show which of two rows of a sweep wins in which cases, and by how much.",
        ("SweepHandle.compare_rows",),
        long=True,
    ),
    "sweeps.pool": Operation(
        "control.pools:pool",
        "pool",
        "Make one sweep of several that repeat each other.",
        ("Bench.pool",),
        needs=Permission.submit,
        effect=Effect.changes,
    ),
    "baselines.set": Operation(
        "results.baselines:set_baseline",
        "baseline set",
        "Give a finished sweep a name, for `wtb regress` and the gate `no_worse_than`.",
        ("Bench.set_baseline", "SweepHandle.set_baseline"),
        needs=Permission.submit,
        effect=Effect.changes,
    ),
    "baselines.repeat": Operation(
        "results.baselines:repeat_baseline",
        "baseline repeat",
        "Run a sweep again to measure its noise, and make it the baseline.",
        ("Bench.set_baseline", "SweepHandle.set_baseline"),
        needs=Permission.submit,
        effect=Effect.spends,
        long=True,
    ),
    "baselines.list": Operation(
        "results.baselines:list_baselines",
        "baseline list",
        "List the baselines of a session, or of all where none is named.",
        ("Bench.baselines",),
    ),
    "baselines.show": Operation(
        "results.baselines:show_baseline",
        "baseline show",
        "Show which sweep a baseline is, and what that sweep found.",
        ("Bench.baseline",),
    ),
    "baselines.remove": Operation(
        "results.baselines:remove_baseline",
        "baseline remove",
        "Remove a baseline. Its sweep stays until the retention policy lets `wtb gc` remove it.",
        ("Bench.remove_baseline",),
        needs=Permission.submit,
        effect=Effect.changes,
    ),
    "sweeps.regress": Operation(
        "results.comparing:regress",
        "regress",
        "Run a sweep and hold it against a baseline, cell by cell.",
        ("Bench.regress",),
        needs=Permission.submit,
        effect=Effect.spends,
        long=True,
    ),
    "sweeps.pin": Operation(
        "housekeeping.pins:pin",
        "pin",
        "Keep a sweep or checkpoint, whatever `wtb gc` removes.",
        ("SweepHandle.pin", "ExecutionHandle.pin"),
        needs=Permission.administer,
        effect=Effect.changes,
    ),
    "sweeps.unpin": Operation(
        "housekeeping.pins:unpin",
        "unpin",
        "Let `wtb gc` remove a pinned sweep or checkpoint again.",
        ("SweepHandle.unpin", "ExecutionHandle.unpin"),
        needs=Permission.administer,
        effect=Effect.changes,
    ),
    "garbage.collect": Operation(
        "housekeeping.garbage_collection:collect",
        "gc",
        "Remove what nothing reaches, and what is old.",
        ("Bench.collect",),
        needs=Permission.administer,
        everywhere=True,
        effect=Effect.destroys,
        long=True,
    ),
    "sweeps.delete": Operation(
        "housekeeping.delete:delete",
        "delete",
        "Delete one sweep with all that belongs to it, for good.",
        ("SweepHandle.delete",),
        needs=Permission.administer,
        effect=Effect.destroys,
        long=True,
        preview="preview_delete",
    ),
    "cases.erase": Operation(
        "housekeeping.erase:erase",
        "erase",
        "Erase a case everywhere, with all that ran for it.",
        ("Bench.erase",),
        needs=Permission.administer,
        effect=Effect.destroys,
        long=True,
        preview="preview_erase",
    ),
    "executions.export": Operation(
        "archive.exporter:export_execution",
        "export",
        "Write an execution to a file, with all that belongs to it.",
        ("ExecutionHandle.export",),
        long=True,
        writes_files=True,
    ),
    "executions.read_archive": Operation(
        "archive.exporter:read_archive",
        "export ARCHIVE",
        "Return the archive of an execution in blocks.",
        ("ExecutionHandle.read_archive",),
    ),
    "executions.import": Operation(
        "archive.importer:import_execution",
        "import",
        "Read an execution from a file that `wtb export` wrote.",
        ("Bench.import_execution",),
        needs=Permission.submit,
        effect=Effect.changes,
        long=True,
    ),
    "sweeps.copy": Operation(
        "archive.sweep_copies:copy_sweep",
        "copy",
        "Copy a sweep to another database.",
        ("SweepHandle.copy",),
        long=True,
    ),
    "backups.create": Operation(
        "backup.backup:backup",
        "backup",
        "Copy the database with its files to a folder, while sweeps run.",
        ("Bench.backup",),
        everywhere=True,
        long=True,
        writes_files=True,
    ),
    "backups.restore": Operation(
        "backup.restore:restore",
        "restore",
        "Load a backup into an empty database.",
        ("Bench.restore",),
        needs=Permission.administer,
        effect=Effect.changes,
        long=True,
        everywhere=True,
    ),
    "projects.create": Operation(
        "administration.projects:create_project",
        "project create",
        "Make a project, which sessions, sweeps and tokens belong to.",
        ("Bench.create_project",),
        needs=Permission.administer,
        effect=Effect.changes,
        everywhere=True,
    ),
    "projects.change": Operation(
        "administration.projects:change_project",
        "project change",
        "Say how long finished sweeps of a project are kept.",
        ("Bench.change_project",),
        needs=Permission.administer,
        effect=Effect.changes,
    ),
    "projects.list": Operation(
        "administration.projects:list_projects",
        "project list",
        "List projects with how many sessions and sweeps they have.",
        ("Bench.projects",),
    ),
    "projects.show": Operation(
        "administration.projects:describe_project",
        "project show",
        "Show a project: how many sessions and sweeps it has.",
        ("Bench.project",),
    ),
    "sessions.create": Operation(
        "administration.sessions:create_session",
        "session create",
        "Make a session.",
        ("Bench.create_session",),
        needs=Permission.administer,
        effect=Effect.changes,
    ),
    "sessions.change": Operation(
        "administration.sessions:change_session",
        "session change",
        "Change a session's quota, owner and metadata; what is not named stays.",
        ("Bench.change_session",),
        needs=Permission.administer,
        effect=Effect.changes,
    ),
    "sessions.rename": Operation(
        "administration.sessions:rename_session",
        "session rename",
        "Call a session by another name, also while its sweeps run.",
        ("Bench.rename_session",),
        needs=Permission.administer,
        effect=Effect.changes,
    ),
    "sessions.list": Operation(
        "administration.sessions:list_sessions",
        "session list",
        "List sessions with what they use and what they may use.",
        ("Bench.sessions",),
    ),
    "sessions.show": Operation(
        "administration.sessions:describe_session",
        "session show",
        "Show a session: its sweeps by status, what it uses, and who holds its slots.",
        ("Bench.session",),
    ),
    "sessions.archive": Operation(
        "administration.sessions:archive_session",
        "session archive",
        "Let a session take no new sweeps.",
        ("Bench.archive_session",),
        needs=Permission.administer,
        effect=Effect.changes,
    ),
    "sessions.delete": Operation(
        "administration.sessions:delete_session",
        "session delete",
        "Delete a session with its sweeps and their files, for good.",
        ("Bench.delete_session",),
        needs=Permission.administer,
        effect=Effect.destroys,
        long=True,
        preview="preview_delete_session",
    ),
    "budgets.set": Operation(
        "administration.budgets:set_budgets",
        "budget set",
        "Give a project, session or token budgets; those that are not named stay.",
        ("Bench.set_budgets",),
        needs=Permission.administer,
        effect=Effect.changes,
    ),
    "budgets.list": Operation(
        "administration.budgets:list_budgets",
        "budget list",
        "List budgets with what is spent of each, and what attempts that are under way have reserved.",
        ("Bench.budgets",),
    ),
    "budgets.clear": Operation(
        "administration.budgets:clear_budgets",
        "budget clear",
        "Lift all budgets of a project, session or token.",
        ("Bench.clear_budgets",),
        needs=Permission.administer,
        effect=Effect.changes,
    ),
    "users.create": Operation(
        "administration.users:create_user",
        "user create",
        "Make a user, who may be given roles.",
        ("Bench.create_user",),
        needs=Permission.administer,
        effect=Effect.changes,
        everywhere=True,
    ),
    "users.list": Operation(
        "administration.users:list_users",
        "user list",
        "List users with their teams.",
        ("Bench.users",),
        everywhere=True,
    ),
    "users.remove": Operation(
        "administration.users:remove_user",
        "user remove",
        "Remove a user with their roles and tokens; what they did stays under their name.",
        ("Bench.remove_user",),
        needs=Permission.administer,
        effect=Effect.changes,
        everywhere=True,
    ),
    "teams.create": Operation(
        "administration.users:create_team",
        "team create",
        "Make a team, whose members have its roles.",
        ("Bench.create_team",),
        needs=Permission.administer,
        effect=Effect.changes,
        everywhere=True,
    ),
    "teams.list": Operation(
        "administration.users:list_teams",
        "team list",
        "List teams with their members.",
        ("Bench.teams",),
        everywhere=True,
    ),
    "teams.change": Operation(
        "administration.users:change_team",
        "team change",
        "Add users to a team, and remove others.",
        ("Bench.change_team",),
        needs=Permission.administer,
        effect=Effect.changes,
        everywhere=True,
    ),
    "teams.remove": Operation(
        "administration.users:remove_team",
        "team remove",
        "Remove a team with its roles; its members stay.",
        ("Bench.remove_team",),
        needs=Permission.administer,
        effect=Effect.changes,
        everywhere=True,
    ),
    "access.grant": Operation(
        "administration.access:grant_access",
        "access grant",
        "Give a user or a team a role in a project.",
        ("Bench.grant_access",),
        needs=Permission.administer,
        effect=Effect.changes,
    ),
    "access.list": Operation(
        "administration.access:list_access",
        "access list",
        "List who has which role.",
        ("Bench.access",),
    ),
    "access.revoke": Operation(
        "administration.access:revoke_access",
        "access revoke",
        "Take back a role in a project.",
        ("Bench.revoke_access",),
        needs=Permission.administer,
        effect=Effect.changes,
    ),
    "audit.list": Operation(
        "administration.audit:list_audit",
        "audit list",
        "List who changed what, the newest first.",
        ("Bench.audit",),
        needs=Permission.administer,
        everywhere=True,
    ),
    "audit.verify": Operation(
        "administration.audit:verify_audit",
        "audit verify",
        "Check that no row of the audit log was changed, removed or moved.",
        ("Bench.verify_audit",),
        needs=Permission.administer,
        everywhere=True,
        long=True,
    ),
    "audit.show_head": Operation(
        "administration.audit:audit_head",
        "audit head",
        "Print the head of the audit log: its number and hash, to be kept elsewhere.",
        ("Bench.audit_head",),
        needs=Permission.administer,
        everywhere=True,
    ),
    "audit.prune": Operation(
        "administration.audit:prune_audit",
        "audit prune",
        "Remove the oldest rows of the audit log; the log says so, and up to where.",
        ("Bench.prune_audit",),
        needs=Permission.administer,
        everywhere=True,
        effect=Effect.destroys,
        long=True,
    ),
    "tokens.create": Operation(
        "administration.tokens:create_token",
        "token create",
        "Make a token for `wtb serve`, and print it once.",
        ("Bench.create_token",),
        needs=Permission.administer,
        effect=Effect.changes,
        shows_secret=True,
    ),
    "tokens.list": Operation(
        "administration.tokens:list_tokens",
        "token list",
        "List tokens with what their holders may do, and when they were used.",
        ("Bench.tokens",),
    ),
    "tokens.revoke": Operation(
        "administration.tokens:revoke_token",
        "token revoke",
        "Let a token be of no more use.",
        ("Bench.revoke_token",),
        needs=Permission.administer,
        effect=Effect.changes,
    ),
}

# Removed spellings of commands, with the ids of what they called. Policies may have them, too.
REMOVED_COMMANDS: Mapping[str, str] = {
    "plan --pilot": "sweeps.run_pilot",
    "start --create-only": "executions.create",
    "cancel --combination": "combinations.stop",
    "break REF": "breakpoints.list",
    "break": "breakpoints.set",
    "answer --all": "questions.answer_all",
    "score --status": "scorings.show",
    "score --cancel": "scorings.cancel",
    "label": "labels.draw",
    "label ANSWER": "labels.answer",
    "label --import": "labels.import",
    "label --export": "labels.list",
    "comment": "comments.add",
    "comment SWEEP": "comments.list",
    "comment --delete": "comments.delete",
    "baseline set --repeat": "baselines.repeat",
}


@cache
def _ids_by_command() -> Mapping[str, str]:
    return {operation.command: id for id, operation in OPERATIONS.items()}


def id_of_command(command: str) -> str | None:
    """Return the id of the operation that a command calls, by its words without `wtb`; None if it calls none."""
    return _ids_by_command().get(command)


def id_of_spelling(command: str) -> str | None:
    """Return the id of the operation that a command calls, or called by a removed spelling; None if there is none."""
    return id_of_command(command) or REMOVED_COMMANDS.get(command)
