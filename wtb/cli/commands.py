"""All commands by group: what `wtb --help` lists, and which module is imported when a command is used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType
from typing import Any, NamedTuple, cast

import typer
from typer.core import TyperCommand, TyperGroup


class Entry(NamedTuple):
    """A command: the module under `wtb.cli` that has it, and the first sentence of its help.

    The module has a function of the command's name (with `_` behind it where Python uses the name), whose parameters
    are the command's, and whose docstring is its help and ends with examples; or a mapping of the commands in it by
    name, called as the command in capitals.
    """

    module: str
    summary: str


# Groups and commands in the order in which people meet them.
GROUPS: Mapping[str, Mapping[str, Entry]] = {
    "Write: a workflow and its sweep file": {
        "init": Entry("admin.project", "Write a small workflow, cases and a sweep file to start from."),
        "workflow": Entry("admin.project", "List registered workflows, or draw one."),
        "plan": Entry("run.sweeps", "Show what a sweep would run, before anything runs."),
    },
    "Run: sweeps and single inputs": {
        "run": Entry("run.sweeps", "Run a sweep and show its matrix."),
        "start": Entry("run.start", "Run one input through a workflow, and show its state."),
        "submit": Entry("run.submit", "Give a sweep to the workers, and print its id."),
        "resume": Entry("run.resume", "Continue a sweep or execution that was stopped or paused."),
        "retry": Entry("run.resume", "Run failed cells again, from their last good checkpoints."),
        "schedule": Entry("admin.schedules", "Run sweeps by the clock, each compared with a baseline."),
    },
    "Steer: what runs, and what waits for you": {
        "pause": Entry("control.pause_cancel", "Pause a sweep or execution until it is resumed."),
        "cancel": Entry("control.pause_cancel", "End a sweep or execution for good; results so far stay."),
        "break": Entry("control.pause_cancel", "List or change breakpoints, where executions pause."),
        "approvals": Entry("control.approvals", "List the questions that wait for a person, or show one."),
        "answer": Entry("control.approvals", "Answer a question that waits for a person, or many at once."),
        "rollback": Entry("control.rollback", "Take an execution back to a checkpoint, and undo its tools."),
        "fork": Entry("control.rollback", "Run on from a checkpoint with changes, beside the original."),
    },
    "Look: how far it is, and what happened": {
        "list": Entry("inspect.show", "List sweeps, newest first."),
        "status": Entry("inspect.show", "Say how far a sweep or execution is, and what holds it up."),
        "watch": Entry("inspect.watch", "Show live how sweeps, workers and queues stand."),
        "show": Entry("inspect.show", "Show a sweep, its cells or one execution in detail."),
        "log": Entry("inspect.log", "Read the events of a sweep, oldest first."),
        "history": Entry("inspect.history", "Show the checkpoints that led to where an execution is."),
        "tree": Entry("inspect.history", "Draw how executions share, fork and were rolled back."),
        "diff": Entry("inspect.history", "Compare two executions or checkpoints, step by step."),
        "files": Entry("inspect.files", "List, read, export or compare the files that nodes left."),
        "series": Entry("results.series", "Show series over time: ctx.metric, and memory and CPU of nodes."),
        "costs": Entry("results.costs", "Show what was spent, and for what."),
    },
    "Compare: what is best, and what changed": {
        "matrix": Entry("results.matrix", "Show the figures of every combination, with intervals."),
        "report": Entry("results.report", "Write the results as one file for others, or for CI."),
        "score": Entry("results.matrix", "Score finished cells again, without running a node."),
        "compare": Entry("results.compare", "Show which results got worse or better between two sweeps."),
        "baseline": Entry("results.baselines", "Name the sweeps that later ones are compared with."),
        "regress": Entry("results.compare", "Run a sweep and hold it against a baseline, cell by cell."),
    },
    "Keep: what stays, what goes, what travels": {
        "pin": Entry("admin.gc", "Keep a sweep or checkpoint, whatever `wtb gc` removes."),
        "unpin": Entry("admin.gc", "Let `wtb gc` remove a pinned sweep or checkpoint again."),
        "gc": Entry("admin.gc", "Remove what nothing reaches, and what is old."),
        "delete": Entry("admin.project", "Delete one sweep with all that belongs to it, for good."),
        "export": Entry("admin.archive", "Write an execution to a file, with all that belongs to it."),
        "import": Entry("admin.archive", "Read an execution from a file that `wtb export` wrote."),
    },
    "Host: servers, workers, and who may use how much": {
        "doctor": Entry("admin.project", "Check what WTB needs here, and say how to fix what is wrong."),
        "db": Entry("admin.project", "Show the version of the database, or upgrade it."),
        "session": Entry("admin.sessions", "Keep sweeps of people or purposes apart, with quotas."),
        "budget": Entry("admin.budgets", "Limit what projects and sessions may spend."),
        "up": Entry("admin.stack", "Start servers, a worker and the scheduler, all in this folder."),
        "down": Entry("admin.stack", "Stop what `wtb up` started in this folder."),
        "worker": Entry("admin.workers", "Run executions of submitted sweeps, until it is stopped."),
        "scheduler": Entry("admin.workers", "Run the scheduler: recover lost work, and start schedules."),
        "flower": Entry("admin.stack", "Run Flower, a read-only page on the broker's workers."),
    },
}

ENTRIES = {name: entry for group in GROUPS.values() for name, entry in group.items()}


class CommandGroup(TyperGroup):
    """All commands of `wtb`. Help lists them from the table; one is imported when it or its own help is asked for.

    This is click's pattern of a lazy group. `get_command` cannot import, as Typer's help asks it for every command.
    """

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = cast(Any, _Commands())
        self._listed = {
            name: TyperCommand(name, help=entry.summary, rich_help_panel=heading)
            for heading, group in GROUPS.items()
            for name, entry in group.items()
        }

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self._listed)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return self._listed.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and self.commands[str(name)], rest


class _Commands(Mapping[str, Any]):
    """The commands by name; each is imported when it is taken out."""

    def __getitem__(self, name: str) -> Any:
        return _commands_of(ENTRIES[name].module)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(ENTRIES)

    def __len__(self) -> int:
        return len(ENTRIES)


@cache
def _commands_of(module: str) -> Mapping[str, Any]:
    """Return the commands that a module has, by name."""
    part = typer.Typer(rich_markup_mode="rich")
    part.callback()(lambda: None)  # a group, even of a single command
    with _Deferred().installed() as deferred:
        code = vars(import_module(f"wtb.cli.{module}"))
        for name, entry in ENTRIES.items():
            if entry.module == module:
                _add(part, name, entry, code)
        group = typer.main.get_group(part)
    for command in group.commands.values():
        _prepare(command, deferred)
    return group.commands


def _add(part: typer.Typer, name: str, entry: Entry, code: Mapping[str, Any]) -> None:
    inner = code.get(name.upper())
    if inner is None:
        part.command(name)(code.get(f"{name}_") or code[name])
        return
    group = typer.Typer(no_args_is_help=True, help=entry.summary)
    for inner_name, function in inner.items():
        group.command(inner_name, hidden=inner_name == "fire")(function)  # which the scheduler starts, not people
    part.add_typer(group, name=name)


def _prepare(command: Any, deferred: _Deferred) -> None:
    """Take examples from the end of the help, wrap it at the width of the terminal, and load modules before a run."""
    paragraphs = [paragraph.replace("\n", " ") for paragraph in (command.help or "").split("\n\n")]
    if paragraphs[-1].startswith("Example"):
        command.epilog = paragraphs.pop()
    command.help = "\n\n".join(paragraphs)
    command.callback = command.callback and deferred.loaded_before(command.callback)
    for inner in getattr(command, "commands", {}).values():
        _prepare(inner, deferred)


class _Deferred(MetaPathFinder):
    """Modules of WTB that a module of commands imports: they are executed when a command runs, not for its help.

    Help needs the options only, and SQLAlchemy, pydantic and numpy take a second. Modules of commands import modules,
    not names from them (`from wtb.store.read import queries`): a name would have to be looked up at once.
    """

    def __init__(self) -> None:
        self._names: list[str] = []

    @contextmanager
    def installed(self) -> Iterator[_Deferred]:
        """Defer modules that are imported meanwhile."""
        sys.meta_path.insert(0, self)
        try:
            yield self
        finally:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("wtb.") or fullname.startswith("wtb.cli."):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            self._names.append(fullname)
            spec.loader = LazyLoader(spec.loader)
        return spec

    def loaded_before(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Return a callback that loads the modules first: on Python 3.11 first uses in two threads may collide."""

        def run(**options: Any) -> Any:
            for name in self._names:
                vars(sys.modules[name])  # any use of a lazy module executes it
            return callback(**options)

        return run
