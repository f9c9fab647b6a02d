"""Combinations that were tried over the same cases raise the bar for later combinations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import pytest

from tests.support.prose import sentence
from wtb.analysis.matrix.build import build
from wtb.analysis.search_history import shared_part
from wtb.analysis.statistics import Design, compare
from wtb.analysis.statistics.running import LATER, EarlierLook, count_before, spendable
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END
from wtb.core.errors import ConflictError
from wtb.core.tree.looks import MOST_DIGESTS, CaseSketch
from wtb.operations.context import Context
from wtb.operations.results.pools import pool
from wtb.store.housekeeping.deletion import delete_sweep
from wtb.store.housekeeping.erasure import erase_rows, find_cases
from wtb.store.housekeeping.retention import expired_sweeps, find_look
from wtb.store.read.queries import find_sweep

Make = Callable[..., Any]
CASES = [{"id": str(x), "input": {"x": x}} for x in range(40)]


class State(TypedDict, total=False):
    x: int
    y: float


def workflow(**offsets: int) -> Workflow:
    """Variants that differ by parameters only; `after` is not varied."""
    wf = Workflow("searched", state=State)

    @wf.node
    def guess(state: State, *, offset: int = 0) -> State:
        return {"y": float((state["x"] * 7 + offset * 13) % 20 + (offset > 90))}

    @wf.node
    def after(state: State) -> State:
        return {}

    for name, offset in offsets.items():
        guess.variant(name, offset=offset)
    wf.entry(guess)
    wf.edge(guess, after)
    wf.edge(after, END)
    return wf


def y(case: Any, result: Any) -> float:
    return float(result.state["y"])


@pytest.fixture
def matrix_of(bench: Make) -> Callable[..., dict[str, Any]]:
    """Return a function that runs a sweep of the default and some variants and returns its matrix."""

    def run(*variants: str, cases: Sequence[Any] = CASES, **spec: Any) -> dict[str, Any]:
        offsets = {name: sum(map(ord, name)) for name in variants}
        more = {"evaluators": {"tests:y": y}} | spec
        sweep = bench(workflow(**offsets), cases, {"guess": ["default", *variants]}, **more)
        sweep.run()
        matrix = sweep.matrix()
        assert matrix["figures"] == "final"
        return matrix

    return run


def test_the_first_sweep_over_its_cases_is_as_it_was(matrix_of: Any) -> None:
    matrix = matrix_of("a", "b")
    assert matrix["best"]["y"]["tried"] == 2
    assert not any("tried" in warning for warning in matrix["warnings"])


def test_what_is_tried_later_has_to_show_more(matrix_of: Any) -> None:
    first = [matrix_of(name) for name in ("a", "b", "c")]
    assert [matrix["best"]["y"]["tried"] for matrix in first] == [1, 2, 3]
    raised = [matrix["rows"][1]["metrics"]["y"] for matrix in first]
    for n, figures in enumerate(raised):
        assert figures["p_adjusted"] == pytest.approx(min(1, figures["p"] / spendable(n, 1)))
    warning = "p, ★ and * of y are corrected for 2 earlier tries on these cases (in 2 other sweeps)"
    assert warning in " ".join(first[2]["warnings"])


def test_exploratory_metrics_ask_for_more_as_well(matrix_of: Any) -> None:
    def pair(case: Any, result: Any) -> dict[str, float]:
        return {"y": y(case, result), "again": y(case, result)}

    both = {"evaluators": {"tests:pair": pair}}
    for name in ("a", "b"):
        matrix_of(name, **both)
    matrix = matrix_of("c", **both)
    assert (matrix["primary"], *matrix["metrics"]) == ("pair.y", "pair.y", "pair.again")
    primary, other = (matrix["rows"][1]["metrics"][metric] for metric in matrix["metrics"])
    assert primary["p"] == other["p"]
    assert other["p_adjusted"] == primary["p_adjusted"] == pytest.approx(min(1, other["p"] / spendable(2, 1)))


def test_a_sweep_that_compares_nothing_claims_nothing(matrix_of: Any) -> None:
    matrix_of("a")
    matrix = matrix_of()
    assert (matrix["best"]["y"]["tried"], matrix["best"]["y"]["looks"]) == (0, 1)
    assert not any("looks at" in warning or "tried over" in warning for warning in matrix["warnings"])


def test_the_same_combinations_again_are_another_look(matrix_of: Any) -> None:
    matrix_of("a", "b")
    second, third = matrix_of("a", "b"), matrix_of("b")
    best, other = second["best"]["y"], third["best"]["y"]
    assert (best["looks"], best["tried"], best["level"]) == (2, 4, pytest.approx(0.05 * spendable(2, 2)))
    assert (other["looks"], other["tried"], other["level"]) == (3, 5, pytest.approx(0.05 * spendable(4, 1)))
    warnings = " ".join(second["warnings"])
    assert sentence("{} look at these rows by {}: p, ★ and * allow for it", "second", "y") in warnings
    assert sentence("{} look at these rows by {}: p, ★ and * allow for it", "third", "y") in " ".join(third["warnings"])
    assert "wtb pool" not in " ".join(third["warnings"]), "those had other rows"


def test_a_renamed_variant_is_the_same_row(matrix_of: Any, bench: Make) -> None:
    matrix_of("a")
    renamed = bench(workflow(other=ord("a")), CASES, {"guess": ["default", "other"]}, evaluators={"tests:y": y})
    renamed.run()
    assert renamed.matrix()["best"]["y"]["looks"] == 2


def test_another_code_of_the_same_name_is_another_combination(matrix_of: Any, bench: Make) -> None:
    matrix_of("a")
    sweep = bench(workflow(a=55), CASES, {"guess": ["default", "a"]}, evaluators={"tests:y": y})
    sweep.run()
    best = sweep.matrix()["best"]["y"]
    assert (best["tried"], best["looks"]) == (2, 1)


OTHER_CASES = [{"id": f"other {x}", "input": {"x": x + 100}} for x in range(40)]


@pytest.mark.parametrize(
    ("other", "share"),
    [
        pytest.param({"cases": CASES[:39]}, spendable(1, 1), id="nearly all"),
        pytest.param({"cases": [{**case, "id": f"n {case['id']}"} for case in CASES]}, spendable(1, 1), id="other ids"),
        pytest.param({"cases": [*CASES, *OTHER_CASES]}, spendable(1, 1), id="a superset"),
        pytest.param({"cases": [*CASES[:10], *OTHER_CASES[10:]]}, spendable(1, 1), id="a quarter"),
        pytest.param({"cases": CASES[:6]}, spendable(0.6, 1), id="six"),
        pytest.param({"cases": CASES[:4]}, spendable(0.1, 1), id="four"),
        pytest.param({"cases": [*CASES[:1], *OTHER_CASES]}, spendable(0.1, 1), id="one, and others"),
        pytest.param({"evaluators": {"tests:z": lambda case, result: 1.0}}, spendable(1, 1), id="another metric"),
        pytest.param({"cases": OTHER_CASES}, 1, id="other cases"),
        pytest.param({"project": "other"}, 1, id="another project"),
    ],
)
def test_an_earlier_look_counts_by_the_cases_that_it_had(matrix_of: Any, other: Any, share: float) -> None:
    """Cases are compared by contents, not by id. Another primary metric over the same cases is a look as well."""
    matrix_of("a", **other)
    assert matrix_of("b")["best"]["y"]["level"] == pytest.approx(0.05 * share)


def test_fifty_smoke_tests_cost_little() -> None:
    smoke = [EarlierLook(3 / 300, 3, 1)] * 50
    assert count_before(smoke, 1) == pytest.approx(0.5)
    assert spendable(0.5, 1) > 0.55
    assert count_before([EarlierLook(0.4, 40, 10)], 1) == pytest.approx(4), "screening on 40 of 100 does count"
    assert count_before([EarlierLook(0.25, 50, 1)], 1) == 1, "most cases are new, and a claim could be made twice"


def test_exploratory_metrics_count_what_scored_them(matrix_of: Any) -> None:
    def pair(case: Any, result: Any) -> dict[str, float]:
        return {"y": y(case, result), "again": y(case, result)}

    matrix_of("a")
    matrix = matrix_of("b", evaluators={"tests:pair": pair})
    assert [matrix["best"][metric]["tried"] for metric in ("pair.y", "pair.again")] == [2, 1]


def test_a_deleted_sweep_still_counts(matrix_of: Any, bench: Make) -> None:
    first = matrix_of("a", "b")
    sweep = bench(workflow(c=99), CASES, {"guess": ["default", "c"]}, evaluators={"tests:y": y})
    delete_sweep(sweep.database, first["sweep"]["id"])
    assert find_look(sweep.database, first["sweep"]["id"]).metrics == ["y"]  # type: ignore[union-attr]
    sweep.run()
    matrix = sweep.matrix()
    assert matrix["best"]["y"]["tried"] == 3
    assert first["sweep"]["id"] not in " ".join(matrix["warnings"])


def test_an_erased_case_is_in_no_look(matrix_of: Any, bench: Make) -> None:
    first = matrix_of("a")
    database = bench(workflow(), CASES, {"guess": ["default"]}).database
    sweep_id = first["sweep"]["id"]
    (case,) = find_cases(database, "7", sweep_id=sweep_id)
    before = find_look(database, sweep_id)
    erase_rows(database, case, by="tests", reason=None)
    after = find_look(database, sweep_id)
    assert (len(before.sketch), len(after.sketch)) == (40 * 8, 39 * 8)


def test_a_claim_may_be_repeated_at_the_full_level(matrix_of: Any) -> None:
    """A wrong claim is wrong once, however often it is shown; a claim that was not shown has to show more."""
    first, second, third = (matrix_of("a", "q") for _ in range(3))
    p_values = [row["metrics"]["y"]["p_adjusted"] for row in first["rows"][1:]]
    assert max(p_values) > 0.05, "one that differs, and one that does not"
    for later in (second, third):
        for row, before in zip(later["rows"][1:], first["rows"][1:], strict=True):
            p, p_before = row["metrics"]["y"]["p_adjusted"], before["metrics"]["y"]["p_adjusted"]
            assert p == (p_before if p_before < 0.05 else pytest.approx(min(1, p_before / spendable(2, 2)), abs=1e-9))


def test_a_lead_that_so_many_tries_explain_is_not_clear() -> None:
    scores = np.stack([np.zeros(40), np.repeat([1.0, -1.0, 0.0], (12, 2, 26))])
    first, later = compare(scores, Design(baseline=0)), compare(scores, Design(baseline=0, share=spendable(49, 1)))
    assert (first.clear, later.clear) == (True, False)
    assert later.lead.because == sentence(
        "that could be chance, given how many combinations were tried over these cases"
    )
    assert later.lead.p == first.lead.p
    assert later.rows[1].p_adjusted == 1.0
    assert (later.rows[1].detectable or 0) > (first.rows[1].detectable or 1)
    assert first.lead.next_step is None
    assert later.lead.next_step.cases is not None


def test_parts_of_the_level_never_add_up_to_more_than_it() -> None:
    for first, each in ((1, 1), (1, 7), (24, 3)):
        spent, before = 0.0, first
        for _ in range(10_000):
            spent += spendable(before, each)
            before += each
        assert spent <= LATER
    assert spendable(0, 5) == 1
    assert spendable(9, 0) == spendable(9, 1) > 0
    assert spendable(0.01, 3) > 0.99
    assert [spendable(before, 1) for before in (0.999, 1.001)] == pytest.approx([spendable(1, 1)] * 2, abs=0.01)


@pytest.mark.parametrize(
    ("mine", "theirs", "both"), [(300, 300, 150), (10, 9_000, 10), (50_000, 40, 40), (100_000, 100_000, 40_000)]
)
def test_digests_tell_the_share_of_cases(mine: int, theirs: int, both: int) -> None:
    every = np.random.default_rng(5).integers(0, 1 << 63, mine + theirs - both, dtype=np.uint64) * 2
    sketches = []
    for some in (every[:mine], every[mine - both :]):
        sketch = CaseSketch()
        for digest in some.tolist():
            sketch.add(digest)
        count, digests = sketch.finish()
        assert count == len(some)
        assert len(digests) <= 8 * MOST_DIGESTS
        sketches.append(np.frombuffer(digests, dtype=">u8").astype(np.uint64))
    assert shared_part(*sketches, theirs) == pytest.approx(both / mine, abs=0.03)


def test_a_pool_is_one_more_look_and_keeps_its_sweeps(matrix_of: Any, bench: Make, tmp_path: Path) -> None:
    first, second = (matrix_of("a", "b")["sweep"]["id"] for _ in range(2))
    database = bench(workflow(), CASES, {"guess": ["default"]}).database
    pooled = pool(Context(database, by="ann", files=tmp_path), [first, second], name="both")
    matrix = build(database, find_sweep(database, pooled.id))
    assert (matrix["cells"]["total"], matrix["rows"][1]["metrics"]["y"]["n"]) == (2 * 40 * 3, 40)
    assert (matrix["best"]["y"]["looks"], matrix["best"]["y"]["tried"]) == (3, 6)
    assert not any("wtb pool" in text for text in matrix["warnings"])
    with pytest.raises(ConflictError, match=f"is part of the pool 'both' \\({pooled.id}\\)"):
        delete_sweep(database, first)
    with database.read() as connection:
        assert set(expired_sweeps(connection, 1e12, 0)) & {first, second, pooled.id} == {pooled.id}
    delete_sweep(database, pooled.id)
    delete_sweep(database, first)
