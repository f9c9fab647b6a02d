"""init, workflow, doctor, db and delete, each as a user calls it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from wtb import Sweep, Workflow
from wtb.cli import projects
from wtb.ownership import identity
from wtb.running import workspaces_of
from wtb.store import claims, reading
from wtb.store.database import Database
from wtb.store.inspecting import belongings
from wtb.store.schema import REVISION

TEMPLATES = Path(projects.__file__).parents[1] / "templates" / "init"


def wtb(
    folder: Path, *arguments: str, given: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("WTB_")}
    return subprocess.run(
        [sys.executable, "-m", "wtb", *arguments],
        cwd=folder,
        env=kept | {"COLUMNS": "80"} | environment,
        input=given or "",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder as `wtb init` makes it."""
    assert wtb(tmp_path, "init", "demo").returncode == 0
    return tmp_path / "demo"


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


def test_what_init_writes_runs_and_tells_variants_apart(project: Path) -> None:
    assert sorted(path.name for path in project.iterdir()) == ["cases.jsonl", "sweep.yaml", "workflow.py", "wtb.toml"]
    ran = wtb(project, "run", "sweep.yaml", "--format", "json")
    assert ran.returncode == 0, ran.stderr
    matrix = json.loads(ran.stdout)
    assert matrix["cells"]["succeeded"] == matrix["cells"]["total"] == 405
    means = {tuple(row["combination"].values()): row["metrics"]["right_team"]["mean"] for row in matrix["rows"]}
    assert 0.5 < means["words", "overlap"] < means["grams", "overlap"] < 1.0
    looked = wtb(project, "show", "triage", "--cells", "--failed")
    assert (looked.returncode, looked.stdout) == (0, "")


def test_init_does_not_overwrite_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text("mine")
    refused = wtb(tmp_path, "init")
    assert refused.returncode == 2
    assert "sweep.yaml would be overwritten; --force does that" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.yaml"]
    assert wtb(tmp_path, "init", "--force").returncode == 0
    assert (tmp_path / "sweep.yaml").read_bytes() == (TEMPLATES / "sweep.yaml").read_bytes()
    assert "is a file; expected a folder" in wtb(tmp_path, "init", "sweep.yaml").stderr


def test_workflows_are_listed_and_drawn(project: Path) -> None:
    assert json.loads(wtb(project, "workflow", "list", "--format", "json").stdout) == {
        "workflows": [{"name": "triage", "path": "workflow:wf"}]
    }
    assert "triage    workflow:wf" in wtb(project, "workflow", "list").stdout
    drawn = wtb(project, "workflow", "show", "triage").stdout
    assert "start ─▶ tokenize" in drawn
    assert "│ words (default)  Words in lower case.\n" in drawn
    assert "[alpha=0.02]" in drawn
    assert all(len(line) <= 80 for line in drawn.splitlines())
    graph = json.loads(wtb(project, "workflow", "show", "workflow:wf", "--format", "json").stdout)
    assert [node["name"] for node in graph["nodes"]] == ["tokenize", "classify", "route"]


def test_an_unknown_workflow_is_refused_with_a_near_match(project: Path, tmp_path: Path) -> None:
    refused = wtb(project, "workflow", "show", "triaje")
    assert refused.returncode == 2
    assert "did you mean 'triage'?" in refused.stderr
    nothing = wtb(tmp_path, "workflow", "list")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert "no workflow is registered" in nothing.stderr


def test_doctor_is_content_before_anything_was_run_and_makes_nothing(tmp_path: Path) -> None:
    found = wtb(tmp_path, "doctor", "--format", "json")
    assert found.returncode == 0, found.stdout
    document = json.loads(found.stdout)
    assert document["ok"] is True
    assert {"Python", "WTB", "SQLite", "database", "files", "free space"} <= {c["name"] for c in document["checks"]}
    assert list(tmp_path.iterdir()) == []
    shown = wtb(tmp_path, "doctor").stdout
    assert "all is well" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_doctor_counts_what_a_database_holds(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'wtb.db'}"
    submitted(url)[0].close()
    shown = " ".join(wtb(tmp_path, "doctor", "--db", url).stdout.split())
    assert f"its version {REVISION}" in shown
    assert "1 sweep, 2 cells" in shown


def test_doctor_says_how_to_mend_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "wtb.toml").write_text("[workflows\n")
    found = wtb(tmp_path, "doctor", WTB_DATABASE_URL="postgresql://nobody:secret@127.0.0.1:1/none")
    assert found.returncode == 1
    assert "secret" not in found.stdout
    said = " ".join(found.stdout.split())
    assert "→ start its server, or give another one with --db or WTB_DATABASE_URL" in said
    assert "→ correct that file" in said
    assert "2 problems found" in said


def test_a_database_is_made_and_its_version_told(tmp_path: Path, database_url: str) -> None:
    assert wtb(tmp_path, "db", "version", "--db", database_url).returncode == 2
    assert f"made, version {REVISION}" in wtb(tmp_path, "db", "upgrade", "--db", database_url).stdout
    assert "nothing to do" in wtb(tmp_path, "db", "upgrade", "--db", database_url).stdout
    assert wtb(tmp_path, "db", "version", "--db", database_url).stdout == f"{REVISION}\n"


def test_a_sweep_is_deleted_with_all_that_is_its(tmp_path: Path, database_url: str) -> None:
    database, sweep_id = submitted(database_url)
    second, other = submitted(database_url)
    second.close()
    deleted = wtb(tmp_path, "delete", sweep_id, "--yes", "--db", database_url)
    assert deleted.returncode == 0, deleted.stderr
    assert deleted.stdout.startswith(f"deleted sweep small ({sweep_id}): 2 cells, 2 executions")
    assert [row["id"] for row in reading.list_sweeps(database)] == [other]
    assert not any(belongings(database, sweep_id).values())
    assert belongings(database, other)["cells"] == 2
    database.close()


@pytest.mark.parametrize(("answer", "code", "left"), [("y\n", 0, 0), ("n\n", 1, 1), ("", 2, 1)])
def test_deleting_asks_first(tmp_path: Path, sqlite_url: str, answer: str, code: int, left: int) -> None:
    database, sweep_id = submitted(sqlite_url)
    asked = wtb(tmp_path, "delete", sweep_id, "--db", sqlite_url, given=answer)
    assert asked.returncode == code
    assert "for good?" in asked.stderr
    assert len(reading.list_sweeps(database)) == left


def test_a_sweep_that_somebody_runs_is_not_deleted(tmp_path: Path, sqlite_url: str) -> None:
    database, sweep_id = submitted(sqlite_url)
    owner = identity()
    claims.register(database, owner)
    claims.move_sweep(database, sweep_id, "running")
    claims.claim(database, sweep_id, owner["id"], 1, 30.0)
    refused = wtb(tmp_path, "delete", sweep_id, "--yes", "--db", sqlite_url)
    assert refused.returncode == 2
    assert f"process {owner['pid']}" in refused.stderr
    assert reading.cell_counts(database, sweep_id)
