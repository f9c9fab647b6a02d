"""Held-out cases do not run before the end, are used once, and a second use is reported."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.test_search_history import CASES, workflow, y
from tests.support.prose import sentence
from wtb import Sweep
from wtb.analysis.statistics.running import spendable
from wtb.core.errors import InputError
from wtb.core.tree.run_order import is_held_out
from wtb.handles.sweep import SweepHandle
from wtb.planning.picking import Only
from wtb.planning.prepare import prepare
from wtb.planning.sweep_spec import parse_spec
from wtb.store.database import Database

HELD_OUT = [case["id"] for case in CASES if is_held_out(0.3, 0, str(case["id"]), None)]


def ran(database: Database, tmp_path: Any, *variants: str, final: bool = False, **spec: Any) -> SweepHandle:
    wf = workflow(**{name: sum(map(ord, name)) for name in variants})
    sweep = Sweep(workflow=wf, cases=CASES, vary={"guess": ["default", *variants]}, evaluate=[y], holdout=0.3, **spec)
    return sweep.run(database, files=tmp_path / "files", final=final)


def test_about_a_share_of_the_cases_is_kept_for_the_end_and_runs_then(database: Database, tmp_path: Any) -> None:
    assert 6 <= len(HELD_OUT) <= 18
    first = ran(database, tmp_path, "a", "b")
    assert {cell["case"] for cell in first.cells()} == {case["id"] for case in CASES} - set(HELD_OUT)
    last = ran(database, tmp_path, "b", final=True)
    assert {cell["case"] for cell in last.cells()} == set(HELD_OUT)
    assert last.matrix()["best"]["y"]["tried"] == 1, "these were not looked at before"
    assert last.matrix()["figures"] == "final"
    row = last.matrix()["rows"][1]["metrics"]["y"]
    assert row["p_adjusted"] == row["p"]


def test_a_second_use_says_so_and_counts(database: Database, tmp_path: Any) -> None:
    ran(database, tmp_path, "b", final=True)
    second = ran(database, tmp_path, "c", final=True).matrix()
    assert second["best"]["y"]["tried"] == 2
    row = second["rows"][1]["metrics"]["y"]
    assert row["p_adjusted"] == pytest.approx(min(1.0, row["p"] / spendable(1, 1)))
    assert sentence("were used {} before", "once") in " ".join(second["warnings"])
    third = ran(database, tmp_path, "b", final=True).matrix()
    assert sentence("were used {} before", "2 times") in " ".join(third["warnings"])
    row = third["rows"][1]["metrics"]["y"]
    assert row["p_adjusted"] == row["p"], "the first use claimed the same"


def test_another_seed_does_not_make_cases_new_that_were_looked_at(database: Database, tmp_path: Any) -> None:
    ran(database, tmp_path, "a")
    assert ran(database, tmp_path, "b", final=True, seed=1).matrix()["best"]["y"]["tried"] == 2


def test_clusters_are_kept_whole() -> None:
    assert {is_held_out(0.3, 0, str(n), "one source") for n in range(50)} in ({True}, {False})
    assert sum(is_held_out(0.3, 0, str(n), None) for n in range(2_000)) == pytest.approx(600, abs=75)


@pytest.mark.parametrize(
    ("spec", "only", "problem"),
    [
        ({}, Only(final=True), sentence("the sweep has no final cases")),
        ({"holdout": 1}, Only(), "'holdout' is 1; expected less than 1"),
        ({"holdout": 0}, Only(), sentence("{} is {}; expected more than 0", "'holdout'", 0)),
        ({"holdout": 0.3}, Only(case=HELD_OUT[0]), f"and case '{HELD_OUT[0]}' is one of them"),
        ({"holdout": 1e-9}, Only(final=True), sentence("which leaves no {}", "case for it")),
        ({"holdout": 0.999999}, Only(), sentence("which leaves no {}; expected more cases", "other")),
        ({"holdout": 0.3}, Only(case="nobody"), sentence("there is no case {}", "'nobody'")),
    ],
)
def test_what_cannot_be_kept_is_refused(spec: dict[str, Any], only: Only, problem: str) -> None:
    document = {"workflow": "tests:wf", "cases": CASES, "vary": {"guess": ["default"]}, **spec}
    with pytest.raises(InputError) as refused:
        prepare(parse_spec(document), workflow=workflow(), only=only)
    assert problem in str(refused.value)
