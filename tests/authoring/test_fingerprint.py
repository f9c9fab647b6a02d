"""A fingerprint changes when the code behind a callable changes, and only then."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from wtb.authoring.code.fingerprint import fingerprint, fingerprints
from wtb.authoring.code.import_paths import as_workflow
from wtb.authoring.code.walk import Walk

Load = Callable[..., ModuleType]

MODULE = '''
import json
import logging
from dataclasses import dataclass
from functools import lru_cache, partial, wraps
from pathlib import Path

LIMIT = 3
ROOT = Path(__file__).parent
log = logging.getLogger(__name__)


@dataclass
class Style:
    size: int = 1

    def draw(self):
        return deep(self.size)


def deep(x):
    return x + 1


def helper(x):
    return deep(x) * LIMIT


@lru_cache
def cached(x):
    return deep(x)


HANDLERS = {"a": deep, "b": [helper]}
STYLE = Style()


def unrelated(x):
    return x


def node(state, k=2, *, mode="fast"):
    """A node."""
    log.info("%s", ROOT)
    return [helper(x) for x in state] and json.dumps(k)


def loop_a(x):
    return loop_b(x)


def loop_b(x):
    return loop_a(x)


def by_table(state):
    return HANDLERS[state]


def by_cache(state):
    return cached(state)


def by_style(state):
    return STYLE.draw()


def nested(state):
    def inner():
        return (lambda: helper(state))()

    return inner()


def traced(fn):
    @wraps(fn)
    def wrapper(*args):
        return fn(*args)

    return wrapper


@traced
def wrapped(state):
    return deep(state)


def factory(n, then=None):
    def made(state):
        return state + n if then is None else then(state)

    return made


class Caller:
    def __init__(self, n):
        self.n = n
        self.log = log

    def __call__(self, state):
        return helper(state) + self.n

    def method(self, state):
        return self.n

    @staticmethod
    def static(state):
        return deep(state)


double, triple = lambda x: x * 2, lambda x: x * 3
'''


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """Write a module `code_under_test` to a new folder, with texts replaced, and import it."""
    count = 0

    def write(*replaced: tuple[str, str], text: str = MODULE) -> ModuleType:
        nonlocal count
        count += 1
        for old, new in replaced:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / str(count) / "code_under_test.py"
        path.parent.mkdir()
        path.write_text(text)
        spec = importlib.util.spec_from_file_location("code_under_test", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["code_under_test"] = module
        spec.loader.exec_module(module)
        return module

    yield write
    sys.modules.pop("code_under_test", None)


NODES = [
    "node",
    "by_table",
    "by_cache",
    "by_style",
    "nested",
    "wrapped",
    "loop_a",
    "factory",
    "Caller",
    "double",
]


def test_the_same_code_in_another_folder_has_the_same_fingerprint(load: Load) -> None:
    first, second = ({name: fingerprint(getattr(module, name)) for name in NODES} for module in (load(), load()))
    assert first == second
    assert all(len(digest) == 16 and int(digest, 16) >= 0 for digest in first.values()), first


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("node", "and json.dumps(k)", "or json.dumps(k)"),
        ("nested", "return x + 1", "return x + 2"),
        ("wrapped", "return x + 1", "return x + 2"),
        ("loop_a", "return loop_a(x)", "return loop_a(-x)"),
        ("by_table", "return deep(x) * LIMIT", "return deep(x) ** LIMIT"),
        ("by_cache", "return deep(x)\n\n\nHANDLERS", "return -deep(x)\n\n\nHANDLERS"),
        ("by_style", "return x + 1", "return x + 2"),
        ("Caller", "return self.n", "return -self.n"),
        ("Caller", "return x + 1", "return x + 2"),
        ("double", "x * 2", "x * 4"),
    ],
)
def test_a_change_that_the_code_can_see_changes_the_fingerprint(load: Load, name: str, old: str, new: str) -> None:
    before = fingerprint(getattr(load(), name))
    assert fingerprint(getattr(load((old, new)), name)) != before


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("node", "def unrelated(x):\n    return x", "def unrelated(x):\n    return -x"),
        ("node", "LIMIT = 3", "import os\n\nOTHER = 9\nLIMIT = 3"),
        ("wrapped", "@traced\n", "@(lambda fn: fn.__wrapped__)\n@traced\n@traced\n"),
        ("double", "x * 3", "x * 4"),
        ("factory", "return x + 1", "return x + 2"),
    ],
)
def test_a_change_elsewhere_leaves_the_fingerprint(load: Load, name: str, old: str, new: str) -> None:
    before = fingerprint(getattr(load(), name))
    assert fingerprint(getattr(load((old, new)), name)) == before


def test_lines_of_decorators_that_return_the_function_do_not_count(load: Load) -> None:
    text = "def mark(**options):\n    return lambda fn: fn\n\n\n{}def node(state):\n    return state\n"
    marks = ("", "@mark(timeout=1)\n", "@mark(\n    timeout=2,\n    retries=3,\n)\n@mark()\n")
    assert len({fingerprint(load(text=text.format(mark)).node) for mark in marks}) == 1


def test_moving_a_method_or_inner_function_deeper_does_not_count(load: Load) -> None:
    flat = "def node(state):\n    return state\n"
    deeper = "if True:\n    if True:\n        def node(state):\n            return state\n"
    assert fingerprint(load(text=flat).node) == fingerprint(load(text=deeper).node)


def test_closures_from_one_factory_differ_by_what_they_hold(load: Load) -> None:
    module = load()
    closures = [module.factory(1), module.factory(2), module.factory(1, module.deep), module.factory(1, len)]
    assert len(set(map(fingerprint, closures))) == 4
    assert fingerprint(module.factory(1)) == fingerprint(module.factory(1))


def test_a_function_held_by_a_closure_counts_wherever_it_comes_from(load: Load) -> None:
    def factory(then: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda state: then(state)

    before = fingerprint(factory(load().deep))
    assert fingerprint(factory(load(("return x + 1", "return x + 2")).deep)) != before


def test_partials_methods_and_callable_objects_differ_by_what_they_hold(load: Load) -> None:
    module = load()
    callables = [
        module.node,
        functools.partial(module.node, 1),
        functools.partial(module.node, 2),
        functools.partial(module.node, k=1),
        functools.partial(module.unrelated, 1),
        module.Caller(1),
        module.Caller(2),
        module.Caller(1).method,
        module.Caller(2).method,
        module.Caller.static,
        module.double,
        module.triple,
        len,
        max,
    ]
    assert len(set(map(fingerprint, callables))) == len(callables)
    assert fingerprint(module.Caller(1)) == fingerprint(module.Caller(1))


@pytest.mark.parametrize("make", ["Caller(1)", "Caller(1).method", "partial(Caller(1))", "partial(node, 1)"])
def test_a_helper_behind_a_partial_method_or_object_counts(load: Load, make: str) -> None:
    before = fingerprint(eval(make, vars(load())))  # noqa: S307
    after = fingerprint(eval(make, vars(load(("return x + 1", "return x + 2")))))  # noqa: S307
    assert before != after


def test_a_value_named_through_a_module_of_the_same_package_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "fingerprinted"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "flow.py").write_text("from fingerprinted import prompts\n\n\ndef node(s):\n    return prompts.ASK\n")
    monkeypatch.syspath_prepend(tmp_path)
    prints = []
    for text in ("ASK = 1", "ASK = 2", "ASK = 2\nMORE = 3"):
        (package / "prompts.py").write_text(text)
        for name in [name for name in sys.modules if name.partition(".")[0] == "fingerprinted"]:
            monkeypatch.delitem(sys.modules, name)
        importlib.invalidate_caches()
        for cached in package.rglob("*.pyc"):
            cached.unlink()
        prints.append(fingerprint(importlib.import_module("fingerprinted.flow").node))
    assert prints[0] != prints[1] == prints[2]


def test_code_without_source_is_known_by_name_and_defaults() -> None:
    def compile_node(default: int, name: str = "node") -> Callable[..., Any]:
        space: dict[str, Any] = {"__name__": "nowhere"}
        exec(f"def {name}(x, k={default}): return x", space)
        node: Callable[..., Any] = space[name]
        return node

    assert fingerprint(compile_node(1)) == fingerprint(compile_node(1))
    assert len({fingerprint(compile_node(1)), fingerprint(compile_node(2)), fingerprint(compile_node(1, "other"))}) == 3


def test_a_cell_that_is_not_filled_yet_is_no_error() -> None:
    def outer() -> str:
        def inner() -> object:
            return later

        digest = fingerprint(inner)
        later = 1
        return digest

    assert len(outer()) == 16


GRAPHS = """
import operator
from typing import Annotated, TypedDict

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnableParallel, RunnablePassthrough
from langchain_core.tools import BaseTool, tool
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import ToolNode, create_react_agent


