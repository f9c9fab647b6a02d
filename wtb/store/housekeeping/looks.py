"""Looks: what was tried over which cases. They stay when sweeps go, since results that were seen are not unseen."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import sqlalchemy as sa

from wtb.core.classes.frozen import frozen
from wtb.core.ids import DEFAULT_PROJECT, new_id
from wtb.core.tree.looks import CaseSketch, baseline_key, case_digest, combination_keys, without_case
from wtb.store.bulk import fetch_records
from wtb.store.database import Database
from wtb.store.tables.schema import cases, is_kept, looks, metrics, now, scores

if TYPE_CHECKING:
    from wtb.core.tree.stored_spec import StoredSpec

MOST = 1_000  # earlier looks that count, the newest

Claim = tuple[str, str, str]  # metric, direction of the difference from the baseline or "best", key of the combination


@frozen
class LookRow:
    """A sweep as later ones count it.

    Attributes:
        sweep_id: The sweep, which may be deleted.
        final: Whether its cases had been kept for the end.
        cases: How many different cases it has.
        sketch: The smallest of their digests.
        baseline: The key of the code that its combinations are compared with.
        combinations: The keys of what they change.
        metrics: Those that it scored; None while its scores are there to show it.
        claims: The differences that it showed.
        extended_id: The sweep that this look was before its extension; None of one that is as it was looked at.
    """

    sweep_id: str
    project: str
    session_id: str
    workflow: str
    at: float
    final: bool
    cases: int
    sketch: bytes
    baseline: str
    combinations: Sequence[str]
    metrics: Sequence[str] | None
    claims: Sequence[Sequence[str]]
    extended_id: str | None


def insert_look(
    connection: sa.Connection,
    owner: Mapping[str, str],
    spec: StoredSpec,
    keys: tuple[str, list[str]],
    sketch: CaseSketch,
) -> None:
    """Record a sweep that becomes visible as a look.

    Args:
        connection: In the transaction that makes the sweep visible.
        owner: Its `sweep_id`, `project`, `session_id` and `workflow`.
        spec: The sweep as it is stored.
        keys: As `look_keys` returns them.
        sketch: Its cases.
    """
    count, digests = sketch.finish()
    baseline, combinations = keys
    row = {**owner, "final": bool(spec.get("final")), "cases": count, "sketch": digests}
    connection.execute(looks.insert().values(**row, baseline=baseline, combinations=combinations))


def look_keys(
    choices: Sequence[Mapping[str, str]], spec: StoredSpec, code: Mapping[str, Mapping[str, str]]
) -> tuple[str, list[str]]:
    """Return the key of a sweep's baseline, and those of what its combinations change."""
    baseline = spec.get("baseline_row")
    keys = combination_keys(choices, baseline, code)
    return baseline_key(baseline, code), list(dict.fromkeys(key for key in keys if key))


def has_scores(connection: sa.Connection, sweep_id: str) -> bool:
    """Return whether a sweep has shown anything yet."""
    query = sa.select(scores.c.sweep_id).where(scores.c.sweep_id == sweep_id, scores.c.value.is_not(None))
    return connection.execute(query.limit(1)).first() is not None


def extend_look(connection: sa.Connection, sweep_id: str, keys: tuple[str, list[str]], *, seen: bool) -> None:
    """Record that a sweep has other combinations or cases from now on.

    Args:
        connection: In the transaction that adds them; the rows of the cases are there already.
        sweep_id: The sweep.
        keys: As `look_keys` returns them.
        seen: Whether it has shown anything. What it showed counts as an earlier look from now on.
    """
    this = looks.c.sweep_id == sweep_id
    past = connection.execute(sa.select(looks).where(this)).mappings().first()
    if past is None:
        return
    # What the original of a copy showed is a look already.
    twin = sa.select(looks.c.sweep_id).where(looks.c.at == past["at"], looks.c.sketch == past["sketch"], ~this)
    if seen and connection.execute(twin.limit(1)).first() is None:
        row = {**past, "sweep_id": new_id(), "metrics": _scored_names(connection, sweep_id), "extended_id": sweep_id}
        connection.execute(looks.insert().values(row))
    sketch = CaseSketch()
    content = sa.select(cases.c.input, cases.c.expected, cases.c.workspace).where(cases.c.sweep_id == sweep_id, is_kept)
    for case in connection.execute(content):
        sketch.add(case_digest(*case))
    count, digests = sketch.finish()
    changed = {"cases": count, "sketch": digests, "baseline": keys[0], "combinations": keys[1]}
    connection.execute(looks.update().where(this).values(**changed, **({"at": now(), "claims": []} if seen else {})))


