"""Recipes: another process builds the same variants and evaluators from text, or the sweep has a reason."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.prose import sentence
from wtb.authoring.code.fingerprint import fingerprints
from wtb.authoring.code.import_paths import load
from wtb.authoring.code.recipe import AddedVariant, NamedEvaluator, Recipe, assemble
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END
from wtb.core.errors import InputError
from wtb.handles.local_sweep import Sweep
from wtb.planning.binding import Bound, bind
from wtb.planning.sweep_spec import parse_spec

FLOW = """
from wtb import END, Workflow, evaluator

wf = Workflow("flow", params={"model": "small", "depth": 1})


@wf.node
def answer(state, ctx, *, k: int = 0, word: str = "a"):
    return {"answer": word * k}


answer.variant("own", k=1, description="the workflow's own")


def other(state, ctx, *, k: int = 5):
    return {"answer": k}


class Scores:
    @staticmethod
    @evaluator(better="lower", name="short")
    def length(case, result, *, unit: int = 1):
        return len(result.state["answer"]) / unit


def good(case, result):
    return True


wf.entry(answer)
wf.edge(answer, END)
"""

_numbers = itertools.count()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """FLOW as a module that any process with this `sys.path` can import, under a name that no other test uses."""
    name = f"recipe_flow_{next(_numbers)}"
    (tmp_path / f"{name}.py").write_text(FLOW, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    load(f"{name}:wf")
    yield sys.modules[name]
    del sys.modules[name]


def bound(module: ModuleType, **keys: Any) -> Bound:
    document = {"workflow": f"{module.__name__}:wf", "cases": [{"input": {"x": 1}}], "vary": {"answer": "all"}}
    return bind(parse_spec(document | keys))


def anew(recipe: Recipe) -> tuple[Workflow, Mapping[str, Any]]:
    """The workflow and evaluators that another process builds from a recipe, with its own modules."""
    (name,) = {path.partition(":")[0] for path in [recipe.workflow or ""]}
    ours = sys.modules.pop(name)
    try:
        workflow, evaluators = assemble(Recipe.read(recipe.text()))
    finally:
        sys.modules[name] = ours
    assert workflow is not None
    return workflow, {evaluator.name: evaluator for evaluator in evaluators}


def test_a_recipe_is_read_back_from_its_text_as_it_was() -> None:
    recipe = Recipe(
        "a.b:wf",
        [AddedVariant("n", "wide", "a.b:fn", None, {"k": 3, "when": date(2026, 1, 2), "raw": b"\0"})],
        [NamedEvaluator("regex", {"field": "x", "pattern": "é"}, "regex:x")],
        {"temperature": 0.1, "nested": {"list": [1, None, (2, 3)]}},
    )
    assert Recipe.read(recipe.text()) == recipe
    assert Recipe.read(Recipe(None).text()) == Recipe(None, [], [], None)


@pytest.mark.parametrize(
    "variants",
    [
        ["default", "own"],
        [{"name": "wide", "k": 50}],
        [{"name": "default", "k": 2}],
        [{"name": "own", "word": "b"}],
        [{"name": "deep", "of": "own", "word": "c"}],
        ["{module}:other"],
        [{"name": "mine", "with": "{module}:other", "k": 7}],
    ],
    ids=str,
)
def test_another_process_makes_variants_of_the_same_code_and_parameters(
    module: ModuleType, variants: list[Any]
) -> None:
    def named(text: Any) -> Any:
        return text.replace("{module}", module.__name__) if isinstance(text, str) else text

    levels = [
        {key: named(v) for key, v in variant.items()} if isinstance(variant, dict) else named(variant)
        for variant in variants
    ]
    original = bound(module, vary={"answer": levels}, params={"model": "large"})
    rebuilt, _ = anew(original.recipe)
    assemble(original.recipe)

    assert list(module.wf["answer"].variants) == ["default", "own"]
    assert Recipe.read(original.recipe.text()).params == {"model": "large", "depth": 1}
    assert original.not_importable_reason is None
    assert fingerprints(rebuilt.nodes.values(), original.vary) == original.fingerprints
    for name in original.vary["answer"]:
        ours, theirs = original.adapter["answer"][name], rebuilt["answer"][name]
        assert theirs.fn is not ours.fn
        assert (theirs.name, theirs.params, theirs.description) == (ours.name, ours.params, ours.description)
        assert (theirs.fn.__name__, theirs.takes_context) == (ours.fn.__name__, ours.takes_context)


def test_another_process_makes_evaluators_of_the_same_names_options_and_directions(module: ModuleType) -> None:
    evaluators: list[Any] = [
        "latency",
        {"exact_match": {"field": "answer"}},
        {"exact_match": {"field": "model"}},
        {f"{module.__name__}:Scores.length": {"unit": 2}},
        f"{module.__name__}:good",
    ]
    original = bound(module, evaluate=evaluators)
    _, rebuilt = anew(original.recipe)

    assert original.not_importable_reason is None
    assert list(rebuilt) == [evaluator.name for evaluator in original.evaluators]
    assert list(rebuilt) == ["latency", "exact_match", "exact_match:model", "short", "good"]
    assert [evaluator.better for evaluator in rebuilt.values()] == [
        evaluator.better for evaluator in original.evaluators
    ]
    from wtb.authoring.evaluation.evaluators import CellResult, ScoredCase

    case, result = ScoredCase("one", {}, {"answer": "aaaa"}), CellResult({"answer": "aaaa", "model": "small"})
    for ours in original.evaluators:
        assert rebuilt[ours.name].fn(case, result) == ours.fn(case, result)
    assert rebuilt["short"].fn(case, result) == 2


def test_a_recipe_that_cannot_be_followed_says_what_is_missing(module: ModuleType) -> None:
    name = module.__name__
    with pytest.raises(InputError, match=r"has no 'othr'; did you mean 'other'\?"):
        assemble(Recipe(f"{name}:wf", [AddedVariant("answer", "x", f"{name}:othr", None, {})]))
    with pytest.raises(InputError, match=sentence("has no variant {} to derive from", "'ownn'")):
        assemble(Recipe(f"{name}:wf", [AddedVariant("answer", "x", None, "ownn", {})]))


# What ties a sweep to its process


def small() -> Workflow:
    wf = Workflow("small")
    wf.node(lambda state: None, name="a")
    wf.entry("a")
    wf.edge("a", END)
    return wf


def sweep(workflow: Workflow | str, **keys: Any) -> Sweep:
    return Sweep(workflow=workflow, cases=[{"input": {}}], vary=keys.pop("vary", {"answer": "all"}), **keys)


def tie(definition: Sweep) -> str:
    bound = definition.prepare().bound
    assert bound.pool == "thread"
    assert bound.not_importable_reason is not None
    return bound.not_importable_reason


def test_what_can_be_imported_runs_in_processes(module: ModuleType) -> None:
    for workflow in (module.wf, f"{module.__name__}:wf"):
        bound_sweep = sweep(workflow, evaluate=[module.good, "cost", module.Scores.length]).prepare().bound
        assert (bound_sweep.not_importable_reason, bound_sweep.pool) == (None, "process")
    on_threads = sweep(module.wf, run={"pool": "thread"}).prepare().bound
    assert (on_threads.not_importable_reason, on_threads.pool) == (None, "thread")


def test_a_workflow_that_no_import_gives_ties_its_sweep(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    by_hand, of_script = ModuleType("made_by_hand"), small()
    by_hand.wf = small()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "made_by_hand", by_hand)
    monkeypatch.setattr(sys.modules["__main__"], "script_wf", of_script, raising=False)
    assert sentence("{} cannot be imported", "'small'") in tie(sweep(small(), vary={"a": "all"}))
    for workflow in (of_script, by_hand.wf):
        assert sentence("made in a script, a notebook or a function") in tie(sweep(workflow, vary={"a": "all"}))
    assert sentence("cannot be imported") in tie(sweep(module.wf.copy()))


@pytest.mark.parametrize("kind", ["closure", "lambda", "object", "of the script"])
def test_an_evaluator_that_no_import_gives_ties_its_sweep(
    module: ModuleType, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Scorer:
        def __call__(self, case: Any, result: Any) -> bool:
            return True

    def closure(case: Any, result: Any) -> bool:
        return kind == "closure"

    def script(case: Any, result: Any) -> bool:
        return True

    script.__module__, script.__qualname__ = "__main__", "script"
    monkeypatch.setattr(sys.modules["__main__"], "script", script, raising=False)
    scorers: dict[str, Callable[..., Any]] = {
        "closure": closure,
        "lambda": lambda case, result: True,
        "object": Scorer(),
        "of the script": script,
    }
    assert sentence("cannot be imported") in tie(sweep(module.wf, evaluate=[scorers[kind]]))


def test_a_parameter_that_cannot_be_stored_is_refused_with_its_key(module: ModuleType) -> None:
    with pytest.raises(InputError, match=r"'params.client' has an object of builtins.object"):
        tie(sweep(module.wf, params={"client": object()}))


def test_processes_are_refused_to_a_tied_sweep_and_the_reason_is_named() -> None:
    with pytest.raises(InputError, match=r"'small' cannot be imported.*move it to a module"):
        sweep(small(), vary={"a": "all"}, run={"pool": "process"}).prepare()


@pytest.mark.parametrize("run", [{"env": ["PATH"]}, {"rlimits": {"files": 64}}], ids=str)
def test_what_needs_processes_is_refused_to_a_tied_sweep(run: dict[str, Any]) -> None:
    (key,) = run
    with pytest.raises(InputError, match=rf"'run.{key}' needs node processes.*cannot be imported"):
        sweep(small(), vary={"a": "all"}, run=run).prepare()


GRAPH = """
from typing import TypedDict

