"""Two projects that have one of everything each, and calls of every operation by whoever is limited to one of them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from tests.support.bench import Bench, make_bench
from wtb import END, Workflow
from wtb.core.errors import WTBError
from wtb.features.access.operations import create_token, create_user, grant_access
from wtb.features.schedules import queries
from wtb.operations.budgets import set_budgets
from wtb.operations.context import Context
from wtb.operations.identity import Identity, Method
from wtb.operations.projects import create_project
from wtb.operations.registry import OPERATIONS, Operation, Permission
from wtb.operations.results.comparing import set_baseline
from wtb.operations.sessions import create_session
from wtb.store.control.rescore import ask_to_score
from wtb.store.database import Database
from wtb.store.tables.schema import approvals, checkpoints, executions

NOTHING = "iiiiiiii"  # no name or id begins so

# What an argument of an operation names.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "ref": ("sweep", "sweep_name", "execution", "approval", "checkpoint"),
    **dict.fromkeys(("a", "b", "other", "execution"), ("execution",)),
    **dict.fromkeys(("before", "after", "sweep", "refs"), ("sweep", "sweep_name")),
    **{name: (name,) for name in ("session", "project", "token", "baseline", "scoring")},
    "at": ("checkpoint",),
    "questions": ("approval", "sweep"),
}
_SEVERAL = {"questions", "refs"}  # arguments that are lists
_ROWS = {("matrices.show", "baseline")}  # what is the number of a row

# Arguments that name nothing of a project: amounts, words, choices, files of the caller's, and people, who are of none.
_NAMES_NOTHING = """
    action add again allow_code_change allow_private answer anyway approval archived asking at_once bound
    breakpoints budget by calls case cases cell choice clear closed code columns combination command comparisons
    content create_only cron differ directory dry_run edited endpoint evaluate evaluator expected expires_s failed
    failed_only feedback field file folder follow force from_node full group_by headers heads input interval_s keep
    key keys kinds label labels limit limits looked_into margin max_bytes max_cells metadata metric missed mode
    new_name note notify now number offset on_failure openinference own owner part path payload pdb pilot pivot
    policy prepared priority progress protobuf provider queued quota rater reason remove repeat repeats role row
    rows run scale scopes set severity since singles sort state status statuses strict sweeps tag team text texts
    timeout to typed tz undo until update user value values variants vary where within workflow worst written
    wrong
"""
_NAMED_BY_GROUP = ("schedule", "session", "project", "token", "baseline")  # what `name` names, by the operation's
_PREPARED = {"prepared"}  # what a caller has made of its own things
# Where `name` is that of what is made.
_NEW = {"projects.create", "sessions.create", "tokens.create", "schedules.add", "checkpoints.name"}


def asking() -> Workflow:
    """a -> b, where b asks somebody."""
    wf = Workflow("asking")

    @wf.node
    def a(state: Any) -> Any:
        return {"x": state["x"] + 1}

    @wf.node
    def b(state: Any, ctx: Any) -> Any:
        ctx.ask("Go on?", context={"x": state["x"]})
        return {"y": 1}

    wf.entry(a)
    wf.edge(a, b)
    wf.edge(b, END)
    return wf


def plain() -> Workflow:
    """One node."""
    wf = Workflow("plain")

    @wf.node
    def a(state: Any) -> Any:
        return {"x": state["x"] + 1}

    wf.entry(a)
    wf.edge(a, END)
    return wf


@dataclass
class Tenant:
    """A project with a sweep that waits for an answer, a session, a baseline, a schedule, a token and budgets.

    Each has the project's name in its own.
    """

    context: Context
    folder: Path
    project: str
    bench: Bench = field(init=False)
    names: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        name, context = self.project, self.context
        create_project(context, name)
        create_session(context, self.called("session"), project=name)
        self.bench = make_bench(
            context.database, self.folder, asking(), sweep=self.called("sweep"), session=self.called("session")
        )
        self.bench.run()
        create_token(context, self.called("token"), project=name, budget={"usd": 20.0})
        set_budgets(context, {"usd": 100.0}, project=name)
        create_user(context, self.called("user"))
        grant_access(context, "runner", user=self.called("user"), project=name)
        done = make_bench(
            context.database, self.folder, plain(), sweep=self.called("done"), session=self.called("session")
        )
        done.run()
        self.names["scoring"] = ask_to_score(context.database, self.bench.sweep_id, [{"regex": {}}], queue="", by="ann")
        set_baseline(context, self.called("baseline"), done.sweep_id)
        file = self.folder / f"{self.project}.yaml"
        queries.add_schedule(context.database, nightly(self.called("schedule"), self.called("session"), file))
        self.names |= {kind: self.called(kind) for kind in ("session", "baseline", "schedule", "token")}
        self.names |= {"project": name, "sweep_name": self.called("sweep"), "sweep": self.bench.sweep_id}
        for kind, table in {"execution": executions, "approval": approvals, "checkpoint": checkpoints}.items():
            self.names[kind] = str(self.bench.rows(table)[0]["id"])

    def called(self, kind: str) -> str:
        """The name of its only thing of a kind: too unlike that of another project's for anybody to mean it."""
        return f"{self.project}.{kind[:2]}"


