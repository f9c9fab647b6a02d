"""Running whole sweeps, and reading back everything that they left in the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.databases import sqlite_tables
from wtb.authoring.workflow import Workflow
from wtb.core.serialization.codec import decode
from wtb.execution.runtime.sweep_run import Ended, ForkRun, SweepRun
from wtb.planning.prepare import Prepared, prepare
from wtb.planning.sweep_spec import parse_spec
from wtb.store.database import Database
from wtb.store.files.locations import workspaces_of
from wtb.store.read import queries
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.schema import checkpoints, executions, node_runs, scores
from wtb.store.tables.sweeps import SweepRow

CASES = ({"id": "one", "input": {"x": 1}},)


def one_node(function: Callable[..., Any], *, state: type | None = None, **rules: Any) -> Workflow:
    """A workflow of one node."""
    wf = Workflow("one", state=state)
    wf.entry(wf.node(function, **rules))
    return wf


@dataclass
class Bench:
    """One sweep: submitted when made, run as often as it is asked to."""

    database: Database
    prepared: Prepared
    folder: Path
    sweep_id: str = ""
    ended: list[Ended] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.workspaces = workspaces_of(self.database, self.folder)
        self.sweep_id = self.prepared.submit(self.database, self.workspaces)

    def without_sharing(self) -> Bench:
        """The same sweep in a database in memory of its own, with a root for each cell."""
        bound, spec = self.prepared.bound, self.prepared.bound.spec
        alone = spec.model_copy(update={"run": spec.run.model_copy(update={"share": False})})
        return Bench(in_memory(), replace(self.prepared, bound=replace(bound, spec=alone)), self.folder)

    @property
    def row(self) -> SweepRow:
        return queries.find_sweep(self.database, self.sweep_id)

    @property
    def status(self) -> str:
        return str(self.row.status)

    def start(self, **limits: Any) -> SweepRun:
        run = SweepRun(self.database, self.row, self.prepared.bound, workspaces=self.workspaces, limits=limits)
        run.start()
        return run

    def run_fork(self, id: str) -> Ended:
        """Run a fork of one of its executions to its end."""
        return ForkRun(self.database, id, self.row, self.prepared.bound, self.workspaces).run_here()

    def run(self, **limits: Any) -> Ended:
        """Run until it ends or pauses. `limits` replace those of the sweep, as on resume."""
        self.ended.append(finish(self.start(**limits)))
        return self.ended[-1]

    def rows(self, table: sa.Table) -> list[dict[str, Any]]:
        """All rows of a table that belong to this sweep."""
        query = sa.select(table).where(table.c.sweep_id == self.sweep_id)
        with self.database.read() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    def matrix(self, **settings: Any) -> dict[str, Any]:
        """The matrix of the sweep as it is now; settings are those of `build`."""
        from wtb.analysis.matrix.build import build  # with numpy

        return dict(build(self.database, self.row, **settings))

    @property
    def counts(self) -> dict[str, int]:
        return queries.cell_counts(self.database, self.sweep_id)

    @property
    def node_runs(self) -> list[dict[str, Any]]:
        return self.rows(node_runs)

    @property
    def executed(self) -> int:
        return sum(run["status"] == "succeeded" for run in self.node_runs)

    @property
    def unshared(self) -> int:
        return sum(run["cells"] for run in self.node_runs if run["status"] == "succeeded")

    @property
    def executions(self) -> list[ExecutionRow]:
        mine = sa.select(executions).where(executions.c.sweep_id == self.sweep_id).order_by(executions.c.id)
        return self.database.records(ExecutionRow, mine)

    @property
    def events(self) -> list[dict[str, Any]]:
        return queries.event_rows(self.database, self.sweep_id)

    @property
    def identities(self) -> list[tuple[str, str, str]]:
        return [(run["checkpoint_id"], run["task"], run["variant"]) for run in self.node_runs]

    def ran(self, node: str) -> list[dict[str, Any]]:
        return [run for run in self.node_runs if run["node"] == node]

    def cells(self) -> list[Cell]:
        """Every cell with its final state decoded, in the order of case, repeat and combination."""
        choices = queries.choices(self.database, self.sweep_id)
        rows = list(queries.cell_rows(self.database, self.sweep_id))
        states = queries.checkpoint_states(self.database, (row.head_id for row in rows if row.head_id))
        stored = queries.load_values(self.database, (key for state in states.values() for key in state.values()))
        scored: dict[tuple[int, int, int], dict[str, Any]] = {}
        for row in self.rows(scores):
            place = (row["case_number"], row["repeat"], row["combination"])
            scored.setdefault(place, {})[row["metric"]] = row["value"] if row["error"] is None else row["error"]
        checkpoints_by_id = {row["id"]: row for row in self.rows(checkpoints)}

        def path(head: str | None) -> tuple[str, ...]:
            at = checkpoints_by_id.get(head)
            return () if at is None else (*path(at["parent_id"]), *(writer[0] for writer in at["writers"]))

        cells = []
        for row in rows:
            state = {name: decode(stored[key].data) for name, key in states.get(row.head_id, {}).items()}
            figures = scored.get((row.case_number, row.repeat, row.combination), {})
            ended = (row.status, state, path(row.head_id), figures, row.failure, row.node_runs, row.elapsed_s)
            cells.append(Cell(row.case, row.repeat, choices[row.combination], *ended))
        return cells

    def follow(self) -> list[int]:
        """The events' ids, read as a follower does: three at a time, each time after the last one seen."""
        seen: list[int] = []
        after = (-1, 0)
        while page := queries.event_rows(self.database, self.sweep_id, after=after, limit=3):
            seen += [row["id"] for row in page]
            after = (page[-1]["transaction"], page[-1]["id"])
        return seen


