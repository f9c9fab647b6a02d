"""All commands by group: what `wtb --help` lists, and which module is imported when a command is used."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, cast

import typer
from typer.core import TyperCommand, TyperGroup

_WITHIN_PARAGRAPH = re.compile(r"(?<!\n)\n(?!\n)")


class Entry(NamedTuple):
    """A command: the module under `wtb.cli` whose `register` makes it, and the first sentence of its help."""

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
        "resume": Entry("run.resume", "Go on with a sweep or execution that was stopped or paused."),
        "retry": Entry("run.resume", "Run failed cells again, from their last good checkpoints."),
        "schedule": Entry("admin.schedules", "Run sweeps by the clock, each held against a baseline."),
    },
    "Steer: what runs, and what waits for you": {
        "pause": Entry("control.pause_cancel", "Begin no more of a sweep or execution until it is resumed."),
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
        "baseline": Entry("results.baselines", "Name the sweeps that later ones are held against."),
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
    """What a module of commands registers, by name."""
    part = typer.Typer(rich_markup_mode="rich")
    part.callback()(lambda: None)  # a group, even of a single command
    import_module(f"wtb.cli.{module}").register(part)
    group = typer.main.get_group(part)
    _unwrap(group)
    return group.commands


def _unwrap(command: Any) -> None:
    """Lines of help end where the terminal does, and not where those of the source do."""
    command.help = command.help and _WITHIN_PARAGRAPH.sub(" ", command.help)
    for inner in getattr(command, "commands", {}).values():
        _unwrap(inner)
