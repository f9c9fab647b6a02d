"""Repairing sweeps with damaged values: lost results are computed again from the nearest intact checkpoint."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from wtb.core.errors import StoreError
from wtb.store.database import Database
from wtb.store.housekeeping import damage
from wtb.store.read.queries import case_rows, line
from wtb.store.tables.sweeps import CaseRow, SweepRow


def repair_sweep(database: Database, sweep: SweepRow) -> int:
    """Verify by hash the values that open executions of a sweep start from, and move damaged ones back.

    Executions that move to the same checkpoint continue as one, so that lost work runs once. Returns how many moved.

    Raises StoreError if the input of a case is damaged: it cannot be computed again.
    """
    _check_inputs(database, sweep)
    rows = damage.open_heads(database, sweep.id)
    written = damage.writes_from(database, (row.head_id for row in rows if row.head_id is not None))
    wanted = {key for row in rows for key in row.state.values()} | {key for keys in written.values() for key in keys}
    lost = damage.find_damaged(database, wanted)
    if not lost:
        return 0
    moves: defaultdict[tuple[int, int, str | None, str | None], list[Any]] = defaultdict(list)
    for row in rows:
        if row.head_id is not None and not lost.isdisjoint(row.state.values()):
            back, more = _intact(database, row.head_id, lost)
            lost |= more
            if back is None:  # it starts from the input, unless that is damaged, too
                _check_input(database, sweep, row.case_number)
            alone = None if row.choices is None else row.id  # a fork by a person has variants of its own
            moves[row.case_number, row.repeat, back, alone].append(row)
    written |= damage.writes_from(database, (back for _, _, back, _ in moves if back is not None))
    lost |= damage.find_damaged(database, (key for keys in written.values() for key in keys))
    again = [id for id, keys in written.items() if not lost.isdisjoint(keys)]
    damage.go_back(database, sweep, lost, again, moves)
    return sum(map(len, moves.values()))


def _intact(database: Database, head_id: str, lost: set[str]) -> tuple[str | None, set[str]]:
    """The nearest checkpoint of a line whose values are all intact, if any, and the damaged values found on the way."""
    more: set[str] = set()
    for checkpoint in reversed(line(database, head_id)):
        keys = set(checkpoint.state.values())
        if keys.isdisjoint(lost | more):
            found = damage.find_damaged(database, keys)
            more |= found
            if not found:
                return checkpoint.id, more
    return None, more


def _check_input(database: Database, sweep: SweepRow, number: int) -> None:
    case = case_rows(database, sweep.id, {number})[number]
    if damage.find_damaged(database, case.input.values()):
        raise _lost_input(sweep, case)


def _check_inputs(database: Database, sweep: SweepRow) -> None:
    """Executions that have not begun have no values but the input of their case."""
    cases = case_rows(database, sweep.id, damage.waiting_cases(database, sweep.id))
    lost = damage.find_damaged(database, {key for case in cases.values() for key in case.input.values()})
    for case in cases.values():
        if not lost.isdisjoint(case.input.values()):
            raise _lost_input(sweep, case)


def _lost_input(sweep: SweepRow, case: CaseRow) -> StoreError:
    return StoreError(
        f"sweep {sweep.id}: the stored input of case {case.id!r} is damaged, and nothing can compute it again; "
        f"submit the sweep anew with `wtb run`"
    )
