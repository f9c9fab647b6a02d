"""A data file that a node writes in any way is not code; a file that a person edits is."""

from __future__ import annotations

import signal

import pytest

from tests.support.project import Project
from tests.support.prose import sentence

FLOW = """
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

from wtb import END, Workflow

HERE = Path(__file__).parent
FILES = {
    "save": HERE / "save.json",
    "replace": HERE / "replace.json",
    "copy": HERE / "copy.json",
    "descriptor": HERE / "descriptor.json",
    "remove": HERE / "remove.json",
    "object": HERE / "object.json",
    "kept": HERE / "kept.json",
    "started": HERE / "started.py",
}
PROMPT = HERE / "prompt.md"
wf = Workflow("flow")


def save(path, data):
    path.write_text(json.dumps(data))


class Cache:
    def __init__(self, path):
        self.path = path

    def put(self, data):
        self.path.write_text(json.dumps(data))


def replace(path, data):
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        json.dump(data, file)
    os.replace(file.name, path)


def copy(path, data):
    source = Path("source")
    source.write_text(json.dumps(data))
    shutil.copy(source, path)


def descriptor(path, data):
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(opened, json.dumps(data).encode())
    os.close(opened)


def remove(path, data):
    path.unlink(missing_ok=True)
    path.write_text(json.dumps(data))


class Store:
    def __init__(self, path):
        self.file = open(path, "a+")

    def put(self, data):
        self.file.seek(0)
        self.file.truncate()
        self.file.write(json.dumps(data))
        self.file.flush()


@functools.cache
def opened_once(path):
    return Store(path)


def keep_open(path, data):
    opened_once(path).put(data)


def start(path, data):
    path.write_text(f"print({data!r})")
    subprocess.run([sys.executable, HERE / "started.py"], check=True)


WAYS = {"save": save, "replace": replace, "copy": copy, "descriptor": descriptor, "remove": remove}
WAYS |= {"started": start, "object": lambda path, data: Cache(path).put(data), "kept": keep_open}


@wf.node
def first(state):
    return {"x": 1}


@wf.node
def answer(state, ctx, *, way="save"):
    assert PROMPT.read_text()
    WAYS[way](FILES[way], {"said": uuid.uuid4().hex})
    return {"y": 1}


for name in WAYS:
    answer.variant(name, way=name)
wf.entry(first)
wf.edge(first, answer)
wf.edge(answer, END)


def right(case, result):
    return result.state["y"] == 1
"""
SWEEP = """
workflow: flow:wf
cases: cases.jsonl
vary: {answer: [%s]}
evaluate: ["flow:right"]
run: {concurrency: 2, recycle: {runs: 2}, pool: %s}
"""
WAYS = {way: f"{way}.json" for way in ("save", "replace", "copy", "descriptor", "remove", "object", "kept")}
WAYS["started"] = "started.py"


def write(project: Project, pool: str, *ways: str, flow: str = FLOW) -> None:
    sweep = SWEEP % (", ".join(ways), pool)
    project.write({"flow.py": flow, "prompt.md": "one", "cases.jsonl": project.cases(2)})
    project.write({"sweep.yaml": sweep, "part.yaml": sweep + "limits: {node_runs: 1}\n"})


def changed_code(project: Project) -> list[dict[str, object]]:
    """Run the sweep again, and return the changes of its code since the baseline `main`."""
    regress = project.inside("regress", "sweep.yaml", "--baseline", "main", "--format", "json")
    changes: list[dict[str, object]] = regress.json["changed"]["code"]
    return changes


@pytest.mark.parametrize("pool", ["process", "thread"])
def test_a_file_that_a_node_writes_is_no_code(project: Project, pool: str) -> None:
    ways = [way for way in WAYS if way != "kept" or pool == "process"]  # which would stay open in this process
    write(project, pool, *ways)
    project.write({WAYS[way]: "{}" for way in ways})
    first = project.inside("run", "sweep.yaml", check=0)
    for way in ways:
        assert first.output.count(f"not code: {WAYS[way]}, which node answer writes") == 1
    project.inside("baseline", "set", "main", "sweep", check=0)
    project.inside("run", "part.yaml", check=1)

    assert changed_code(project) == []
    project.inside("resume", "part", "--limits", "node_runs=3", check=1)  # what only the other sweeps have written
    project.inside("resume", "part", "--limits", "node_runs=99", check=0)
    versions = project.query(
        "SELECT DISTINCT node, variant, fingerprint FROM node_runs "
        "WHERE sweep_id = (SELECT id FROM sweeps WHERE name = 'part')"
    )
    assert len(versions) == len(ways) + 1