def _has_value() -> sa.ColumnElement[bool]:
    """Whether a metric of `metrics` has any score."""
    which = [scores.c.sweep_id == metrics.c.sweep_id, scores.c.metric == metrics.c.name, scores.c.value.is_not(None)]
    return sa.exists().where(*which)


def _scored_names(connection: sa.Connection, sweep_id: str) -> list[str]:
    names = sa.select(metrics.c.name).where(metrics.c.sweep_id == sweep_id, _has_value()).order_by(metrics.c.number)
    return list(connection.scalars(names))


def find_look(database: Database, sweep_id: str) -> LookRow | None:
    """Return the look that a sweep is; None if it is none, as a single execution."""
    found = database.records(LookRow, sa.select(looks).where(looks.c.sweep_id == sweep_id))
    return found[0] if found else None


def earlier_looks(database: Database, look: LookRow, before: float) -> list[LookRow]:
    """Return the looks of the same workflow and project before some time, the newest first.

    In the default project they are of the same session.
    """
    owner = [looks.c.project == look.project]
    if look.project == DEFAULT_PROJECT:
        owner.append(looks.c.session_id == look.session_id)
    query = (
        sa.select(looks)
        .where(looks.c.workflow == look.workflow, *owner, looks.c.at < before, looks.c.sweep_id != look.sweep_id)
        .order_by(looks.c.at.desc(), looks.c.sweep_id.desc())
        .limit(MOST)
    )
    with database.read() as connection:
        rows = fetch_records(connection, LookRow, query)
    by_content = {(row.at, row.sketch): row for row in rows}  # a sweep and its copy are one look
    by_content.pop((look.at, look.sketch), None)
    return list(by_content.values())


def scored_sweeps(database: Database, sweep_ids: Collection[str], metric: str | None) -> set[str]:
    """Return those of some sweeps that are there and have a score by a metric; by any, where it is None."""
    query = sa.select(metrics.c.sweep_id).where(metrics.c.sweep_id.in_(list(sweep_ids)), _has_value())
    if metric is not None:
        query = query.where(metrics.c.name == metric)
    return set(database.scalars(query.distinct()))


def note_claims(database: Database, look: LookRow, claims: Iterable[Claim]) -> None:
    """Add differences that a sweep has shown to its look; what it showed once is not unseen."""
    before = {tuple(claim) for claim in look.claims}
    if added := set(claims) - before:
        both = [list(claim) for claim in sorted(before | added)]
        with database.write(is_note=True) as connection:
            connection.execute(looks.update().where(looks.c.sweep_id == look.sweep_id).values(claims=both))


def note_scored(connection: sa.Connection, which: sa.ColumnElement[bool]) -> None:
    """Record what sweeps scored, since their scores go. which: of `looks`."""
    ids = sa.select(looks.c.sweep_id).where(which, looks.c.metrics.is_(None))
    for sweep_id in list(connection.scalars(ids)):
        scored = _scored_names(connection, sweep_id)
        connection.execute(looks.update().where(looks.c.sweep_id == sweep_id).values(metrics=scored))


def forget_case(connection: sa.Connection, project: str, sweep_id: str, number: int) -> None:
    """Remove the digest of a case that is being erased from all looks of its project."""
    content = sa.select(cases.c.input, cases.c.expected, cases.c.workspace)
    row = connection.execute(content.where(cases.c.sweep_id == sweep_id, cases.c.number == number, is_kept)).first()
    if row is None:
        return
    digest = case_digest(*row)
    rows = connection.execute(sa.select(looks.c.sweep_id, looks.c.sketch).where(looks.c.project == project))
    for look, sketch in rows.all():
        if (kept := without_case(sketch, digest)) != sketch:
            connection.execute(looks.update().where(looks.c.sweep_id == look).values(sketch=kept))
