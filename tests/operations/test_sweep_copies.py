"""A sweep is copied to another database of either kind whole or not at all, and stays what it was."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.project import Project
from tests.support.prose import sentence
from wtb.store.database import Database
from wtb.store.files.locations import workspaces_of
from wtb.store.transfer import sweep_copy

FLOW = """
from pathlib import Path
from typing import TypedDict

from wtb import END, Workflow


class State(TypedDict):
    x: int
    y: int


wf = Workflow("steps", state=State)


@wf.node
def first(state, ctx):
    (ctx.workspace / "seen.txt").write_text(f"file of {state['x']}")
    print("output")
    ctx.cost(usd=0.25, tokens_in=7)
    return {"x": state["x"] + 1}


@wf.node
def second(state, *, by: int = 1):
    if by == 2 and state["x"] == 2:
        raise ValueError("not this one")
    return {"y": state["x"] * by}


second.variant("twice", by=2)
wf.entry(first)
wf.edge(first, second)
wf.edge(second, END)


def score(case, result):
    return result.state["y"]


def half(case, result):
    return result.state["y"] / 2
"""
KILLED = -signal.SIGKILL
SWEEP = """
sweep: steps
workflow: steps_flow:wf
cases: cases.jsonl
vary: {second: all}
evaluate: ["steps_flow:score"]
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path / "one")
    cases = "".join(json.dumps({"id": f"c{n}", "input": {"x": n}, "tags": ["odd"]}) + "\n" for n in range(4))
    made.write({"steps_flow.py": FLOW, "cases.jsonl": cases, "sweep.yaml": SWEEP})
    return made


@pytest.fixture
def there(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/there/elsewhere.db"


@pytest.fixture(params=["sqlite", "postgresql"])
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    (tmp_path / "there").mkdir()
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/there/elsewhere.db"
    else:
        yield request.getfixturevalue("fresh_postgres_url")


def shown(project: Project, *command: str, db: str | None = None) -> Any:
    where = () if db is None else ("--db", db)
    return project.inside(*command, "--format", "json", *where, check=0).json


def logged(project: Project, db: str | None = None) -> list[tuple[str, Any, str]]:
    where = () if db is None else ("--db", db)
    lines = project.inside("log", "steps", "--format", "json", *where, check=0).stdout.splitlines()
    return [(event["kind"], event["data"], event["at"]) for event in map(json.loads, lines)]


VIEWS = (
    ("matrix", "steps"),
    ("show", "steps", "--cells"),
    ("costs", "steps"),
    ("tree", "steps"),
)


def test_a_copy_shows_what_the_sweep_shows_and_comes_back_the_same(
    project: Project, elsewhere: str, tmp_path: Path
) -> None:
    project.inside("run", "sweep.yaml", "--quiet")
    cells = shown(project, "show", "steps", "--cells")["cells"]
    execution = next(cell["execution"] for cell in cells if cell["status"] == "succeeded")
    project.inside("rollback", execution, "--to", "first", check=0)
    project.inside("rollback", execution, "--undo", check=0)
    views = [shown(project, *view) for view in VIEWS]
    history, log = shown(project, "history", execution), logged(project)

    copied = shown(project, "copy", "steps", "--to", elsewhere)
    assert copied["is_new"]
    assert copied["rows"]["cells"] == 8
    assert copied["files"] >= 4
    for view, before in zip(VIEWS, views, strict=True):
        assert shown(project, *view, db=elsewhere) == before, view
    assert shown(project, "history", execution, db=elsewhere) == history
    *events, last = logged(project, elsewhere)
    assert events == log
    assert last[0] == "sweep.copied"
    text = project.inside("files", execution, "seen.txt", "--db", elsewhere, check=0).stdout
    assert text.startswith("file of ")
    rows = shown(project, "audit", "list", db=elsewhere)["audit"]
    assert rows[0]["operation"] == "copy"

    again = shown(project, "copy", "steps", "--to", elsewhere)
    assert not again["is_new"]
    back = f"sqlite:///{tmp_path}/back.db"
    assert shown(project, "copy", "steps", "--db", elsewhere, "--to", back)["is_new"]
    assert shown(project, "matrix", "steps", db=back) == views[0]


def test_a_copy_that_differs_is_named_and_kept(project: Project, there: str) -> None:
    project.inside("run", "sweep.yaml", "--quiet")
    project.inside("copy", "steps", "--to", there, check=0)
    project.inside("score", "steps", "--evaluate", "steps_flow:half", check=0)
    refused = project.inside("copy", "steps", "--to", there, check=2)
    assert sentence("differs in {}: delete it there to copy it anew", "metrics, scores") in refused.said
    assert list(shown(project, "matrix", "steps", db=there)["metrics"]) == ["score"]


def test_a_paused_copy_goes_on_where_it_is(project: Project, there: str) -> None:
    project.write({"sweep.yaml": SWEEP + "limits: {node_runs: 5}\n"})
    project.inside("run", "sweep.yaml", "--quiet")
    assert shown(project, "show", "steps")["sweep"]["status"] == "paused"
    project.inside("copy", "steps", "--to", there, check=0)
    project.inside("resume", "steps", "--limits", "node_runs=none", "--db", there)
    matrix = shown(project, "matrix", "steps", db=there)
    assert (matrix["cells"]["succeeded"], matrix["cells"]["failed"]) == (7, 1)
    assert matrix["node_runs"]["executed"] == 11
    assert shown(project, "show", "steps")["sweep"]["status"] == "paused"
    assert "differs in" in project.inside("copy", "steps", "--to", there, check=2).said


def test_nothing_is_seen_of_a_copy_that_was_killed_and_it_can_be_repeated(project: Project, there: str) -> None:
    project.inside("run", "sweep.yaml", "--quiet")
    project.wtb("copy", "steps", "--to", there, env={"WTB_FAULT": "copy.batch:5"}, check=KILLED)
    assert "no sweeps" in project.inside("list", "--db", there, check=0).said
    early = project.inside("copy", "steps", "--to", there, check=2)
    assert sentence("copy it again in") in early.said
    database = Database(there)
    with database.write() as connection:
        connection.exec_driver_sql("UPDATE sweeps SET created_at = created_at - 61")
    database.close()
    assert shown(project, "copy", "steps", "--to", there)["is_new"]
    assert shown(project, "matrix", "steps", db=there) == shown(project, "matrix", "steps")


def test_a_damaged_value_or_file_leaves_nothing_there(project: Project, there: str) -> None:
    project.inside("run", "sweep.yaml", "--quiet")
    project.change('UPDATE "values" SET data = \'[1]\' WHERE digest = (SELECT min(digest) FROM "values")')
    assert "damaged" in project.inside("copy", "steps", "--to", there, check=4).said
    assert "no sweeps" in project.inside("list", "--db", there, check=0).said
    other = Database(there)
    with other.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM cells").scalar() == 0
    other.close()


def test_a_missing_file_is_found_before_rows_are_written(project: Project, there: str) -> None:
    project.inside("run", "sweep.yaml", "--quiet")
    database = Database(f"sqlite:///{project.file}")
    with database.read() as connection:
        (sweep_id,) = connection.exec_driver_sql("SELECT id FROM sweeps").scalars().all()
        lost = sweep_copy.snapshots_of(connection, sweep_id)[0]
    files = workspaces_of(database, None).files.of_project("default")
    (entry,) = files.manifest(lost).values()
    for path in files.root.rglob(f"*{entry.digest[4:]}*"):
        path.unlink()
    database.close()
    assert sentence("missing or damaged") in project.inside("copy", "steps", "--to", there, check=4).said


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("nothing", "--to", "sqlite:///x.db"), sentence("there is no sweep {}", "'nothing'")),
        (("steps", "--to", "sqlite:///.wtb/wtb.db"), sentence("is the database that the sweep is in")),
        (("steps", "--to", "mysql://localhost/x"), "mysql"),
        (("steps", "--to", "sqlite:///x.db", "--session", "nobody"), "nobody"),
    ],
)
def test_bad_input_is_rejected(project: Project, arguments: tuple[str, ...], problem: str) -> None:
    project.inside("run", "sweep.yaml", "--quiet")
    refused = project.inside("copy", *arguments, check=2)
    assert problem in refused.said