class S(TypedDict, total=False):
    words: Annotated[list, operator.add]
    messages: list


def one(node, **more):
    graph = StateGraph(S)
    graph.add_node("node", node, **more)
    graph.add_edge(START, "node")
    return graph


class Model(GenericFakeChatModel):
    def bind_tools(self, tools, **more):
        return self.bind(tools=[tool.name for tool in tools])


MODEL = GenericFakeChatModel(messages=iter([AIMessage("a")]))


def word():
    return "WORD"


@tool
def look(q: str) -> str:
    "Look."
    return word()


class Look(BaseTool):
    name: str = "look"
    description: str = "Look."

    def _run(self, q: str) -> str:
        return word()


def says(s):
    return {"words": [word()]}


def nothing(s):
    return {}


def where(s):
    return "node" if word() else END


prompt = ChatPromptTemplate.from_template("WORD {x}")
inner = one(says).compile()
chain = prompt | MODEL


def uses_a_prompt(s):
    return prompt.invoke(s)


def uses_a_chain(s):
    return chain.invoke(s)


def uses_a_tool(s):
    return look.invoke("x")


def uses_a_graph(s):
    return inner.invoke(s)


def holding(graph):
    return lambda s: graph.invoke(s)


made = {
    "tools": one(ToolNode([look])),
    "tools of a class": one(ToolNode([Look()])),
    "prompt": one(prompt | MODEL | nothing),
    "parallel": one(RunnablePassthrough() | RunnableParallel(words=says)),
    "assign": one(RunnablePassthrough.assign(words=says)),
    "bound": one(RunnablePassthrough() | RunnableLambda(says).bind()),
    "retry": one(RunnableLambda(says).with_retry()),
    "fallback": one(RunnableLambda(nothing).with_fallbacks([RunnableLambda(says)])),
    "configured": one(RunnableLambda(nothing).with_config(tags=["WORD"])),
    "a prompt in a function": one(uses_a_prompt),
    "a chain in a function": one(uses_a_chain),
    "a tool in a function": one(uses_a_tool),
    "a graph in a function": one(uses_a_graph),
    "a graph in a closure": one(holding(inner)),
    "error handler": one(nothing, error_handler=says),
    "conditional edge": one(nothing).add_conditional_edges("node", where, ["node", END]),
    "tools of an agent": create_react_agent(Model(messages=iter([])), [look]),
    "prompt of an agent": create_react_agent(MODEL, [], prompt="WORD"),
}
"""


def codes_of(module: ModuleType) -> dict[str, dict[str, dict[str, str]]]:
    return {name: fingerprints(as_workflow(graph, name).nodes.values(), {}) for name, graph in module.made.items()}


@pytest.mark.filterwarnings("ignore:create_react_agent")
def test_what_objects_of_langchain_and_langgraph_hold_of_the_users_counts(load: Load) -> None:
    before, unchanged, after = (codes_of(load(*replaced, text=GRAPHS)) for replaced in ((), (), [("WORD", "OTHER")]))
    assert before == unchanged
    assert [name for name in before if before[name] == after[name]] == []


@pytest.mark.filterwarnings("ignore:create_react_agent")
def test_code_of_langchain_and_langgraph_themselves_is_not_walked(load: Load) -> None:
    module = load(text=GRAPHS)
    for name in ("retry", "tools of an agent"):
        graph = module.made[name]
        assert len(Walk(list(getattr(graph, "builder", graph).nodes.values())).objects) < 60


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModuleType]:
    """Put a package into a folder of installed packages, and import it. `from_` is the source that pip records."""
    count = 0

    def install(text: str, version: str = "1.0", name: str = "langgraph_mine", from_: str | None = None) -> ModuleType:
        nonlocal count
        count += 1
        folder = tmp_path / str(count) / "site-packages"
        about = folder / f"{name}-{version}.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        if from_ is not None:
            (about / "direct_url.json").write_text(from_)
        (folder / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(str(folder))
        sys.modules.pop(name, None)
        return importlib.import_module(name)

    yield install
    sys.modules.pop("langgraph_mine", None)


def test_what_was_installed_from_an_index_counts_by_its_version(installed: Callable[..., ModuleType]) -> None:
    def codes(module: ModuleType) -> list[str]:
        def calling(state: Any) -> Any:
            return module.node(state)

        bound = functools.partial(calling, then=module.node)
        return [fingerprint(module.node), fingerprint(bound), fingerprint(module.Thing()), fingerprint(module.Thing)]

    text = "class Thing:\n    def __call__(self, state):\n        return 1\n\n\ndef node(state):\n    return 1\n"
    before, other = codes(installed(text)), codes(installed(text.replace("1", "2")))
    newer = codes(installed(text, "1.1"))

    assert before == other
    assert [code for code in before if code in newer] == []


@pytest.mark.parametrize("from_", ['{"url": "file:///app", "dir_info": {}}', '{"url": "file:///app.whl"}'])
def test_a_project_that_was_installed_from_its_folder_counts_by_its_source(
    installed: Callable[..., ModuleType], from_: str
) -> None:
    before = fingerprint(installed("def node(state):\n    return 1\n", from_=from_).node)

    assert fingerprint(installed("def node(state):\n    return 1\n", "1.1", from_=from_).node) == before
    assert fingerprint(installed("def node(state):\n    return 2\n", from_=from_).node) != before


def test_a_project_that_is_called_like_langgraph_counts_by_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def written(version: int) -> str:
        folder = tmp_path / str(version)
        folder.mkdir()
        (folder / "langgraph_mine.py").write_text(f"def node(state):\n    return {version}\n")
        monkeypatch.syspath_prepend(str(folder))
        sys.modules.pop("langgraph_mine", None)
        return fingerprint(importlib.import_module("langgraph_mine").node)

    assert written(1) != written(2)
    sys.modules.pop("langgraph_mine", None)


def test_a_file_is_parsed_once_until_it_changes(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    parse = ast.parse
    monkeypatch.setattr(ast, "parse", lambda source: parsed.append(source) or parse(source))
    module = load()

    for name in NODES:
        fingerprint(getattr(module, name))
    fingerprint(load(("return x + 1", "return x + 2")).node)

    assert len([source for source in parsed if "def deep(x)" in source]) == 2


@pytest.mark.filterwarnings("ignore:create_react_agent")
def test_the_fingerprints_of_graphs_are_the_same_in_every_process(load: Load) -> None:
    script = (
        "import code_under_test, json\nfrom wtb.authoring.code.fingerprint import fingerprints\n"
        "from wtb.authoring.code.import_paths import as_workflow\n"
        "print(json.dumps({name: fingerprints(as_workflow(graph, name).nodes.values(), {})"
        " for name, graph in code_under_test.made.items()}))"
    )
    module = load(text=GRAPHS)
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        cwd=Path(str(module.__file__)).parent,
        env={**os.environ, "PYTHONHASHSEED": "12345", "PYTHONDONTWRITEBYTECODE": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    here = codes_of(module)
    assert len(here) == 18
    assert json.loads(run.stdout) == here
