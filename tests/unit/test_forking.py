"""Cells that agree on the variants of the next nodes go on together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wtb.forking import groups, node_runs


def choosing(*choices: dict[str, str]) -> Callable[[int, str], str]:
    return lambda combination, node: choices[combination].get(node, "default")


FOUR = choosing({"b": "x", "c": "p"}, {"b": "x", "c": "q"}, {"b": "y", "c": "p"}, {"b": "y", "c": "q"})
ALL = range(4)


def test_where_all_agree_there_is_one_group() -> None:
    assert groups(["a"], ALL, FOUR) == {("default",): [0, 1, 2, 3]}


def test_where_they_differ_there_is_a_group_for_each_choice() -> None:
    assert groups(["b"], ALL, FOUR) == {("x",): [0, 1], ("y",): [2, 3]}


def test_in_a_step_of_several_nodes_the_choices_of_all_make_the_group() -> None:
    grouped = groups(["b", "c"], ALL, FOUR)

    assert grouped == {("x", "p"): [0], ("x", "q"): [1], ("y", "p"): [2], ("y", "q"): [3]}


def test_groups_are_in_the_order_in_which_they_first_appear() -> None:
    assert list(groups(["b"], [3, 0, 2], FOUR)) == [("y",), ("x",)]


def test_combinations_left_out_of_the_sweep_make_no_group() -> None:
    assert groups(["b"], [2, 3], FOUR) == {("y",): [2, 3]}


def test_each_distinct_node_and_variant_of_a_step_is_one_node_run() -> None:
    nodes: Sequence[str] = ["b", "c"]

    assert node_runs(nodes, groups(nodes, ALL, FOUR)) == {
        ("b", "x"): 2,
        ("c", "p"): 2,
        ("c", "q"): 2,
        ("b", "y"): 2,
    }


def test_a_node_run_counts_only_the_cells_that_take_part() -> None:
    nodes = ["b", "c"]

    assert node_runs(nodes, groups(nodes, [0, 1, 2], FOUR)) == {
        ("b", "x"): 2,
        ("c", "p"): 2,
        ("c", "q"): 1,
        ("b", "y"): 1,
    }
