"""Every operation by its id: its function, its command, its permission and its effect.

An id names a resource and a verb, such as `labels.answer`. Routes, tools for agents, policies and the audit log refer
to an operation by its id only, so that a command can be renamed without a change of any of them. Tests compare
commands, the Python API and routes with this table. A function is imported when it is used, so that help is quick.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache, partial
from importlib import import_module
from typing import Any, get_type_hints

from wtb.core.frozen import frozen
from wtb.core.roles import Permission as Permission


class Effect(StrEnum):
    """The effect of an operation on the content of the database: the gravest that it may have.

    A caller that is not a person may have to confirm the last two. Files that are written for the caller, as `export`
    does, are no effect: see `Operation.writes_files`. Questions whose time is up are no effect either: whoever looks
    first closes them, because nobody else would without a scheduler, and no question past its time may be shown.
    """

    reads = "reads"
    changes = "changes"
    spends = "spends"
    destroys = "destroys"


@frozen
class Operation:
    """A verb that commands, Python and others call alike.

    Attributes:
        path: `module:function` under `wtb`. The function takes a Context first, then what it acts on.
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
        # Imported only now: the table has to be cheap to import, and the modules of all operations are not.
        module = import_module(f"wtb.{self.path.partition(':')[0]}")
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


# Functions that make an entry, by the permission that an operation needs and its effect; `Operation` itself, if it
# only reads.
_submit_changes = partial(Operation, needs=Permission.submit, effect=Effect.changes)
_submit_spends = partial(Operation, needs=Permission.submit, effect=Effect.spends)
_steer_changes = partial(Operation, needs=Permission.steer, effect=Effect.changes)
_steer_spends = partial(Operation, needs=Permission.steer, effect=Effect.spends)
_answer_changes = partial(Operation, needs=Permission.answer, effect=Effect.changes)
_administer_changes = partial(Operation, needs=Permission.administer, effect=Effect.changes)
_administer_destroys = partial(Operation, needs=Permission.administer, effect=Effect.destroys)
_administer_reads = partial(Operation, needs=Permission.administer)