@dataclass
class Cell:
    """A cell as it stands in the database."""

    case: str
    repeat: int
    combination: Mapping[str, str]
    status: str
    state: dict[str, Any]
    path: tuple[str, ...]
    scores: dict[str, Any]
    failure: Mapping[str, Any] | None
    node_runs: int | None
    elapsed_s: float | None

    @property
    def error(self) -> str:
        assert self.failure is not None, f"cell {self.combination} has not failed"
        where = f"node {self.failure['node']!r}: " if self.failure["node"] else ""
        return f"{where}{self.failure['type']}: {self.failure['message']}"


def finish(run: SweepRun) -> Ended:
    """Wait until a run has ended or paused, and end it."""
    while not run.wait(30):
        pass
    return run.finish()


def in_memory() -> Database:
    """A prepared database that is gone when it is closed."""
    opened = Database("sqlite://")
    with opened.read() as connection:
        connection.connection.driver_connection.deserialize(sqlite_tables())  # type: ignore[union-attr]
    return opened


def make_bench(
    database: Database,
    folder: Path,
    workflow: Workflow,
    cases: Sequence[Mapping[str, Any]] = CASES,
    vary: Mapping[str, Any] | None = None,
    *,
    evaluators: Mapping[str, Callable[..., Any]] | None = None,
    **spec: Any,
) -> Bench:
    """Submit a sweep. Without `vary` the first node is, so that there is one combination."""
    first = next(iter(workflow.nodes))
    data = {"workflow": "tests:wf", "cases": [dict(case) for case in cases], "evaluate": list(evaluators or ())}
    data |= {"vary": dict(vary or {first: ["default"]}), **spec}
    return Bench(database, prepare(parse_spec(data), workflow=workflow, evaluators=evaluators), folder)


@pytest.fixture
def database(prepared_url: str) -> Iterator[Database]:
    """A prepared database; the test runs once on SQLite and once on PostgreSQL."""
    opened = Database(prepared_url)
    yield opened
    opened.close()


@pytest.fixture
def bench(database: Database, tmp_path: Path) -> Callable[..., Bench]:
    """Submit a sweep of a workflow: `bench(workflow, cases, vary, **spec)`, then `.run()`."""

    def make(workflow: Workflow, *args: Any, **spec: Any) -> Bench:
        return make_bench(database, tmp_path / "files", workflow, *args, **spec)

    return make


@pytest.fixture
def run_sweep(bench: Callable[..., Bench]) -> Callable[..., Bench]:
    """Submit a sweep and run it to its end."""

    def run(workflow: Workflow, *args: Any, **spec: Any) -> Bench:
        sweep = bench(workflow, *args, **spec)
        sweep.run()
        return sweep

    return run


@pytest.fixture(scope="session")
def memory_bench(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Bench]:
    """The same in a database in memory of its own, for tests that run hundreds of sweeps; the caller closes it."""
    folder = tmp_path_factory.mktemp("workspaces")

    def make(workflow: Workflow, *args: Any, **spec: Any) -> Bench:
        return make_bench(in_memory(), folder, workflow, *args, **spec)

    return make


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Steps a LangGraph graph through WTB's engine: see graph_stepping.Stepping."""
    from tests.integrations.langgraph.graph_stepping import Stepping

    stepping = Stepping(tmp_path_factory.mktemp("stepping"))
    yield stepping
    stepping.caller.close()
