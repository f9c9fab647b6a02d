"""Every operation by its name: where it is, what it needs, and what it does to what is there.

Commands, the Python API and whatever else calls operations are held against this table by a test. Nothing is imported
until the function of an operation is asked for, so that help is quick.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from enum import StrEnum
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


# By the name of the command, in the order of `wtb --help`; what an option or argument of it asks for is named with it.
OPERATIONS: Mapping[str, Operation] = {
    "workflow list --published": Operation(
        "inspection.workflows:list_published",
        "List the workflows and evaluators that workers publish.",
        ("Bench.published",),
    ),
    "workflow show --published": Operation(
        "inspection.workflows:show_published",
        "Show what workers publish of a workflow: its graph, variants, parameters and fingerprints.",
        ("Bench.published_workflow",),
    ),
    "cases": Operation(
        "drafting.reading_cases:read_case_file",
        "Show how a sweep would read a file of cases.",
        ("Bench.read_case_file",),
        long=True,
    ),
    "try": Operation(
        "drafting.evaluator_preview:preview_evaluator",
        "Score an output with a built-in evaluator.",
        ("Bench.preview_evaluator",),
    ),
    "plan": Operation(
        "running.planning:plan", "Show what a sweep would run, before anything runs.", ("Bench.plan",), long=True
    ),
    "plan --published": Operation(
        "running.published:plan_published",
        "Show what a sweep would run, by what workers publish of its workflow.",
        ("Bench.plan",),
        long=True,
    ),
    "plan --pilot": Operation(
        "running.planning:plan",
        "Run a few cases, and estimate what all will cost.",
        ("Bench.plan",),
        needs=Permission.submit,
        effect=Effect.spends,
        long=True,
    ),
    "run": Operation(
        "running.local:run",
        "Run a sweep and show its matrix.",
        ("Bench.run",),
        needs=Permission.submit,
        effect=Effect.spends,
        long=True,
    ),
    "start": Operation(
        "running.local:run",
        "Run one input through a workflow, and show its state.",
        ("Bench.start",),
        needs=Permission.submit,
        effect=Effect.spends,
        long=True,
    ),
    "start --create-only": Operation(
        "running.local:create",
        "Store one input for a workflow, to be begun later by `resume`.",
        ("Bench.start",),
        needs=Permission.submit,
        effect=Effect.changes,
    ),
    "start --published": Operation(
        "running.published:start_published",
        "Give one input for a workflow that workers publish to them.",
        ("Bench.start",),
        needs=Permission.submit,
        effect=Effect.spends,
    ),
    "submit": Operation(
        "running.submitting:submit",
        "Give a sweep to the workers, and print its id.",
        ("Bench.submit",),
        needs=Permission.submit,
        effect=Effect.spends,
    ),
    "submit --published": Operation(
        "running.published:submit_published",
        "Give a sweep of a workflow that workers publish to them.",
        ("Bench.submit",),
        needs=Permission.submit,
        effect=Effect.spends,
    ),
    "submit --wait": Operation(
        "running.waiting:wait", "Wait until a sweep that workers run ends or pauses.", ("SweepHandle.wait",), long=True
    ),
    "resume": Operation(
        "running.continuing:resume",
        "Continue a sweep or execution that was stopped or paused.",
        ("SweepHandle.resume", "ExecutionHandle.resume"),
        needs=Permission.steer,
        effect=Effect.spends,
        long=True,
    ),
    "retry": Operation(
        "running.continuing:retry",
        "Run failed cells again, from their last good checkpoints.",
        ("SweepHandle.retry", "ExecutionHandle.retry"),
        needs=Permission.steer,
        effect=Effect.spends,
        long=True,
    ),
    "extend": Operation(
        "growth.extending:extend",
        "Add cases, repeats or variants to a sweep.",
        ("SweepHandle.extend",),
        needs=Permission.submit,
        effect=Effect.spends,
        long=True,
    ),
    "extend --dry-run": Operation(
        "growth.extending:plan_extension",
        "Show what an extension would add: cells, node runs and their price.",
        ("SweepHandle.plan_extension",),
        long=True,
    ),
    "schedule add": Operation(
        "schedules.schedules:add_schedule",
        "Run a sweep by the clock.",
        ("Bench.add_schedule",),
        needs=Permission.submit,
        effect=Effect.changes,
    ),
    "schedule list": Operation(
        "schedules.schedules:list_schedules",
        "List schedules with their next and last fires.",
        ("Bench.schedules",),
    ),
    "schedule show": Operation(
        "schedules.schedules:show_schedule",
        "Show a schedule: when it runs next, what it runs, and how the last runs ended.",
        ("Bench.schedule",),
    ),
    "schedule pause": Operation(
        "schedules.schedules:pause_schedule",
        "Make no fires until it is resumed; what already runs continues.",
        ("Bench.pause_schedule",),
        needs=Permission.submit,
        effect=Effect.changes,
    ),
    "schedule resume": Operation(
        "schedules.schedules:resume_schedule",
        "Fire again from now on; what its pause left out is skipped.",
        ("Bench.resume_schedule",),
        needs=Permission.submit,
        effect=Effect.changes,
    ),
    "schedule remove": Operation(
        "schedules.schedules:remove_schedule",
        "Remove a schedule with its history.",
        ("Bench.remove_schedule",),
        needs=Permission.submit,
        effect=Effect.destroys,
    ),
    "schedule run-now": Operation(
        "schedules.schedules:run_now",
        "Fire at once, whatever the clock says, and wait for it where workers do not run it.",
        ("Bench.run_schedule",),
        needs=Permission.submit,
        effect=Effect.spends,
        long=True,
    ),
    "schedule history": Operation(
        "schedules.history:history",
        "Show what the fires of a schedule came to, as a chart and a list, with where code changed.",
        ("Bench.schedule_history",),
    ),
    "schedule check": Operation(
        "schedules.history:check_schedule",
        "Exit with 1 where the last fire was worse or failed, or where a fire is overdue, and say why.",
        ("Bench.check_schedule",),
    ),
    "schedule run-due": Operation(
        "schedules.schedules:run_due",
        "Run the schedules that are due: for a line of crontab.",
        ("Bench.run_due_schedules",),
        needs=Permission.submit,
        everywhere=True,
        effect=Effect.spends,
        long=True,
    ),
    "pause": Operation(
        "control.pause_cancel:pause",
        "Pause a sweep or execution until it is resumed.",
        ("SweepHandle.pause", "ExecutionHandle.pause"),
        needs=Permission.steer,
        effect=Effect.changes,
        long=True,
    ),
    "cancel": Operation(
        "control.pause_cancel:cancel",
        "End a sweep or execution for good; results so far stay.",
        ("SweepHandle.cancel", "ExecutionHandle.cancel"),
        needs=Permission.steer,
        effect=Effect.destroys,
        preview="preview_cancel",
    ),
    "cancel --combination": Operation(
        "growth.stopping:stop_combination",
        "Skip the open cells of some combinations; the others go on.",
        ("SweepHandle.stop_combination",),
        needs=Permission.steer,
        effect=Effect.changes,
    ),
    "break REF": Operation(
        "control.breakpoints:list_breakpoints",
        "List breakpoints, where executions pause.",
        ("SweepHandle.breakpoints", "ExecutionHandle.breakpoints"),
    ),
    "break": Operation(
        "control.breakpoints:set_breakpoints",
        "List or change breakpoints, where executions pause.",
        ("SweepHandle.set_breakpoints", "ExecutionHandle.set_breakpoints"),
        needs=Permission.steer,
        effect=Effect.changes,
    ),
    "approvals": Operation(
        "control.questions:find_questions",
        "List the questions that wait for a person, or show one.",
        ("Bench.questions", "SweepHandle.questions", "ExecutionHandle.questions", "QuestionHandle.details"),
    ),
    "answer": Operation(
        "control.answers:answer",
        "Answer a question that waits for a person, or many at once.",
        ("QuestionHandle.answer", "ExecutionHandle.answer"),
        needs=Permission.answer,
        effect=Effect.changes,
    ),
    "answer --all": Operation(
        "control.answers:answer_all",
        "Answer several open questions alike.",
        ("Bench.answer_all",),
        needs=Permission.answer,
        effect=Effect.changes,
        preview="preview_answers",
    ),
    "checkpoint": Operation(
        "control.naming:name_checkpoint",
        "Name a checkpoint, so that rollbacks and people find it.",
        ("ExecutionHandle.name_checkpoint",),
        needs=Permission.steer,
        effect=Effect.changes,
    ),
    "rollback": Operation(
        "control.rollback:rollback",
        "Take an execution back to a checkpoint, and undo its tools.",
        ("ExecutionHandle.rollback",),
        needs=Permission.steer,
        effect=Effect.changes,
        long=True,
    ),
    "rollback --undo": Operation(
        "control.rollback:undo_rollback",
        "Undo the last rollback of an execution: it is at the end of the line that it left again.",
        ("ExecutionHandle.undo_rollback",),
        needs=Permission.steer,
        effect=Effect.changes,
        long=True,
    ),
    "fork": Operation(
        "control.forks:fork",
        "Run on from a checkpoint with changes, beside the original.",
        ("ExecutionHandle.fork",),
        needs=Permission.steer,
        effect=Effect.spends,
        long=True,
    ),
    "fork --all-cases": Operation(
        "growth.added_rows:add_row",
        "Run what differs in a fork for every case, as another row of its sweep.",
        ("ExecutionHandle.fork_all_cases",),
        needs=Permission.submit,
        effect=Effect.spends,
        long=True,
    ),
    "list": Operation("inspection.sweeps:list_sweeps", "List sweeps, newest first.", ("Bench.sweeps",)),
    "list --runs": Operation(
        "inspection.sweeps:list_runs", "List single executions, newest first.", ("Bench.executions",)
    ),
    "status": Operation(
        "inspection.sweeps:status",
        "Say how far a sweep or execution is, and what holds it up.",
        ("SweepHandle.status_details", "ExecutionHandle.status_details"),
    ),
    "watch": Operation(
        "inspection.watching:watch",
        "Show live how sweeps, workers and queues stand.",
        ("Bench.watch",),
    ),
    "show": Operation(
        "inspection.sweeps:show",
        "Show a sweep, its cells, an execution or a checkpoint in detail.",
        ("SweepHandle.details", "ExecutionHandle.details"),
    ),
    "show --cells": Operation(
        "inspection.sweeps:cells", "Return the cells of a sweep with their states and scores.", ("SweepHandle.cells",)
    ),
    "show --outputs": Operation(
        "outputs.side_by_side:outputs",
        "Return the outputs of combinations side by side, a page of cases at a time.",
        ("SweepHandle.outputs",),
    ),
    "show --key": Operation(
        "outputs.side_by_side:read_value",
        "Return one value of a state or a case in full.",
        ("ExecutionHandle.read_value", "SweepHandle.read_value"),
    ),
    "show CHECKPOINT": Operation(
        "inspection.history:show_checkpoint",
        "Show the state and files of a checkpoint, who wrote it and what comes next.",
        ("Bench.checkpoint",),
    ),
    "log": Operation(
        "inspection.log:log",
        "Read the events of a sweep, oldest first.",
        ("SweepHandle.log", "ExecutionHandle.log"),
    ),
    "log --summary": Operation(
        "inspection.log:count_events",
        "Count the events of a sweep by kind and severity.",
        ("SweepHandle.count_events", "ExecutionHandle.count_events"),
    ),
    "history": Operation(
        "inspection.history:history",
        "Show the checkpoints that led to where an execution is.",
        ("ExecutionHandle.history_details", "ExecutionHandle.history"),
    ),
    "tree": Operation(
        "inspection.executions:tree",
        "Draw how executions share, fork and were rolled back.",
        ("SweepHandle.tree", "ExecutionHandle.tree"),
    ),
    "diff": Operation(
        "inspection.executions:diff",
        "Compare two executions or checkpoints, step by step.",
        ("ExecutionHandle.diff",),
    ),
    "files": Operation(
        "inspection.files:list_files",
        "List, read, export or compare the files that nodes left.",
        ("ExecutionHandle.list_files",),
    ),
    "files PATH": Operation(
        "inspection.files:read_file",
        "Return the content of a file in blocks.",
        ("ExecutionHandle.read_file",),
    ),
    "files --export": Operation(
        "inspection.files:export_files",
        "Write files to a new or empty directory of this machine.",
        ("ExecutionHandle.export_files",),
        writes_files=True,
    ),
    "files --diff": Operation(
        "inspection.files:compare_files",
        "Return what changes in the files from one place to another.",
        ("ExecutionHandle.compare_files",),
    ),
    "series": Operation(
        "results.series:series",
        "Show series over time: ctx.metric, and memory and CPU of nodes.",
        ("SweepHandle.series", "ExecutionHandle.series"),
    ),
    "costs": Operation(
        "results.costs:costs",
        "Show what was spent, and for what.",
        ("Bench.costs", "SweepHandle.costs", "ExecutionHandle.costs"),
    ),
    "telemetry export": Operation(
        "telemetry.export:export_traces",
        "Send the traces of a sweep to a collector of OpenTelemetry.",
        ("SweepHandle.export_traces",),
        long=True,
    ),
    "matrix": Operation(
        "results.matrix:matrix",
        "Show the figures of every combination, with intervals.",
        ("SweepHandle.matrix",),
    ),
    "report": Operation(
        "results.matrix:report",
        "Write the results as one file for others, or for CI.",
        ("SweepHandle.report",),
        long=True,
    ),
    "score": Operation(
        "results.scoring:score",
        "Score finished cells again, without running a node.",
        ("SweepHandle.score",),
        needs=Permission.submit,
        effect=Effect.changes,
        long=True,
    ),
    "score --published": Operation(
        "running.published_scoring:score_published",
        "Have workers score finished cells again, by built-in evaluators and those that they publish.",
        ("SweepHandle.score_published",),
        needs=Permission.submit,
        effect=Effect.changes,
    ),
    "score --status": Operation(
        "running.published_scoring:show_scoring",
        "Say how far workers are with what they were asked to score.",
        ("SweepHandle.scoring",),
    ),
    "score --cancel": Operation(
        "running.published_scoring:cancel_scoring",
        "End what workers were asked to score; the scores that were written stay.",
        ("SweepHandle.cancel_scoring",),
        needs=Permission.submit,
        effect=Effect.changes,
    ),
    "label": Operation(
        "results.labelling:draw_labels",
        "Label answers, drawn at random and shown without their rows.",
        ("SweepHandle.draw_labels",),
    ),
    "label ANSWER": Operation(
        "results.labelling:give_label",
        "Label an answer that was drawn, or take its label back.",
        ("SweepHandle.give_label",),
        needs=Permission.answer,
        effect=Effect.changes,
    ),
    "label --import": Operation(
        "results.labelling:import_labels",
        "Take labels of a sweep from a file.",
        ("SweepHandle.import_labels",),
        needs=Permission.answer,
        effect=Effect.changes,
    ),
    "label --export": Operation(
        "results.labelling:list_labels",
        "List the labels of a sweep.",
        ("SweepHandle.labels",),
    ),
    "comment": Operation(
        "outputs.commenting:add_comment",
        "Comment on a cell, list comments, or delete one of yours.",
        ("SweepHandle.add_comment",),
        needs=Permission.answer,
        effect=Effect.changes,
    ),
    "comment SWEEP": Operation(
        "outputs.commenting:list_comments",
        "List the comments on the cells of a sweep.",
        ("SweepHandle.comments",),
    ),
    "comment --delete": Operation(
        "outputs.commenting:delete_comment",
        "Delete a comment of yours.",
        ("SweepHandle.delete_comment",),
        needs=Permission.answer,
        effect=Effect.changes,
    ),
    "judge check": Operation(
        "results.judging:check_judge",
        "Hold the scores of a metric against labels of people.",
        ("SweepHandle.check_judge",),
    ),
    "judge rank": Operation(
        "results.ranking:rank",
        "Rank rows by comparisons of two at a time.",
        ("SweepHandle.rank",),
        long=True,
        writes_files=True,
    ),
    "compare": Operation(
        "results.comparing:compare",
        "Show which results got worse or better between two sweeps.",
        ("Bench.compare", "SweepHandle.compare"),
        long=True,
    ),
    "compare --row": Operation(
        "results.comparing:compare_rows",
        "Show which of two rows of a sweep wins in which cases, and by how much.",
        ("SweepHandle.compare_rows",),
        long=True,
    ),
    "pool": Operation(
        "control.pools:pool",
        "Make one sweep of several that repeat each other.",
        ("Bench.pool",),
        needs=Permission.submit,
        effect=Effect.changes,
    ),
    "baseline set": Operation(
        "results.baselines:set_baseline",
        "Give a finished sweep a name, for `wtb regress` and the gate `no_worse_than`.",
        ("Bench.set_baseline", "SweepHandle.set_baseline"),
        needs=Permission.submit,
        effect=Effect.changes,
    ),
    "baseline set --repeat": Operation(
        "results.baselines:set_baseline",
        "Run the sweep of a baseline again, to measure noise.",
        ("Bench.set_baseline", "SweepHandle.set_baseline"),
        needs=Permission.submit,
        effect=Effect.spends,
        long=True,
    ),
    "baseline list": Operation(
        "results.baselines:list_baselines",
        "List the baselines of a session, or of all where none is named.",
        ("Bench.baselines",),
    ),
    "baseline show": Operation(
        "results.baselines:show_baseline",
        "Show which sweep a baseline is, and what that sweep found.",
        ("Bench.baseline",),
    ),
    "baseline remove": Operation(
        "results.baselines:remove_baseline",
        "Remove a baseline. Its sweep stays until the retention policy lets `wtb gc` remove it.",
        ("Bench.remove_baseline",),
        needs=Permission.submit,
        effect=Effect.changes,
    ),
    "regress": Operation(
        "results.comparing:regress",
        "Run a sweep and hold it against a baseline, cell by cell.",
        ("Bench.regress",),
        needs=Permission.submit,
        effect=Effect.spends,
        long=True,
    ),
    "pin": Operation(
        "housekeeping.pins:pin",
        "Keep a sweep or checkpoint, whatever `wtb gc` removes.",
        ("SweepHandle.pin", "ExecutionHandle.pin"),
        needs=Permission.administer,
        effect=Effect.changes,
    ),
    "unpin": Operation(
        "housekeeping.pins:unpin",
        "Let `wtb gc` remove a pinned sweep or checkpoint again.",
        ("SweepHandle.unpin", "ExecutionHandle.unpin"),
        needs=Permission.administer,
        effect=Effect.changes,
    ),
    "gc": Operation(
        "housekeeping.garbage_collection:collect",
        "Remove what nothing reaches, and what is old.",
        ("Bench.collect",),
        needs=Permission.administer,
        everywhere=True,
        effect=Effect.destroys,
        long=True,
    ),
    "delete": Operation(
        "housekeeping.delete:delete",
        "Delete one sweep with all that belongs to it, for good.",
        ("SweepHandle.delete",),
        needs=Permission.administer,
        effect=Effect.destroys,
        long=True,
        preview="preview_delete",
    ),
    "erase": Operation(
        "housekeeping.erase:erase",
        "Erase a case everywhere, with all that ran for it.",
        ("Bench.erase",),
        needs=Permission.administer,
        effect=Effect.destroys,
        long=True,
        preview="preview_erase",
    ),
    "export": Operation(
        "archive.exporter:export_execution",
        "Write an execution to a file, with all that belongs to it.",
        ("ExecutionHandle.export",),
        long=True,
        writes_files=True,
    ),
    "export ARCHIVE": Operation(
        "archive.exporter:read_archive",
        "Return the archive of an execution in blocks.",
        ("ExecutionHandle.read_archive",),
    ),
    "import": Operation(
        "archive.importer:import_execution",
        "Read an execution from a file that `wtb export` wrote.",
        ("Bench.import_execution",),
        needs=Permission.submit,
        effect=Effect.changes,
        long=True,
    ),
    "copy": Operation(
        "archive.sweep_copies:copy_sweep",
        "Copy a sweep to another database.",
        ("SweepHandle.copy",),
        long=True,
    ),
    "backup": Operation(
        "backup.backup:backup",
        "Copy the database with its files to a folder, while sweeps run.",
        ("Bench.backup",),
        everywhere=True,
        long=True,
        writes_files=True,
    ),
    "restore": Operation(
        "backup.restore:restore",
        "Load a backup into an empty database.",
        ("Bench.restore",),
        needs=Permission.administer,
        effect=Effect.changes,
        long=True,
        everywhere=True,
    ),
    "project create": Operation(
        "administration.projects:create_project",
        "Make a project, which sessions, sweeps and tokens belong to.",
        ("Bench.create_project",),
        needs=Permission.administer,
        effect=Effect.changes,
        everywhere=True,
    ),
    "project change": Operation(
        "administration.projects:change_project",
        "Say how long finished sweeps of a project are kept.",
        ("Bench.change_project",),
        needs=Permission.administer,
        effect=Effect.changes,
    ),
    "project list": Operation(
        "administration.projects:list_projects",
        "List projects with how many sessions and sweeps they have.",
        ("Bench.projects",),
    ),
    "project show": Operation(
        "administration.projects:describe_project",
        "Show a project: how many sessions and sweeps it has.",
        ("Bench.project",),
    ),
    "session create": Operation(
        "administration.sessions:create_session",
        "Make a session.",
        ("Bench.create_session",),
        needs=Permission.administer,
        effect=Effect.changes,
    ),
    "session change": Operation(
        "administration.sessions:change_session",
        "Change a session's quota, owner and metadata; what is not named stays.",
        ("Bench.change_session",),
        needs=Permission.administer,
        effect=Effect.changes,
    ),
    "session rename": Operation(
        "administration.sessions:rename_session",
        "Call a session by another name, also while its sweeps run.",
        ("Bench.rename_session",),
        needs=Permission.administer,
        effect=Effect.changes,
    ),
    "session list": Operation(
        "administration.sessions:list_sessions",
        "List sessions with what they use and what they may use.",
        ("Bench.sessions",),
    ),
    "session show": Operation(
        "administration.sessions:describe_session",
        "Show a session: its sweeps by status, what it uses, and who holds its slots.",
        ("Bench.session",),
    ),
    "session archive": Operation(
        "administration.sessions:archive_session",
        "Let a session take no new sweeps.",
        ("Bench.archive_session",),
        needs=Permission.administer,
        effect=Effect.changes,
    ),
    "session delete": Operation(
        "administration.sessions:delete_session",
        "Delete a session with its sweeps and their files, for good.",
        ("Bench.delete_session",),
        needs=Permission.administer,
        effect=Effect.destroys,
        long=True,
        preview="preview_delete_session",
    ),
    "budget set": Operation(
        "administration.budgets:set_budgets",
        "Give a project, session or token budgets; those that are not named stay.",
        ("Bench.set_budgets",),
        needs=Permission.administer,
        effect=Effect.changes,
    ),
    "budget list": Operation(
        "administration.budgets:list_budgets",
        "List budgets with what is spent of each, and what attempts that are under way have reserved.",
        ("Bench.budgets",),
    ),
    "budget clear": Operation(
        "administration.budgets:clear_budgets",
        "Lift all budgets of a project, session or token.",
        ("Bench.clear_budgets",),
        needs=Permission.administer,
        effect=Effect.changes,
    ),
    "user create": Operation(
        "administration.users:create_user",
        "Make a user, who may be given roles.",
        ("Bench.create_user",),
        needs=Permission.administer,
        effect=Effect.changes,
        everywhere=True,
    ),
    "user list": Operation(
        "administration.users:list_users",
        "List users with their teams.",
        ("Bench.users",),
        everywhere=True,
    ),
    "user remove": Operation(
        "administration.users:remove_user",
        "Remove a user with their roles and tokens; what they did stays under their name.",
        ("Bench.remove_user",),
        needs=Permission.administer,
        effect=Effect.changes,
        everywhere=True,
    ),
    "team create": Operation(
        "administration.users:create_team",
        "Make a team, whose members have its roles.",
        ("Bench.create_team",),
        needs=Permission.administer,
        effect=Effect.changes,
        everywhere=True,
    ),
    "team list": Operation(
        "administration.users:list_teams",
        "List teams with their members.",
        ("Bench.teams",),
        everywhere=True,
    ),
    "team change": Operation(
        "administration.users:change_team",
        "Add users to a team, and remove others.",
        ("Bench.change_team",),
        needs=Permission.administer,
        effect=Effect.changes,
        everywhere=True,
    ),
    "access grant": Operation(
        "administration.access:grant_access",
        "Give a user or a team a role in a project.",
        ("Bench.grant_access",),
        needs=Permission.administer,
        effect=Effect.changes,
    ),
    "access list": Operation(
        "administration.access:list_access",
        "List who has which role.",
        ("Bench.access",),
    ),
    "access revoke": Operation(
        "administration.access:revoke_access",
        "Take back a role in a project.",
        ("Bench.revoke_access",),
        needs=Permission.administer,
        effect=Effect.changes,
    ),
    "audit list": Operation(
        "administration.audit:list_audit",
        "List who changed what, the newest first.",
        ("Bench.audit",),
        needs=Permission.administer,
        everywhere=True,
    ),
    "audit verify": Operation(
        "administration.audit:verify_audit",
        "Check that no row of the audit log was changed, removed or moved.",
        ("Bench.verify_audit",),
        needs=Permission.administer,
        everywhere=True,
        long=True,
    ),
    "audit head": Operation(
        "administration.audit:audit_head",
        "Print the head of the audit log: its number and hash, to be kept elsewhere.",
        ("Bench.audit_head",),
        needs=Permission.administer,
        everywhere=True,
    ),
    "audit prune": Operation(
        "administration.audit:prune_audit",
        "Remove the oldest rows of the audit log; the log says so, and up to where.",
        ("Bench.prune_audit",),
        needs=Permission.administer,
        everywhere=True,
        effect=Effect.destroys,
        long=True,
    ),
    "token create": Operation(
        "administration.tokens:create_token",
        "Make a token for `wtb serve`, and print it once.",
        ("Bench.create_token",),
        needs=Permission.administer,
        effect=Effect.changes,
        shows_secret=True,
    ),
    "token list": Operation(
        "administration.tokens:list_tokens",
        "List tokens with what their holders may do, and when they were used.",
        ("Bench.tokens",),
    ),
    "token revoke": Operation(
        "administration.tokens:revoke_token",
        "Let a token be of no more use.",
        ("Bench.revoke_token",),
        needs=Permission.administer,
        effect=Effect.changes,
    ),
}