def test_files_that_persons_edit_meanwhile_are_named_and_written_ones_are_not(project: Project) -> None:
    write(project, "process", "save", "copy")
    project.write({"save.json": "{}", "copy.json": "{}", "object.json": "{}"})
    project.inside("run", "sweep.yaml", check=0)
    project.inside("baseline", "set", "main", "sweep", check=0)
    project.inside("run", "part.yaml", check=1)
    for file in ("prompt.md", "object.json"):
        before = (project.folder / file).read_text()
        project.write({file: "by hand"})
        cause = f"file {file}: content differs"

        assert sentence(
            "the code of {} has changed since it was submitted {}", "answer=save, answer=copy", f"({cause})"
        ) in project.refusal("resume", "part", "--limits", "node_runs=99")
        assert {tuple(change["causes"]) for change in changed_code(project)} == {(cause,)}
        project.write({file: before})


def test_a_file_that_a_child_process_writes_ends_a_sweep_as_an_edit_does(project: Project) -> None:
    """A computed command writes the file, as a person may do while the sweep runs."""
    child = 'subprocess.run(["sh", "-c", "echo changed >" + str(path)], check=True)'
    write(project, "process", "save", flow=FLOW.replace("path.write_text(json.dumps(data))", child, 1))
    project.write({"save.json": "{}"})

    ended = project.inside("run", "sweep.yaml", check=1)

    assert (
        sentence("the code of {} was changed while the sweep was running {}", "answer=save", "(file save.json: content")
        in ended.output
    )


OPENED_EARLY = """
DATABASE = Store(HERE / "kept.json")


class Agent:
    def __init__(self, name):
        self.name = name
        self.id = uuid.uuid4().hex

    def answer(self, state):
        assert DATABASE and self.name and PROMPT
        DATABASE.put({"said": uuid.uuid4().hex})
        return {"y": 1}


wf.node(Agent("one").answer, name="last")
"""


def test_a_file_that_is_opened_at_import_and_written_later_is_no_code(project: Project) -> None:
    """The same holds if the code that opens the file makes values that differ in each process."""
    flow = FLOW.replace("wf.entry(first)", OPENED_EARLY + "wf.entry(first)")
    flow = flow.replace("wf.edge(answer, END)", "wf.edge(answer, 'last')\nwf.edge('last', END)")
    write(project, "process", "save", flow=flow)
    project.write({"kept.json": "{}", "save.json": "{}"})
    project.wtb("run", "sweep.yaml", check=0)
    project.wtb("baseline", "set", "main", "sweep", check=0)
    project.wtb("run", "part.yaml", check=1)
    project.wtb("resume", "part", "--limits", "node_runs=99", check=0)
    regress = ("regress", "sweep.yaml", "--baseline", "main", "--format", "json")

    assert project.wtb(*regress, check=0).json["changed"]["code"] == []

    project.write({"flow.py": flow.replace('Agent("one")', 'Agent("two")')})
    changes = project.wtb(*regress).json["changed"]["code"]
    assert any("value flow:Agent.name changed" in change["causes"] for change in changes)


def test_a_sweep_that_was_interrupted_while_it_wrote_resumes(project: Project) -> None:
    wait = "WAYS[way](FILES[way]"
    pause = "while ctx.case.id == 'c1' and (HERE / 'hold.db').exists():\n        threading.Event().wait(0.05)\n    "
    flow = FLOW.replace(wait, pause + wait).replace("import tempfile", "import tempfile\nimport threading")
    write(project, "process", "save", flow=flow)
    project.write({"save.json": "{}", "hold.db": ""})
    with project.start("run", "sweep.yaml") as running:
        project.until(lambda: (project.folder / "save.json").read_text() != "{}", "the file to be written")
        running.signal(signal.SIGINT)
        (project.folder / "hold.db").unlink()
        running.wait(timeout=60)
    project.write({"save.json": "{}"})

    project.inside("resume", "sweep", check=0)
