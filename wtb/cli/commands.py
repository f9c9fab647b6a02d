"""All commands by group: what `wtb --help` lists, and which module is imported when a command is used."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType
from typing import Any, NamedTuple, cast

import typer
from typer.core import TyperCommand, TyperGroup

from wtb.cli.console import note_command
from wtb.config.garbage import start_collecting
from wtb.core.errors import InputError, WTBError
from wtb.operations.registry import OPERATIONS, REMOVED_COMMANDS, id_of_command


class Entry(NamedTuple):
    """A command: the module under `wtb.cli` that has it, and the first sentence of its help if it is no operation.

    The module has a function of the command's name (with `_` for `-`, and behind it where Python uses the name), whose
    parameters are the command's, and whose docstring is its help and ends with examples; or a mapping of the commands
    in it by name, called as the command in capitals.

    ahead: what is called with the command's options before what the command needs is imported.
    """

    module: str
    summary: str = ""
    ahead: str = ""


# Groups and commands in the order in which people meet them.
GROUPS: Mapping[str, Mapping[str, Entry]] = {
    "Write: a workflow and its sweep file": {
        "init": Entry("admin.project", "Write a small workflow, cases and a sweep file to start from."),
        "workflow": Entry("admin.project", "List registered workflows, or draw one."),
        "cases": Entry("run.case_file"),
        "try": Entry("run.trying"),
        "plan": Entry("run.sweeps"),
        "pilot": Entry("run.sweeps"),
    },
    "Run: sweeps and single inputs": {
        "run": Entry("run.sweeps", ahead="operations.running.ahead:start_node_process"),
        "start": Entry("run.start"),
        "execution": Entry("run.start", "Store an input for a workflow, to be begun later."),
        "submit": Entry("run.submit"),
        "resume": Entry("run.resume"),
        "retry": Entry("run.resume"),
        "extend": Entry("run.extend"),
        "schedule": Entry("admin.schedules", "Run sweeps by the clock, each compared with a baseline."),
    },
    "Steer: what runs, and what waits for you": {
        "pause": Entry("control.pause_cancel"),
        "cancel": Entry("control.pause_cancel"),
        "combination": Entry("control.pause_cancel", "Stop some combinations of a sweep."),
        "breakpoint": Entry("control.pause_cancel", "Say where executions pause."),
        "approvals": Entry("control.approvals"),
        "answer": Entry("control.approvals"),
        "answer-all": Entry("control.approvals"),
        "checkpoint": Entry("control.checkpoints"),
        "rollback": Entry("control.rollback"),
        "fork": Entry("control.rollback"),
    },
    "Look: how far it is, and what happened": {
        "list": Entry("inspect.overview"),
        "status": Entry("inspect.overview"),
        "watch": Entry("inspect.watch"),
        "show": Entry("inspect.show"),
        "log": Entry("inspect.log"),
        "history": Entry("inspect.history"),
        "tree": Entry("inspect.history"),
        "diff": Entry("inspect.history"),
        "files": Entry("inspect.files"),
        "series": Entry("results.series"),
        "telemetry": Entry("inspect.telemetry", "Send traces to a collector of OpenTelemetry."),
        "costs": Entry("results.costs"),
    },
    "Compare: what is best, and what changed": {
        "matrix": Entry("results.matrix"),
        "report": Entry("results.report"),
        "score": Entry("results.matrix"),
        "scoring": Entry("results.matrix", "Follow or end what workers were asked to score."),
        "label": Entry("results.label", "Label answers, drawn at random and shown without their rows."),
        "comment": Entry("results.comment", "Comment on cells, for everyone who may read the sweep."),
        "judge": Entry("results.judge", "Hold judges against labels of people."),
        "compare": Entry("results.compare"),
        "pool": Entry("results.pool"),
        "baseline": Entry("results.baselines", "Name the sweeps that later ones are compared with."),
        "regress": Entry("results.compare"),
    },
    "Keep: what stays, what goes, what travels": {
        "pin": Entry("admin.gc"),
        "unpin": Entry("admin.gc"),
        "gc": Entry("admin.gc"),
        "delete": Entry("admin.gc"),
        "erase": Entry("data.erase"),
        "export": Entry("admin.archive"),
        "import": Entry("admin.archive"),
        "copy": Entry("admin.archive"),
        "backup": Entry("data.backups"),
        "restore": Entry("data.backups"),
    },
    "Host: servers, workers, and who may use how much": {
        "doctor": Entry("admin.project", "Check what WTB needs here, and say how to fix what is wrong."),
        "db": Entry("data.databases", "Show the version of the database, upgrade it, or go back."),
        "project": Entry("admin.projects", "Say what sessions, sweeps and tokens belong to."),
        "session": Entry("admin.sessions", "Keep sweeps of people or purposes apart, with quotas."),
        "budget": Entry("admin.budgets", "Limit what projects, sessions and tokens may spend."),
        "policy": Entry("data.policies", "Check the policies of this folder, and say what they decide."),
        "token": Entry("admin.tokens", "Say who may ask `wtb serve`, and for what."),
        "user": Entry("admin.access", "Say who there is, to be given roles."),
        "team": Entry("admin.access", "Give roles to several users at once."),
        "access": Entry("admin.access", "Say who may do what in which project."),
        "audit": Entry("access.audit", "Read and check the log of who changed what."),
        "up": Entry("admin.stack", "Start servers, a worker and the scheduler, all in this folder."),
        "down": Entry("admin.stack", "Stop what `wtb up` started in this folder."),
        "worker": Entry("admin.workers", "Run executions of submitted sweeps, until it is stopped."),
        "scheduler": Entry("admin.workers", "Run the scheduler: recover lost work, and start schedules."),
        "serve": Entry("admin.server", "Answer operations over HTTP: the REST API, and web pages."),
        "mcp": Entry("admin.server", "Serve an agent on this machine, by the Model Context Protocol."),
        "flower": Entry("admin.stack", "Run Flower, a read-only page on the broker's workers."),
    },
}

ENTRIES = {name: entry for group in GROUPS.values() for name, entry in group.items()}


def summary(name: str) -> str:
    """Return the first sentence of a command's help: that of its operation, if it calls one."""
    id = id_of_command(name)
    return ENTRIES[name].summary if id is None else OPERATIONS[id].summary


