"""Cells that count as edited: those whose own line of checkpoints has a change by a person, wherever it went before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.bench import Bench
from wtb import END, Workflow
from wtb.analysis.matrix.build import build
from wtb.core.values import Value
from wtb.operations.context import Context
from wtb.operations.control.forks import add_fork
from wtb.operations.control.rollback import rollback, undo_rollback
from wtb.store.control import executions as steering
from wtb.store.control.forks import retry
from wtb.store.read.details import find_one
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.schema import checkpoints

Make = Callable[..., Bench]
FAILS: list[str] = []


def abc() -> Workflow:
    """a -> b -> c, each of which adds 1 to x. c fails once for each of FAILS."""
    wf = Workflow("abc")

    def add(state: Any) -> Any:
        return {"x": state["x"] + 1}

    def fail_or_add(state: Any) -> Any:
        if FAILS:
            raise ValueError(FAILS.pop())
        return add(state)

    nodes = [wf.node(add, name="a"), wf.node(add, name="b"), wf.node(fail_or_add, name="c")]
    wf["c"].variant("other", fail_or_add)
    wf.entry("a")
    for node, following in zip(nodes, [*nodes[1:], END], strict=True):
        wf.edge(node, following)
    return wf


def x(case: Any, result: Any) -> float:
    return float(result.state["x"])


@pytest.fixture
def make(bench: Make) -> Make:
    FAILS.clear()

    def make(*args: Any) -> Bench:
        sweep = bench(abc(), [{"id": "one", "input": {"x": 0}}], *args, evaluators={"x": x})
        sweep.run()
        return sweep

    return make


def ada(bench: Bench) -> Context:
    return Context(bench.database, by="ada")


def the_root(bench: Bench) -> ExecutionRow:
    return bench.executions[0]


def back(bench: Bench, to: str) -> None:
    rollback(ada(bench), the_root(bench).id, to, bound=bench.prepared.bound)


def first_of(bench: Bench) -> str:
    """Return the first checkpoint of node a."""
    rows = sorted(bench.rows(checkpoints), key=lambda row: row["id"])
    return next(str(row["id"]) for row in rows if row["writers"] and row["writers"][0][0] == "a")


def edit(bench: Bench, **changes: Any) -> None:
    """Change the state of a paused execution, and resume it."""
    encoded = {name: Value.of(value) for name, value in changes.items()}
    steering.resume(bench.database, the_root(bench).id, by="ada", changes=encoded)
    bench.run()


def counted(bench: Bench) -> list[float]:
    """Return what the matrix counts: the mean of x for each row that has one."""
    rows = build(bench.database, bench.row)["rows"]
    return [row["metrics"]["x"]["mean"] for row in rows if row["metrics"]["x"]["n"]]


def left_out(bench: Bench) -> Any:
    return build(bench.database, bench.row)["cells"].get("edited_left_out")


def edited(bench: Bench) -> list[bool]:
    return [row.edited for row in bench.executions]


def test_a_cell_that_is_rolled_back_to_before_its_edit_is_counted_again(make: Make) -> None:
    bench = make()
    assert counted(bench) == [3.0]

    back(bench, "b")
    edit(bench, x=40)
    assert (counted(bench), edited(bench)) == ([], [True])
    assert build(bench.database, bench.row, edited=True)["rows"][0]["metrics"]["x"]["mean"] == 41.0

    back(bench, "a")
    assert edited(bench) == [False], "the line that it is on now has no edit"
    edit(bench)

    assert (counted(bench), edited(bench)) == ([3.0], [False])


def test_a_cell_that_is_rolled_back_to_after_its_edit_stays_edited(make: Make) -> None:
    bench = make()
    back(bench, "a")
    edit(bench, x=40)

    back(bench, "b")
    edit(bench)

    assert (counted(bench), edited(bench)) == ([], [True])


def test_undoing_a_rollback_brings_the_edit_back(make: Make) -> None:
    bench = make()
    back(bench, "b")
    edit(bench, x=40)
    back(bench, "a")
    assert edited(bench) == [False]

    undo_rollback(ada(bench), the_root(bench).id, bound=bench.prepared.bound)

    assert edited(bench) == [True]
    edit(bench)
    assert counted(bench) == []


def test_a_value_that_is_set_to_what_it_was_is_no_edit(make: Make) -> None:
    bench = make()
    back(bench, "b")
    edit(bench, x=2)
    assert (counted(bench), edited(bench)) == ([3.0], [False])


@pytest.mark.parametrize(("at", "is_edited"), [("a", False), ("b", True)])
def test_a_fork_is_edited_only_if_it_starts_below_the_edit(make: Make, at: str, is_edited: bool) -> None:
    bench = make()
    back(bench, "a")
    edit(bench, x=40)

    add_fork(ada(bench), the_root(bench).id, at=at, bound=bench.prepared.bound)

    assert edited(bench) == [True, is_edited]


def test_cells_of_a_fork_by_variants_follow_their_common_line(make: Make) -> None:
    bench = make({"c": ["default", "other"]})
    back(bench, "a")
    edit(bench, x=40)
    assert counted(bench) == []
    assert edited(bench)[0]

    back(bench, "a")
    edit(bench, x=40)
    assert edited(bench)[-2:] == [True, True]
    rollback(ada(bench), the_root(bench).id, first_of(bench), bound=bench.prepared.bound)
    edit(bench)

    assert counted(bench) == [3.0, 3.0]
    assert edited(bench)[0] is False
    assert edited(bench)[-2:] == [False, False]


def test_a_retry_below_an_edit_is_edited_and_no_longer_after_a_rollback(make: Make) -> None:
    bench = make()
    back(bench, "b")
    FAILS.append("no")
    edit(bench, x=40)
    assert bench.counts == {"failed": 1}

    retry(bench.database, bench.sweep_id)
    bench.run()
    assert counted(bench) == []
    newest = bench.executions[-1]
    assert newest.edited

    rollback(ada(bench), newest.id, "a", bound=bench.prepared.bound)
    steering.resume(bench.database, newest.id, by="ada")
    bench.run()

    assert counted(bench) == [3.0]
    assert not find_one(bench.database, newest.id).edited
