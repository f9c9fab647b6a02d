"""A sweep is copied to another database completely or not at all, and does not change."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.project import Project
from tests.support.prose import sentence
from wtb.store.database import Database
from wtb.store.files.locations import workspaces_of
from wtb.store.housekeeping import sweep_copy

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
    new_project = Project(tmp_path / "one")
    cases = "".join(json.dumps({"id": f"c{n}", "input": {"x": n}, "tags": ["odd"]}) + "\n" for n in range(4))
    new_project.write({"steps_flow.py": FLOW, "cases.jsonl": cases, "sweep.yaml": SWEEP})
    return new_project


@pytest.fixture
def other_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/there/elsewhere.db"


@pytest.fixture(params=["sqlite", "postgresql"])
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    (tmp_path / "there").mkdir()
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/there/elsewhere.db"
    else:
        yield request.getfixturevalue("fresh_postgres_url")


def json_of(project: Project, *command: str, db: str | None = None) -> Any:
    where = () if db is None else ("--db", db)
    return project.inside(*command, "--format", "json", *where, check=0).json


def logged(project: Project, db: str | None = None) -> list[tuple[str, Any, str]]:
    where = () if db is None else ("--db", db)
    lines = project.inside("log", "steps", "--format", "json", *where, check=0).stdout.splitlines()
    return [(event["kind"], event["data"], event["at"]) for event in map(json.loads, lines)]


VIEWS = (("matrix", "steps"), ("show", "steps", "--cells"), ("costs", "steps"), ("tree", "steps"))


def test_a_copy_shows_what_the_sweep_shows_and_comes_back_the_same(
    project: Project, elsewhere: str, tmp_path: Path
) -> None:
    project.inside("run", "sweep.yaml", "--quiet")
    cells = json_of(project, "show", "steps", "--cells")["cells"]
    execution = next(cell["execution"] for cell in cells if cell["status"] == "succeeded")
    project.inside("rollback", execution, "--to", "first", check=0)
    project.inside("rollback", execution, "--undo", check=0)
    views = [json_of(project, *view) for view in VIEWS]
    history, log = json_of(project, "history", execution), logged(project)

    copied = json_of(project, "admin", "copy", "steps", "--to", elsewhere)
    assert copied["is_new"]
    assert copied["rows"]["cells"] == 8
    assert copied["files"] >= 4
    for view, before in zip(VIEWS, views, strict=True):
        assert json_of(project, *view, db=elsewhere) == before, view
    assert json_of(project, "history", execution, db=elsewhere) == history
    *events, last = logged(project, elsewhere)
    assert events == log
    assert last[0] == "sweep.copied"
    text = project.inside("files", execution, "seen.txt", "--db", elsewhere, check=0).stdout
    assert text.startswith("file of ")
    rows = json_of(project, "admin", "audit", "list", db=elsewhere)["audit"]
    assert rows[0]["operation"] == "sweeps.copy"

    second = json_of(project, "admin", "copy", "steps", "--to", elsewhere)
    assert not second["is_new"]
    back = f"sqlite:///{tmp_path}/back.db"
    assert json_of(project, "admin", "copy", "steps", "--db", elsewhere, "--to", back)["is_new"]
    assert json_of(project, "matrix", "steps", db=back) == views[0]


def test_a_copy_that_differs_is_named_and_kept(project: Project, other_url: str) -> None:
    project.inside("run", "sweep.yaml", "--quiet")
    project.inside("admin", "copy", "steps", "--to", other_url, check=0)
    project.inside("score", "steps", "--evaluate", "steps_flow:half", check=0)
    refused = project.inside("admin", "copy", "steps", "--to", other_url, check=2)
    assert sentence("differs in {}: delete it there to copy it anew", "metrics, scores") in refused.output
    assert list(json_of(project, "matrix", "steps", db=other_url)["metrics"]) == ["score"]


def test_a_paused_copy_continues_where_it_is(project: Project, other_url: str) -> None:
    project.write({"sweep.yaml": SWEEP + "limits: {node_runs: 5}\n"})
    project.inside("run", "sweep.yaml", "--quiet")
    assert json_of(project, "show", "steps")["sweep"]["status"] == "paused"
    project.inside("admin", "copy", "steps", "--to", other_url, check=0)
    project.inside("resume", "steps", "--limits", "node_runs=none", "--db", other_url)
    matrix = json_of(project, "matrix", "steps", db=other_url)
    assert (matrix["cells"]["succeeded"], matrix["cells"]["failed"]) == (7, 1)
    assert matrix["node_runs"]["executed"] == 11
    assert json_of(project, "show", "steps")["sweep"]["status"] == "paused"
    assert "differs in" in project.inside("admin", "copy", "steps", "--to", other_url, check=2).output


def test_nothing_is_seen_of_a_copy_that_was_killed_and_it_can_be_repeated(project: Project, other_url: str) -> None:
    project.inside("run", "sweep.yaml", "--quiet")
    project.wtb("admin", "copy", "steps", "--to", other_url, env={"WTB_FAULT": "copy.batch:5"}, check=KILLED)
    assert "no sweeps" in project.inside("list", "--db", other_url, check=0).output
    early = project.inside("admin", "copy", "steps", "--to", other_url, check=2)
    assert sentence("copy it again in") in early.output
    database = Database(other_url)
    database.execute(sa.text("UPDATE sweeps SET created_at = created_at - 61"))
    database.close()
    assert json_of(project, "admin", "copy", "steps", "--to", other_url)["is_new"]
    assert json_of(project, "matrix", "steps", db=other_url) == json_of(project, "matrix", "steps")


def test_a_damaged_value_or_file_leaves_nothing_there(project: Project, other_url: str) -> None:
    project.inside("run", "sweep.yaml", "--quiet")
    project.change('UPDATE "values" SET data = \'[1]\' WHERE digest = (SELECT min(digest) FROM "values")')
    assert "damaged" in project.inside("admin", "copy", "steps", "--to", other_url, check=4).output
    assert "no sweeps" in project.inside("list", "--db", other_url, check=0).output
    other = Database(other_url)
    with other.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM cells").scalar() == 0
    other.close()


def test_a_missing_file_is_found_before_rows_are_written(project: Project, other_url: str) -> None:
    project.inside("run", "sweep.yaml", "--quiet")
    database = Database(f"sqlite:///{project.file}")
    with database.read() as connection:
        (sweep_id,) = connection.exec_driver_sql("SELECT id FROM sweeps").scalars().all()
        lost = sweep_copy.snapshots_of(connection, sweep_id)[0]
    files = workspaces_of(database, None).files.of_project("default")
    (file,) = files.manifest(lost).values()
    for path in files.root.rglob(f"*{file.digest[4:]}*"):
        path.unlink()
    database.close()
    assert sentence("missing or damaged") in project.inside("admin", "copy", "steps", "--to", other_url, check=4).output


def test_bad_input_and_a_database_of_another_version_are_rejected(project: Project, other_url: str) -> None:
    project.inside("run", "sweep.yaml", "--quiet")
    database = Database(other_url)
    database.prepare()
    database.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    database.close()
    for arguments, problem in [
        (("nothing", "--to", "sqlite:///x.db"), sentence("there is no sweep {}", "'nothing'")),
        (("steps", "--to", "sqlite:///.wtb/wtb.db"), sentence("is the database that the sweep is in")),
        (("steps", "--to", "mysql://localhost/x"), "mysql"),
        (("steps", "--to", "sqlite:///x.db", "--session", "nobody"), "nobody"),
        (("steps", "--to", other_url), sentence("use the newer WTB that made it")),
    ]:
        refused = project.inside("admin", "copy", *arguments, check=2).output
        assert problem in " ".join(refused.split())


def test_with_only_a_source_a_sweep_is_copied_to_the_database_of_the_folder(project: Project, other_url: str) -> None:
    project.inside("run", "sweep.yaml", "--quiet", "--db", other_url)
    missing = project.inside("show", "steps", "--db", "sqlite:///other.db")
    assert missing.code == 2
    database = Database(f"sqlite:///{project.folder}/other.db")
    database.prepare()
    database.close()
    missing = project.inside("show", "steps", "--db", "sqlite:///other.db", check=2)
    assert missing.stderr.endswith("`wtb list` shows all (searched sqlite:///other.db)\n")
    project.inside("admin", "copy", "steps", "--db", other_url, check=0)
    assert json_of(project, "matrix", "steps") == json_of(project, "matrix", "steps", db=other_url)


def test_a_running_sweep_and_a_pool_are_rejected(project: Project, other_url: str) -> None:
    for name in ("a", "b"):
        project.write({"sweep.yaml": SWEEP.replace("sweep: steps", f"sweep: {name}")})
        project.inside("run", "sweep.yaml", "--quiet")
    project.inside("pool", "a", "b", "--name", "both", check=0)
    assert sentence("is a pool of others") in project.inside("admin", "copy", "both", "--to", other_url, check=2).output
    project.change("UPDATE sweeps SET status = 'running' WHERE name = 'a'")
    assert "pause it with" in project.inside("admin", "copy", "a", "--to", other_url, check=2).output
