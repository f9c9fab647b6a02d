"""`wtb resume` refuses and `wtb regress` names changes in the code of a sweep, wherever they are."""

from __future__ import annotations

import pytest

from tests.support.project import Project
from tests.support.prose import sentence

FLOW = """
import subprocess
import time
import uuid
from pathlib import Path

import lib
from wtb import END, Workflow

HERE = Path(__file__).parent
PROMPT = (HERE / "prompts" / "v1.md").read_text()
SESSION = uuid.uuid4().hex
STARTED = time.time()
wf = Workflow("flow")


@wf.node
def first(state):
    return {"x": 1}


@wf.node
def second(state):
    said = subprocess.run(["sh", HERE / "agent.sh"], capture_output=True, text=True, check=True).stdout
    assert SESSION and STARTED
    return {"y": f"{lib.helper()} {PROMPT} {said}"}


wf.entry(first)
wf.edge(first, second)
wf.edge(second, END)


def right(case, result):
    return result.state["y"] == "1 one one\\n"
"""
SWEEP = """
workflow: flow:wf
cases: cases.jsonl
vary: {first: [default]}
evaluate: ["flow:right"]
"""
FILES = {
    "flow.py": FLOW,
    "lib.py": "import sub\n\n\ndef helper():\n    return sub.deep()\n",
    "sub.py": "def deep():\n    return 1\n",
    "prompts/v1.md": "one",
    "agent.sh": "echo one",
    "sweep.yaml": SWEEP,
    "part.yaml": SWEEP + "limits: {node_runs: 1}\n",
}
CHANGES = {
    "a module two away": ("sub.py", "def deep():\n    return 2222\n", "sub:deep changed"),
    "a prompt": ("prompts/v1.md", "three", "file prompts/v1.md: content differs"),
    "a script": ("agent.sh", "echo three", "script agent.sh: content differs"),
}


@pytest.fixture
def changing(project: Project) -> Project:
    project.write({**FILES, "cases.jsonl": project.cases(6)})
    return project


def test_resume_refuses_another_evaluator_and_names_the_way_out(changing: Project) -> None:
    changing.inside("run", "part.yaml", check=1)
    changing.write({"flow.py": FLOW.replace('return result.state["y"] == ', 'return result.state["y"] != ')})
    words = " ".join(changing.refusal("resume", "part", "--limits", "node_runs=99").split())
    assert sentence("{} changed since the cells that are there were scored {}", "evaluator 'right' has", "(") in words
    assert sentence("Score those cells again first with {}", "`wtb score") in words
    assert sentence("{}, bring the old code back, or allow the change of code", "--evaluate flow:right`") in words
    assert changing.query("SELECT count(*) FROM node_runs WHERE status = 'succeeded'") == [(1,)], "nothing ran"
    changing.inside("score", "part", "--evaluate", "flow:right", check=0)
    changing.inside("resume", "part", "--limits", "node_runs=99", check=0)
    assert changing.query("SELECT DISTINCT value FROM scores") == [(0.0,)]


def test_resume_takes_another_evaluator_where_that_is_allowed_and_records_it(changing: Project) -> None:
    changing.inside("run", "part.yaml", check=1)
    changing.write({"flow.py": FLOW.replace('return result.state["y"] == ', 'return result.state["y"] != ')})
    changing.inside("resume", "part", "--limits", "node_runs=4", "--allow-code-change", check=1)
    changing.inside("resume", "part", "--limits", "node_runs=99", check=0)


def test_resume_refuses_and_names_what_changed(changing: Project) -> None:
    changing.inside("run", "part.yaml", check=1)
    for file, text, cause in CHANGES.values():
        changing.write({file: text})
        refused = changing.inside("resume", "part", "--limits", "node_runs=99")
        assert refused.code == 2
        assert (
            sentence("the code of {} has changed since it was submitted {}", "second=default", f"({cause})")
            in refused.output
        )
        changing.write({file: FILES[file]})
    changing.inside("resume", "part", "--limits", "node_runs=99", check=0)


def test_regress_names_what_changed(changing: Project) -> None:
    changing.inside("run", "sweep.yaml", check=0)
    changing.inside("baseline", "set", "main", "sweep", check=0)
    for file, text, cause in CHANGES.values():
        changing.write({file: text})
        document = changing.inside("regress", "sweep.yaml", "--baseline", "main", "--format", "json").json
        assert document["verdict"] == "worse"
        assert [(change["node"], change["causes"]) for change in document["changed"]["code"]] == [("second", [cause])]
        changing.write({file: FILES[file]})


def test_plan_lists_what_fingerprints_leave_out(changing: Project) -> None:
    text = FLOW.replace("    assert SESSION", "    open(state.get('path', '/dev/null')).close()\n    assert SESSION")
    changing.write({"flow.py": text})
    planned = changing.json("plan", "sweep.yaml")["code"]
    assert planned["varying"] == ["flow:SESSION (uuid.uuid4)", "flow:STARTED (time.time)"]
    assert planned["not_followed"] == ["second: flow, line 25: " + sentence("it opens a file whose path is computed")]
    plan = changing.text("plan", "sweep.yaml")
    assert "flow:SESSION" in plan
    assert "line 25" in plan


HOLDING = """
import random
import time
import uuid
from dataclasses import dataclass, field

from wtb import END, Workflow

wf = Workflow("flow")


@dataclass
class Agent:
    prompt: str
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: float = field(default_factory=time.time)

    def run(self, state):
        return {"y": self.prompt, "pair": list({"a", "b", "c", self.id})[:0]}


@wf.node
def first(state):
    return {"x": 1}


wf.node(Agent("one").run, name="second")
wf.entry("first")
wf.edge("first", "second")
wf.edge("second", END)


def right(case, result):
    return result.state["y"] == "one"
"""


def test_values_that_objects_hold_are_no_change_of_the_code(project: Project) -> None:
    sweep = SWEEP + "run: {concurrency: 2}\n"
    project.write({"flow.py": HOLDING, "cases.jsonl": project.cases(4), "sweep.yaml": sweep})
    project.write({"part.yaml": sweep + "limits: {node_runs: 1}\n"})
    project.inside("run", "sweep.yaml", check=0)
    project.inside("baseline", "set", "main", "sweep", check=0)
    project.inside("run", "part.yaml", check=1)
    project.inside("resume", "part", "--limits", "node_runs=3", check=1)
    document = project.json("regress", "sweep.yaml", "--baseline", "main")
    assert document["changed"]["code"] == []

    project.write({"flow.py": HOLDING.replace('Agent("one")', 'Agent("two")')})
    refused = project.inside("resume", "part", "--limits", "node_runs=99")
    assert (
        sentence("the code of {} has changed since it was submitted {}", "second=default", "(value flow:Agent changed)")
        in refused.output
    )
    document = project.inside("regress", "sweep.yaml", "--baseline", "main", "--format", "json").json
    assert [change["node"] for change in document["changed"]["code"]] == ["second"]
