"""All commands by group: what `wtb --help` lists, and which module is imported when a command is used."""

from __future__ import annotations

import atexit
import gc
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from functools import cache, wraps
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from inspect import Parameter, Signature, signature
from types import ModuleType
from typing import Any, NamedTuple, cast, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from wtb.cli.console import note_command
from wtb.config.distribution import start_collecting
from wtb.core.errors import InputError, WTBError
from wtb.operations.registry import ADMIN, OPERATIONS, REMOVED_COMMANDS, id_of_command, in_admin


class Entry(NamedTuple):
    """A command: the module under `wtb` that has it, and the first sentence of its help if it is no operation.

    The module has a function of the command's name (with `_` for `-`, and behind it where Python uses the name). Its
    parameters are the command's, or groups of them, as `options.Form`; its docstring is the help and ends with
    examples. Or the module has a mapping of the commands in it by name, called as the command in capitals.

    Attributes:
        module: The module; empty for `wtb admin`, whose commands are in `ADMIN_GROUPS`.
        summary: The first sentence of its help, if it calls no operation.
        row: The text of its row in `wtb --help`; empty for the first sentence of its help.
        beside: The command in whose row `wtb --help` lists it; empty for a row of its own.
        ahead: What is called with the command's options before what the command needs is imported.
    """

    module: str
    summary: str = ""
    row: str = ""
    beside: str = ""
    ahead: str = ""


Groups = Mapping[str, Mapping[str, Entry]]

# Groups and commands in the order in which a new user needs them, which is that of `wtb --help`. The help has to fit
# in 60 lines at 80 columns, so commands of one kind share a row, and `wtb admin` has the nouns of administrators.
GROUPS: Groups = {
    "Write: a workflow and its sweep file": {
        "init": Entry(
            "cli.admin.project",
            "Write a small workflow, cases and a sweep file to start from.",
            "Write a small example, or list and draw workflows.",
        ),
        "workflow": Entry("cli.admin.project", "List registered workflows, or draw one.", beside="init"),
        "cases": Entry("cli.run.case_file", row="Read a file of cases, or try an evaluator on an output."),
        "try": Entry("cli.run.case_file", beside="cases"),
        "plan": Entry("cli.run.sweeps", row="Show what a sweep would run, or run a few of its cases."),
        "pilot": Entry("cli.run.sweeps", beside="plan"),
    },
    "Run: sweeps and single inputs": {
        "run": Entry("cli.run.sweeps", ahead="operations.running.ahead:start_node_process"),
        "start": Entry("cli.run.start", row="Run one input through a workflow, now or later."),
        "execution": Entry("cli.run.start", "Store an input for a workflow, to run later.", beside="start"),
        "submit": Entry("cli.run.submit"),
        "resume": Entry("cli.run.resume", row="Continue a stopped sweep, or run failed cells again."),
        "retry": Entry("cli.run.resume", beside="resume"),
        "extend": Entry("cli.run.extend"),
        "schedule": Entry(
            "features.schedules.commands",
            "Run sweeps on a schedule, and compare each with a baseline.",
            "Run sweeps on a schedule, compared with a baseline.",
        ),
    },
    "Steer: control runs, and answer questions": {
        "pause": Entry("cli.run.pause_cancel", row="Pause a sweep or execution, now or at a breakpoint."),
        "breakpoint": Entry(
            "cli.run.pause_cancel", "Set and list breakpoints, at which executions pause.", beside="pause"
        ),
        "cancel": Entry("cli.run.pause_cancel", row="Cancel a sweep or execution, or delete a sweep."),
        "delete": Entry("cli.admin.gc", beside="cancel"),
        "combination": Entry("cli.run.all_cases", "Add a combination to a sweep, or stop some."),
        "approvals": Entry("cli.run.approvals"),
        "answer": Entry("cli.run.approvals", row="Answer a question of a workflow, or several at once."),
        "answer-all": Entry("cli.run.approvals", beside="answer"),
        "checkpoint": Entry("cli.run.pause_cancel"),
        "rollback": Entry("cli.run.rollback", row="Go back to a checkpoint, or fork there with changes."),
        "fork": Entry("cli.run.rollback", beside="rollback"),
    },
    "Look: progress and history": {
        "list": Entry("cli.results.overview"),
        "status": Entry("cli.results.overview", row="Show the progress of sweeps once, or live."),
        "watch": Entry("cli.results.watch", beside="status"),
        "show": Entry("cli.results.show", row="Show a sweep, its cells or executions, or its events."),
        "log": Entry("cli.results.log", beside="show"),
        "history": Entry("cli.results.history", row="Show checkpoints, and how executions fork."),
        "tree": Entry("cli.results.history", beside="history"),
        "diff": Entry("cli.results.history"),
        "files": Entry("cli.results.files"),
        "series": Entry("cli.results.series", row="Show series over time, or the cost of sweeps."),
        "costs": Entry("cli.results.costs", beside="series"),
    },
    "Compare: results and regressions": {
        "matrix": Entry("cli.results.matrix", row="Show the figures of combinations, or write a report."),
        "report": Entry("cli.results.report", beside="matrix"),
        "score": Entry("cli.results.matrix"),
        "label": Entry(
            "features.judging.commands",
            "Label answers, drawn at random and shown without their rows.",
            "Label answers, and compare judges with human labels.",
        ),
        "judge": Entry("features.judging.commands", "Compare judges with human labels.", beside="label"),
        "comment": Entry("cli.results.comment", "Comment on cells, for everyone who may read the sweep."),
        "compare": Entry("cli.results.compare", row="Compare two sweeps, or pool several into one."),
        "pool": Entry("cli.results.compare", beside="compare"),
        "baseline": Entry(
            "cli.results.baselines",
            "Name the sweeps that later ones are compared with.",
            "Name baselines, or compare a new run with one.",
        ),
        "regress": Entry("cli.results.compare", beside="baseline"),
    },
    "Host: servers and workers": {
        "doctor": Entry(
            "cli.admin.project",
            "Check that WTB can run here, and show how to fix problems.",
            "Check that WTB can run here, and show fixes.",
        ),
        "up": Entry(
            "cli.admin.stack",
            "Start servers, a worker and the scheduler, all in this folder.",
            "Start or stop all servers in this folder.",
        ),
        "down": Entry("cli.admin.stack", "Stop what `wtb up` started in this folder.", beside="up"),
        "worker": Entry(
            "cli.admin.workers",
            "Run executions of submitted sweeps until you stop it.",
            "Run a worker, or the scheduler that recovers lost work.",
        ),
        "scheduler": Entry(
            "cli.admin.workers", "Run the scheduler: recover lost work, and start schedules.", beside="worker"
        ),
        "serve": Entry(
            "cli.admin.server",
            "Start the server: REST API and web pages.",
            "Serve the REST API and web pages, or a local agent.",
        ),
        "mcp": Entry("cli.admin.server", "Serve a local agent over the Model Context Protocol.", beside="serve"),
        "admin": Entry("", "Administer data, access, budgets and the database."),
    },
}

