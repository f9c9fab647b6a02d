"""The code of fires: node processes import it, and submit and run the same as a command does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.bench import in_memory
from tests.support.prose import sentence
from wtb.core.errors import InputError
from wtb.features.schedules import queries as store
from wtb.features.schedules.fire import carry_out, prepared_fire
from wtb.features.schedules.operations import add_schedule
from wtb.features.schedules.queries import NewSchedule
from wtb.operations.context import Context
from wtb.operations.running.preparing import prepare_file, prepare_single
from wtb.operations.running.submitting import submit
from wtb.store.database import Database
from wtb.store.read.baselines import Fire, fire_rows
from wtb.store.tables.schema import cases, cells, combinations, executions, sweeps

MODELS = """
from typing import Annotated

from pydantic import BaseModel

from wtb import Workflow


class Point(BaseModel):
    x: int
    on: tuple[int, int] = (1, 2)


def add(one, other):
    return one + other


class State(BaseModel):
    point: Point
    n: Annotated[int, add] = 0


def make():
    wf = Workflow("models", state=State, params={"by": 2})

    @wf.node(retries=2, timeout=60)
    def first(state, ctx):
        return {"n": state.point.x}

    @first.variant("twice")
    async def _(state):
        return {"n": 2 * state.point.x}

    @wf.node(queue="gpu")
    def last(state):
        return {}

    wf.entry(first)
    wf.edge(first, last, when=lambda state: state.n > 0)
    wf.edge(first, last, default=True)
    return wf


def made_cases():
    for number in range(1200):  # more than one message holds
        point = Point(x=number)
        files = {"in.txt": "note.txt", "more/it.txt": "note.txt"} if number % 400 == 0 else {}
        yield {"id": f"c{number}", "input": {"point": point}, "expected": {"n": number}, "tags": ["a", "b"],
               "cluster": f"k{number // 7}", "files": files}


def thrice(state, *, by: int = 3):
    return {"n": by * state.point.x}


def score(case, result):
    return result.state["n"]
"""
GRAPHS = """
from typing import TypedDict

from langgraph.graph import END, START, StateGraph


class State(TypedDict):
    n: int


graph = StateGraph(State)
graph.add_node("one", lambda state: {"n": state["n"] + 1})
graph.add_node("two", lambda state: {"n": 2 * state["n"]})
graph.add_edge(START, "one")
graph.add_edge("one", "two")
graph.add_edge("two", END)
"""
SWEEPS = {
    "models": """
workflow: "models:make"
cases: "models:made_cases"
params: {by: 5}
vary: {first: [default, twice, {name: thrice, with: "models:thrice", by: 7}]}
baseline: {first: twice}
exclude: [{first: thrice}]
evaluate: ["models:score", {exact_match: {field: n}}]
gates: ["score >= 0"]
margin: {score: 1}
limits: {nodes: {first: {node_runs: 9000}}}
""",
    "files": """
workflow: "models:make"
cases: cases.jsonl
vary: {first: all}
repeats: 2
holdout: 0.3
redact: {patterns: {secret: 'secret-[0-9]+'}}
run: {rlimits: {memory: 2GB}}
""",
    "grid": """
