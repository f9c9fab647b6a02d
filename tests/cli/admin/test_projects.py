"""init, workflow, doctor, db and delete, each as a user calls it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.prose import sentence
from wtb import Sweep, Workflow
from wtb.cli.admin import project as projects
from wtb.store.database import Database
from wtb.store.files.locations import workspaces_of
from wtb.store.process_identity import identity
from wtb.store.read import queries
from wtb.store.read.details import belongings
from wtb.store.runs import leases
from wtb.store.tables.schema import REVISION

if TYPE_CHECKING:
    from tests.support.project import Project

TEMPLATES = Path(projects.__file__).parents[1] / "templates" / "init"


@pytest.fixture
def demo(empty_project: Project) -> Project:
    """A folder as `wtb init` makes it."""
    empty_project.inside("init", check=0)
    return empty_project


def submitted(url: str) -> tuple[Database, str]:
    wf = Workflow("small")

    @wf.node
    def step(state: dict[str, Any], *, n: int = 1) -> dict[str, Any]:
        return {"n": n}

    wf.entry(step)
    database = Database(url)
    database.prepare()
    cases = [{"id": "a", "input": {"x": 1}}, {"id": "b", "input": {"x": 2}}]
    prepared = Sweep(name="small", workflow=wf, cases=cases, vary={"step": "all"}).prepare()
    return database, prepared.submit(database, workspaces_of(database))


def test_what_init_writes_runs_and_tells_variants_apart(demo: Project) -> None:
    assert sorted(path.name for path in demo.folder.iterdir()) == [
        "cases.jsonl",
        "sweep.yaml",
        "workflow.py",
        "wtb.toml",
    ]
    matrix = demo.wtb("run", "sweep.yaml", "--format", "json", check=0).json
    assert matrix["cells"]["succeeded"] == matrix["cells"]["total"] == 405
    means = {tuple(row["combination"].values()): row["metrics"]["right_team"]["mean"] for row in matrix["rows"]}
    assert 0.5 < means["words", "overlap"] < means["grams", "overlap"] < 1.0
    looked = demo.in_80_columns("show", "triage", "--cells", "--failed")
    assert (looked.code, looked.stdout) == (0, "")


def test_init_does_not_overwrite_unless_forced(empty_project: Project) -> None:
    (empty_project.folder / "sweep.yaml").write_text("mine")
    refused = empty_project.in_80_columns("init")
    assert refused.code == 2
    assert sentence("{} exists already; overwrite it with --force", "sweep.yaml") in refused.stderr
    assert [path.name for path in empty_project.folder.iterdir()] == ["sweep.yaml"]
    assert empty_project.in_80_columns("init", "--force").code == 0
    assert (empty_project.folder / "sweep.yaml").read_bytes() == (TEMPLATES / "sweep.yaml").read_bytes()
    assert sentence("is a file; expected a folder") in empty_project.in_80_columns("init", "sweep.yaml").stderr


def test_workflows_are_listed_and_drawn(demo: Project) -> None:
    listed = demo.in_80_columns("workflow", "list", "--format", "json").json
    assert listed == {"workflows": [{"name": "triage", "path": "workflow:wf"}]}
    assert "triage    workflow:wf" in demo.in_80_columns("workflow", "list").stdout
    drawn = demo.in_80_columns("workflow", "show", "triage").stdout
    assert "start ─▶ tokenize" in drawn
    assert "│ words (default)  Words in lower case.\n" in drawn
    assert "[alpha=0.02]" in drawn
    assert all(len(line) <= 80 for line in drawn.splitlines())
    graph = demo.in_80_columns("workflow", "show", "workflow:wf", "--format", "json").json
    assert [node["name"] for node in graph["nodes"]] == ["tokenize", "classify", "route"]


def test_an_unknown_workflow_is_refused_with_a_near_match(demo: Project) -> None:
    refused = demo.in_80_columns("workflow", "show", "triaje")
    assert refused.code == 2
    assert sentence("did you mean '{}'?", "triage") in refused.stderr
    (demo.folder / "wtb.toml").unlink()
    nothing = demo.in_80_columns("workflow", "list")
    assert (nothing.code, nothing.stdout) == (0, "")
    assert sentence("no workflow is registered") in nothing.stderr


def test_doctor_is_content_before_anything_was_run_and_makes_nothing(empty_project: Project) -> None:
    outcome = empty_project.in_80_columns("doctor", "--format", "json")
    assert outcome.code == 0, outcome.stdout
    document = outcome.json
    assert document["ok"] is True
    assert {"Python", "WTB", "SQLite", "database", "files", "free space"} <= {c["name"] for c in document["checks"]}
    assert list(empty_project.folder.iterdir()) == []
    text = empty_project.in_80_columns("doctor").stdout
    assert "all is well" in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_doctor_counts_what_a_database_holds(empty_project: Project) -> None:
    url = f"sqlite:///{empty_project.folder / 'wtb.db'}"
    submitted(url)[0].close()
    text = " ".join(empty_project.in_80_columns("doctor", "--db", url).stdout.split())
    assert f"its version {REVISION}" in text
    assert "1 sweep, 2 cells" in text


def test_doctor_says_how_to_mend_what_is_wrong(empty_project: Project) -> None:
    (empty_project.folder / "wtb.toml").write_text("[workflows\n")
    outcome = empty_project.in_80_columns("doctor", WTB_DATABASE_URL="postgresql://nobody:secret@127.0.0.1:1/none")
    assert outcome.code == 1
    assert "secret" not in outcome.stdout
    text = " ".join(outcome.stdout.split())
    assert "→ start its server, or give another one with --db or WTB_DATABASE_URL" in text
    assert "→ correct that file" in text
    assert "2 problems found" in text


def test_a_database_is_made_and_its_version_told(empty_project: Project, database_url: str) -> None:
    assert empty_project.in_80_columns("admin", "db", "version", "--db", database_url).code == 2
    assert (
        f"made, version {REVISION}"
        in empty_project.in_80_columns("admin", "db", "upgrade", "--db", database_url).stdout
    )
    assert "nothing to do" in empty_project.in_80_columns("admin", "db", "upgrade", "--db", database_url).stdout
    assert empty_project.in_80_columns("admin", "db", "version", "--db", database_url).stdout == f"{REVISION}\n"


def test_a_sweep_is_deleted_with_all_that_is_its(empty_project: Project, database_url: str) -> None:
    database, sweep_id = submitted(database_url)
    second, other = submitted(database_url)
    second.close()
    deleted = empty_project.in_80_columns("delete", sweep_id, "--yes", "--db", database_url)
    assert deleted.code == 0, deleted.stderr
    assert deleted.stdout.startswith(f"deleted sweep small ({sweep_id}): 2 cells, 2 executions")
    assert [row.id for row in queries.list_sweeps(database)] == [other]
    assert not any(belongings(database, sweep_id).values())
    assert belongings(database, other)["cells"] == 2
    database.close()


@pytest.mark.parametrize(("answer", "code", "remaining"), [("y\n", 0, 0), ("n\n", 1, 1), ("", 2, 1)])
def test_deleting_asks_first(empty_project: Project, sqlite_url: str, answer: str, code: int, remaining: int) -> None:
    database, sweep_id = submitted(sqlite_url)
    outcome = empty_project.wtb("delete", sweep_id, "--db", sqlite_url, stdin=answer)
    assert outcome.code == code
    assert "permanently?" in outcome.stderr
    assert len(queries.list_sweeps(database)) == remaining


def test_a_sweep_that_somebody_runs_is_not_deleted(empty_project: Project, sqlite_url: str) -> None:
    database, sweep_id = submitted(sqlite_url)
    owner = identity()
    leases.register(database, owner)
    leases.move_sweep(database, sweep_id, "running")
    leases.claim(database, sweep_id, owner.id, 1, 30.0)
    refused = empty_project.in_80_columns("delete", sweep_id, "--yes", "--db", sqlite_url)
    assert refused.code == 2
    assert f"process {owner.pid}" in refused.stderr
    assert queries.cell_counts(database, sweep_id)