# The commands of `wtb admin`, in the order of `wtb admin --help`.
ADMIN_GROUPS: Groups = {
    "Keep: retention, deletion, export and backup": {
        "pin": Entry("cli.admin.gc"),
        "unpin": Entry("cli.admin.gc"),
        "gc": Entry("cli.admin.gc"),
        "erase": Entry("cli.admin.gc"),
        "export": Entry("features.archive.commands"),
        "import": Entry("features.archive.commands"),
        "copy": Entry("features.archive.commands"),
        "backup": Entry("features.backup.commands"),
        "restore": Entry("features.backup.commands"),
    },
    "Share: projects, sessions and budgets": {
        "project": Entry("cli.admin.projects", "Group sessions, sweeps and tokens into projects."),
        "session": Entry("cli.admin.sessions", "Separate sweeps into sessions, with quotas."),
        "budget": Entry("cli.admin.budgets", "Limit what projects, sessions and tokens may spend."),
    },
    "Access: tokens, users, policies and the audit log": {
        "token": Entry("features.access.commands", "Create and revoke access tokens for `wtb serve`."),
        "user": Entry("features.access.commands", "List and remove users, to whom you can grant roles."),
        "team": Entry("features.access.commands", "Give roles to several users at once."),
        "access": Entry("features.access.commands", "Grant and revoke roles in projects."),
        "policy": Entry("cli.admin.policies", "Check the policies of this folder, and explain decisions."),
        "audit": Entry("features.access.commands", "Read and check the log of who changed what."),
    },
    "Operate: the database, scorings and traces": {
        "db": Entry("cli.admin.databases", "Show the version of the database, upgrade it, or go back."),
        "scoring": Entry("cli.results.matrix", "Follow or cancel scorings on workers."),
        "telemetry": Entry("features.telemetry.commands", "Send traces to a collector of OpenTelemetry."),
        "flower": Entry("cli.admin.stack", "Run Flower, a read-only page on the broker's workers."),
    },
}

