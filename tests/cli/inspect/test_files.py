"""`wtb files`: the files that nodes left, of an execution, a checkpoint or a cell of a sweep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.project import Project
from tests.support.prose import sentence
from wtb.store.files.store import FileStore
from wtb.store.files.workspaces import Workspaces

FLOW = """
from wtb import END, Workflow

wf = Workflow("papers")


@wf.node
def draft(state, ctx, *, style: str = "plain"):
    (ctx.workspace / "out").mkdir()
    (ctx.workspace / "out" / "draft.md").write_text(f"{ctx.case.id} {style}")
    (ctx.workspace / "raw.bin").write_bytes(bytes(range(256)))


draft.variant("rich", style="rich")


@wf.node
def review(state, ctx):
    (ctx.workspace / "raw.bin").unlink()
    path = ctx.workspace / "out" / "draft.md"
    path.write_text(path.read_text() + ", reviewed")
    (ctx.workspace / "notes.txt").write_text("fine")
    (ctx.workspace / "notes.txt").chmod(0o600)


wf.entry(draft)
wf.edge(draft, review)
wf.edge(review, END)
"""

SWEEP = "sweep: nightly\nworkflow: papers:wf\ncases: papers.jsonl\nvary: {draft: all}\nrepeats: 2\n"


@pytest.fixture(scope="module")
def project(shared_project: Project) -> Project:
    """A sweep that has run: 2 variants, 2 cases, 2 repeats."""
    cases = "".join(
        json.dumps({"id": f"q{n}", "input": {}, "files": {"in/given.txt": "given.txt"}}) + "\n" for n in (1, 2)
    )
    shared_project.write({"papers.py": FLOW, "papers.jsonl": cases, "given.txt": "given", "nightly.yaml": SWEEP})
    shared_project.inside("run", "nightly.yaml", check=0)
    return shared_project


def cell(project: Project, case: str = "q1", style: str = "default", repeat: int = 0) -> str:
    """The id of the execution that holds a cell."""
    for row in project.json("show", "nightly", "--cells")["cells"]:
        if (row["case"], row["combination"]["draft"], row["repeat"]) == (case, style, repeat):
            return str(row["execution"])
    raise AssertionError("no such cell")


def listed(project: Project, *arguments: str) -> dict[str, Any]:
    listing: dict[str, Any] = project.json("files", *arguments)
    return listing


def paths(project: Project, *arguments: str) -> list[str]:
    return [file["path"] for file in listed(project, *arguments)["files"]]


def test_the_files_of_an_execution_are_listed(project: Project) -> None:
    id = cell(project)
    listing = listed(project, id)
    assert [(file["path"], file["size"], len(file["sha256"])) for file in listing["files"]] == [
        ("in/given.txt", 5, 64),
        ("notes.txt", 4, 64),
        ("out/draft.md", 18, 64),
    ]
    assert [file["mode"] for file in listing["files"]][1] == "0600"
    assert (listing["execution"], listing["case"], listing["after"], listing["bytes"]) == (id, "q1", ["review"], 27)
    table = project.text("files", id)
    assert "notes.txt" in table
    assert "0600" in table
    assert listing["files"][0]["sha256"][:12] in table
    assert "3 files, 27 B" in table
    assert sentence("execution {}: {}, repeat {}, {}", id, "q1", 0, "draft=default") in " ".join(table.split())


def test_the_beginning_of_an_id_and_a_cell_of_a_sweep_mean_the_same(project: Project) -> None:
    by_cell = ("nightly", "--case", "q2", "--combination", "draft=rich", "--repeat", "1")
    listing = listed(project, *by_cell)
    assert listing["execution"] == cell(project, "q2", "rich", 1)
    assert project.wtb("files", *by_cell, "out/draft.md", check=0).stdout == "q2 rich, reviewed"
    assert listed(project, listing["checkpoint"])["files"] == listing["files"]


def test_files_are_shown_as_they_were_at_a_node_or_a_checkpoint(project: Project) -> None:
    id = cell(project)
    line = project.json("history", id)["checkpoints"]
    assert paths(project, id, "--at", "draft") == ["in/given.txt", "out/draft.md", "raw.bin"]
    assert paths(project, id, "--at", line[0]["id"]) == ["in/given.txt"]
    assert paths(project, line[1]["id"]) == paths(project, id, "--at", "draft")
    assert sentence("before the first node") in project.text("files", line[0]["id"])
    assert project.wtb("files", id, "out/draft.md", "--at", "draft", check=0).stdout == "q1 plain"


def test_a_file_is_written_byte_by_byte(project: Project, tmp_path: Path) -> None:
    id = cell(project)
    done = project.inside("files", id, "raw.bin", "--at", "draft", "-o", tmp_path / "new" / "raw", check=0)
    assert (tmp_path / "new" / "raw").read_bytes() == bytes(range(256))
    assert done.stdout == ""
    assert "written to" in done.output


def test_two_sides_are_compared(project: Project) -> None:
    id = cell(project)
    line = project.json("history", id)["checkpoints"]
    listing = listed(project, line[1]["id"], "--diff", id)
    assert listing["changes"] == [
        {"path": "notes.txt", "kind": "added", "before": None, "after": 4},
        {"path": "out/draft.md", "kind": "changed", "before": 8, "after": 18},
        {"path": "raw.bin", "kind": "removed", "before": 256, "after": None},
    ]
    assert (listing["a"]["step"], listing["b"]["execution"]) == (1, id)
    assert listed(project, id, "--at", "draft", "--diff", id)["changes"] == listing["changes"]
    table = project.text("files", line[1]["id"], "--diff", id)
    assert "1 added, 1 removed, 1 changed" in table
    assert "256 B" in table
    assert sentence("the same files") in project.text("files", id, "--diff", id)
    other = listed(project, id, "--diff", cell(project, style="rich"))["changes"]
    assert [(change["path"], change["kind"]) for change in other] == [("out/draft.md", "changed")]


def test_all_files_are_exported_into_an_empty_directory(project: Project, tmp_path: Path) -> None:
    id = cell(project)
    done = project.inside("files", id, "--export", tmp_path / "out", check=0)
    assert sentence("{} ({}) written to", "3 files", "27 B") in done.output
    assert (tmp_path / "out" / "out" / "draft.md").read_text() == "q1 plain, reviewed"
    assert (tmp_path / "out" / "notes.txt").stat().st_mode & 0o777 == 0o600
    refused = project.inside("files", id, "--export", tmp_path / "out", check=2)
    assert sentence("is not empty; name a new or empty directory") in refused.output
    project.inside("files", id, "out", "--export", tmp_path / "part", check=0)
    assert [path.name for path in (tmp_path / "part").rglob("*")] == ["out", "draft.md"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["EXECUTION", "out/daft.md"],
            sentence("there is no file {}", "'out/daft.md'") + sentence("; did you mean '{}'?", "out/draft.md"),
        ),
        (["EXECUTION", "out"], sentence("{} is a folder of {}; name one", "'out'", "1 file")),
        (["EXECUTION", "../../etc/passwd"], sentence("there is no file")),
        (
            ["EXECUTION", "--at", "reviw"],
            sentence("has no checkpoint {} on its line", "'reviw'") + sentence("; did you mean '{}'?", "review"),
        ),
        (["EXECUTION", "notes.txt", "--diff", "EXECUTION"], sentence("--diff compares all files")),
        (["EXECUTION", "notes.txt", "--format", "json"], sentence("--format json is for lists")),
        (["EXECUTION", "--export", "x", "-o", "y"], sentence("--export and --output")),
        (["EXECUTION", "--diff", "nothing"], sentence("there is no execution or checkpoint {}", "'nothing'")),
        (["nihgtly"], sentence("there is no sweep {}", "'nihgtly'") + sentence("; did you mean '{}'?", "nightly")),
        (["nightly"], sentence("several cells of sweep {} are meant", "'nightly'")),
        (["nightly", "--case", "q1", "--repeat", "0"], sentence("such as by its {}", "combination")),
        (
            ["nightly", "--case", "q3"],
            sentence("the sweep has no case {}", "'q3'") + sentence("; expected one of: {}", "q1, q2"),
        ),
        (
            ["nightly", "--combination", "draft=rihc"],
            sentence("node {} has no variant {} in this sweep{}", "'draft'", "'rihc'", "; did you mean 'rich'?"),
        ),
        (
            ["nightly", "--combination", "daft=rich"],
            sentence("does not vary a node {}", "'daft'") + sentence("; did you mean '{}'?", "draft"),
        ),
        (["nightly", "--combination", "draft"], "expected NODE=VARIANT"),
        (
            ["nightly", "--case", "q1", "--combination", "draft=rich", "--repeat", "7"],
            sentence("the sweep has no repeat {}", 7),
        ),
        (["EXECUTION", "--case", "q1"], sentence("there is no sweep")),
    ],
)
def test_mistakes_are_answered_with_what_was_meant(project: Project, arguments: list[str], message: str) -> None:
    id = cell(project)
    done = project.inside("files", *(id if argument == "EXECUTION" else argument for argument in arguments), check=2)
    assert message in done.output
    assert done.stdout == ""
    assert not (project.folder / "x").exists()


def test_damaged_and_missing_files_are_said_and_not_written(project: Project, tmp_path: Path) -> None:
    home = project.file.parent
    digest = listed(project, "nightly", "--case", "q2", "--combination", "draft=rich", "--repeat", "1")["files"][2]
    path = Path(FileStore(home / "files").of_project("default").path(digest["sha256"]))
    whole = path.read_bytes()
    path.unlink()
    id = cell(project, "q2", "rich", 1)
    missing = project.inside("files", id, "out/draft.md", "-o", tmp_path / "file", check=4)
    assert "is missing" in missing.output
    path.write_bytes(b"?" + whole[1:])
    damaged = project.wtb("files", id, "out/draft.md", check=4)
    assert "is damaged" in damaged.output
    assert damaged.stdout == ""
    assert not (tmp_path / "file").exists()
    path.write_bytes(whole)


def test_a_snapshot_that_the_library_makes_can_be_looked_at(project: Project) -> None:
    """The command lists the same files as a workspace opened from the same store."""
    home = project.file.parent
    workspaces = Workspaces(FileStore(home / "files"), home / "attempts").of_project("default")
    listing = listed(project, cell(project))
    workspace = workspaces.open(listing["snapshot"])
    names = {str(path.relative_to(workspace.path)) for path in workspace.path.rglob("*") if path.is_file()}
    assert names == {file["path"] for file in listing["files"]}
    assert workspace.close(keep=True).digest == listing["snapshot"]