workflow: "models:make"
cases: cases.jsonl
params: {prompt: "file://note.txt"}
vary: {first: [default, {with: "models:thrice", by: [7, 8]}], last: all}
baseline: {first.by: 8}
exclude: [{first.by: 7}]
""",
    "graph": "workflow: graphs:graph\ncases: [{id: a, input: {n: 1}}, {id: b, input: {n: 2}}]\nvary: {two: all}\n",
}
LINES = '{"id": "%s", "input": {"point": {"x": 1, "on": [3, 4]}}, "expected": "secret-12", "cluster": "%s"}\n'


class Place:
    """A folder with sweep files and their code, and a database."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.folder = folder
        self.context = Context(database, files=folder / "kept")

    def write(self, sweep: str, **code: str) -> Path:
        """Write a sweep file, and modules. Returns the file."""
        for name, text in code.items():
            (self.folder / f"{name}.py").write_text(text)
        file = self.folder / "sweep.yaml"
        file.write_text(sweep)
        return file

    def fire(self, **options: Any) -> Fire:
        """Carry out a fire of a schedule that exists already, such as one whose file was changed since."""
        database = self.context.database
        row = {"file": str(self.folder / "sweep.yaml"), "folder": str(self.folder), "session": "default"}
        row |= {"name": "nightly", "cron": "0 3 * * *", "tz": "UTC", "missed": "once", "queued": False}
        new = NewSchedule(**{**row, "margin": {}, "notify": {}, "baseline": None, **options})
        schedule = store.add_schedule(database, new)
        store.make_manual(database, schedule.id)
        claimed = store.claim(database, store.open_fires(database)[-1])
        assert claimed is not None
        carry_out(self.context, claimed)
        return fire_rows(database, schedule.id)[-1]

    def rows(self, sweep: str) -> dict[str, list[dict[str, Any]]]:
        """Return all that is stored of a submission, without ids and times."""
        rows_by_table = {}
        with self.context.database.read() as connection:
            for table in (sweeps, combinations, cases, executions, cells):
                column = table.c.id if table is sweeps else table.c.sweep_id
                named = connection.execute(sa.select(table).where(column == sweep)).mappings()
                left_out = {"id", "sweep_id", "execution_id", "created_at", "started_at"}
                if table is cases:
                    left_out -= {"id"}
                rows_by_table[table.name] = [{key: row[key] for key in row if key not in left_out} for row in named]
                rows_by_table[table.name].sort(key=str)
        return rows_by_table


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    database = in_memory()
    yield Place(database, tmp_path)
    database.close()
    for name in set(sys.modules) - before:
        if (tmp_path / f"{name}.py").exists():
            del sys.modules[name]


@pytest.fixture
def walled(prepared_postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A database in which workers have their own role, unlike the current process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    database = Database(prepared_postgres_url)
    yield Place(database, tmp_path)
    database.close()


@pytest.mark.parametrize("name", SWEEPS)
def test_a_fire_submits_what_a_command_submits(quick: Place, name: str) -> None:
    """The sweeps use models, tuples, reducers, added variants, files, clusters, several messages and redaction."""
    (quick.folder / "note.txt").write_text("hello")
    (quick.folder / "cases.jsonl").write_text("".join(LINES % (f"c{n}", f"k{n // 3}") for n in range(30)))
    file = quick.write(SWEEPS[name], models=MODELS, graphs=GRAPHS)
    context = quick.context
    with prepared_fire(context, file, None) as prepared:
        by_fire = prepared.submit(context.database, context.workspaces)
    assert not {"models", "graphs"} & sys.modules.keys()
    by_command = prepare_file(file).submit(context.database, context.workspaces)
    fired, commanded = quick.rows(by_fire), quick.rows(by_command)
    for table, rows in commanded.items():
        for row, same in zip(fired[table], rows, strict=True):
            assert {key: value for key, value in row.items() if value != same[key]} == {}
    assert not list(quick.context.workspaces.root.rglob("*"))


@pytest.mark.parametrize("name", SWEEPS)
def test_a_fire_runs_code_that_its_process_does_not_import(quick: Place, name: str) -> None:
    (quick.folder / "note.txt").write_text("hello")
    (quick.folder / "cases.jsonl").write_text("".join(LINES % (f"c{n}", f"k{n // 3}") for n in range(6)))
    quick.write(SWEEPS[name], models=MODELS.replace("range(1200)", "range(5)"), graphs=GRAPHS)
    fire = quick.fire()
    assert fire.verdict == "cannot tell", fire.why
    assert not {"models", "graphs"} & sys.modules.keys()
    with quick.context.database.read() as connection:
        statuses = set(connection.scalars(sa.select(cells.c.status)))
    assert statuses == {"succeeded"}


GOOD = "from wtb import Workflow\nwf = Workflow('flow')\nwf.node(lambda state: {}, name='a')\nwf.entry('a')\n"
SWEEP = "workflow: flow:wf\ncases: flow:rows\nvary: {a: all}\n"


@pytest.mark.parametrize(
    ("sweep", "code", "why"),
    [
        (SWEEP, "import nothing_of_that_name", "No module named 'nothing_of_that_name'"),
        (SWEEP, "import os\nos.kill(os.getpid(), 9)", sentence("killed by {}", "SIGKILL")),
        (SWEEP, "raise SystemExit(3)", sentence("cannot be imported")),
        (SWEEP, GOOD + "rows = 7", "sweep.yaml:2: "),
        (SWEEP, GOOD + "def rows():\n    yield {'input': {}}\n    raise LookupError('gone')", "gone"),
        (SWEEP, GOOD + "rows = [{'input': {'x': object()}}]", "case '1'"),
        (SWEEP, GOOD + "rows = [{'input': {}, 'files': ['absent.txt']}]", "absent.txt"),
        (
            SWEEP,
            GOOD + "seen = []\ndef rows():\n    seen.append(1)\n    assert len(seen) < 3, 'only so often'\n"
            "    yield {'input': {}}",
            "only so often",
        ),
        (
            SWEEP,
            GOOD + "import os, wtb.planning.prepare as p\np.Prepared.encode = lambda *_: os._exit(5)\n"
            "rows = [{'input': {}}]",
            "exit code 5",
        ),
        (
            SWEEP,
            GOOD + "import wtb.execution.sandbox.preparation as p\n"
            "p._next_cases = lambda _: [['a', {'x': 99}, None, [], None, [], None]]\nrows = [{'input': {}}]",
            sentence("is not a message"),
        ),
        (
            SWEEP,
            GOOD + "import wtb.execution.sandbox.preparation as p\n"
            "p._head_of = lambda _: {'choices': [{'b': 'c'}], 'baseline': None, 'cases': 1, 'clusters': [], "
            "'tools': {}}\nrows = [{'input': {}}]",
            sentence("is not a message"),
        ),
        (SWEEP + "evaluate: ['flow:absent']\n", GOOD + "rows = [{'input': {}}]", "has no 'absent'"),
        (SWEEP + "gates: ['absent >= 1']\n", GOOD + "rows = [{'input': {}}]", "absent"),
    ],
)
def test_code_that_cannot_be_prepared_fails_its_fire(quick: Place, sweep: str, code: str, why: str) -> None:
    quick.write(sweep, flow=code)
    fire = quick.fire()
    assert (fire.verdict, fire.sweep_id) == ("failed", None), fire.why
    assert why in " ".join(fire.why)
    assert "flow" not in sys.modules
    with quick.context.database.read() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(sweeps)) == 0


