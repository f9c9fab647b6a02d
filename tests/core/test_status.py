"""The tables of transitions are complete, and list the valid next statuses."""

from __future__ import annotations

import pytest

from wtb.core.status import CELL, EXECUTION, FINAL_CELLS, NODE_RUN, OPEN_EXECUTIONS, SWEEP, Transitions, sources

TABLES = {"sweep": SWEEP, "execution": EXECUTION, "cell": CELL, "node run": NODE_RUN}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_status_that_can_be_reached_has_a_row_of_its_own(table: Transitions) -> None:
    assert {status for following in table.values() for status in following} <= table.keys()


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_status_can_be_reached_from_the_first(table: Transitions) -> None:
    seen, todo = set(), [next(iter(table)), *({"deleting"} & table.keys())]  # which leads out of every other one
    while todo:
        status = todo.pop()
        if status not in seen:
            seen.add(status)
            todo += table[status]
    assert seen == table.keys()


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_no_status_follows_itself(table: Transitions) -> None:
    assert all(status not in following for status, following in table.items())


@pytest.mark.parametrize("status", ["forked", "completed", "failed", "cancelled"])
def test_an_execution_that_ended_is_only_wound_back(status: str) -> None:
    assert EXECUTION[status] == {"paused"}
    assert status not in OPEN_EXECUTIONS


def test_only_a_pending_execution_can_be_claimed() -> None:
    assert sources(EXECUTION, "running") == ("pending",)


def test_a_cell_is_given_an_outcome_only_while_it_has_none() -> None:
    for outcome in ("succeeded", "failed", "cancelled", "skipped"):
        assert not set(sources(CELL, outcome)) & set(FINAL_CELLS)


def test_a_cell_with_an_outcome_becomes_another_only_by_way_of_pending() -> None:
    for outcome in FINAL_CELLS:
        assert CELL[outcome] <= {"pending"}


def test_a_cancelled_sweep_stays_cancelled() -> None:
    assert SWEEP["cancelled"] == frozenset()


def test_sources_of_an_unknown_status_are_none() -> None:
    assert sources(SWEEP, "no such status") == ()
