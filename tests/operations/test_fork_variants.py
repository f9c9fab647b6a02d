"""Forks of one case with a variant that is made for them: other parameters, or code that was just written."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from tests.support.bench import Bench
from tests.support.prose import sentence
from wtb import Workflow, evaluator
from wtb.authoring.code.import_paths import as_workflow
from wtb.core.errors import ConflictError, InputError
from wtb.display.views.executions import execution_document
from wtb.integrations.langgraph import variants
from wtb.operations.context import Context
from wtb.operations.control.forks import Forked, fork
from wtb.operations.running.added_rows import add_row
from wtb.planning.binding import Bound, bind
from wtb.planning.prepare import stored_spec
from wtb.planning.sweep_spec import SweepSpec, Variant
from wtb.store.control import executions
from wtb.store.read import queries
from wtb.store.read.details import find_one
from wtb.store.tables.executions import ExecutionRow

LOUD: Mapping[str, Any] = {"name": "loud !!!", "of": "loud", "suffix": "!!!"}


@evaluator(better="higher")
def length(case: Any, result: Any) -> float:
    return float(len(result.state["way"]))


def write(state: dict[str, Any], *, suffix: str = "") -> dict[str, Any]:
    return {"way": state.get("way", "") + "b" + suffix}


def made_workflow() -> Workflow:
    wf = Workflow("abc")
    wf.node(lambda state: {"way": "a"}, name="a")
    wf.node(write, name="b")
    wf.node(lambda state: {"way": state["way"] + "c"}, name="c")
    wf["b"].variant("loud", suffix="!")
    wf.entry("a")
    wf.edge("a", "b")
    wf.edge("b", "c")
    return wf


class Flow:
    """A sweep of two cases that has ended, with the bound workflow and the context that fork it."""

    def __init__(self, bench: Callable[..., Bench], vary: Any = ("default",)) -> None:
        self.wf = made_workflow()
        cases = [{"id": f"c{number}", "input": {}} for number in range(2)]
        listed = vary if isinstance(vary, str) else list(vary)
        self.bench = bench(self.wf, cases, {"b": listed}, evaluators={"t:length": length})
        self.bench.run()
        self.context = Context(self.bench.database, by="anna")
        cell, *_ = queries.cell_rows(self.bench.database, self.bench.sweep_id)
        self.origin = str(cell.execution_id)

    def code(self, spec: SweepSpec) -> Bound:
        return bind(spec, self.wf, {"t:length": length})

    @property
    def bound(self) -> Bound:
        return self.code(stored_spec(self.bench.row))

    def fork(self, form: Variant, *, at: str = "a", run: bool = True, of: str | None = None) -> Forked:
        return fork(self.context, of or self.origin, at=at, variants={"b": form}, run=run, bound=self.bound)

    def row(self, forked: Forked) -> ExecutionRow:
        return find_one(self.bench.database, forked.execution)

    def way(self, forked: Forked) -> Any:
        return execution_document(self.bench.database, self.row(forked))["state"]["way"]


@pytest.fixture
def flow(bench: Callable[..., Bench]) -> Flow:
    return Flow(bench)


def test_a_fork_of_one_case_runs_with_another_parameter_and_no_row_changes(flow: Flow) -> None:
    before = flow.bench.counts, queries.choices(flow.bench.database, flow.bench.sweep_id)
    new_fork = flow.fork(LOUD)
    assert (new_fork.status, flow.way(new_fork)) == ("completed", "ab!!!c")
    assert flow.row(new_fork).choices == {"b": "loud !!!"}
    assert before == (flow.bench.counts, queries.choices(flow.bench.database, flow.bench.sweep_id))
    (run,) = [node_run for node_run in flow.bench.ran("b") if node_run["variant"] == "loud !!!"]
    other_fingerprints = {
        node_run["fingerprint"] for node_run in flow.bench.ran("b") if node_run["variant"] != "loud !!!"
    }
    assert run["fingerprint"] not in {*other_fingerprints, None}, "its parameters are in its fingerprint"
    assert "loud !!!" not in flow.bench.row.fingerprints["b"], "no sweep waits for the code of a fork"


def test_a_fork_that_is_left_paused_continues_with_its_parameter_from_what_is_stored(flow: Flow) -> None:
    new_fork = flow.fork(LOUD, run=False)
    assert new_fork.status == "paused"
    assert flow.bound.spec.fork_variants["b"][0].params == {"suffix": "!!!"}
    assert [variant.name for variant in flow.bound.recipe.variants] == ["loud !!!"], "node processes make it, too"
    later = flow.fork(LOUD)  # the same once more is the same variant
    assert flow.way(later) == "ab!!!c"
    assert flow.bench.row.spec["fork_variants"] == {"b": [LOUD]}


def test_a_fork_of_a_fork_keeps_its_parameters_and_may_have_others(flow: Flow) -> None:
    first = flow.fork(LOUD)
    same = fork(flow.context, first.execution, at="a", bound=flow.bound)
    assert flow.way(same) == "ab!!!c"
    other = flow.fork({"name": "derived", "of": "default", "suffix": "?"}, of=first.execution)
    assert flow.way(other) == "ab?c"
    assert flow.way(flow.fork("derived")) == "ab?c", "by its name from then on"
    more = {"name": "more", "of": "derived", "suffix": "??"}
    assert flow.way(flow.fork(more, of=other.execution)) == "ab??c"
    added = add_row(flow.context, flow.origin, variants={"b": {**more, "name": "most"}}, run=False, code=flow.code)
    assert flow.bench.row.spec["vary"]["b"][-1] == {"name": "most", "of": "default", "suffix": "??"}
    assert added.choices == {"b": "most"}


def test_a_level_is_changed_and_the_others_stay(flow: Flow) -> None:
    def forked(level: str, *, of: str | None = None) -> Forked:
        return fork(flow.context, of or flow.origin, at="a", variants={"b.suffix": level}, bound=flow.bound)

    first = forked("?")
    assert (flow.way(first), flow.row(first).choices) == ("ab?c", {"b": "suffix=?"})
    assert flow.bench.row.spec["fork_variants"] == {"b": [{"name": "suffix=?", "levels": [["suffix", "?"]]}]}
    assert flow.row(forked("?")).choices == {"b": "suffix=?"}, "the same once more is the same variant"
    loud = flow.fork("loud")
    assert flow.row(forked("7", of=loud.execution)).choices == {"b": 'loud, suffix="7"'}
    added = add_row(flow.context, flow.origin, variants={"b.suffix": "?!"}, run=False, code=flow.code)
    assert added.choices == {"b": "suffix=?!"}
    with pytest.raises(
        InputError, match=sentence("takes no parameter {}", "'sufix'") + sentence("; did you mean '{}'", "suffix")
    ):
        fork(flow.context, flow.origin, at="a", variants={"b.sufix": "?"}, bound=flow.bound)
    with pytest.raises(InputError, match=sentence("choose the variant, or levels")):
        fork(flow.context, flow.origin, at="a", variants={"b.suffix": "?", "b": "loud"}, bound=flow.bound)


@pytest.mark.parametrize("vary", [("default",), "all"])
def test_what_a_fork_tried_becomes_a_row_for_every_case(bench: Callable[..., Bench], vary: Any) -> None:
    flow = Flow(bench, vary)
    forked = flow.fork(LOUD)
    added = add_row(flow.context, forked.execution, run=False, code=flow.code)
    assert (added.choices, added.cells) == ({"b": "loud !!!"}, 2)
    flow.bench.prepared = replace(flow.bench.prepared, bound=flow.bound)
    flow.bench.run()
    ways = [cell.state["way"] for cell in flow.bench.cells() if cell.combination == {"b": "loud !!!"}]
    assert ways == ["ab!!!c"] * 2
    assert "loud !!!" in flow.bench.row.fingerprints["b"], "a row waits for its code"
    with pytest.raises(ConflictError, match=sentence("has the row {} already", "b=loud !!!")):
        add_row(flow.context, forked.execution, run=False, code=flow.code)
    assert flow.way(flow.fork(LOUD)) == "ab!!!c"


TAKEN = sentence("has a variant {} already", "'loud'")
LOUT = sentence("has no variant {}", "'lout'") + sentence("; did you mean '{}'", "loud")
NO_VARIANTS: list[tuple[Any, str]] = [
    ({"name": "loud", "of": "default", "suffix": "?"}, TAKEN + sentence("; give the one of the fork")),
    ({"name": "loud", "suffix": "?"}, TAKEN),
    ({"name": "new", "of": "lout"}, sentence("has no variant {} to derive from{}", "'lout'", "; did you mean 'loud'")),
    ({"name": "new", "of": "loud", "sufix": "?"}, "sufix"),
    ({"of": "loud", "suffix": "?"}, "no 'name'"),
    ({"suffix": ["?", "!"]}, sentence("{}: a grid of levels; expected a single variant", "b")),
    ("lout", LOUT),
    ({"name": "lout"}, LOUT),
    ("nowhere:fn", "nowhere"),
]


def test_what_no_variant_can_be_made_of_is_refused_and_nothing_is_left(flow: Flow, subtests: pytest.Subtests) -> None:
    for form, words in NO_VARIANTS:
        with subtests.test(repr(form)), pytest.raises(InputError, match=words):
            flow.fork(form)
    with pytest.raises(InputError, match=sentence("node {} does not run after", "'b'")):
        flow.fork(LOUD, at="b")
    assert "fork_variants" not in flow.bench.row.spec
    assert len(flow.bench.executions) == 2


def test_a_name_stands_for_one_variant_in_all_forks_and_rows(flow: Flow) -> None:
    flow.fork(LOUD)
    other = {**LOUD, "suffix": "?"}
    with pytest.raises(InputError, match=sentence("has a variant {} already", "'loud !!!'")):
        flow.fork(other)
    with pytest.raises(InputError, match=sentence("a fork has another variant {} of node {}", "'loud !!!'", "'b'")):
        add_row(flow.context, flow.origin, variants={"b": other}, run=False, code=flow.code)


@pytest.mark.parametrize("form", [LOUD, "loud"])
def test_a_fork_fails_if_the_code_lacks_its_variant_and_the_sweep_continues(flow: Flow, form: Variant) -> None:
    new_fork = flow.fork(form, run=False)
    flow.wf = made_workflow()
    del flow.wf["b"].variants["loud"]
    flow.bench.prepared = replace(flow.bench.prepared, bound=flow.bound)
    executions.resume(flow.bench.database, new_fork.execution, by="anna", changes={})
    flow.bench.run_fork(new_fork.execution)
    row = flow.row(new_fork)
    assert (row.status, flow.bench.status) == ("failed", "completed")
    assert row.failure is not None
    assert sentence("the code has no {} any more", f"b={flow.row(new_fork).choices['b']}") in str(row.failure)
    assert flow.way(flow.fork({"name": "other", "of": "default", "suffix": "+"})) == "ab+c"


class GraphState(TypedDict, total=False):
    x: int
    way: Annotated[list[str], operator.add]


def word(name: str) -> Callable[..., dict[str, Any]]:
    def run(state: GraphState, *, suffix: str = "") -> dict[str, Any]:
        return {"way": [name + suffix]}

    return run


def test_a_node_of_a_langgraph_graph_has_another_parameter_for_one_case(bench: Callable[..., Bench]) -> None:
    graph = StateGraph(GraphState)
    within = StateGraph(GraphState).add_node("deep", word("deep")).add_edge(START, "deep").compile()
    graph.add_node("a", word("a")).add_node("b", word("b")).add_node("inner", within)
    graph.add_edge(START, "a").add_edge("a", "b").add_edge("b", "inner")
    workflow = as_workflow(variants(graph).add("b", "loud", suffix="!"), "tests:graph")
    sweep = bench(workflow, [{"id": "c", "input": {"x": 1}}], {"b": ["default"]})
    sweep.run()
    (cell,) = queries.cell_rows(sweep.database, sweep.sweep_id)

    def forked(node: str, form: Variant) -> list[str]:
        bound, context = bind(stored_spec(sweep.row), workflow), Context(sweep.database, by="anna")
        new_fork = fork(context, str(cell.execution_id), at="a", variants={node: form}, bound=bound)
        way = execution_document(sweep.database, find_one(sweep.database, new_fork.execution))["state"]["way"]
        return list(dict.fromkeys(way))  # what a graph within returns holds what it was given

    assert forked("b", {"name": "louder", "of": "loud", "suffix": "!!"}) == ["a", "b!!", "deep"]
    assert forked("b", {"name": "plain", "of": "default", "suffix": "."}) == ["a", "b.", "deep"]
    assert forked("inner.deep", {"name": "deeper", "of": "default", "suffix": "+"}) == ["a", "b", "deep+"]
    with pytest.raises(InputError, match=sentence("no node '{}'", "inner") + sentence("; did you mean")):
        forked("inner", {"name": "other", "of": "default"})