ON_THREADS = SWEEP + "run: {pool: thread}\n"
PLAIN = GOOD + "rows = [{'input': {}}]\n"
REFUSED = r"sweep.yaml:4: 'run.pool: thread' runs nodes in the worker or scheduler itself.*expected 'pool: process'"


@pytest.mark.parametrize("queued", [True, False])
def test_threads_are_refused_for_fires_where_workers_have_a_role(walled: Place, queued: bool) -> None:
    file = walled.write(ON_THREADS, flow=PLAIN)
    with pytest.raises(InputError, match=REFUSED):
        add_schedule(walled.context, "nightly", file, cron="0 3 * * *", queued=queued)
    sys.modules.pop("flow")
    fire = walled.fire(queued=queued)  # its file was changed after it was added
    assert (fire.verdict, fire.sweep_id) == ("failed", None)
    assert sentence("'run.pool: thread' runs nodes in the worker or scheduler itself") in " ".join(fire.why)
    assert "flow" not in sys.modules


@pytest.mark.parametrize("single", [True, False])
def test_threads_are_refused_at_submission_where_workers_have_a_role(walled: Place, single: bool) -> None:
    file = walled.write(ON_THREADS, flow=PLAIN)
    context = walled.context
    prepared = prepare_single("flow:wf", {}, run={"pool": "thread"}) if single else prepare_file(file)
    with pytest.raises(InputError, match=r"'run.pool: thread' runs nodes in the worker.*'pool: process'"):
        submit(context, prepared, anyway=True)
    with context.database.write() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(sweeps)) == 0
        for table in connection.scalars(sa.text("SELECT tablename FROM pg_policies WHERE policyname = 'worker'")):
            connection.exec_driver_sql(f"DROP POLICY worker ON {table}")
    assert submit(context, prepared, anyway=True).cells == 1  # as on a server that has no such role
    sys.modules.pop("flow")


def test_threads_run_in_the_process_of_a_fire_where_workers_have_no_role(quick: Place) -> None:
    quick.write(ON_THREADS, flow=PLAIN)
    assert quick.fire().verdict == "cannot tell"
    assert "flow" in sys.modules
