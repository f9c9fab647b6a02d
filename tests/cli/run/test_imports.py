"""`wtb run` imports modules that the first node does not need only later, because users wait for the first node."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.project import Project

FLOW = """
import sys
from pathlib import Path

from wtb import END, Workflow

wf = Workflow("flow")


@wf.node
def look(state):
    Path("loaded").write_text("\\n".join(sys.modules))
    return {}


wf.entry(look)
wf.edge(look, END)
"""
SWEEP = """
workflow: flow:wf
cases: [{id: c0, input: {x: 0}}]
vary: {look: all}
run: {pool: thread}
"""
# numpy and rich take as long as all of WTB's own modules; the others are for other commands and other databases.
NEEDLESS = {"alembic", "celery", "jinja2", "jsonschema", "langgraph", "numpy", "pandas", "psycopg", "rich"}
NEEDLESS_PARTS = ("wtb.analysis.statistics", "wtb.core.documents.catalog", "wtb.display", "wtb.store.migrations")


@pytest.fixture
def loaded(project: Project) -> set[str]:
    """The modules that `wtb run` has imported when its first node runs."""
    project.write({"flow.py": FLOW, "sweep.yaml": SWEEP})
    with project.start("run", "sweep.yaml", "--quiet", own=True) as running:
        running.wait(check=0)
    return set(Path(project.folder / "loaded").read_text().split())


def test_a_sweep_starts_without_what_its_first_node_does_not_wait_for(loaded: set[str]) -> None:
    assert "wtb.execution.runner" in loaded
    assert {name.partition(".")[0] for name in loaded}.isdisjoint(NEEDLESS)
    assert [name for name in loaded if name.startswith(NEEDLESS_PARTS)] == []


LIBRARIES = ("orjson", "yaml", "sqlalchemy", "pydantic", "rich", "numpy", "jinja2", "secrets", "queue", "statistics")
PLANTED = """
import pathlib
pathlib.Path({folder!r}, "ran").write_text({name!r})
"""
LOOKING = [
    ("list",),
    ("status", "flow"),
    ("show", "flow", "--cells"),
    ("log", "flow"),
    ("matrix", "flow"),
    ("costs",),
    ("files", "flow"),
    ("report", "flow"),
    ("admin", "pin", "flow"),
    ("admin", "gc", "--dry-run"),
    ("--help",),
]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A folder with a finished sweep, and with files named like libraries since."""
    project = Project(tmp_path_factory.mktemp("hostile"))
    project.write({"flow.py": FLOW, "sweep.yaml": f"sweep: flow\n{SWEEP}"})
    project.wtb("run", "sweep.yaml", "--quiet", check=0)
    project.write(
        {f"{name}.py": PLANTED.format(folder=str(project.folder), name=name) for name in (*LIBRARIES, "flow")}
    )
    return project


@pytest.mark.parametrize("command", LOOKING, ids=" ".join)
def test_commands_that_only_look_import_nothing_from_the_folder(hostile: Project, command: tuple[str, ...]) -> None:
    with hostile.start(*command, own=True) as running:
        running.wait(check=0)
    assert not (hostile.folder / "ran").exists(), (hostile.folder / "ran").read_text()