_ALL = {name: entry for group in GROUPS.values() for name, entry in group.items()}
_ALL |= {in_admin(name): entry for group in ADMIN_GROUPS.values() for name, entry in group.items()}

# By the words of the command, such as `run` and `admin token`.
ENTRIES = {words: entry for words, entry in _ALL.items() if entry.module}
_MODULES = {entry.module for entry in ENTRIES.values()}


def summary(words: str) -> str:
    """Return the first sentence of a command's help: that of its operation, if it calls one."""
    id = id_of_command(words)
    return _ALL[words].summary if id is None else OPERATIONS[id].summary


# Commands of promptfoo and Inspect, and their counterparts in WTB.
_ELSEWHERE: Mapping[str, str] = {
    "eval": "run",
    "evaluate": "run",
    "eval-retry": "retry",
    "view": "serve --open",
    "share": "report",
}


def _check_spelling(arguments: Sequence[str]) -> None:
    """Raise InputError with the commands that replaced a removed spelling, if somebody typed one."""
    if (present := in_admin(arguments[0])) in ENTRIES:
        moved = f"`wtb {arguments[0]}` is now `wtb {present}`"
        raise InputError(f"{moved}: run `wtb {in_admin(shlex.join(arguments))}`" if arguments[1:] else moved)
    replacements: dict[str, list[str]] = {}
    for removed, id in REMOVED_COMMANDS.items():
        spelling = " ".join(word for word in removed.split() if word.islower())
        if _is_spelled(arguments, spelling):
            replacements.setdefault(spelling, []).append(f"`wtb {OPERATIONS[id].command}`")
    if replacements:
        # The longest has an option, and is the most specific.
        spelling = max(replacements, key=len)
        raise InputError(f"`wtb {spelling}` is now {' or '.join(replacements[spelling])}")


def _is_spelled(arguments: Sequence[str], spelling: str) -> bool:
    words, _, option = spelling.partition(" --")
    typed, rest = list(arguments[: len(words.split())]), arguments[len(words.split()) :]
    if typed != words.split():
        return False
    if option:
        return any(argument.partition("=")[0] == f"--{option}" for argument in rest)
    names = [
        operation.command.split()[1] for operation in OPERATIONS.values() if operation.command.startswith(f"{words} ")
    ]
    if not names:
        return True
    # A close match is a typing error, and click suggests the right name for it.
    return bool(rest) and rest[0] != "--help" and not get_close_matches(rest[0], names)


