"""Tests of the ledger fail if it is wrong: each mutation of it is detected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.store import test_budgets as tested
from wtb.execution.runtime import budgets
from wtb.store.access import reservations
from wtb.store.database import Database
from wtb.store.runs import flush

Break = Callable[[pytest.MonkeyPatch], None]
SETTLE = reservations.settle


def settling(change: Callable[[Any], dict[str, Any]]) -> Break:
    """Change the row of each settlement."""

    def settle(connection: Any, rows: Any) -> None:
        SETTLE(connection, [{**row, **change(row)} for row in rows])

    def break_it(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reservations, "settle", settle)
        monkeypatch.setattr(flush, "settle", settle)

    return break_it


def replacing(place: Any, name: str, put: Any) -> Break:
    return lambda monkeypatch: monkeypatch.setattr(place, name, put)


OF_LEDGER = {
    "nothing is reserved": replacing(reservations, "_insert", lambda *_: None),
    "no cap is compared": replacing(reservations, "slack", lambda most: 1e9),
    "nothing is counted": settling(lambda row: {"spent": 0.0}),
    "all is counted twice": settling(lambda row: {"spent": 2 * (row["spent"] or 0.0)}),
    "nothing is released": settling(lambda row: {"left": 1.0 if row["left"] is None else row["left"]}),
    "what is left is released at the first call": settling(lambda row: {"left": None}),
}


@pytest.mark.parametrize("mistake", OF_LEDGER)
def test_a_mistake_of_the_ledger_is_found_out(
    mistake: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    OF_LEDGER[mistake](monkeypatch)
    with pytest.raises(AssertionError):
        check(database)


def check(database: Database) -> None:
    """Two tests, on one database."""
    tested.test_what_is_reserved_is_not_there_for_another_and_what_was_not_spent_is(database)
    with database.write() as connection:
        for table in (tested.budgets, tested.reservations):
            connection.execute(table.delete())
    tested.test_what_a_running_attempt_has_spent_counts_and_the_rest_stays_reserved(database)


def test_a_runner_that_counts_what_runs_at_its_end_is_found_out(
    bench: tested.Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budgets.Reserved, "spent", lambda *_: [])
    with pytest.raises(AssertionError):
        tested.look_before_the_end(bench, patience_s=1.0)
