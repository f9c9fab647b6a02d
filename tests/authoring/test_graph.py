"""The next nodes of a workflow: supersteps, joins, conditions, branches, and errors that name the node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from tests.support.prose import sentence
from wtb.authoring.graph import Route, Routes, is_conditional, successors
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END
from wtb.core.errors import RoutingError


def workflow(names: str) -> Workflow:
    wf = Workflow("graph")
    for name in names:
        wf.node(lambda state: None, name=name)
    wf.entry(names[0])
    return wf


def after(
    wf: Workflow, ran: Sequence[str], state: Any = None, arrived: Mapping[str, tuple[str, ...]] | None = None
) -> Route:
    return Routes(wf.facts()).after(list(ran), arrived or {}, state)


def yes(state: Any) -> bool:
    return True


def no(state: Any) -> bool:
    return False


def test_an_execution_begins_at_the_entry_nodes_in_the_order_of_declaration() -> None:
    wf = workflow("abc")
    wf.entries = ["c", "a"]

    assert Routes(wf.facts()).entry.next == ("a", "c")


@pytest.mark.parametrize(
    ("edges", "ran", "following"),
    [
        pytest.param([("a", "b", {})], "a", "b", id="one"),
        pytest.param([("a", "c", {}), ("a", "b", {})], "a", "bc", id="in the order of declaration"),
        pytest.param([("b", "d", {}), ("c", "d", {})], "bc", "d", id="a node that several nodes lead to runs once"),
        pytest.param([("a", END, {}), ("b", "c", {})], "ab", "c", id="a path that ends does not end others"),
        pytest.param(
            [("a", "c", {"when": yes}), ("a", "b", {"when": yes})], "a", "c", id="the first of equal priority"
        ),
        pytest.param(
            [("a", "c", {"default": True}), ("a", "b", {"when": yes})], "a", "b", id="no default beside a true one"
        ),
        pytest.param(
            [("a", "b", {}), ("a", "c", {"when": yes}), ("a", "d", {"default": True})],
            "a",
            "bc",
            id="unconditional ones beside a true one",
        ),
    ],
)
def test_edges_are_followed(edges: list[tuple[str, str, dict[str, Any]]], ran: str, following: str) -> None:
    wf = workflow("abcd")
    for source, target, options in edges:
        wf.edge(source, target, **options)

    step = after(wf, ran)
    assert (step.next, step.arrived) == (tuple(following), {})
    assert bool(step.decisions) == any("when" in options for _, _, options in edges)


@pytest.mark.parametrize("last", [sentence("an edge to END"), "no edge at all"])
def test_a_path_ends_where_nothing_follows(last: str) -> None:
    wf = workflow("a")
    if last == "an edge to END":
        wf.edge("a", END)

    assert after(wf, "a").next == ()


# Joins


def joining() -> Workflow:
    wf = workflow("abcde")
    wf.edge("a", "b")
    wf.edge("a", "c")
    wf.edge("c", "e")
    wf.edge(["b", "e"], "d")
    return wf


def test_a_join_waits_for_all_of_its_sources() -> None:
    wf = joining()

    first = after(wf, "bc")
    assert first.next == ("e",)
    assert first.arrived == {"b+e>d": ("b",)}

    second = after(wf, "e", arrived=first.arrived)
    assert second == Route(("d",), {})


def test_a_join_whose_sources_run_in_one_step_follows_at_once() -> None:
    assert after(joining(), "be") == Route(("d",), {})


def test_a_join_waits_anew_each_time_round() -> None:
    wf = joining()

    assert after(wf, "b").arrived == {"b+e>d": ("b",)}
    assert after(wf, "b", arrived={"b+e>d": ("b",)}) == Route((), {"b+e>d": ("b",)})


def test_two_joins_of_the_same_sources_are_two() -> None:
    wf = workflow("abcd")
    wf.edge(["a", "b"], "c")
    wf.edge(["a", "b"], "d")

    assert after(wf, "a").arrived == {"a+b>c": ("a",), "a+b>d": ("a",)}
    assert after(wf, "ab").next == ("c", "d")


# Conditions


def test_the_true_edge_of_highest_priority_is_followed() -> None:
    wf = workflow("abcd")
    wf.edge("a", "b", when=yes, priority=1)
    wf.edge("a", "c", when=yes, priority=2)
    wf.edge("a", "d", when=no, priority=3)

    step = after(wf, "a")
    assert step.next == ("c",)
    assert [(d.node, d.to, d.why) for d in step.decisions] == [("a", "c", "yes is true")]


def test_the_default_edge_is_followed_when_no_condition_is_true() -> None:
    wf = workflow("abc")
    wf.edge("a", "c", default=True)
    wf.edge("a", "b", when=no)

    step = after(wf, "a")
    assert step.next == ("c",)
    assert step.decisions[0].why == sentence("no condition is true")


def test_conditions_see_the_state() -> None:
    wf = workflow("abc")
    wf.edge("a", "b", when=lambda state: state["x"] > 1)
    wf.edge("a", "c", default=True)

    assert after(wf, "a", {"x": 2}).next == ("b",)
    assert after(wf, "a", {"x": 1}).next == ("c",)


def test_where_no_condition_is_true_and_nothing_is_the_default_the_error_names_the_node() -> None:
    wf = workflow("ab")
    wf.edge("a", "b", when=no)

    with pytest.raises(RoutingError, match=sentence("no edge leads on from node {}", "'a'")):
        after(wf, "a")


# Branches


def branching(by: Callable[[Any], Any], **options: Any) -> Workflow:
    wf = workflow("abc")
    wf.branch("a", {"good": "b", "bad": "c", "over": END}, by=by, **options)
    return wf


def test_a_branch_leads_to_the_target_of_its_key() -> None:
    step = after(branching(lambda state: state["grade"]), "a", {"grade": "bad"})

    assert step.next == ("c",)
    (decision,) = step.decisions
    assert (decision.node, decision.to, decision.key) == ("a", "c", "bad")


def test_a_branch_may_lead_to_the_end() -> None:
    assert after(branching(lambda state: "over"), "a").next == ()


def test_a_key_that_the_branch_does_not_have_leads_to_its_default() -> None:
    assert after(branching(lambda state: "ugly", default="c"), "a").next == ("c",)


def test_without_a_default_the_error_names_node_key_and_a_near_match() -> None:
    with pytest.raises(RoutingError, match=r"after node 'a' returned 'god'; did you mean 'good'\? \(its keys: good, "):
        after(branching(lambda state: "god"), "a")


@pytest.mark.parametrize("key", [None, 1, True, ["good"]])
def test_a_key_that_is_not_text_is_an_error_that_shows_it(key: Any) -> None:
    with pytest.raises(RoutingError, match=sentence("after node {} returned ", "'a'")):
        after(branching(lambda state: key), "a")


# The shape


def test_only_conditions_and_branches_make_the_path_depend_on_the_state() -> None:
    plain = joining()
    assert not is_conditional(plain.facts())
    assert is_conditional(branching(lambda state: "good").facts())
    plain.edge("d", END, when=yes)
    assert is_conditional(plain.facts())


def test_a_node_without_an_edge_leads_to_the_end() -> None:
    after_all = successors(joining().facts())

    assert after_all["a"] == {"b", "c"}
    assert after_all["b"] == after_all["e"] == {"d"}
    assert after_all["d"] == {END}
