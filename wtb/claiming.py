"""From rows to executions that can be run: the cases, states and earlier node runs of what was claimed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wtb.history import ExecutionHistory
from wtb.live import Case, Execution
from wtb.store.database import Database
from wtb.store.reading import case_rows, line, load_values, node_runs_from

Row = Mapping[str, Any]


def load_executions(database: Database, sweep_id: str, claimed: Sequence[Row]) -> list[Execution]:
    """The executions behind claimed rows, in their order. Raises StoreError for damaged values."""
    if not claimed:
        return []
    cases = load_cases(database, sweep_id, {row["case_number"] for row in claimed})
    return [_execution(database, row, cases[row["case_number"]]) for row in claimed]


def load_cases(database: Database, sweep_id: str, numbers: set[int]) -> dict[int, Case]:
    rows = case_rows(database, sweep_id, numbers)
    stored = load_values(database, (key for row in rows.values() for key in row["input"].values()))
    return {
        number: Case(
            number,
            row["id"],
            {name: stored[key] for name, key in row["input"].items()},
            None if row["expected"] is None else row["expected"].encode(),
            tuple(row["tags"]),
            row["workspace"],
        )
        for number, row in rows.items()
    }


def _execution(database: Database, row: Row, case: Case) -> Execution:
    execution = Execution(
        row["id"],
        row["token"],
        case,
        row["repeat"],
        row["combinations"],
        kills=row["kills"],
        queue=row["queue"],
        choices=row["choices"],
        edited=row["edited"],
        asked=row["asked"],
        passed=row["passed_id"],
    )
    if row["head_id"] is None:
        return execution
    history = ExecutionHistory(line(database, row["head_id"]))
    head = history.latest
    assert head is not None, "an execution's head is a checkpoint"
    earlier = node_runs_from(database, head.id)
    wanted = [*head.state.values(), *(key for run in earlier for key in (run["writes"] or {}).values())]
    saved = head.inside.saved if head.inside is not None else {}
    wanted += saved.values()
    stored = load_values(database, wanted)
    execution.head, execution.path = head, history.path
    execution.state = {name: stored[key] for name, key in head.state.items()}
    execution.earlier = {(run["task"], run["variant"]): run for run in earlier}
    execution.earlier_values = stored
    execution.saved = {name: stored[key] for name, key in saved.items()}
    return execution
