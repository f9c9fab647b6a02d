"""Values that objects hold count by value and cause: a difference between processes is no change of code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest

from wtb.core.tree.stored_code import RecordedCode

LIB = """
import functools, random, time, uuid
from dataclasses import dataclass, field

@dataclass
class Agent:
    prompt: str
    id: object = None
    created: float = field(default_factory=time.time)
    def run(self, state):
        return {"y": self.prompt}

class Client:
    def __init__(self, prompt):
        self.prompt = prompt
        self.session = uuid.uuid4().hex
        self.tools = set()
    def __call__(self, state):
        return {"y": self.prompt}

def make(agent):
    def node(state):
        return {"y": agent.prompt}
    return node

def plain(state, agent=None, seed=0):
    return {"y": 1}

def traced(prompt, id):
    def around(fn):
        @functools.wraps(fn)
        def inner(state):
            return {**fn(state), "id": id, "prompt": prompt}
        return inner
    return around

def one(state):
    return {"y": 1}

def two(state):
    return {"y": 2}

REGISTRY = {"f": one}
CLIENTS = {"f": Client}

@traced("decorated", uuid.uuid4().hex)
def helper(state):
    return {}
"""
FLOW = """
import functools, random, time, uuid
from lib import *
import lib
from wtb import END, Workflow

wf = Workflow("w")

@wf.node
def first(state):
    return {'other': 1}

{register}
wf.entry("first"); wf.edge("first", "second"); wf.edge("second", END)
"""
DESCRIBE = """
import sys; sys.path.insert(0, "")
import orjson
from wtb.authoring.code.fingerprint import present_code
from wtb.authoring.code.recipe import Recipe, assemble

def describe(number):
    recipe = Recipe(f"flow{number}:wf")
    workflow, _ = assemble(recipe)
    return present_code(workflow.nodes.values(), {}, recipe)

print(orjson.dumps([describe(number) for number in range(int(sys.argv[1]))]).decode())
"""
HOLDERS = {
    "method of an object": 'wf.node(Agent("a", id=uuid.uuid4()).run, name="second")',
    "object in a global": 'agent = Agent("a", id=str(uuid.uuid4()))\nwf.node(agent.run, name="second")',
    "callable object": 'wf.node(Client("a"), name="second")',
    "closure": 'wf.node(make(Agent("a")), name="second")',
    "closure in a loop": 'for prompt in ("a",):\n    wf.node(make(Client(prompt)), name="second")',
    "partial": 'wf.node(functools.partial(plain, agent="a", seed=random.random()), name="second")',
    "partial of an object": 'wf.node(functools.partial(plain, agent=Agent("a")), name="second")',
    "few values": 'wf.node(functools.partial(plain, agent="a", seed=random.randint(0, 1)), name="second")',
    "shuffled": (
        'rows = ["a", "b", "c"]\nrandom.shuffle(rows)\nwf.node(functools.partial(plain, agent=rows), name="second")'
    ),
    "order of a set": ('wf.node(functools.partial(plain, agent=list({"a", "b", "c", "d"})), name="second")'),
    "dict of objects": 'wf.node(functools.partial(plain, agent={"k": [Client("a")]}), name="second")',
    "key of a dict": 'wf.node(functools.partial(plain, agent={uuid.uuid4().hex: Client("a")}), name="second")',
    "attribute of a class": (
        'class Kind:\n    id = uuid.uuid4().hex\n    prompt = "a"\n    def __call__(self, state): return {}\n'
        'wf.node(Kind(), name="second")'
    ),
    "made by a function": (
        'def build():\n    agent = Agent("a", id=uuid.uuid4().hex)\n    wf.node(agent.run, name="second")\nbuild()'
    ),
    "function that others define": "def second(state): return {'y': \"a\"}\nwf.node(second)",
    "registry": "def second(state):\n    return {**REGISTRY['f'](state), 'k': \"a\"}\nwf.node(second)",
    "decorated helper": ("def second(state):\n    return {**helper(state), 'k': \"a\"}\nwf.node(second)"),
    "decorated node": ('@wf.node(name="second")\n@traced("a", uuid.uuid4().hex)\ndef second(state): return {}'),
    "parameter": (
        "@wf.node(name=\"second\")\ndef second(state, *, seed: float = 0, prompt: str = ''): return {}\n"
        'wf.nodes["second"].variants["default"].params.update(seed=random.random(), prompt="a")'
    ),
}


Described = dict[str, RecordedCode]


def describe(root: Path, replaced: Sequence[tuple[str, str]] = (), seed: str = "0") -> Described:
    """Write a workflow for each holder, with texts replaced, and describe all of them in another process."""
    flows = {f"flow{number}.py": FLOW.replace("{register}", text) for number, text in enumerate(HOLDERS.values())}
    for name, text in {"lib.py": LIB, **flows}.items():
        for old, new in replaced:
            text = text.replace(old, new)
        (root / name).write_text(text)
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"}
    script = [sys.executable, "-c", DESCRIBE, str(len(HOLDERS))]
    done = subprocess.run(script, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(zip(HOLDERS, [RecordedCode(*code) for code in orjson.loads(done.stdout)], strict=True))


def changed(before: Described, after: Described) -> set[str]:
    return {name for name in HOLDERS if not before[name].has_same(after[name], "second", "default")}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Described:
    return describe(tmp_path_factory.mktemp("project"))


def test_neither_what_differs_between_processes_nor_the_function_of_another_node_is_a_change(
    first: Described, tmp_path: Path
) -> None:
    assert changed(first, describe(tmp_path, [("return {'other': 1}", "return {'other': 2}")], "12345")) == set()


def test_a_constant_in_what_holds_such_values_is_a_change(first: Described, tmp_path: Path) -> None:
    assert changed(first, describe(tmp_path, [('"a"', '"z"')])) == HOLDERS.keys()


def test_what_a_decorator_or_a_registry_holds_is_a_change(first: Described, tmp_path: Path) -> None:
    replaced = [('"decorated"', '"other"'), ('"f": one', '"f": two')]
    assert changed(first, describe(tmp_path, replaced)) == {"decorated helper", "registry"}


def test_varying_values_are_named(first: Described) -> None:
    def varying(name: str) -> list[str]:
        code = first[name].code
        assert code is not None
        return code["varying"]

    assert varying("callable object") == ["lib:Client.session"]
    assert varying("partial") == ["lib:plain.seed"]
