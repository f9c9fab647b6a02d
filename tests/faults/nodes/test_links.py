"""Fault 27: a workspace with ways out of it. What lies outside is not read, changed or removed by WTB."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.invariants import invariants_hold, processes_left
from tests.support.project import Project

FLOW = """
import os
from pathlib import Path

from wtb import END, Workflow

wf = Workflow("links")
OUTSIDE = Path(os.path.abspath(__file__)).parent.parent / "outside"


@wf.node
def before(state, ctx):
    (ctx.workspace / "mine").write_text("mine")
    (ctx.workspace / "folder").mkdir()
    (ctx.workspace / "folder" / "inner").write_text("inner")


@wf.node
def plant(state, ctx, *, what: str = "nothing"):
    here = Path.cwd()
    if what == "symlink":
        (here / "link").symlink_to(OUTSIDE / "secret")
    elif what == "symlink_to_folder":
        (here / "link").symlink_to(OUTSIDE)
    elif what == "symlink_in_place_of_file":
        (here / "mine").unlink()
        (here / "mine").symlink_to(OUTSIDE / "secret")
    elif what == "symlink_in_place_of_folder":
        (here / "folder" / "inner").unlink()
        (here / "folder").rmdir()
        (here / "folder").symlink_to(OUTSIDE)
    elif what == "hard_link":
        os.link(OUTSIDE / "secret", here / "hard")
    elif what == "relative_symlink":
        (here / "link").symlink_to("../" * 7 + "outside/secret")
    elif what == "dot_dot":
        (here / ".." / "escaped").write_text("not kept")
    elif what == "workspace_replaced":
        import shutil
        shutil.rmtree(here)
        here.symlink_to(OUTSIDE)
    elif what == "parent_replaced":
        here.parent.rename(here.parent.with_name("moved"))
        here.parent.symlink_to(OUTSIDE)
    elif what == "fails_with_link":
        (here / "link").symlink_to(OUTSIDE)
        raise ValueError("what is left is removed")
    return {"planted": what}


@wf.node
def after(state, ctx):
    return {"files": sorted(str(path.relative_to(Path.cwd())) for path in Path.cwd().rglob("*"))}


for name in ("symlink", "symlink_to_folder", "symlink_in_place_of_file", "symlink_in_place_of_folder", "hard_link",
             "relative_symlink", "dot_dot", "workspace_replaced", "fails_with_link", "parent_replaced"):
    plant.variant(name, what=name)
wf.entry(before)
wf.edge(before, plant)
wf.edge(plant, after)
wf.edge(after, END)
"""
REFUSED = {
    "symlink": "'link' is a symbolic link",
    "symlink_to_folder": "'link' is a symbolic link",
    "symlink_in_place_of_file": "'mine' is a symbolic link",
    "symlink_in_place_of_folder": "'folder' is a symbolic link",
    "hard_link": "'hard' has several hard links",
    "relative_symlink": "'link' is a symbolic link",
    "workspace_replaced": "was replaced by what is not a directory",
    "fails_with_link": "what is left is removed",
}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    (folder / "deep").mkdir(parents=True)
    for name in ("secret", "deep/other"):
        (folder / name).write_text("do not touch")
        (folder / name).chmod(0o640)
    return folder


def write(project: Project, *variants: str) -> None:
    project.write_sweep("links", FLOW, vary={"plant": variants}, run={"concurrency": 1})


def picture(folder: Path) -> dict[str, Any]:
    """All that can be seen of what is in a folder."""
    files = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = path.read_text() if path.is_file() else None
        files[str(path)] = (status.st_mode, status.st_mtime_ns, status.st_nlink, status.st_uid, content)
    return files


def test_what_lies_outside_of_a_workspace_is_untouched(empty_project: Project, outside: Path) -> None:
    project = empty_project
    write(project, "default", "dot_dot", *REFUSED)
    before = picture(outside)
    done = project.wtb("run", "sweep.yaml", "--quiet", check=1)
    assert picture(outside) == before
    assert "Traceback" not in done.stderr
    query = (
        "SELECT r.variant, c.failure FROM cells c JOIN node_runs r ON r.execution_id = c.execution_id "
        "WHERE r.node = 'plant' AND c.status = 'failed'"
    )
    failures = {variant: str(failure).replace("\\'", "'") for variant, failure in project.query(query)}
    assert {name for name in REFUSED if REFUSED[name] not in failures.get(name, "")} == set(), failures
    assert failures.keys() == REFUSED.keys()
    invariants_hold(project, {"succeeded": 2, "failed": len(REFUSED)})
    assert "do not touch" not in " ".join(text for (text,) in project.query('SELECT data FROM "values"'))
    stored = [path for path in (project.folder / ".wtb" / "files").rglob("*") if path.is_file()]
    assert not [path for path in stored if b"do not touch" in path.read_bytes()]
    assert not list(project.folder.rglob("escaped"))


def test_a_link_in_the_place_of_the_process_directory_is_not_followed(empty_project: Project, outside: Path) -> None:
    """The outcome of that node does not matter; the others work outside of the folder that the link points to."""
    project = empty_project
    write(project, "default", "parent_replaced", "fails_with_link")
    before = picture(outside)
    done = project.wtb("run", "sweep.yaml", "--quiet")
    assert picture(outside) == before
    assert "Traceback" not in done.stderr
    counts = dict(project.query("SELECT status, count(*) FROM cells GROUP BY status"))
    assert counts["succeeded"] >= 1
    invariants_hold(project, counts)


def test_a_link_in_the_place_of_a_dead_runners_directory_is_not_followed(empty_project: Project, outside: Path) -> None:
    """Later cleanup does not trust the link either."""
    project = empty_project
    write(project, "default", "dot_dot")
    project.wtb("run", "sweep.yaml", "--quiet", check=-9, env={"WTB_FAULT": "node.answered:3"})
    ((runner,),) = project.query("SELECT id FROM runners")
    (session,) = (project.folder / ".wtb" / "sessions").iterdir()
    (sweep,) = session.iterdir()
    directory = sweep / runner
    project.until(lambda: not processes_left(project), "its keepers to end")
    directory.rename(project.folder / "aside")
    directory.symlink_to(outside)
    os.symlink(outside, session / "another")
    before = picture(outside)
    project.inside("resume", "links", check=0)
    assert picture(outside) == before
    assert project.query("SELECT status FROM sweeps") == [("completed",)]
