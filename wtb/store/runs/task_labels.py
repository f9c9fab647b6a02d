"""What monitors show of published tasks: their cases and choices, and the name of their sweep."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from wtb.core.tree.grouping import agreed
from wtb.store.bulk import fetch_among
from wtb.store.tables.schema import cases, combinations, executions, sweeps

MOST_DESCRIBED = 50  # ids of cases that a monitor shows of a task; of more, the first and the last one


class Task(NamedTuple):
    """A published task, with what a monitor shows of it.

    Attributes:
        queue: As slots name it; empty for the default one.
        sweep_id: Its sweep, and `sweep`: the name of that.
        cases: Ids of its cases, in order; of more than MOST_DESCRIBED, the first and the last one.
        size: How many executions it has; 0 of one that scores the sweep again.
        choices: Node -> variant, as far as all combinations of the first execution agree.
        redact: The section `redact` of the sweep, as it is stored.
    """

    id: str
    queue: str
    sweep_id: str
    sweep: str
    cases: list[str]
    size: int
    choices: Mapping[str, str]
    redact: object


def describe(connection: sa.Connection, tasks: Mapping[tuple[str, str, str], Sequence[str]]) -> list[Task]:
    """Describe tasks. tasks: the ids of the executions, in order, by the id of the task, its queue and its sweep."""
    if not tasks:
        return []
    names = names_of(connection, {sweep_id for _, _, sweep_id in tasks})
    shown = {task: ids if len(ids) < MOST_DESCRIBED else (ids[0], ids[-1]) for task, ids in tasks.items()}
    rows = _rows_of(connection, [id for ids in shown.values() for id in ids])
    heads = {task: rows.get(ids[0]) for task, ids in tasks.items()}
    wide = [row for task, row in heads.items() if row and row.choices is None and len(tasks[task]) == 1]
    choices = _choices_of(connection, {(row.sweep_id, number) for row in wide for number in row.combinations[:1000]})
    described = []
    for task, ids in tasks.items():
        task_id, queue, sweep_id = task
        name, redact = names[sweep_id]
        case_ids = list(dict.fromkeys(rows[id].case_id for id in shown[task] if id in rows))
        agree: Mapping[str, str] = {}
        if (head := heads[task]) is not None and head.choices is not None:
            agree = head.choices
        elif head is not None and len(ids) == 1:
            agree = agreed([choices[sweep_id, number] for number in head.combinations[:1000]])
        described.append(Task(task_id, queue, sweep_id, name, case_ids, len(ids), agree, redact))
    return described


def names_of(connection: sa.Connection, ids: Collection[str]) -> dict[str, tuple[str, object]]:
    """Return the name and the section `redact` of sweeps, by id."""
    query = sa.select(sweeps.c.id, sweeps.c.name, sweeps.c.spec["redact"]).where(sweeps.c.id.in_(list(ids)))
    return {id: (name, redact) for id, name, redact in connection.execute(query)}


def _rows_of(connection: sa.Connection, ids: Sequence[str]) -> dict[str, sa.Row[Any]]:
    """Return sweep, case, combinations and choices of executions, by id."""
    query = (
        sa.select(executions.c.id, executions.c.sweep_id, cases.c.id.label("case_id"))
        .add_columns(executions.c.combinations, executions.c.choices)
        .join(cases, sa.and_(cases.c.sweep_id == executions.c.sweep_id, cases.c.number == executions.c.case_number))
    )
    return {row.id: row for row in fetch_among(connection, query, executions.c.id, ids)}


def _choices_of(
    connection: sa.Connection, keys: Collection[tuple[str, int]]
) -> dict[tuple[str, int], Mapping[str, str]]:
    """Return the choices of combinations, by sweep and number."""
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for sweep_id, number in keys:
        numbers[sweep_id].append(number)
    choices: dict[tuple[str, int], Mapping[str, str]] = {}
    for sweep_id, of_sweep in numbers.items():
        query = sa.select(combinations.c.number, combinations.c.choices).where(combinations.c.sweep_id == sweep_id)
        rows = fetch_among(connection, query, combinations.c.number, of_sweep)
        choices |= {(sweep_id, row.number): row.choices for row in rows}
    return choices