# Commands of promptfoo and Inspect, and what they are here.
_ELSEWHERE: Mapping[str, str] = {
    "eval": "run",
    "evaluate": "run",
    "eval-retry": "retry",
    "view": "serve --open",
    "share": "report",
}


def _check_spelling(arguments: Sequence[str]) -> None:
    """Raise InputError with the commands that replaced a removed spelling, if somebody typed one."""
    replacements: dict[str, list[str]] = {}
    for removed, id in REMOVED_COMMANDS.items():
        spelling = " ".join(word for word in removed.split() if word.islower())
        if _is_spelled(arguments, spelling):
            replacements.setdefault(spelling, []).append(f"`wtb {OPERATIONS[id].command}`")
    if replacements:
        spelling = max(replacements, key=len)  # the one with an option
        raise InputError(f"`wtb {spelling}` is now {' or '.join(replacements[spelling])}")


def _is_spelled(arguments: Sequence[str], spelling: str) -> bool:
    words, _, option = spelling.partition(" --")
    typed, others = list(arguments[: len(words.split())]), arguments[len(words.split()) :]
    if typed != words.split():
        return False
    if option:
        return any(argument.partition("=")[0] == f"--{option}" for argument in others)
    names = [
        operation.command.split()[1] for operation in OPERATIONS.values() if operation.command.startswith(f"{words} ")
    ]
    if not names:
        return True
    return bool(others) and others[0] != "--help" and not get_close_matches(others[0], names)


