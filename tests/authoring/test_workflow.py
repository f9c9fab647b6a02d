"""Authoring: every way to write a workflow and its variants; all problems are reported at once."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NotRequired, TypedDict

import pytest
import typing_extensions

from tests.support.prose import sentence
from wtb.authoring.graph import graph_snapshot
from wtb.authoring.nodes import Backoff, Node, Rules
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END
from wtb.core.errors import InputError, WorkflowError


class State(TypedDict, total=False):
    question: str
    docs: list[str]
    answer: str
    log: Annotated[list[str], operator.add]


def nothing(state: Any) -> None:
    return None


def names(wf: Workflow) -> list[str]:
    return list(wf.nodes)


def problems(wf: Workflow) -> str:
    with pytest.raises(WorkflowError) as raised:
        wf.validate()
    assert all(problem.startswith(f"workflow {wf.name!r}: ") for problem in raised.value.problems)
    return str(raised.value)


def valid(fn: Callable[..., Any] = nothing, **options: Any) -> Workflow:
    """A workflow of one node with only the requested problem."""
    wf = Workflow("one")
    wf.entry(wf.node(fn, name="a", **options))
    wf.edge("a", END)
    return wf


# Every form


def test_the_example_of_the_documentation_is_valid() -> None:
    wf = Workflow("rag", state=State)

    @wf.node
    def retrieve(state: State, ctx: Any, *, k: int = 5) -> dict[str, Any]:
        return {"docs": ["d"] * k}

    @retrieve.variant("bm25")
    def _(state: State, ctx: Any, *, k: int = 5) -> dict[str, Any]:
        return {"docs": ["bm25"] * k}

    retrieve.variant("deep", k=50)

    @wf.node
    def grade(state: State) -> None:
        return None

    @wf.node
    def rewrite(state: State) -> None:
        return None

    @wf.node(retries=2, timeout=10.0)
    async def answer(state: State, ctx: Any) -> dict[str, Any]:
        return {"answer": "42"}

    def good(state: State) -> bool:
        return bool(state["docs"])

    wf.entry(retrieve)
    wf.edge(retrieve, grade)
    wf.edge(grade, answer, when=good, priority=2)
    wf.branch(grade, {"good": answer, "bad": rewrite}, by=lambda state: "good")
    wf.edge(rewrite, retrieve)
    wf.edge(answer, END)

    wf.validate()
    assert names(wf) == ["retrieve", "grade", "rewrite", "answer"]
    assert list(retrieve.variants) == ["default", "bm25", "deep"]
    assert answer.rules == Rules(retries=2, timeout=10.0)
    assert [(edge.sources, edge.target, edge.priority) for edge in wf.edges][:2] == [
        (("retrieve",), "grade", 0),
        (("grade",), "answer", 2),
    ]


def test_calling_node_equals_the_decorator() -> None:
    wf = Workflow("w")

    called = wf.node(nothing)

    @wf.node
    def decorated(state: Any) -> None: ...

    @wf.node()
    def with_brackets(state: Any) -> None: ...

    assert all(isinstance(node, Node) for node in (called, decorated, with_brackets))
    assert names(wf) == ["nothing", "decorated", "with_brackets"]


def test_a_node_can_be_called_as_the_function_that_it_is() -> None:
    wf = Workflow("w")

    @wf.node
    def double(state: dict[str, int], *, by: int = 2) -> dict[str, int]:
        return {"x": state["x"] * by}

    double.variant("triple", by=3)

    assert double({"x": 2}) == {"x": 4}


def test_a_node_and_its_own_callable_the_variant_default_can_be_given_other_names() -> None:
    wf = Workflow("w")

    node = wf.node(nothing, name="a")
    assert (node.name, node.default, wf["a"]) == ("a", "default", node)
    assert wf.node(nothing, name="b", variant="plain").default == "plain"
    assert list(wf["b"].variants) == ["plain"]


def test_all_rules_of_a_node_are_kept() -> None:
    wf = Workflow("w")

    node = wf.node(
        nothing,
        retries=3,
        timeout=1.5,
        backoff=0.25,
        final=[KeyError],
        on_error="skip",
        durable=True,
        queue="gpu",
        limit=2,
        rate=5.0,
    )

    assert node.rules == Rules(3, 1.5, Backoff(0.25), (KeyError,), "skip", True, "gpu", 2, 5.0)


def test_backoff_doubles_up_to_its_maximum() -> None:
    assert [Backoff(0.5, 2.0, 3.0).seconds(attempt) for attempt in (1, 2, 3, 4, 5000)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert Backoff(0.0).seconds(5000) == 0.0


def test_edges_take_names_or_nodes_and_join_from_a_list() -> None:
    wf = Workflow("w")
    a, b, c = (wf.node(nothing, name=name) for name in "abc")

    wf.edge(a, "b")
    wf.edge("a", c)
    wf.edge([b, "c"], END)

    assert [(edge.sources, edge.target) for edge in wf.edges] == [(("a",), "b"), (("a",), "c"), (("b", "c"), END)]


def test_several_nodes_may_be_the_entry() -> None:
    wf = Workflow("w")
    for name in "ab":
        wf.node(nothing, name=name)

    wf.entry("a", "b")

    wf.validate()
    assert wf.entries == ["a", "b"]


def test_a_workflow_has_a_description_a_version_and_params() -> None:
    wf = Workflow("w", description="what for", version="2", params={"model": "small"})

    assert (wf.description, wf.version, wf.params) == ("what for", "2", {"model": "small"})


def test_the_description_of_a_node_is_the_first_line_of_its_docstring() -> None:
    def explained(state: Any) -> None:
        """Find documents.

        At length.
        """

    wf = Workflow("w")

    assert wf.node(explained)["default"].description == "Find documents."
    assert wf.node(explained, name="b", description="mine")["default"].description == "mine"


def test_only_a_callable_with_a_second_parameter_gets_the_context() -> None:
    wf = Workflow("w")

    assert not wf.node(lambda state: None, name="a")["default"].takes_context
    assert not wf.node(lambda state, *, k=1: None, name="b")["default"].takes_context
    assert wf.node(lambda state, ctx: None, name="c")["default"].takes_context
    assert wf.node(lambda *both: None, name="d")["default"].takes_context


# Variants


def varied() -> Node:
    wf = Workflow("w")

    @wf.node
    def find(state: Any, *, k: int = 5, deep: bool = False) -> None: ...

    return find


def test_a_variant_is_the_same_callable_with_other_parameters() -> None:
    node = varied()

    variant = node.variant("deep", k=50, description="more")

    assert node["deep"] is variant
    assert variant.fn is node["default"].fn
    assert (dict(variant.params), variant.description) == ({"k": 50}, "more")


def test_a_variant_is_another_callable_as_a_decorator_or_given() -> None:
    node = varied()

    @node.variant("decorated", description="mine")
    def other(state: Any) -> None: ...

    node.variant("given", nothing)

    assert node["decorated"].fn is other
    assert node["decorated"].description == "mine"
    assert node["given"].fn is nothing


def test_a_variant_derives_from_another_with_changed_parameters() -> None:
    node = varied()
    node.variant("deep", k=50, deep=True)

    node.variant("deeper", of="deep", k=500)

    assert dict(node["deeper"].params) == {"k": 500, "deep": True}
    assert dict(node["deep"].params) == {"k": 50, "deep": True}


def test_a_variant_that_is_not_there_is_refused_with_a_near_match() -> None:
    node = varied()
    node.variant("deep", k=50)

    with pytest.raises(InputError, match=r"no variant 'depp'; did you mean 'deep'\? \(it has: default, deep\)"):
        node["depp"]
    with pytest.raises(InputError, match=sentence("no variant '{}'", "depp")):
        node.variant("deeper", of="depp", k=1)


def test_a_node_that_is_not_there_is_refused_with_a_near_match() -> None:
    wf = valid()
    wf.node(nothing, name="retrieve")

    with pytest.raises(
        InputError, match=sentence("no node '{}'", "retreive") + sentence("; did you mean '{}'", "retrieve")
    ):
        wf["retreive"]


def test_a_deactivated_variant_is_left_out_of_all_but_can_be_named() -> None:
    node = varied()
    node.variant("deep", k=50)

    node.deactivate("deep")
    assert node.active() == ["default"]
    assert dict(node["deep"].params) == {"k": 50}

    node.activate("deep")
    assert node.active() == ["default", "deep"]


def test_variants_applied_as_a_set_give_a_plain_workflow_and_back() -> None:
    wf = Workflow("w")
    for name in "ab":
        node = wf.node(lambda state, *, k=1: {"k": k}, name=name)
        node.variant("two", k=2)
    wf.entry("a")
    wf.edge("a", "b")

    plain = wf.apply({"b": "two"})
    wf.copy()["a"].variant("three", k=3)

    plain.validate()
    assert [list(node.variants) for node in plain.nodes.values()] == [["default"], ["default"]]
    assert dict(plain["b"]["default"].params) == {"k": 2}
    assert dict(plain["a"]["default"].params) == {}
    assert plain.original is wf
    assert [list(wf[name].variants) for name in "ab"] == [["default", "two"]] * 2  # untouched


def test_applying_what_is_not_there_is_refused() -> None:
    wf = valid()

    with pytest.raises(InputError, match="no node 'b'"):
        wf.apply({"b": "default"})
    with pytest.raises(InputError, match=sentence("no variant '{}'", "other")):
        wf.apply({"a": "other"})


# Parameters


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"j": 1}, r"variant 'x': takes no parameter 'j' \(it takes: k, deep\)"),
        ({"depe": True}, sentence("takes no parameter {}", "'depe'") + sentence("; did you mean '{}", "deep'\\?")),
        ({"k": "5"}, sentence("parameter {} is {}; expected {}", "'k'", "'5'", "int")),
        ({"k": True}, sentence("parameter {} is {}; expected {}", "'k'", "True", "int")),
        ({"deep": 1}, sentence("parameter {} is {}; expected {}", "'deep'", 1, "bool")),
    ],
)
def test_a_parameter_that_the_callable_does_not_take_is_a_problem(params: dict[str, Any], message: str) -> None:
    def find(state: Any, *, k: int = 5, deep: bool = False) -> None: ...

    wf = valid(find)
    wf["a"].variant("x", **params)

    with pytest.raises(WorkflowError, match=f"node 'a', .*{message}"):
        wf.validate()


def test_a_parameter_without_default_and_value_is_a_problem() -> None:
    def find(state: Any, *, k: int) -> None: ...

    wf = valid(find)
    wf["a"].variant("five", k=5)

    with pytest.raises(WorkflowError) as raised:
        wf.validate()
    assert raised.value.problems == (
        "workflow 'one': "
        + sentence("node {}, variant {}", "'a'", "'default'")
        + sentence(": parameter {} has neither a default nor a value", "'k'"),
    )


def test_a_callable_that_takes_anything_takes_any_parameter() -> None:
    wf = valid(lambda state, **rest: None)
    wf["a"].variant("x", whatever=1)

    wf.validate()


def test_a_parameter_that_is_not_keyword_only_is_a_problem() -> None:
    def third(state: Any, ctx: Any, k: int) -> None: ...

    def second(state: Any, k: int = 5) -> None: ...

    for find in (third, second):
        assert sentence("node {}, variant {}", "'a'", "'default'") + sentence(
            ": {} must be keyword-only", "'k'"
        ) in problems(valid(find))


def test_a_context_may_have_none_as_its_default() -> None:
    def find(state: Any, ctx: Any = None, *, k: int = 5) -> None: ...

    valid(find).validate()


# The graph


GRAPH_PROBLEMS: dict[str, Callable[[Workflow], object]] = {
    sentence("the entry {} is not a node", "'b'"): lambda wf: wf.entry("b"),
    sentence("the edge from {} names a node twice", "['a', 'a']"): lambda wf: wf.edge(["a", "a"], END),
    sentence("a node cannot be named"): lambda wf: wf.node(nothing, name=END),
    sentence("takes no state"): lambda wf: wf.node(lambda *, k=1: None, name="b"),
    sentence("the default edge {} -> {} has no conditional edge beside it", "'a'", "'__end__'"): lambda wf: wf.edge(
        "a", END, default=True
    ),
}


@pytest.mark.parametrize("problem", GRAPH_PROBLEMS)
def test_a_graph_that_cannot_run_is_a_problem(problem: str) -> None:
    wf = valid()
    GRAPH_PROBLEMS[problem](wf)

    assert problem in problems(wf)


def test_all_problems_are_told_at_once() -> None:
    wf = Workflow("bad")
    a = wf.node(nothing, name="a", retries=-1, timeout=0, limit=0, rate=-1.0, on_error="explode")  # type: ignore[arg-type]
    wf.node(nothing, name="after")
    wf.node(nothing, name="after")
    a.variant("twice", nothing)
    a.variant("twice", nothing)
    wf.edge("a", "aftre")
    wf.edge("nowhere", "a")
    wf.edge(["a", "after"], END, when=lambda state: True)
    wf.edge("a", END, when=lambda state: True, default=True)
    wf.branch("a", {}, by=lambda state: "x")
    wf.branch("a", {"x": "gone", 1: "after"}, by=lambda state: "x", default="lost")  # type: ignore[dict-item]

    messages = problems(wf)

    for message in (
        "node 'a': retries is -1; expected 0 or more",
        "node 'a': timeout is 0; expected more than 0",
        "node 'a': limit is 0; expected more than 0",
        "node 'a': rate is -1.0; expected more than 0",
        "node 'a': on_error is 'explode'; expected 'fail' or 'skip'",
        "two nodes are named 'after'",
        "has no entry: call entry(node)",
        "an edge from 'a' leads to 'aftre', which is not a node; did you mean 'after'?",
        "an edge leaves 'nowhere', which is not a node",
        "the edge from ['a', 'after'] waits for all: it cannot be conditional",
        "the edge 'a' -> '__end__' has both when= and default=",
        "the branch after 'a' has no keys",
        "the branch after 'a' has the key 1; expected text",
        "an edge from 'a' leads to 'gone', which is not a node",
        "an edge from 'a' leads to 'lost', which is not a node",
        "node 'a' has two variants named 'twice'",
    ):
        assert message in messages


def test_nodes_that_cannot_be_reached_are_problems_and_so_is_none() -> None:
    assert "has no entry" in problems(Workflow("empty"))
    wf = valid()
    wf.node(nothing, name="b")
    wf.node(nothing, name="c")
    wf.edge("b", "c")

    messages = problems(wf)

    assert sentence("node {} cannot be reached from the entry", "'b'") in messages
    assert sentence("node {} cannot be reached from the entry", "'c'") in messages


@pytest.mark.parametrize(
    ("targets", "problem"),
    [
        ("a", sentence("the loop of {} has no exit", "'a', 'b'")),
        (["a", END], sentence("the loop through {} has no way out: its edges are all unconditional", "'a'")),
    ],
    ids=["no edge out of it", "an unconditional edge out of it"],
)
def test_a_loop_with_no_way_out_is_a_problem(targets: Sequence[Any], problem: str) -> None:
    wf = Workflow("round")
    for name in "ab":
        wf.node(nothing, name=name)
    wf.entry("a")
    wf.edge("a", "b")
    for target in targets:
        wf.edge("b", target)

    assert problem in problems(wf)


def test_a_loop_with_a_condition_is_fine() -> None:
    wf = valid()
    wf.edges.clear()
    wf.edge("a", "a", when=lambda state: False)
    wf.edge("a", END, default=True)

    wf.validate()


def test_a_typed_dict_of_typing_extensions_is_a_schema() -> None:
    class Extended(typing_extensions.TypedDict):
        words: Annotated[typing_extensions.NotRequired[list[str]], operator.add]
        x: typing_extensions.ReadOnly[int]

    wf = Workflow("w", state=Extended)

    assert {name: (key.annotation, key.required) for name, key in wf.schema.keys.items()} == {
        "words": (list[str], False),
        "x": (int, True),
    }
    assert wf.schema.keys["words"].reducer is operator.add
    assert wf.schema.view({"x": 1}) == {"x": 1}


def test_a_key_that_is_not_required_by_an_annotation_in_quotes_is_not() -> None:
    class Quoted(TypedDict):  # by `from __future__ import annotations`
        x: int
        note: NotRequired[str]

    class Extended(typing_extensions.TypedDict):
        x: int
        note: NotRequired[str]

    for shape in (Quoted, Extended):
        assert Workflow("w", state=shape).schema.missing({"x"}) == []


def test_a_state_that_is_no_schema_is_refused() -> None:
    with pytest.raises(InputError, match=sentence("expected a TypedDict, a dataclass or a pydantic model")):
        Workflow("w", state=int)


def test_the_outline_of_a_state_names_no_place_in_memory() -> None:
    class Marked(TypedDict):
        docs: list[Annotated[str, nothing]]

    kind = graph_snapshot(Workflow("w", state=Marked).facts())["state"]["docs"]["type"]
    assert kind == "list[typing.Annotated[str, <function nothing>]]"


@pytest.mark.parametrize("name", ["", "n" * 201, "a\0b", "a\nb", "\ud800"])
def test_names_that_no_table_or_message_takes_are_refused(name: str) -> None:
    def build(workflow: str = "w", node: str = "a", variant: str = "b", version: str = "") -> Workflow:
        wf = Workflow(workflow, version=version)

        def a(state: Any, *, n: int = 0) -> None: ...

        wf.node(name=node)(a).variant(variant, n=1)
        wf.entry(node)
        wf.edge(node, END)
        return wf

    build().validate()
    for names in ({"workflow": name}, {"variant": name}, {"node": name}, {"version": name}):
        if name or {"version", "node"}.isdisjoint(names):
            with pytest.raises(WorkflowError, match=r"expected (a name of 1 to|at most) 200"):
                build(**names).validate()
