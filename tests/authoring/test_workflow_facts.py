"""The facts of workflows have one shape for native workflows, LangGraph graphs and published workflows."""

import json
from typing import Any

import pytest
from langgraph.graph import END as GRAPH_END
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from wtb.authoring.code.described import DescribedWorkflow, facts_of
from wtb.authoring.code.describing import describe_workflow
from wtb.authoring.code.import_paths import as_workflow
from wtb.authoring.nodes import Variant
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END, WorkflowFacts


class State(TypedDict, total=False):
    text: str


def say(state: State) -> State:
    return {"text": "hello"}


def loud(state: State) -> State:
    return {"text": "HELLO"}


def native() -> Workflow:
    wf = Workflow("shop", state=State, version="2", max_steps=7, params={"top": 3}, metadata={"owner": "Ana"})
    wf.node(say, name="first").variant("loud", loud)
    wf.node(say, name="second")
    wf.entry("first")
    wf.branch("first", {"more": "second", "no": END}, by=lambda state: "no")
    wf.edge("second", END)
    wf.tool(lambda *, name: name, name="look_up")
    return wf


def graph() -> Workflow:
    inner = StateGraph(State).add_node("say", say).add_edge(START, "say").add_edge("say", GRAPH_END)
    outer = StateGraph(State).add_node("sub", inner.compile()).add_node("last", say)
    return as_workflow(outer.add_edge(START, "sub").add_edge("sub", "last").compile(), "nested")


def compared(facts: WorkflowFacts) -> dict[str, Any]:
    """Return the facts that planning reads, without code."""
    return {
        "words": (facts.name, facts.version, facts.description, facts.metadata, facts.params, facts.approval),
        "nodes": {name: list(node.variants) for name, node in facts.nodes.items()},
        "path": (facts.entries, facts.starts, [(edge.sources, edge.target) for edge in facts.edges]),
        "branches": [(branch.source, dict(branch.targets), branch.default) for branch in facts.branches],
        "bounds": (facts.max_steps, facts.is_limited, facts.is_open, set(facts.sent_to), tuple(facts.breakpoints)),
        "state": (list(facts.schema.keys), facts.input and list(facts.input.keys), facts.state_key),
        "input": facts.is_input_closed,
        "tools": list(facts.tools),
    }


@pytest.mark.parametrize("make", [native, graph])
def test_a_workflow_that_was_described_has_the_facts_of_its_code(make: Any) -> None:
    facts = make().facts()
    described = facts_of(json.loads(json.dumps(describe_workflow(facts))))

    assert compared(described) == compared(facts)
    assert compared(DescribedWorkflow(described).facts()) == compared(facts)


def test_facts_stay_as_they_are_when_the_workflow_gets_another_node() -> None:
    wf = native()
    facts = wf.facts()

    wf.node(say, name="third")
    wf.edge("second", "third")

    assert list(facts.nodes) == ["first", "second"]
    assert len(facts.edges) == 1


def test_a_described_workflow_takes_a_variant_and_its_name_of_a_sweep() -> None:
    adapter = DescribedWorkflow(facts_of(describe_workflow(native().facts()))).copy()
    adapter.name = "renamed"

    assert adapter.add_variant(Variant("first", "again", adapter.nodes["first"].variants["loud"].fn, {})) == []

    assert adapter.facts().name == "renamed"
    assert list(adapter.facts().nodes["first"].variants) == ["default", "loud", "again"]


def test_what_becomes_one_node_once_it_is_varied_can_be_varied() -> None:
    facts = graph().facts()

    assert set(facts.nodes) == {"sub.say", "last"}
    assert set(facts.composites) == {"sub", "graph"}
    varied = graph()
    assert varied.varied("sub") is not None
    assert set(varied.facts().nodes) == {"sub", "last"}
    assert facts.varied("nothing") is None
    assert native().facts().varied("graph") is None


@pytest.mark.parametrize(
    ("key", "plain"), [("sub.text", "sub.text"), ("sub|2.text", "sub.text"), ("sub.other", None), ("text", None)]
)
def test_a_key_of_an_inner_graph_is_read_with_or_without_the_number_of_its_task(key: str, plain: str | None) -> None:
    assert graph().facts().within(key) == plain


def test_the_object_that_a_user_wrote_is_a_fact() -> None:
    wf = native()
    assert wf.facts().source is wf
    compiled = StateGraph(State).add_node("say", say).add_edge(START, "say").compile()
    assert as_workflow(compiled, "plain").facts().source is compiled
    assert facts_of(describe_workflow(wf.facts())).source is None
