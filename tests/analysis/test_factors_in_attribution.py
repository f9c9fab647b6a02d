"""Effects by factor and by pair of factors: nested, aliased, sampled, with failed cells, and consistent."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tests.support import prose
from wtb.analysis.matrix.attribution import attributed
from wtb.analysis.statistics import Floats
from wtb.analysis.statistics.factor_effects import fit

Row = dict[str, str]
CROSSING = {
    "retrieve": ("bm25", "dense", "both"),
    "answer.model": ("mini", "large", "huge"),
    "answer.prompt": ("short", "long"),
    "answer.temperature": ("0", "0.7"),
}
FULL = [dict(zip(CROSSING, levels, strict=True)) for levels in itertools.product(*CROSSING.values())]


def on_nodes(rows: Sequence[Row]) -> tuple[list[Row], dict[tuple[str, str], Row]]:
    """Choices of the variants of nodes, and the levels of those that are grid points."""
    choices, grids = [], {}
    for row in rows:
        answer = {name: level for name, level in row.items() if name.startswith("answer.")}
        variant = row.get("answer") or ", ".join(f"{name[7:]}={level}" for name, level in answer.items())
        if answer:
            grids["answer", variant] = answer
        choices.append({"retrieve": row["retrieve"], "answer": variant})
    return choices, grids


def attribution(rows: Sequence[Row], scores: Floats, **options: Any) -> Any:
    choices, grids = on_nodes(rows)
    return attributed(scores, choices, "right", seed=1, grids=grids, **options)


def drawn(rows: Sequence[Row], means: Mapping[int, float] | Sequence[float], seed: int = 3, cases: int = 60) -> Floats:
    rng = np.random.default_rng(seed)
    each = np.array([means[number] for number in range(len(rows))])
    return each[:, None] + rng.normal(size=cases) + 0.1 * rng.normal(size=(len(rows), cases))


def model_and_pair(row: Row) -> float:
    both = row["retrieve"] == "dense" and row["answer.prompt"] == "long"
    return 0.2 * (row["answer.model"] == "large") + 0.2 * both


def by_name(document: Any) -> dict[str, Any]:
    pairs = {" x ".join(term.get("factors", term["nodes"])): term for term in document["interactions"]}
    return {term.get("factor", term["node"]): term for term in document["nodes"]} | pairs


def clear_effects(effects: dict[str, Any]) -> set[str]:
    return {name for name, effect in effects.items() if effect["p_adjusted"] < 0.05}


def test_a_grid_has_an_effect_for_each_parameter_and_pairs_within_and_across_nodes() -> None:
    document = attribution(FULL, drawn(FULL, [model_and_pair(row) for row in FULL]))
    effects = by_name(document)
    assert set(effects) == {*CROSSING, *(" x ".join(pair) for pair in itertools.combinations(CROSSING, 2))}
    assert clear_effects(effects) == {"retrieve", "answer.model", "answer.prompt", "retrieve x answer.prompt"}
    large = effects["answer.model"]["variants"][1]
    assert (large["variant"], effects["answer.model"]["node"]) == ("large", "answer")
    assert large["effect"] == pytest.approx(0.2 * 2 / 3, abs=0.02)
    assert "factor" not in effects["retrieve"]
    assert document["sentences"][0].startswith("model explains 60% of the spread by right, ")
    assert "retrieve x prompt 16%" in document["sentences"][0]
    assert any(text.startswith("retrieve and prompt act together (") for text in document["sentences"])
    shares = [effect["share"] for effect in effects.values()]
    assert sum(shares) + document["unexplained"] == pytest.approx(1.0)


MIXED = [
    {"retrieve": retrieve, **answer}
    for retrieve in CROSSING["retrieve"]
    for answer in (
        {"answer": "default"},
        *({"answer.model": model, "answer.prompt": prompt} for model in ("mini", "large") for prompt in ("a", "b")),
        *({"answer.style": style} for style in ("terse", "chatty")),
    )
]


def test_a_factor_that_only_some_variants_have_is_estimated_within_them() -> None:
    means = [0.3 * (row.get("answer.model") == "large") - 0.5 * (row.get("answer") == "default") for row in MIXED]
    document = attribution(MIXED, drawn(MIXED, means))
    effects = by_name(document)
    model = effects["answer.model"]
    assert [variant["effect"] for variant in model["variants"]] == pytest.approx([-0.15, 0.15], abs=0.02)
    assert model["within"] == [f"model={model}, prompt={prompt}" for model in ("mini", "large") for prompt in "ab"]
    assert clear_effects(effects) == {"answer.model", "answer"}
    assert [variant["variant"] for variant in effects["answer"]["variants"]] == ["default", "model x prompt", "style"]
    assert "answer.model x answer.style" not in effects, "no variant has both"
    assert "answer x answer.model" not in effects, "a factor does not act together with what it is nested in"
    assert any("model (only in 4 variants of answer): large +0.1" in text for text in document["sentences"])


def test_a_node_with_nested_factors_is_an_average_over_them() -> None:
    rows = [row for row in MIXED if row["retrieve"] != "both" and "answer.style" not in row]
    both = [row["retrieve"] == "dense" and row.get("answer.prompt") == "b" for row in rows]
    together = [0.3 * pair + 0.2 * ("answer" not in row) for pair, row in zip(both, rows, strict=True)]
    effects = by_name(attribution(rows, drawn(rows, together)))
    assert effects["answer"]["p_adjusted"] < 0.05, "what prompts and retrieve do together is no noise of it"
    assert effects["answer"]["variants"][1]["effect"] == pytest.approx((0.2 + 0.3 / 4) / 2, abs=0.02)


def grid(**parameters: Sequence[str]) -> list[Row]:
    names = [f"answer.{name}" for name in parameters]
    return [dict(zip(names, levels, strict=True)) for levels in itertools.product(*parameters.values())]


def nested_scores(rows: Sequence[Row], **effects: tuple[str, float]) -> Floats:
    of_levels = [(f"answer.{name}", *effect) for name, effect in effects.items()]
    return drawn(rows, [sum(much for name, level, much in of_levels if row.get(name) == level) for row in rows])


@pytest.mark.parametrize("retrieves", [("bm25",), ("bm25", "dense")])
def test_a_factor_whose_levels_say_which_others_there_are_is_estimated_over_all_that_have_it(
    retrieves: Sequence[str],
) -> None:
    answers = [{"answer": "default"}, *grid(m=("1", "20"), t=("0", "9")), *grid(m=("3",), u=("1", "2"))]
    rows = [{"retrieve": retrieve, **answer} for retrieve in retrieves for answer in answers]
    document = attribution(rows, nested_scores(rows, m=("20", 0.6), t=("9", 0.3), u=("2", 0.5)))
    effects = by_name(document)
    assert "aliased" not in document
    assert clear_effects(effects) == {"answer", "answer.m", "answer.t", "answer.u"}
    levels = {variant["variant"]: variant["effect"] for variant in effects["answer.m"]["variants"]}
    middle = (0 + 0.15 + 0.6 + 0.15 + 0.25) / 3
    assert levels == pytest.approx({"1": 0.15 - middle, "20": 0.75 - middle, "3": 0.25 - middle}, abs=0.05)
    assert len(effects["answer.m"]["within"]) == 6
    assert [variant["effect"] for variant in effects["answer.t"]["variants"]] == pytest.approx([-0.15, 0.15], abs=0.02)
    assert len(effects["answer.t"]["within"]) == 4
    assert [variant["effect"] for variant in effects["answer.u"]["variants"]] == pytest.approx([-0.25, 0.25], abs=0.03)
    assert [variant["variant"] for variant in effects["answer"]["variants"]] == ["default", "m x t or m x u"]
    assert "answer.m x answer.t" in effects, "both vary within m=1 and m=20"
    assert effects["answer.m"]["brings"] == {"1": ["answer.t"], "20": ["answer.t"], "3": ["answer.u"]}
    sentence = "Nested in m: t in m=1 and m=20; u in m=3. A level of m includes the middle of what is nested in it."
    assert sentence in document["sentences"]


def test_what_a_nested_factor_and_its_own_do_together_is_estimated_where_both_vary() -> None:
    rows = [{"retrieve": "bm25", **answer} for answer in grid(m=("1", "20"), t=("0", "9")) + grid(m=("3",), u="12")]
    both = [0.4 * (row["answer.m"] == "20" and row.get("answer.t") == "9") for row in rows]
    effects = by_name(attribution(rows, drawn(rows, both)))
    pair = effects["answer.m x answer.t"]
    assert pair["p_adjusted"] < 0.05
    assert abs(pair["strongest"]["effect"]) == pytest.approx(0.1, abs=0.02)
    assert "answer" not in effects, "the levels of m say which parameters a variant has"


def test_factors_that_tell_grids_apart_together_are_estimated_within_the_grid_that_varies_them() -> None:
    answers = [*grid(m=("1", "20"), k=("a", "b")), *grid(m=("3",), k=("c",), u=("1", "2"))]
    rows = [{"retrieve": "bm25", **answer} for answer in answers]
    document = attribution(rows, nested_scores(rows, m=("20", 0.3)))
    effects = by_name(document)
    assert "aliased" not in document
    told = [variant["variant"] for variant in effects["answer.m"]["variants"]]
    assert told == ["1", "20"], "m=3 could be k=c as well"
    assert len(effects["answer.m"]["within"]) == len(effects["answer.k"]["within"]) == 4
    assert effects["answer.m"]["p_adjusted"] < 0.05 < effects["answer.k"]["p_adjusted"]


def test_grids_that_only_some_levels_tell_apart_stay_aliased_and_named() -> None:
    answers = [*grid(m=("1",), t=("0", "9")), *grid(m=("3",), u=("1", "2")), *grid(m=("1",), v=("x", "y"))]
    rows = [{"retrieve": "bm25", **answer} for answer in answers]
    document = attribution(rows, nested_scores(rows, m=("3", 0.3)))
    assert document["aliased"] == [["answer", "answer.m"]]
    assert {"answer.t", "answer.u", "answer.v"} <= set(by_name(document)), "within m=1 and m=3 they are told"


def test_factors_that_always_change_together_are_named_and_not_guessed() -> None:
    rows = [row for row in FULL if (row["answer.prompt"] == "long") == (row["answer.temperature"] == "0.7")]
    document = attribution(rows, drawn(rows, [0.3 * (row["answer.prompt"] == "long") for row in rows]))
    assert document["aliased"] == [["answer.prompt", "answer.temperature"]]
    assert {term.get("factor", term["node"]) for term in document["nodes"]} == {"retrieve", "answer.model"}
    assert document["sentences"][-1] == (
        "Cannot tell all: "
        + prose.sentence("the combinations cannot separate the effects of {}", "prompt and temperature.")
    )


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("design", ["whole", "mixed", "random", "excluded", "one at a time"])
def test_p_and_intervals_never_contradict_each_other(design: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = {
        "whole": FULL,
        "mixed": MIXED,
        "random": [FULL[number] for number in sorted(rng.choice(36, 24, replace=False))],
        "excluded": [row for row in FULL if (row["answer.model"], row["answer.prompt"]) != ("huge", "long")],
        "one at a time": [row for row in FULL if sum(row[name] != levels[0] for name, levels in CROSSING.items()) <= 1],
    }[design]
    cases = (9, 25, 60)[seed % 3]
    skewed = rng.lognormal(sigma=1.0, size=(len(rows), cases)) if seed % 2 else rng.normal(size=(len(rows), cases))
    scores = skewed + rng.normal(size=len(rows))[:, None] * rng.choice([0.2, 0.6])
    scores[rng.random(scores.shape) < 0.1] = math.nan
    units = rng.integers(0, 20, cases) if seed % 4 == 3 else None
    document = attribution(rows, scores, units=units)
    blocks = [(term["p_adjusted"], [level["ci"] for level in term["variants"]]) for term in document["nodes"]]
    blocks += [(term["p_adjusted"], [term["ci"]]) for term in document.get("simple", [])]
    for p, intervals in blocks:
        excluding = [ci for ci in intervals if ci is not None and not ci[0] <= 0 <= ci[1]]
        assert (p < 0.05) == bool(excluding), (p, intervals)
    for pair in document["interactions"]:
        ci = pair["strongest"]["ci"]
        assert (pair["p_adjusted"] < 0.05) == (ci is not None and not ci[0] <= 0 <= ci[1])


def test_failed_cells_of_one_level_and_of_hard_cases_bias_nothing() -> None:
    rng = np.random.default_rng(5)
    effects = []
    for _ in range(15):
        hard = rng.normal(size=80)
        means = np.array([0.1 * (row["answer.model"] == "large") for row in FULL])
        scores = means[:, None] - hard + 0.2 * rng.normal(size=(36, 80))
        often = np.array([0.4 if row["answer.model"] == "large" else 0.03 for row in FULL])
        scores[rng.random(scores.shape) < often[:, None] * np.where(hard > 0, 1.0, 0.1)] = math.nan
        effects.append(by_name(attribution(FULL, scores))["answer.model"]["variants"][1]["effect"])
    assert np.mean(effects) == pytest.approx(0.1 * 2 / 3, abs=0.004)


def test_cases_of_a_cluster_count_once() -> None:
    scores = drawn(FULL, [model_and_pair(row) for row in FULL], cases=25)
    alone = attribution(FULL, scores)
    repeated = attribution(FULL, np.repeat(scores, 4, axis=1), units=np.repeat(np.arange(25), 4))
    for node, other in zip(alone["nodes"], repeated["nodes"], strict=True):
        assert (node["p"], node["share"]) == pytest.approx((other["p"], other["share"]))
        assert node["variants"][0]["ci"] == pytest.approx(other["variants"][0]["ci"])


@pytest.mark.parametrize("seed", range(6))
def test_what_two_factors_do_together_is_no_effect_of_a_third_in_a_sample_of_combinations(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [FULL[number] for number in sorted(rng.choice(36, 14, replace=False))]
    crossed = {("bm25", "mini"): 1.0, ("dense", "large"): 1.0, ("both", "huge"): 1.0}
    means = [crossed.get((row["retrieve"], row["answer.model"]), 0.0) for row in rows]
    document = attribution(rows, drawn(rows, means, seed, cases=200))
    clear = {term.get("factor", term["node"]) for term in document["nodes"] if term["p_adjusted"] < 0.05}
    assert not clear & {"answer.prompt", "answer.temperature"}


def test_thirty_pairs_are_those_of_the_factors_that_explain_most_and_all_count() -> None:
    names = [f"n{number}" for number in range(10)]
    rng = np.random.default_rng(0)
    choices = [dict(zip(names, row, strict=True)) for row in rng.choice(["x", "y"], size=(300, 10)).tolist()]
    weak = ["n0", "n3"]
    means = np.array([sum(0.2 for name in names if name not in weak and row[name] == "y") for row in choices])
    means += [0.4 * (row["n1"] == row["n2"]) for row in choices]
    document = attributed(means[:, None] + rng.normal(size=(300, 40)), choices, "m", seed=0)
    assert document["pairs"] == {"candidates": 45, "tested": 30}
    strong = {frozenset(pair) for pair in itertools.combinations([name for name in names if name not in weak], 2)}
    tested = {frozenset(term["nodes"]) for term in document["interactions"]}
    assert strong < tested
    assert len(tested) == 30
    # Two thirds of the level are for 45 candidates and what is beyond all pairs.
    for kind, factor in (("interactions", 46 * 1.5 / 0.9), ("nodes", 10 * 3 / 0.9)):
        for term in document[kind]:
            assert term["p_adjusted"] == pytest.approx(min(1.0, term["p"] * factor))
    assert min(term["p_adjusted"] for term in document["interactions"]) < 0.05
    told = prose.sentence("{} of {} pairs are tested", 30, 45) + prose.sentence(
        ": those of the factors that explain most."
    )
    assert told in document["sentences"]


def test_grids_of_two_functions_with_equal_levels_are_told_apart() -> None:
    choices = [{"answer": f"{of}: model={model}"} for of in ("plain", "cot") for model in ("mini", "large")]
    grids = {("answer", row["answer"]): {"answer.model": row["answer"].partition("=")[2]} for row in choices}
    document = attributed(drawn(choices, [0, 0.2, 0, 0.2]), choices, "m", seed=0, grids=grids)
    effects = {term.get("factor", term["node"]): term for term in document["nodes"]}
    assert effects["answer.model"]["p_adjusted"] < 0.05 < effects["answer"]["p_adjusted"]
    assert len(effects["answer"]["variants"]) == 2


def test_a_single_grid_has_all_of_the_five_percent_for_its_factor() -> None:
    choices = [{"answer": f"model={model}"} for model in ("mini", "large", "huge")]
    grids = {("answer", row["answer"]): {"answer.model": row["answer"][6:]} for row in choices}
    (node,) = attributed(drawn(choices, [0, 0.1, 0]), choices, "m", seed=0, grids=grids)["nodes"]
    assert (node["factor"], node["p"]) == ("answer.model", node["p_adjusted"])


@pytest.mark.parametrize(
    ("levels", "of_factors", "of_pairs"),
    [
        pytest.param((3, 3), 4, 2, id="the pair of two factors has as much as both"),
        pytest.param((3, 3, 3), 7, 7, id="3 factors, 3 pairs and the rest have as much each"),
        pytest.param((2, 2, 2, 2), 11, 11, id="4 factors, 6 pairs and the rest have as much each"),
        pytest.param((2, 2, 2, 2, 2, 2), 18, 24, id="many pairs leave a third to the factors"),
    ],
)
def test_all_tests_of_a_sweep_together_have_nine_tenths_of_the_level(
    levels: Sequence[int], of_factors: float, of_pairs: float
) -> None:
    codes = np.array(list(itertools.product(*map(range, levels))), dtype=np.int64)
    fitted = fit(np.random.default_rng(0).normal(size=(len(codes), 30)), codes, seed=0)
    assert fitted.families == pytest.approx((of_factors / 0.9, of_pairs / 0.9))
    pairs = fitted.candidates + (fitted.unexplained_p is not None)
    assert len(levels) / fitted.families[0] + pairs / fitted.families[1] == pytest.approx(0.9)