# By id, in the order of the commands in `wtb --help`.
OPERATIONS: Mapping[str, Operation] = {
    "workflows.list": Operation(
        "operations.inspection.workflows:list_published",
        "workflow list --published",
        "List published workflows and evaluators.",
        ("Bench.published",),
    ),
    "workflows.show": Operation(
        "operations.inspection.workflows:show_published",
        "workflow show --published",
        "Show a published workflow: its graph, variants, parameters and fingerprints.",
        ("Bench.published_workflow",),
    ),
    "cases.read": Operation(
        "operations.running.previews:read_case_file",
        "cases",
        "Show how a sweep would read a file of cases.",
        ("Bench.read_case_file",),
        long=True,
    ),
    "evaluators.preview": Operation(
        "operations.running.previews:preview_evaluator",
        "try",
        "Score an output with a built-in evaluator.",
        ("Bench.preview_evaluator",),
    ),
    "sweeps.plan": Operation(
        "operations.running.planning:plan",
        "plan",
        "Show what a sweep would run, before anything runs.",
        ("Bench.plan",),
        long=True,
    ),
    "sweeps.plan_published": Operation(
        "operations.running.published:plan_published",
        "plan --published",
        "Show what a sweep of a published workflow would run.",
        ("Bench.plan",),
        long=True,
    ),
    "sweeps.run_pilot": _submit_spends(
        "operations.running.planning:run_pilot",
        "pilot",
        "Run a few cases, and estimate the cost of all.",
        ("Bench.plan",),
        long=True,
    ),
    "sweeps.run": _submit_spends(
        "operations.running.local:run", "run", "Run a sweep and show its matrix.", ("Bench.run",), long=True
    ),
    "executions.start": _submit_spends(
        "operations.running.local:run",
        "start",
        "Run one input through a workflow, and show its state.",
        ("Bench.start",),
        long=True,
    ),
    "executions.create": _submit_changes(
        "operations.running.local:create",
        "execution create",
        "Store one input for a workflow; `resume` runs it later.",
        ("Bench.start",),
    ),
    "executions.start_published": _submit_spends(
        "operations.running.published:start_published",
        "start --published",
        "Submit one input for a published workflow.",
        ("Bench.start",),
    ),
    "sweeps.submit": _submit_spends(
        "operations.running.submitting:submit",
        "submit",
        "Submit a sweep to the workers, and print its id.",
        ("Bench.submit",),
    ),
    "sweeps.submit_published": _submit_spends(
        "operations.running.published:submit_published",
        "submit --published",
        "Submit a sweep of a published workflow.",
        ("Bench.submit",),
    ),
    "sweeps.wait": Operation(
        "operations.running.waiting:wait",
        "submit --wait",
        "Wait until a sweep on workers ends or pauses.",
        ("SweepHandle.wait",),
        long=True,
    ),
    "sweeps.resume": _steer_spends(
        "operations.running.continuing:resume",
        "resume",
        "Continue a sweep or execution that was stopped or paused.",
        ("SweepHandle.resume", "ExecutionHandle.resume"),
        long=True,
    ),
    "sweeps.retry": _steer_spends(
        "operations.running.continuing:retry",
        "retry",
        "Run failed cells again, from their last good checkpoints.",
        ("SweepHandle.retry", "ExecutionHandle.retry"),
        long=True,
    ),
    "sweeps.extend": _submit_spends(
        "operations.running.extending:extend",
        "extend",
        "Add cases, repeats or variants to a sweep.",
        ("SweepHandle.extend",),
        long=True,
    ),
    "sweeps.plan_extension": Operation(
        "operations.running.extending:plan_extension",
        "extend --dry-run",
        "Show what an extension would add: cells, node runs and their price.",
        ("SweepHandle.plan_extension",),
        long=True,
    ),
    "schedules.add": _submit_changes(
        "features.schedules.operations:add_schedule",
        "schedule add",
        "Run a sweep on a schedule.",
        ("Bench.add_schedule",),
    ),
    "schedules.list": Operation(
        "features.schedules.operations:list_schedules",
        "schedule list",
        "List schedules with their next and last fires.",
        ("Bench.schedules",),
    ),
    "schedules.show": Operation(
        "features.schedules.operations:show_schedule",
        "schedule show",
        "Show a schedule: when it runs next, what it runs, and how the last runs ended.",
        ("Bench.schedule",),
    ),
    "schedules.pause": _submit_changes(
        "features.schedules.operations:pause_schedule",
        "schedule pause",
        "Pause a schedule until it is resumed; running sweeps continue.",
        ("Bench.pause_schedule",),
    ),
    "schedules.resume": _submit_changes(
        "features.schedules.operations:resume_schedule",
        "schedule resume",
        "Resume a schedule; fires missed during its pause are skipped.",
        ("Bench.resume_schedule",),
    ),
    "schedules.remove": Operation(
        "features.schedules.operations:remove_schedule",
        "schedule remove",
        "Remove a schedule with its history.",
        ("Bench.remove_schedule",),
        needs=Permission.submit,
        effect=Effect.destroys,
    ),
    "schedules.run_now": _submit_spends(
        "features.schedules.operations:run_now",
        "schedule run-now",
        "Fire a schedule at once, and wait for its end if no workers run it.",
        ("Bench.run_schedule",),
        long=True,
    ),
    "schedules.show_history": Operation(
        "features.schedules.history:history",
        "schedule history",
        "Show the results of a schedule's fires as a chart and a list, and mark changes of code.",
        ("Bench.schedule_history",),
    ),
    "schedules.check": Operation(
        "features.schedules.history:check_schedule",
        "schedule check",
        "Exit with 1 if the last fire was worse or failed, or if a fire is overdue, and print the reason.",
        ("Bench.check_schedule",),
    ),
    "schedules.run_due": _submit_spends(
        "features.schedules.operations:run_due",
        "schedule run-due",
        "Run the schedules that are due, for example from crontab.",
        ("Bench.run_due_schedules",),
        everywhere=True,
        long=True,
    ),
    "sweeps.pause": _steer_changes(
        "operations.control.pause_cancel:pause",
        "pause",
        "Pause a sweep or execution until it is resumed.",
        ("SweepHandle.pause", "ExecutionHandle.pause"),
        long=True,
    ),
    "sweeps.cancel": Operation(
        "operations.control.pause_cancel:cancel",
        "cancel",
        "Cancel a sweep or execution permanently; results so far stay.",
        ("SweepHandle.cancel", "ExecutionHandle.cancel"),
        needs=Permission.steer,
        effect=Effect.destroys,
        preview="preview_cancel",
    ),
    "combinations.stop": _steer_changes(
        "operations.control.pause_cancel:stop_combination",
        "combination stop",
        "Skip the open cells of some combinations; the others continue.",
        ("SweepHandle.stop_combination",),
    ),
    "breakpoints.list": Operation(
        "operations.control.pause_cancel:list_breakpoints",
        "breakpoint list",
        "List breakpoints, where executions pause.",
        ("SweepHandle.breakpoints", "ExecutionHandle.breakpoints"),
    ),
    "breakpoints.set": _steer_changes(
        "operations.control.pause_cancel:set_breakpoints",
        "breakpoint set",
        "Add or remove breakpoints, where executions pause.",
        ("SweepHandle.set_breakpoints", "ExecutionHandle.set_breakpoints"),
    ),
    "questions.list": Operation(
        "operations.control.questions:find_questions",
        "approvals",
        "List the questions that wait for an answer, or show one.",
        ("Bench.questions", "SweepHandle.questions", "ExecutionHandle.questions", "QuestionHandle.details"),
    ),
    "questions.answer": _answer_changes(
        "operations.control.answers:answer",
        "answer",
        "Answer a question that waits for a person.",
        ("QuestionHandle.answer", "ExecutionHandle.answer"),
    ),
    "questions.answer_all": _answer_changes(
        "operations.control.answers:answer_all",
        "answer-all",
        "Give several open questions the same answer.",
        ("Bench.answer_all",),
        preview="preview_answers",
    ),
    "checkpoints.name": _steer_changes(
        "operations.control.naming:name_checkpoint",
        "checkpoint",
        "Name a checkpoint, so that rollbacks and people find it.",
        ("ExecutionHandle.name_checkpoint",),
    ),
    "executions.rollback": _steer_changes(
        "operations.control.rollback:rollback",
        "rollback",
        "Roll an execution back to a checkpoint, and undo its tools.",
        ("ExecutionHandle.rollback",),
        long=True,
    ),
    "executions.undo_rollback": _steer_changes(
        "operations.control.rollback:undo_rollback",
        "rollback --undo",
        "Undo the last rollback of an execution, so it is at its former head again.",
        ("ExecutionHandle.undo_rollback",),
        long=True,
    ),
    "executions.fork": _steer_spends(
        "operations.control.forks:fork",
        "fork",
        "Fork an execution at a checkpoint, with changes.",
        ("ExecutionHandle.fork",),
        long=True,
    ),
    "combinations.add": _submit_spends(
        "operations.running.added_rows:add_row",
        "combination add",
        "Run the changes of a fork for every case, as another row of its sweep.",
        ("ExecutionHandle.fork_all_cases",),
        long=True,
    ),
    "sweeps.list": Operation(
        "operations.inspection.sweeps:list_sweeps", "list", "List sweeps, newest first.", ("Bench.sweeps",)
    ),
    "executions.list": Operation(
        "operations.inspection.sweeps:list_runs",
        "list --runs",
        "List single executions, newest first.",
        ("Bench.executions",),
    ),
    "sweeps.show_status": Operation(
        "operations.inspection.sweeps:status",
        "status",
        "Show how far a sweep or execution is, and what blocks it.",
        ("SweepHandle.status_details", "ExecutionHandle.status_details"),
    ),
    "sweeps.watch": Operation(
        "operations.running.waiting:watch",
        "watch",
        "Show the state of sweeps, workers and queues live.",
        ("Bench.watch",),
    ),
    "sweeps.show": Operation(
        "operations.inspection.sweeps:show",
        "show",
        "Show a sweep, its cells, an execution or a checkpoint.",
        ("SweepHandle.details", "ExecutionHandle.details"),
    ),
    "cells.list": Operation(
        "operations.inspection.sweeps:cells",
        "show --cells",
        "Return the cells of a sweep with their states and scores.",
        ("SweepHandle.cells",),
    ),
    "outputs.list": Operation(
        "operations.results.side_by_side:outputs",
        "show --outputs",
        "Return the outputs of combinations side by side, a page of cases at a time.",
        ("SweepHandle.outputs",),
    ),
    "values.read": Operation(
        "operations.results.side_by_side:read_value",
        "show --key",
        "Return one value of a state or a case in full.",
        ("ExecutionHandle.read_value", "SweepHandle.read_value"),
    ),
    "checkpoints.show": Operation(
        "operations.inspection.executions:show_checkpoint",
        "show CHECKPOINT",
        "Show the state and files of a checkpoint, who wrote it and what comes next.",
        ("Bench.checkpoint",),
    ),
    "events.list": Operation(
        "operations.inspection.log:log",
        "log",
        "Read the events of a sweep, oldest first.",
        ("SweepHandle.log", "ExecutionHandle.log"),
    ),
    "events.count": Operation(
        "operations.inspection.log:count_events",
        "log --summary",
        "Count the events of a sweep by kind and severity.",
        ("SweepHandle.count_events", "ExecutionHandle.count_events"),
    ),
    "checkpoints.list": Operation(
        "operations.inspection.executions:history",
        "history",
        "Show the checkpoints of an execution up to its head.",
        ("ExecutionHandle.history_details", "ExecutionHandle.history"),
    ),
    "executions.show_tree": Operation(
        "operations.inspection.executions:tree",
        "tree",
        "Draw how executions share, fork and were rolled back.",
        ("SweepHandle.tree", "ExecutionHandle.tree"),
    ),
    "executions.compare": Operation(
        "operations.inspection.executions:diff",
        "diff",
        "Compare two executions or checkpoints, step by step.",
        ("ExecutionHandle.diff",),
    ),
    "files.list": Operation(
        "operations.inspection.files:list_files",
        "files",
        "List, read, export or compare the files that nodes left.",
        ("ExecutionHandle.list_files",),
    ),
    "files.read": Operation(
        "operations.inspection.files:read_file",
        "files PATH",
        "Return the content of a file in blocks.",
        ("ExecutionHandle.read_file",),
    ),
    "files.export": Operation(
        "operations.inspection.files:export_files",
        "files --export",
        "Write files to a new or empty directory of this machine.",
        ("ExecutionHandle.export_files",),
        writes_files=True,
    ),
    "files.compare": Operation(
        "operations.inspection.files:compare_files",
        "files --diff",
        "Return what changes in the files from one place to another.",
        ("ExecutionHandle.compare_files",),
    ),
    "series.list": Operation(
        "operations.results.costs:series",
        "series",
        "Show series over time: ctx.metric, and memory and CPU of nodes.",
        ("SweepHandle.series", "ExecutionHandle.series"),
    ),
    "costs.show": Operation(
        "operations.results.costs:costs",
        "costs",
        "Show the cost of sweeps, by node, model or tool.",
        ("Bench.costs", "SweepHandle.costs", "ExecutionHandle.costs"),
    ),
    "traces.export": Operation(
        "features.telemetry.operations:export_traces",
        "admin telemetry export",
        "Send the traces of a sweep to a collector of OpenTelemetry.",
        ("SweepHandle.export_traces",),
        long=True,
    ),
    "matrices.show": Operation(
        "operations.results.matrix:matrix",
        "matrix",
        "Show the figures of every combination, with intervals.",
        ("SweepHandle.matrix",),
    ),
    "reports.make": Operation(
        "operations.results.matrix:report",
        "report",
        "Write the results to one file, to share or for CI.",
        ("SweepHandle.report",),
        long=True,
    ),
    "scores.compute": _submit_changes(
        "operations.results.scoring:score",
        "score",
        "Score finished cells again, without running a node.",
        ("SweepHandle.score",),
        long=True,
    ),
    "scorings.submit": _submit_changes(
        "operations.running.published:score_published",
        "score --published",
        "Score finished cells again on workers, with built-in and published evaluators.",
        ("SweepHandle.score_published",),
    ),
    "scorings.show": Operation(
        "operations.running.published:show_scoring",
        "admin scoring show",
        "Show the progress of a scoring on workers.",
        ("SweepHandle.scoring",),
    ),
    "scorings.cancel": _submit_changes(
        "operations.running.published:cancel_scoring",
        "admin scoring cancel",
        "Cancel a scoring on workers; scores that were written stay.",
        ("SweepHandle.cancel_scoring",),
    ),
    "labels.draw": Operation(
        "features.judging.labelling:draw_labels",
        "label draw",
        "Show the answers to label, drawn at random and without their rows.",
        ("SweepHandle.draw_labels",),
    ),
    "labels.answer": _answer_changes(
        "features.judging.labelling:give_label",
        "label answer",
        "Label answers that were drawn at random, or remove labels.",
        ("SweepHandle.give_label",),
    ),
    "labels.import": _answer_changes(
        "features.judging.labelling:import_labels",
        "label import",
        "Import labels of a sweep from a file.",
        ("SweepHandle.import_labels",),
    ),
    "labels.list": Operation(
        "features.judging.labelling:list_labels",
        "label export",
        "Export the labels of a sweep.",
        ("SweepHandle.labels",),
    ),
    "comments.add": _answer_changes(
        "operations.results.commenting:add_comment", "comment add", "Comment on a cell.", ("SweepHandle.add_comment",)
    ),
    "comments.list": Operation(
        "operations.results.commenting:list_comments",
        "comment list",
        "List the comments on the cells of a sweep.",
        ("SweepHandle.comments",),
    ),
    "comments.delete": _answer_changes(
        "operations.results.commenting:delete_comment",
        "comment delete",
        "Delete a comment of yours.",
        ("SweepHandle.delete_comment",),
    ),
    "judges.check": Operation(
        "features.judging.checking:check_judge",
        "judge check",
        "Compare the scores of a metric with human labels.",
        ("SweepHandle.check_judge",),
    ),
    "combinations.rank": Operation(
        "features.judging.ranking:rank",
        "judge rank",
        "Rank rows by comparisons of two at a time.",
        ("SweepHandle.rank",),
        long=True,
        writes_files=True,
    ),
    "sweeps.compare": Operation(
        "operations.results.comparing:compare",
        "compare",
        "Show which results got worse or better between two sweeps.",
        ("Bench.compare", "SweepHandle.compare"),
        long=True,
    ),
    "combinations.compare": Operation(
        "operations.results.comparing:compare_rows",
        "compare --row",
        "Show which of two rows of a sweep wins in which cases, and by how much.",
        ("SweepHandle.compare_rows",),
        long=True,
    ),
    "sweeps.pool": _submit_changes(
        "operations.results.pools:pool", "pool", "Pool several sweeps that repeat each other into one.", ("Bench.pool",)
    ),
    "baselines.set": _submit_changes(
        "operations.results.comparing:set_baseline",
        "baseline set",
        "Give a finished sweep a name, for `wtb regress` and the gate `no_worse_than`.",
        ("Bench.set_baseline", "SweepHandle.set_baseline"),
    ),
    "baselines.repeat": _submit_spends(
        "operations.results.comparing:repeat_baseline",
        "baseline repeat",
        "Run a sweep again to measure its noise, and make it the baseline.",
        ("Bench.set_baseline", "SweepHandle.set_baseline"),
        long=True,
    ),
    "baselines.list": Operation(
        "operations.results.comparing:list_baselines",
        "baseline list",
        "List the baselines of a session, or of all sessions.",
        ("Bench.baselines",),
    ),
    "baselines.show": Operation(
        "operations.results.comparing:show_baseline",
        "baseline show",
        "Show the sweep of a baseline, and its results.",
        ("Bench.baseline",),
    ),
    "baselines.remove": _submit_changes(
        "operations.results.comparing:remove_baseline",
        "baseline remove",
        "Remove a baseline. Its sweep stays until the retention policy lets `wtb admin gc` remove it.",
        ("Bench.remove_baseline",),
    ),
    "sweeps.regress": _submit_spends(
        "operations.results.comparing:regress",
        "regress",
        "Run a sweep and compare it with a baseline, cell by cell.",
        ("Bench.regress",),
        long=True,
    ),
    "sweeps.pin": _administer_changes(
        "operations.control.naming:pin",
        "admin pin",
        "Pin a sweep or checkpoint, so `wtb admin gc` keeps it.",
        ("SweepHandle.pin", "ExecutionHandle.pin"),
    ),
    "sweeps.unpin": _administer_changes(
        "operations.control.naming:unpin",
        "admin unpin",
        "Let `wtb admin gc` remove a pinned sweep or checkpoint again.",
        ("SweepHandle.unpin", "ExecutionHandle.unpin"),
    ),
    "garbage.collect": _administer_destroys(
        "operations.garbage_collection:collect",
        "admin gc",
        "Remove unreferenced files, and old sweeps and checkpoints.",
        ("Bench.collect",),
        everywhere=True,
        long=True,
    ),
    "sweeps.delete": _administer_destroys(
        "operations.deleting:delete",
        "delete",
        "Delete one sweep with all its records, permanently.",
        ("SweepHandle.delete",),
        long=True,
        preview="preview_delete",
    ),
    "cases.erase": _administer_destroys(
        "operations.deleting:erase",
        "admin erase",
        "Erase a case everywhere, with all its runs.",
        ("Bench.erase",),
        long=True,
        preview="preview_erase",
    ),
    "executions.export": Operation(
        "features.archive.exporter:export_execution",
        "admin export",
        "Write an execution with all its records to a file.",
        ("ExecutionHandle.export",),
        long=True,
        writes_files=True,
    ),
    "executions.read_archive": Operation(
        "features.archive.exporter:read_archive",
        "admin export ARCHIVE",
        "Return the archive of an execution in blocks.",
        ("ExecutionHandle.read_archive",),
    ),
    "executions.import": _submit_changes(
        "features.archive.importer:import_execution",
        "admin import",
        "Read an execution from a file that `wtb admin export` wrote.",
        ("Bench.import_execution",),
        long=True,
    ),
    "sweeps.copy": Operation(
        "features.archive.sweep_copies:copy_sweep",
        "admin copy",
        "Copy a sweep to another database.",
        ("SweepHandle.copy",),
        long=True,
    ),
    "backups.create": Operation(
        "features.backup.operations:backup",
        "admin backup",
        "Copy the database with its files to a folder, while sweeps run.",
        ("Bench.backup",),
        everywhere=True,
        long=True,
        writes_files=True,
    ),
    "backups.restore": _administer_changes(
        "features.backup.operations:restore",
        "admin restore",
        "Restore a backup into an empty database.",
        ("Bench.restore",),
        long=True,
        everywhere=True,
    ),
    "projects.create": _administer_changes(
        "operations.projects:create_project",
        "admin project create",
        "Create a project, a group of sessions, sweeps and tokens.",
        ("Bench.create_project",),
        everywhere=True,
    ),
    "projects.change": _administer_changes(
        "operations.projects:change_project",
        "admin project change",
        "Set how long finished sweeps of a project are kept.",
        ("Bench.change_project",),
    ),
    "projects.list": Operation(
        "operations.projects:list_projects",
        "admin project list",
        "List projects with how many sessions and sweeps they have.",
        ("Bench.projects",),
    ),
    "projects.show": Operation(
        "operations.projects:describe_project",
        "admin project show",
        "Show a project: how many sessions and sweeps it has.",
        ("Bench.project",),
    ),
    "sessions.create": _administer_changes(
        "operations.sessions:create_session", "admin session create", "Create a session.", ("Bench.create_session",)
    ),
    "sessions.change": _administer_changes(
        "operations.sessions:change_session",
        "admin session change",
        "Change a session's quota, owner or metadata; other settings stay.",
        ("Bench.change_session",),
    ),
    "sessions.rename": _administer_changes(
        "operations.sessions:rename_session",
        "admin session rename",
        "Rename a session, even while its sweeps run.",
        ("Bench.rename_session",),
    ),
    "sessions.list": Operation(
        "operations.sessions:list_sessions",
        "admin session list",
        "List sessions with their usage and quotas.",
        ("Bench.sessions",),
    ),
    "sessions.show": Operation(
        "operations.sessions:describe_session",
        "admin session show",
        "Show a session: its sweeps by status, its usage, and the holders of its slots.",
        ("Bench.session",),
    ),
    "sessions.archive": _administer_changes(
        "operations.sessions:archive_session",
        "admin session archive",
        "Archive a session, so it accepts no new sweeps.",
        ("Bench.archive_session",),
    ),
    "sessions.delete": _administer_destroys(
        "operations.sessions:delete_session",
        "admin session delete",
        "Delete a session with its sweeps and their files, permanently.",
        ("Bench.delete_session",),
        long=True,
        preview="preview_delete_session",
    ),
    "budgets.set": _administer_changes(
        "operations.budgets:set_budgets",
        "admin budget set",
        "Set budgets of a project, session or token; other budgets stay.",
        ("Bench.set_budgets",),
    ),
    "budgets.list": Operation(
        "operations.budgets:list_budgets",
        "admin budget list",
        "List budgets with their spending, and the amounts that running attempts have reserved.",
        ("Bench.budgets",),
    ),
    "budgets.clear": _administer_changes(
        "operations.budgets:clear_budgets",
        "admin budget clear",
        "Remove all budgets of a project, session or token.",
        ("Bench.clear_budgets",),
    ),
    "users.create": _administer_changes(
        "features.access.operations:create_user",
        "admin user create",
        "Create a user, to whom you can grant roles.",
        ("Bench.create_user",),
        everywhere=True,
    ),
    "users.list": Operation(
        "features.access.operations:list_users",
        "admin user list",
        "List users with their teams.",
        ("Bench.users",),
        everywhere=True,
    ),
    "users.remove": _administer_changes(
        "features.access.operations:remove_user",
        "admin user remove",
        "Remove a user with their roles and tokens; what they did stays under their name.",
        ("Bench.remove_user",),
        everywhere=True,
    ),
    "teams.create": _administer_changes(
        "features.access.operations:create_team",
        "admin team create",
        "Create a team, whose members have its roles.",
        ("Bench.create_team",),
        everywhere=True,
    ),
    "teams.list": Operation(
        "features.access.operations:list_teams",
        "admin team list",
        "List teams with their members.",
        ("Bench.teams",),
        everywhere=True,
    ),
    "teams.change": _administer_changes(
        "features.access.operations:change_team",
        "admin team change",
        "Add users to a team, and remove others.",
        ("Bench.change_team",),
        everywhere=True,
    ),
    "teams.remove": _administer_changes(
        "features.access.operations:remove_team",
        "admin team remove",
        "Remove a team with its roles; its members stay.",
        ("Bench.remove_team",),
        everywhere=True,
    ),
    "access.grant": _administer_changes(
        "features.access.operations:grant_access",
        "admin access grant",
        "Grant a user or a team a role in a project.",
        ("Bench.grant_access",),
    ),
    "access.list": Operation(
        "features.access.operations:list_access",
        "admin access list",
        "List roles of users and teams.",
        ("Bench.access",),
    ),
    "access.revoke": _administer_changes(
        "features.access.operations:revoke_access",
        "admin access revoke",
        "Revoke a role in a project.",
        ("Bench.revoke_access",),
    ),
    "audit.list": _administer_reads(
        "features.access.audit:list_audit",
        "admin audit list",
        "List changes in the audit log, newest first.",
        ("Bench.audit",),
        everywhere=True,
    ),
    "audit.verify": _administer_reads(
        "features.access.audit:verify_audit",
        "admin audit verify",
        "Check that no row of the audit log was changed, removed or moved.",
        ("Bench.verify_audit",),
        everywhere=True,
        long=True,
    ),
    "audit.show_head": _administer_reads(
        "features.access.audit:audit_head",
        "admin audit head",
        "Print the head of the audit log, its number and hash, to store elsewhere.",
        ("Bench.audit_head",),
        everywhere=True,
    ),
    "audit.prune": _administer_destroys(
        "features.access.audit:prune_audit",
        "admin audit prune",
        "Remove the oldest rows of the audit log; the log records up to which row.",
        ("Bench.prune_audit",),
        everywhere=True,
        long=True,
    ),
    "tokens.create": _administer_changes(
        "features.access.operations:create_token",
        "admin token create",
        "Create an access token for `wtb serve`, and print it once.",
        ("Bench.create_token",),
        shows_secret=True,
    ),
    "tokens.list": Operation(
        "features.access.operations:list_tokens",
        "admin token list",
        "List access tokens with their permissions and last use.",
        ("Bench.tokens",),
    ),
    "tokens.revoke": _administer_changes(
        "features.access.operations:revoke_token",
        "admin token revoke",
        "Revoke an access token.",
        ("Bench.revoke_token",),
    ),
}

# The command that has those of administrators.
ADMIN = "admin"

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
    "fork --all-cases": "combinations.add",
}


@cache
def _ids_by_command() -> Mapping[str, str]:
    return {operation.command: id for id, operation in OPERATIONS.items()}


def id_of_command(command: str) -> str | None:
    """Return the id of the operation that a command calls, by its words without `wtb`; None if it calls none."""
    return _ids_by_command().get(command)


def id_of_spelling(command: str) -> str | None:
    """Return the id of the operation that a command calls, or called by a removed spelling; None if there is none."""
    return id_of_command(command) or id_of_command(in_admin(command)) or REMOVED_COMMANDS.get(command)


def in_admin(words: str) -> str:
    """Return the words of a command of `wtb admin`: all of them had a spelling without `admin` before."""
    return f"{ADMIN} {words}"