def nightly(name: str, session: str, file: Path) -> queries.NewSchedule:
    """A schedule that fires each night."""
    return queries.NewSchedule(
        name=name, session=session, file=str(file), folder=str(file.parent), cron="0 3 * * *", tz="UTC", missed="once",
        queued=False, baseline="last", margin={}, notify={},
    )  # fmt: skip


def limited_to(project: str, *permissions: Permission) -> Identity:
    """Return a caller with some permissions, by default all that exist, in one project."""
    return Identity("mallory", Method.token, dict.fromkeys(permissions or Permission, frozenset({project})))


@dataclass(frozen=True)
class Call:
    """A call of an operation with something that belongs to another project, or to nobody, in one argument."""

    name: str
    argument: str
    kind: str

    def __str__(self) -> str:
        return f"{self.name}-{self.argument}-{self.kind}"

    def arguments(self, own: Mapping[str, str], value: str, folder: Path) -> dict[str, Any]:
        """Return the arguments of the call: the caller's own names, except this one."""
        argument = [value] if self.argument in _SEVERAL else value
        return {**_required(self.name, OPERATIONS[self.name], own, folder), self.argument: argument}

    def outcome(self, context: Context, own: Mapping[str, str], value: str, folder: Path) -> str:
        """Return the outcome of the call, with the name replaced by X."""
        operation = OPERATIONS[self.name]
        arguments = self.arguments(own, value, folder)
        try:
            reply = operation.function(context, **arguments)
            text = repr(list(reply) if isinstance(reply, Iterator) else reply)
        except WTBError as error:
            text = f"{type(error).__name__}: {error}"
        return text.replace(value, "X")


def calls() -> list[Call]:
    """Every argument of every operation that names something, with every kind of thing that it may name."""
    return [
        Call(name, argument, kind)
        for name, operation in OPERATIONS.items()
        if not operation.everywhere and not _PREPARED & _parameters(operation).keys()
        for argument in _parameters(operation)
        for kind in _kinds(name, argument)
    ]


def unknown_arguments() -> set[str]:
    """Arguments of operations of which it is not said here whether they name something."""
    arguments = {argument for operation in OPERATIONS.values() for argument in _parameters(operation)}
    return arguments - _NAMES.keys() - set(_NAMES_NOTHING.split()) - {"name"}


def _kinds(name: str, argument: str) -> tuple[str, ...]:
    if argument == "name":
        return tuple(kind for kind in _NAMED_BY_GROUP if name.startswith(kind) and name not in _NEW)
    return () if (name, argument) in _ROWS else _NAMES.get(argument, ())


def _parameters(operation: Operation) -> dict[str, inspect.Parameter]:
    return dict(list(inspect.signature(operation.function).parameters.items())[1:])


def _required(name: str, operation: Operation, own: Mapping[str, str], folder: Path) -> dict[str, Any]:
    """Return the required arguments of an operation, with the caller's own names."""
    defaults = {
        "name": f"new-{name.replace('.', '-')}",
        "ref": own["sweep"],
        "file": folder / "no-file",
        "cron": "0 3 * * *",
        "path": "no-path",
        "to": "a",
        "directory": folder / "exported",
        "role": "viewer",
        "keys": {"workflow": "no-workflow", "cases": [{"id": "one", "input": {}}]},
        "limits": {"usd": 500.0},
        "action": "approve",
        **{argument: own[kinds[0]] for argument, kinds in _NAMES.items() if argument != "ref"},
    }
    if name not in _NEW and (kinds := _kinds(name, "name")):
        defaults["name"] = own[kinds[0]]
    return {
        argument: defaults.get(argument, "nothing")
        for argument, parameter in _parameters(operation).items()
        if parameter.default is parameter.empty
    }


def lists() -> list[str]:
    """Operations that need nothing, and say what there is."""
    return [
        name
        for name, operation in OPERATIONS.items()
        if operation.needs is Permission.read
        and not operation.everywhere
        and all(parameter.default is not parameter.empty for parameter in _parameters(operation).values())
    ]


def rows_of(database: Database) -> dict[str, list[str]]:
    """All that a database holds, but for the audit log, which has what was refused, too."""
    with database.read() as connection:
        tables = [name for name in sa.inspect(connection).get_table_names() if name not in ("alembic_version", "audit")]
        return {name: sorted(map(str, connection.execute(sa.text(f'SELECT * FROM "{name}"')))) for name in tables}
