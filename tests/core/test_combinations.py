"""A sweep runs the combinations of `vary`, without excluded ones, or a random draw of them."""

import itertools
import math
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.prose import sentence
from wtb.core.errors import InputError
from wtb.core.tree import combinations
from wtb.core.tree.combinations import Loc, Random, count, count_grid, expand

VARY = {"A": ["default", "a1", "a2"], "B": ["b0", "b1"]}


def report(loc: Loc, text: str) -> str:
    return f"{'.'.join(map(str, loc))}: {text}"


def pairs(*args: Any, **kwargs: Any) -> list[tuple[str, ...]]:
    return [tuple(combination.values()) for combination in expand(*args, **kwargs, report=report)]


def refusals(*args: Any, **kwargs: Any) -> tuple[str, ...]:
    with pytest.raises(InputError) as caught:
        expand(*args, **kwargs, report=report)
    return caught.value.problems


def test_the_grid_is_the_product_with_the_last_node_fastest() -> None:
    assert pairs(VARY) == list(itertools.product(*VARY.values())) == pairs(VARY, Random(1000))
    assert list(expand(VARY, report=report)[3].items()) == [("A", "a1"), ("B", "b1")]


def test_combinations_are_counted_before_anything_is_built() -> None:
    huge = {f"n{node}": [f"v{variant}" for variant in range(1000)] for node in range(20)}
    assert count_grid(huge) == count(huge, "grid") == 1000**20
    assert count(huge, "one-at-a-time") == 1 + 20 * 999
    assert count(huge, Random(7)) == 7
    assert count(VARY, Random(100)) == 6
    assert count(VARY, [{"A": "a1"}]) == 1


def test_a_hundred_thousand_combinations_are_held_in_a_few_bytes_each() -> None:
    vary = {node: [f"{node}{variant}" for variant in range(10)] for node in "ABCDE"}
    tracemalloc.start()
    grid = expand(vary, exclude=[{"A": ["A1"], "B": ["B1"]}], report=report)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(grid) == 99_000
    assert peak < 5_000_000


def test_one_at_a_time_is_the_baseline_and_then_each_other_variant_of_each_node() -> None:
    assert pairs(VARY, "one-at-a-time", baseline={"A": "a1"}) == [
        ("a1", "b0"),
        ("default", "b0"),
        ("a2", "b0"),
        ("a1", "b1"),
    ]


def test_an_explicit_list_takes_the_baselines_variant_where_it_names_none() -> None:
    assert pairs(VARY, [{"A": "a2"}, {"B": "b0"}], baseline={"B": "b1", "A": "a2"}) == [
        ("a2", "b1"),
        ("a2", "b0"),
    ]


def test_an_explicit_combination_given_twice_is_refused() -> None:
    assert refusals(VARY, [{"A": "default"}, {"A": "a1"}, {"B": "b0"}]) == (
        sentence("{} twice (item {} is item {}); expected each once", "combinations.2: A=default, B=b0", 3, 1),
    )


def test_the_baseline_is_the_default_else_the_first_listed() -> None:
    assert expand(VARY, report=report).baseline == {"A": "default", "B": "b0"}
    assert expand({"A": ["x", "default"]}, report=report).baseline == {"A": "default"}
    named = expand(VARY, defaults={"A": "a2", "B": "not varied"}, report=report)
    assert named.baseline == {"A": "a2", "B": "b0"}


def test_a_rule_excludes_what_it_names_for_all_of_its_nodes() -> None:
    assert pairs(VARY, exclude=[{"A": ["a1", "a2"], "B": ["b1"]}]) == [
        ("default", "b0"),
        ("default", "b1"),
        ("a1", "b0"),
        ("a2", "b0"),
    ]


def test_excluded_combinations_are_left_out_of_every_mode() -> None:
    rule = [{"A": ["a1"]}]
    assert ("a1", "b0") not in pairs(VARY, "one-at-a-time", exclude=rule)
    assert pairs(VARY, [{"A": "a1"}, {"A": "a2"}], exclude=rule) == [("a2", "b0")]


def test_excluding_everything_is_refused() -> None:
    assert refusals(VARY, exclude=[{"B": ["b0", "b1"]}]) == (
        "exclude: " + sentence("every combination is excluded; expected at least one left"),
    )


def test_a_named_baseline_that_is_not_in_the_sweep_is_refused() -> None:
    (excluded,) = refusals(VARY, exclude=[{"A": ["a1"]}], baseline={"A": "a1"})
    assert excluded.startswith("baseline: a baseline that is not in the sweep (A=a1, B=b0): it is excluded; expected")
    (unlisted,) = refusals(VARY, [{"A": "a2"}], baseline={"A": "a1"})
    assert sentence("it is not listed under 'combinations'") in unlisted
    (needed,) = refusals(VARY, "one-at-a-time", exclude=[{"A": ["default"]}])
    assert sentence("a baseline that is not in the sweep ({})", "A=default, B=b0") in needed


def test_without_a_named_baseline_a_sweep_may_have_none() -> None:
    assert expand(VARY, exclude=[{"A": ["default"]}], report=report).baseline is None
    assert expand(VARY, [{"A": "a2"}], report=report).baseline is None