class CommandGroup(TyperGroup):
    """All commands of `wtb`. Help lists them from the table; one is imported when it or its own help is asked for.

    This is click's pattern of a lazy group. `get_command` cannot import, as Typer's help asks it for every command.
    """

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = cast(Any, _Commands())
        self._listed = {
            name: TyperCommand(name, help=summary(name), rich_help_panel=heading)
            for heading, group in GROUPS.items()
            for name, entry in group.items()
        }

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self._listed)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return self._listed.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in _ELSEWHERE:
            ctx.fail(f"No such command '{args[0]}'; use `wtb {_ELSEWHERE[args[0]]}`")
        if args:
            _check_spelling(args)
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
        code = import_module(f"wtb.cli.{module}")
        for name, entry in ENTRIES.items():
            if entry.module == module:
                _add(part, name, entry, code)
        group = typer.main.get_group(part)
    for name, command in group.commands.items():
        _prepare(command, deferred, "wtb", ENTRIES[name].ahead)
    return group.commands


def _add(part: typer.Typer, name: str, entry: Entry, code: ModuleType) -> None:
    inner = getattr(code, name.upper(), None)
    if inner is None:
        function = name.replace("-", "_")
        part.command(name)(getattr(code, f"{function}_", None) or getattr(code, function))
        return
    group = typer.Typer(no_args_is_help=True, help=summary(name))
    for inner_name, function in inner.items():
        group.command(inner_name, hidden=inner_name == "fire")(function)  # which the scheduler starts, not people
    part.add_typer(group, name=name)


def _prepare(command: Any, deferred: _Deferred, parent: str, ahead: str = "") -> None:
    """Take examples from the end of the help, wrap it at the width of the terminal, and load modules before a run."""
    paragraphs = [paragraph.replace("\n", " ") for paragraph in (command.help or "").split("\n\n")]
    if paragraphs[-1].startswith("Example"):
        command.epilog = paragraphs.pop()
    command.help = "\n\n".join(paragraphs)
    words = f"{parent} {command.name}"
    if command.callback is not None:
        command.callback = _with_option_names(command, deferred.loaded_before(command.callback, ahead), words)
    for inner in getattr(command, "commands", {}).values():
        _prepare(inner, deferred, words)


def _with_option_names(command: Any, callback: Callable[..., Any], words: str) -> Callable[..., Any]:
    """Return a callback whose errors about an argument name the option, too, by which the command takes it."""

    def run(**options: Any) -> Any:
        note_command(words)
        try:
            return callback(**options)
        except WTBError as error:
            error.option = option_of(command, error.argument)
            raise

    return run


def option_of(command: Any, argument: str | None) -> str | None:
    """Return the option, or the name in its help, by which a command takes an argument; None if it takes none."""
    for parameter in command.params:
        if parameter.name == argument:
            options = [name for name in parameter.opts if name.startswith("--")]
            return str(options[0] if options else parameter.metavar or parameter.name)
    return None


class _Deferred(MetaPathFinder):
    """Modules of WTB that a module of commands imports: they are executed when a command runs, not for its help.

    Help needs the options only. The finder stays beside click's lazy groups because it saves 1.5 s of a processor:
    `wtb run --help` takes 0.58 s with it and 2.1 s without, `wtb list` 0.79 and 0.87 s, `wtb --help` 0.46 and 0.48 s
    (user and system time; medians of 5 runs with it and 3 to 5 without, in turns).

    Modules of commands import modules, not names from them (`from wtb.store.read import queries`): a name would have
    to be looked up at once.
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
        if not fullname.startswith(("wtb.", "wtb_workers.")) or fullname.startswith("wtb.cli."):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            self._names.append(fullname)
            spec.loader = LazyLoader(spec.loader)
        return spec

    def loaded_before(self, callback: Callable[..., Any], ahead: str) -> Callable[..., Any]:
        """Return a callback that loads the modules first: on Python 3.11 first uses in two threads may collide."""

        def run(**options: Any) -> Any:
            if ahead:
                module, _, function = ahead.partition(":")
                getattr(import_module(f"wtb.{module}"), function)(**options)
            for name in self._names:
                vars(sys.modules[name])  # any use of a lazy module executes it
            _start_collecting()
            gc.enable()  # of several commands in a process only the first one starts it
            return callback(**options)

        return run


@cache  # once a process: asking Python whether anything is frozen counts all that is
def _start_collecting() -> None:
    """Collect garbage while a command runs, and spare everything from the collection at the end."""
    start_collecting()
    atexit.register(gc.freeze)