class CommandGroup(TyperGroup):
    """All commands of `wtb`. Help lists them from the table; one is imported when it or its own help is asked for.

    This is click's pattern of a lazy group. `get_command` cannot import, as Typer's help asks it for every command.
    """

    groups = GROUPS
    prefix = ""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = cast(Any, _Commands(self.prefix, [name for group in self.groups.values() for name in group]))
        self._listed = {
            name: TyperCommand(name, help=summary(f"{self.prefix}{name}"), rich_help_panel=heading)
            for heading, group in self.groups.items()
            for name in group
        }

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self._listed)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return self._listed.get(cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        # Typer's help lists the commands of a group: here those of a copy that has a command for each row.
        rows = copy(self)
        rows._listed = dict(self._rows())
        super(CommandGroup, rows).format_help(ctx, formatter)

    def _rows(self) -> Iterator[tuple[str, TyperCommand]]:
        for heading, group in self.groups.items():
            for name, entry in group.items():
                if not entry.beside:
                    row = ", ".join([name, *(other for other, its in group.items() if its.beside == name)])
                    text = entry.row or summary(f"{self.prefix}{name}")
                    yield row, TyperCommand(row, help=text, rich_help_panel=heading)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        # Completion in a shell resolves commands, too, and shows no errors.
        if args and not ctx.resilient_parsing:
            self._check(ctx, args)
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and self.commands[str(name)], rest

    def _check(self, ctx: Any, args: list[str]) -> None:
        if args[0] in _ELSEWHERE:
            ctx.fail(f"No such command '{args[0]}'; use `wtb {_ELSEWHERE[args[0]]}`")
        _check_spelling(args)


class _AdminGroup(CommandGroup):
    """The commands of `wtb admin`, of which none had another spelling there."""

    groups = ADMIN_GROUPS
    prefix = in_admin("")

    def _check(self, ctx: Any, args: list[str]) -> None:
        pass


class _Commands(Mapping[str, Any]):
    """The commands of a group by name; each is imported when it is taken out."""

    def __init__(self, prefix: str, names: Sequence[str]) -> None:
        self._prefix = prefix
        self._names = names

    def __getitem__(self, name: str) -> Any:
        words = f"{self._prefix}{name}"
        module = _ALL[words].module
        return _commands_of(module)[words] if module else _admin()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@cache
def _admin() -> _AdminGroup:
    return _AdminGroup(
        name=ADMIN,
        help=summary(ADMIN),
        no_args_is_help=True,
        rich_markup_mode="rich",
        epilog="Example: wtb admin token create ann --scope read,submit",
    )


@cache
def _commands_of(module: str) -> Mapping[str, Any]:
    """Return the commands that a module has, by their words."""
    part = typer.Typer(rich_markup_mode="rich")
    # A callback makes Typer build a group even for a single command.
    part.callback()(lambda: None)
    names = {words: words.split()[-1] for words, entry in ENTRIES.items() if entry.module == module}
    with _Deferred().installed() as deferred:
        code = import_module(f"wtb.{module}")
        for words, name in names.items():
            _add(part, name, summary(words), code)
        group = typer.main.get_group(part)
    commands = {words: group.commands[name] for words, name in names.items()}
    for words, command in commands.items():
        _prepare(command, deferred, f"wtb {words}", ENTRIES[words].ahead)
    return commands


def _add(part: typer.Typer, name: str, help: str, code: ModuleType) -> None:
    inner = getattr(code, name.upper(), None)
    if inner is None:
        function = name.replace("-", "_")
        part.command(name)(_with_single_options(getattr(code, f"{function}_", None) or getattr(code, function)))
        return
    group = typer.Typer(no_args_is_help=True, help=help)
    for inner_name, function in inner.items():
        # Help leaves out `fire`, which only the scheduler starts.
        group.command(inner_name, hidden=inner_name == "fire")(_with_single_options(function))
    part.add_typer(group, name=name)


def _with_single_options(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command function whose groups of options, as `options.Form`, are an option for each of their fields."""
    parameters: list[Parameter] = []
    groups: dict[str, type] = {}
    hints = get_type_hints(function, include_extras=True)
    for parameter in signature(function).parameters.values():
        hint = hints[parameter.name]
        own = [parameter.replace(annotation=hint)]
        if is_dataclass(hint) and isinstance(hint, type):
            groups[parameter.name] = hint
            field_hints = get_type_hints(hint, include_extras=True)
            own = [each.replace(annotation=field_hints[each.name]) for each in signature(hint).parameters.values()]
        parameters += [each.replace(kind=Parameter.KEYWORD_ONLY) for each in own]
    if not groups:
        return function

    @wraps(function)
    def run(**options: Any) -> None:
        for name, kind in groups.items():
            options[name] = kind(**{field.name: options.pop(field.name) for field in fields(kind)})
        function(**options)

    vars(run)["__signature__"] = Signature(parameters)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _prepare(command: Any, deferred: _Deferred, words: str, ahead: str = "") -> None:
    """Take examples from the end of the help, wrap it at the width of the terminal, and load modules before a run."""
    paragraphs = [paragraph.replace("\n", " ") for paragraph in (command.help or "").split("\n\n")]
    if paragraphs[-1].startswith("Example"):
        command.epilog = paragraphs.pop()
    command.help = "\n\n".join(paragraphs)
    if command.callback is not None:
        command.callback = _with_option_names(command, deferred.loaded_before(command.callback, ahead), words)
    for inner in getattr(command, "commands", {}).values():
        _prepare(inner, deferred, f"{words} {inner.name}")


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
        # Modules of commands, and those of wtb.cli, declare options: help needs them executed.
        if not fullname.startswith(("wtb.", "wtb_workers.")):
            return None
        if fullname.startswith("wtb.cli.") or fullname.removeprefix("wtb.") in _MODULES:
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
                # Before the imports, which take long: the node process of `wtb run` starts meanwhile.
                module, _, function = ahead.partition(":")
                getattr(import_module(f"wtb.{module}"), function)(**options)
            for name in self._names:
                # Any use of a lazy module executes it.
                vars(sys.modules[name])
            _start_collecting()
            # If a process runs several commands, only the first one starts the collection above.
            gc.enable()
            return callback(**options)

        return run


# Once a process: asking Python whether anything is frozen counts all frozen objects.
@cache
def _start_collecting() -> None:
    """Collect garbage while a command runs, and spare everything from the collection at the end."""
    start_collecting()
    atexit.register(gc.freeze)