from langgraph.graph import START, StateGraph

from wtb.integrations.langgraph import variants


class S(TypedDict, total=False):
    x: int


def a(s):
    return {}


def line(name, node):
    graph = StateGraph(S)
    graph.add_node(name, node)
    graph.add_edge(START, name)
    return graph


def build():
    return line("sub", line("a", a).compile())


wf = build()
compiled = wf.compile()
beside = variants(wf).add("sub.a", "again", a)
other = line("o", a)
"""


@pytest.fixture
def graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    name = f"recipe_graph_{next(_numbers)}"
    (tmp_path / f"{name}.py").write_text(GRAPH, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    load(f"{name}:wf")
    yield sys.modules[name]
    del sys.modules[name]


@pytest.mark.parametrize("attribute", ["wf", "compiled", "beside", "build"])
def test_a_graph_that_can_be_imported_runs_in_processes_in_whatever_form(graphs: ModuleType, attribute: str) -> None:
    bound_sweep = sweep(getattr(graphs, attribute), vary={"sub.a": "all"}).prepare().bound
    assert (bound_sweep.not_importable_reason, bound_sweep.pool) == (None, "process")


def test_another_process_varies_a_graph_within_a_graph_that_is_varied(graphs: ModuleType) -> None:
    vary = {"graph": ["default", f"{graphs.__name__}:other"], "default.sub": ["default", f"{graphs.__name__}:a"]}
    bound_sweep = sweep(graphs.wf, vary=vary).prepare().bound
    workflow, _ = anew(bound_sweep.recipe)
    assert {name: set(node.variants) for name, node in workflow.nodes.items()} == {
        name: set(node.variants) for name, node in bound_sweep.workflow.nodes.items()
    }
    assert set(workflow.nodes["default.sub"].variants) == {"default", "a"}
