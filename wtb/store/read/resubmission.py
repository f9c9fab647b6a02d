"""A sweep as it was submitted, to be submitted again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from wtb.core.ids import short_id
from wtb.store.bulk import fetch_rows
from wtb.store.database import Database
from wtb.store.read import queries
from wtb.store.runs.submit import NewCase, NewSweep, submit
from wtb.store.tables.sweeps import cases

AT_ONCE = 500  # cases whose inputs are held at once
LONGEST = 190  # of a sweep's name, so that its repeat's is one, too


def submit_again(database: Database, sweep: Mapping[str, Any]) -> str:
    """Submit a sweep anew, given its row of `find_sweep`: the same cases, combinations and settings. Returns its id.

    Nothing of what it came to is taken over: results are shared within a sweep only. It is called NAME-repeat.
    """
    choices = queries.choices(database, sweep["id"])
    with database.read() as connection:
        query = sa.select(cases).where(cases.c.sweep_id == sweep["id"]).order_by(cases.c.number)
        rows = fetch_rows(connection, query)
    clusters = [row["cluster"] for row in rows]
    new = NewSweep(
        id=short_id(),
        name=f"{sweep['name'][:LONGEST]}-repeat",
        session=sweep["session"],
        project=sweep["project"],
        spec=sweep["spec"],
        graph_id=sweep["workflow_id"],
        graph=queries.workflow_graph(database, sweep["workflow_id"]),
        fingerprints=sweep["fingerprints"],
        choices=choices,
        repeats=sweep["spec"]["repeats"],
        share=sweep["spec"]["run"]["share"],
        cells=sweep["cells"],
        clusters=clusters if any(clusters) else (),
    )
    submit(database, new, _cases(database, rows))
    return new.id


def _cases(database: Database, rows: Sequence[Mapping[str, Any]]) -> Iterator[NewCase]:
    for part in (rows[start : start + AT_ONCE] for start in range(0, len(rows), AT_ONCE)):
        inputs = queries.load_values(database, (digest for row in part for digest in row["input"].values()))
        for row in part:
            yield NewCase(
                row["id"],
                {name: inputs[digest] for name, digest in row["input"].items()},
                None if row["expected"] is None else row["expected"].encode(),
                row["tags"],
                row["workspace"],
                cluster=row["cluster"],
            )