def test_with_only_a_source_a_sweep_is_copied_to_the_database_of_the_folder(project: Project, there: str) -> None:
    project.inside("run", "sweep.yaml", "--quiet", "--db", there)
    missing = project.inside("show", "steps", "--db", "sqlite:///other.db")
    assert missing.code == 2
    database = Database(f"sqlite:///{project.folder}/other.db")
    database.prepare()
    database.close()
    missing = project.inside("show", "steps", "--db", "sqlite:///other.db", check=2)
    assert missing.stderr.endswith("`wtb list` shows all (searched sqlite:///other.db)\n")
    project.inside("copy", "steps", "--db", there, check=0)
    assert shown(project, "matrix", "steps") == shown(project, "matrix", "steps", db=there)


def test_a_database_of_another_version_is_rejected(project: Project, there: str) -> None:
    project.inside("run", "sweep.yaml", "--quiet")
    database = Database(there)
    database.prepare()
    with database.write() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    database.close()
    refused = project.inside("copy", "steps", "--to", there, check=2).said
    assert sentence("use the newer WTB that made it") in " ".join(refused.split())


def test_a_running_sweep_and_a_pool_are_rejected(project: Project, there: str) -> None:
    for name in ("a", "b"):
        project.write({"sweep.yaml": SWEEP.replace("sweep: steps", f"sweep: {name}")})
        project.inside("run", "sweep.yaml", "--quiet")
    project.inside("pool", "a", "b", "--name", "both", check=0)
    assert sentence("is a pool of others") in project.inside("copy", "both", "--to", there, check=2).said
    project.change("UPDATE sweeps SET status = 'running' WHERE name = 'a'")
    assert "pause it with" in project.inside("copy", "a", "--to", there, check=2).said
