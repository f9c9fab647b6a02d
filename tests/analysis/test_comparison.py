"""Sweeps are compared cell by cell, even if they have little in common; baselines are kept until they are removed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.support.bench import in_memory, make_bench
from tests.support.prose import sentence
from wtb import evaluator
from wtb.analysis.comparison.changes import setting_changes
from wtb.analysis.comparison.compare import compare_sweeps
from wtb.analysis.gates import all_hold
from wtb.analysis.kept_matrix import judged
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END
from wtb.config.retention_policy import Policy
from wtb.core.errors import ConflictError, InputError
from wtb.operations.garbage_collection import apply_policy
from wtb.store.access import sessions
from wtb.store.database import Database
from wtb.store.files.store import FileStore
from wtb.store.housekeeping import deletion
from wtb.store.read import baselines
from wtb.store.read.queries import find_sweep

Make = Callable[..., Any]
Fields = dict[str, Any]


def workflow(add: Callable[[Fields, int], Any]) -> Workflow:
    """A workflow of `read` and `add`, which has a variant with `k=1`; an error in `add` fails the cell."""
    wf = Workflow("sums")

    @wf.node
    def read(state: Fields) -> Fields:
        return {"read": state["x"]}

    def added(state: Fields, *, k: int = 0) -> Fields:
        return {"y": add(state, k)}

    node = wf.node(added, name="add")
    node.variant("v1", k=1)
    wf.entry(read)
    wf.edge(read, node)
    wf.edge(node, END)
    return wf


def plain(state: Fields, k: int) -> int:
    return int(state["x"]) + k


def y(case: Any, result: Any) -> float:
    return float(result.state["y"])


def cases(count: int, **same: Any) -> list[Fields]:
    return [{"id": f"c{n}", "input": {"x": n}, **same} for n in range(count)]


ALL = {"add": "all"}
MANY = {"add": ["default", "v1", *({"name": f"v{k}", "of": "v1", "k": k} for k in range(2, 6))]}


def runs(database: Database, folder: Path) -> Make:
    """Return a function that runs a sweep of `workflow(add)` over a number of cases and returns its row."""

    def run(add: Callable[[Fields, int], Any] = plain, count: int | list[Fields] = 6, **spec: Any) -> Any:
        case_list = cases(count) if isinstance(count, int) else count
        vary, evaluators = spec.pop("vary", ALL), spec.pop("evaluators", {"y": y})
        bench = make_bench(database, folder, workflow(add), case_list, vary, evaluators=evaluators, **spec)
        bench.run()
        return bench.row

    return run


def comparing(database: Database, sweep: Make) -> Make:
    """Return a function that compares a sweep with one that ran without changes."""

    def compare(*args: Any, before: Fields | None = None, margin: Fields | None = None, **spec: Any) -> Any:
        first = sweep(**(before or {}))
        return compare_sweeps(database, first, sweep(*args, **spec), margin)

    return compare


@pytest.fixture
def sweep(database: Database, tmp_path: Path) -> Make:
    """Run a sweep on either database."""
    return runs(database, tmp_path / "files")


@pytest.fixture
def compared(tmp_path: Path) -> Iterator[Make]:
    """Compare sweeps in memory, for tests that do not depend on the database."""
    memory = in_memory()
    yield comparing(memory, runs(memory, tmp_path / "files"))
    memory.close()


def test_nothing_is_said_of_sweeps_that_came_to_the_same(compared: Make) -> None:
    document = compared(repeats=2)
    assert (document["verdict"], document["because"], document["cells"]) == ("same", [], [])
    assert document["compared"] == {"combinations": 2, "cases": 6, "cells": 12, "of": {"before": 12, "after": 12}}
    assert document["changed"]["settings"] == [{"key": "repeats", "before": 1, "after": 2}]
    assert [row["verdict"] for row in document["rows"]] == ["same", "same"]


def test_a_fall_is_told_by_combination_and_cell_with_the_node_that_made_it(database: Database, sweep: Make) -> None:
    compared = comparing(database, sweep)
    document = compared(lambda state, k: state["x"] + k - 2 * (k == 1 and state["x"] > 0), count=9, before={"count": 9})
    assert document["verdict"] == "worse"
    assert [(row["combination"], row["verdict"]) for row in document["rows"]] == [
        ({"add": "default"}, "same"),
        ({"add": "v1"}, "worse"),
    ]
    assert len(document["cells"]) == 8
    cell = document["cells"][2]
    assert (cell["case"], cell["metric"], cell["before"], cell["after"], cell["delta"]) == ("c3", "y", 4.0, 2.0, -2.0)
    assert (cell["what"], cell["diverged"]) == ("worse", "add")
    assert {change["variant"] for change in document["changed"]["code"] if change["node"] == "add"} == {"default", "v1"}
    alone, together = document["because"]
    assert alone == "y of add=v1 fell by 1.778, from 5 to 3.222 (p = 0.008)"
    assert together.startswith("y fell by 0.8889 (95% lower bound -1.096")
    assert together.endswith(", p = 0.008) over all 2 combinations, which share the changed node add")
    (pool,) = document["pools"]
    assert (pool["nodes"], pool["variant"], len(pool["combinations"]), pool["verdict"]) == (["add"], None, 2, "worse")


def test_a_fall_that_could_be_chance_is_unclear_and_it_is_said_what_so_many_cases_can_show(compared: Make) -> None:
    document = compared(lambda state, k: state["x"] + k - 2 * (k == 1 and state["x"] == 3), margin={"y": 0.5})
    assert document["verdict"] == "unclear"
    assert document["rows"][1]["metrics"]["y"]["because"] == sentence("only {}, too few for any test", "1 case differs")
    (reason,) = document["because"]
    assert reason == (
        sentence("{} differs in {} by what could be chance", "y", "1 combination")
        + sentence(": {} can show that it lost less than {}", "6 cases", "0.9782")
        + sentence("; its margin of {} takes about {}, so {} more", "0.5", 18, 12)
    )


def test_a_fall_shows_over_the_combinations_that_share_what_was_changed(compared: Make) -> None:
    def wf(noise: float) -> Any:
        return lambda state, k: state["x"] + k - noise * (1 + (state["x"] + 3 * k) % 4)

    document = compared(wf(0.3), before={"add": wf(0.0)}, count=6, vary=MANY)
    verdicts = [row["metrics"]["y"]["verdict"] for row in document["rows"]]
    p = [part["metrics"]["y"]["p_worse"] for part in (*document["pools"], *document["rows"])]
    assert p[0] == min(p)
    assert (document["verdict"], set(verdicts)) == ("worse", {"worse"})


def test_a_metric_that_does_not_decide_moves_no_verdict_unless_it_has_a_margin(compared: Make) -> None:
    both = {"z": evaluator(name="z")(lambda case, result: 1), "y": y}
    spec = {"evaluators": both, "before": {"evaluators": both, "count": 9}, "count": 9}
    document = compared(lambda state, k: 0, **spec)
    assert (document["primary"], document["verdict"]) == ("z", "same")
    assert document["because"][0].startswith("exploratory: y fell in 2 of 2 combinations, most in add=v1: by ")
    document = compared(lambda state, k: 0, **spec, margin={"y": 1})
    assert document["verdict"] == "worse"
    assert [figures["decides"] for figures in document["rows"][0]["metrics"].values()] == [True, True]


def test_a_loss_below_its_margin_is_not_worse(compared: Make) -> None:
    def lower(state: Fields, k: int) -> float:
        return float(plain(state, k)) - 0.5

    document = compared(lower, margin={"y": 0.51})
    assert (document["verdict"], document["margin"]) == ("not worse", {"given": {"y": 0.51}, "of_later": {}})
    assert document["because"] == ["y is not worse in 2 combinations: it lost less than its margin of 0.51 (5% error)"]
    document = compared(lower, margin={"y": 0.5, "z": 1}, count=9, before={"count": 9})
    assert document["verdict"] == "worse"
    assert document["because"][-1] == sentence("a margin is given for {}, by which not both sweeps are scored", "z")


def test_cells_that_fail_now_come_first_and_those_that_are_fixed_come_last(database: Database, sweep: Make) -> None:
    compared = comparing(database, sweep)

    def fails(at: int) -> Callable[[Fields, int], int]:
        def add(state: Fields, k: int) -> int:
            if state["x"] == at:
                raise ValueError("no")
            return plain(state, k)

        return add

    document = compared(fails(2), before={"add": fails(4)})
    assert document["verdict"] == "unclear"
    assert document["because"] == [
        "2 cells that succeeded fail now (could be chance)",
        sentence("{} that failed {} now", "2 cells", "succeed"),
    ]
    cells = [(cell["case"], cell["what"], cell["before"], cell["after"]) for cell in document["cells"]]
    assert cells == [("c2", "failed", "succeeded", "failed")] * 2 + [("c4", "fixed", "failed", "succeeded")] * 2
    assert {cell["diverged"] for cell in document["cells"]} == {"add"}
    fixed = compared(before={"add": fails(4)})
    assert (fixed["verdict"], fixed["because"]) == (
        "unclear",
        [sentence("{} that failed {} now", "2 cells", "succeed")],
    )
    unchanged = compared(fails(4), before={"add": fails(4)})
    assert (unchanged["verdict"], unchanged["failing"]) == ("same", {"still": 2, "unpaired": 0})


def test_cases_that_were_changed_or_are_in_one_sweep_only_are_left_out(compared: Make) -> None:
    case_list = [{"id": "c0", "input": {"x": 70}}, {"id": "c1", "input": {"x": 1}, "expected": 1}, *cases(4)[2:]]
    document = compared(count=[*case_list, {"id": "new", "input": {"x": 1}}])
    kinds = {"added": ["new"], "removed": ["c4", "c5"], "changed": ["c0", "c1"]}
    assert document["changed"]["cases"] == {"common": 4, **kinds}
    assert (document["verdict"], document["compared"]["cases"], document["cells"]) == ("same", 2, [])
    assert document["because"][0] == sentence("{} of {} are compared with nothing", 6, "10 cells")
    assert len(document["because"]) == 4


def test_what_cannot_be_told_is_said(compared: Make) -> None:
    other = [{"id": "z", "input": {"x": 1}}]
    assert compared(count=other)["because"][0] == sentence("the two sweeps have no case in common")
    others = compared(vary={"add": ["v1"]}, before={"vary": {"add": ["default"]}})
    unscored = compared(evaluators={"z": evaluator(name="z")(lambda case, result: 1)})
    assert (others["verdict"], unscored["verdict"]) == ("cannot tell", "cannot tell")
    assert others["because"][0] == sentence("the two sweeps have no combination in common")
    assert unscored["because"][0] == sentence("the two sweeps have no metric in common")

    def never(state: Fields, k: int) -> int:
        raise ValueError("no")

    document = compared(never, before={"add": never})
    assert document["verdict"] == "cannot tell"
    assert document["because"] == [sentence("in {} no cell succeeded in both sweeps", "2 combinations")]


def test_one_case_and_constant_scores_are_compared_as_far_as_they_go(compared: Make) -> None:
    document = compared(lambda state, k: 0, before={"add": lambda state, k: 0, "count": 1}, count=1)
    assert (document["verdict"], document["rows"][0]["metrics"]["y"]["delta_ci"]) == ("same", None)
    document = compared(lambda state, k: -1, before={"add": lambda state, k: 0, "count": 1}, count=1)
    assert (document["verdict"], document["rows"][0]["metrics"]["y"]["p_worse"]) == ("unclear", None)
    assert document["because"] == [
        sentence("{} differs in {} by what could be chance", "y", "2 combinations")
        + sentence(": {} can show no more", "1 case")
    ]


def test_a_score_that_fails_now_counts_as_a_failing_cell_and_one_of_some_combinations_only_is_no_reason(
    compared: Make,
) -> None:
    @evaluator(name="y")
    def picky(case: Any, result: Any) -> float:
        if result.state["y"] >= 3:
            raise ValueError("no threes")
        return y(case, result)

    document = compared(evaluators={"y": picky}, count=11, before={"count": 11})
    lost = sentence("{} failed that {} there before ({})", "17 scores", "were", "p = 0.006")
    assert (document["verdict"], document["because"]) == ("worse", [lost])
    assert {(cell["what"], cell["metric"], cell["after"]) for cell in document["cells"]} == {("failed", "y", None)}

    @evaluator(name="y")
    def odd(case: Any, result: Any) -> dict[str, float]:
        return {"all": y(case, result), **({"odd": 1.0} if result.state["y"] - result.state["x"] else {})}

    document = compared(evaluators={"y": odd}, before={"evaluators": {"y": odd}})
    assert document["verdict"] == "same"
    assert document["rows"][0]["metrics"]["y.odd"]["verdict"] == "cannot tell"


def test_repeats_are_taken_together(compared: Make) -> None:
    document = compared(lambda state, k: plain(state, k) - 1, repeats=3)
    assert document["rows"][0]["metrics"]["y"]["n_pairs"] == 6
    assert document["rows"][0]["metrics"]["y"]["delta"] == -1.0
    assert len(document["cells"]) == 12


def test_a_sweep_without_all_outcomes_cannot_be_told(bench: Make, sweep: Make, database: Database) -> None:
    before, after = sweep(), bench(workflow(plain), cases(6), ALL, evaluators={"y": y})
    after.run(node_runs=9)
    document = compare_sweeps(database, before, after.row)
    assert document["verdict"] == "cannot tell"
    assert document["because"][-1].endswith("without an outcome in the later sweep")
    gated = judged(database, structs.replace(after.row, spec={**after.row.spec, "gates": ["failed == 0"]}))
    assert gated["gates"][0]["holds"] is None


def test_a_gate_holds_unless_the_sweep_is_worse_than_the_baseline(sweep: Make, database: Database) -> None:
    def noisy(state: Fields, k: int) -> float:
        return plain(state, k) + (-1.0) ** state["x"]

    first = sweep()
    baselines.set_baseline(database, "main", first.id)
    gates = ["no_worse_than: main"]
    same, worse = sweep(gates=gates), sweep(lambda state, k: 0, gates=gates)
    tolerant, unclear = sweep(lambda state, k: 0, gates=gates, margin={"y": 9}), sweep(noisy, gates=gates)
    assert compare_sweeps(database, first, tolerant, {"y": 1})["verdict"] == "worse", "what is given comes first"
    outcomes = [judged(database, row)["gates"][0] for row in (same, worse, tolerant, unclear)]
    assert [gate["holds"] for gate in outcomes] == [True, False, True, None]
    assert [gate["verdict"] for gate in outcomes] == ["same", "worse", "not worse", "unclear"]
    assert all_hold(outcomes[2:])
    assert not all_hold(outcomes[2:], strict=True)
    baselines.remove_baseline(database, "default", "main")
    (gate,) = judged(database, same)["gates"]
    assert (gate["holds"], gate["because"]) == (None, sentence("there is no baseline {} any more", "'main'"))


def test_a_baseline_is_found_by_session_and_name_and_replaced(sweep: Make, database: Database) -> None:
    first, second = sweep(), sweep()
    assert baselines.set_baseline(database, "main", first.id) is None
    assert baselines.set_baseline(database, "main", second.id) == first.id
    assert baselines.find_baseline(database, "default", "main").id == second.id  # type: ignore[index]
    assert baselines.find_baseline(database, "default", "other") is None
    assert [(row.name, row.sweep_id) for row in baselines.baseline_rows(database)] == [("main", second.id)]
    unknown = sentence("no baseline {} in session {}", "'mian'", "'default'") + sentence("; did you mean '{}'", "main")
    with pytest.raises(InputError, match=unknown):
        baselines.named_baseline(database, "default", "mian")
    with pytest.raises(InputError, match=sentence("cannot be the name")):
        baselines.set_baseline(database, "last", second.id)


def test_a_baseline_is_not_collected_or_deleted_until_it_is_removed(
    sweep: Make, database: Database, tmp_path: Path
) -> None:
    row = sweep()
    baselines.set_baseline(database, "main", row.id)
    everything = Policy(sweeps=0.0, keep=0)
    assert apply_policy(database, FileStore(tmp_path / "files"), everything).removed["sweeps"].count == 0
    with pytest.raises(ConflictError, match=sentence("is the baseline {}", "'main'")):
        deletion.delete_sweep(database, row.id)
    assert baselines.remove_baseline(database, "default", "main") == row.id
    assert baselines.remove_baseline(database, "default", "main") is None
    assert apply_policy(database, FileStore(tmp_path / "files"), everything).removed["sweeps"].count == 1


def test_a_session_goes_with_its_baselines(sweep: Make, database: Database) -> None:
    session = sessions.create(database, "ann")
    row = sweep(session="ann")
    baselines.set_baseline(database, "main", row.id)
    assert find_sweep(database, row.id).session == "ann"
    deletion.delete_session(database, session.id, may_live=lambda owner, expired: False)
    assert baselines.baseline_rows(database) == []


def test_who_submitted_a_sweep_is_no_setting_of_it() -> None:
    before, after = ({"repeats": number, "submitted_by": name} for number, name in ((1, "ann"), (2, "bob")))
    assert setting_changes(before, after) == [{"key": "repeats", "before": 1, "after": 2}]