def test_unknown_nodes_and_variants_are_all_named_with_near_matches() -> None:
    problems = refusals(
        {"retrieve": ["default", "bm25"]},
        [{"retreive": "bm25"}],
        exclude=[{"retrieve": ["bm52"]}],
        baseline={"grade": "x"},
    )
    assert problems == (
        "exclude.0.retrieve: "
        + sentence("no variant '{}' of node '{}' under 'vary'", "bm52", "retrieve")
        + sentence("; did you mean '{}'?", "bm25"),
        "baseline.grade: "
        + sentence("no node '{}' under 'vary'", "grade")
        + sentence("; expected one of: {}", "retrieve"),
        "combinations.0.retreive: "
        + sentence("no node '{}' under 'vary'", "retreive")
        + sentence("; did you mean '{}'?", "retrieve"),
    )


def test_a_draw_is_the_same_for_the_same_seed() -> None:
    vary = {"A": [f"a{n}" for n in range(40)], "B": [f"b{n}" for n in range(40)]}
    assert pairs(vary, Random(20, 7)) == pairs(vary, Random(20, 7))
    assert pairs(vary, Random(20, 7)) != pairs(vary, Random(20, 8))


def test_a_draw_from_a_huge_grid_builds_nothing_huge() -> None:
    huge = {f"n{node}": [f"v{variant}" for variant in range(1000)] for node in range(20)}
    grid = expand(huge, Random(50, 1), exclude=[{"n3": ["v5"]}], report=report)
    assert len({tuple(each.values()) for each in grid}) == 50


def test_a_draw_from_what_exclusions_nearly_empty_looks_at_all_that_is_left() -> None:
    vary = {"A": [f"a{n}" for n in range(500)], "B": [f"b{n}" for n in range(500)]}
    rules = [{"A": vary["A"][1:]}, {"B": vary["B"][3:]}]
    assert pairs(vary, Random(3), exclude=rules) == [("a0", "b0"), ("a0", "b1"), ("a0", "b2")]


def test_a_draw_that_finds_too_little_in_a_huge_grid_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combinations, "_ENUMERABLE_AT_LAST", 1000)
    vary = {"A": [f"a{n}" for n in range(500)], "B": [f"b{n}" for n in range(500)]}
    (problem,) = refusals(vary, Random(3), exclude=[{"A": vary["A"][1:]}, {"B": vary["B"][1:]}])
    assert sentence("nearly all of {} combinations are excluded: found {} of {}; expected", "250,000", 1, 3) in problem


names = st.integers(1, 4).map(lambda size: [f"v{number}" for number in range(size)])
grids = st.dictionaries(st.sampled_from("ABCD"), names, min_size=1)


@st.composite
def excluded_grids(draw: st.DrawFn) -> tuple[dict[str, list[str]], list[dict[str, list[str]]]]:
    vary = draw(grids)
    some = {node: st.lists(st.sampled_from(vary[node]), min_size=1, unique=True) for node in vary}
    rule = st.lists(st.sampled_from(list(vary)), min_size=1, unique=True).flatmap(
        lambda nodes: st.fixed_dictionaries({node: some[node] for node in nodes})
    )
    return vary, draw(st.lists(rule, max_size=3))


def allowed(vary: dict[str, list[str]], rules: list[dict[str, list[str]]]) -> list[dict[str, str]]:
    every = (dict(zip(vary, picked, strict=True)) for picked in itertools.product(*vary.values()))
    return [
        combination
        for combination in every
        if not any(all(combination[n] in names for n, names in r.items()) for r in rules)
    ]


@given(excluded_grids())
def test_the_grid_holds_exactly_what_no_rule_excludes(
    example: tuple[dict[str, list[str]], list[dict[str, list[str]]]],
) -> None:
    vary, rules = example
    remaining = allowed(vary, rules)
    if remaining:
        assert list(expand(vary, exclude=rules, report=report)) == remaining
    else:
        assert sentence("every combination is excluded") in refusals(vary, exclude=rules)[0]


@pytest.mark.parametrize("enumerable", [0, 100_000])
@given(example=excluded_grids(), n=st.integers(1, 30), seed=st.integers(0, 5))
def test_a_draw_is_distinct_and_never_excluded(
    enumerable: int, example: tuple[dict[str, list[str]], list[dict[str, list[str]]]], n: int, seed: int
) -> None:
    vary, rules = example
    remaining = allowed(vary, rules)
    if not remaining:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(combinations, "_ENUMERABLE", enumerable)
        grid = expand(vary, Random(n, seed), exclude=rules, report=report)
    drawn = list(grid)
    assert len(drawn) == len({tuple(each.values()) for each in drawn}) == min(n, len(remaining))
    assert all(each in remaining for each in drawn)
    assert grid.baseline is None or grid.baseline in drawn


@given(grids)
def test_counts_are_those_of_what_is_built(vary: dict[str, list[str]]) -> None:
    assert count_grid(vary) == math.prod(map(len, vary.values())) == len(expand(vary, report=report))
    assert count(vary, "one-at-a-time") == len(expand(vary, "one-at-a-time", report=report))
