"""Pools of sweeps: runs of the same rows over the same cases as repeats of one sweep, which shows more than each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wtb.core.arguments import checked
from wtb.core.errors import ConflictError, InputError
from wtb.core.frozen import frozen
from wtb.core.status import FINAL_CELLS
from wtb.core.texts import plural
from wtb.core.tree.combinations import in_words
from wtb.core.tree.looks import case_digest
from wtb.core.tree.stored_spec import additions
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.store.database import Database
from wtb.store.housekeeping.pools import Source, insert_pool, sources_of
from wtb.store.read import evidence, queries
from wtb.store.tables.sweeps import SweepRow

NAMED = 3  # cases or nodes that an error names
# What two sweeps must have alike to be repeats of each other, as people call it.
_SETTINGS = {"evaluate": "evaluators", "on_failure": "on_failure", "failure_kinds": "failure_kinds"}


@frozen
class Pool:
    """The result of `pool`.

    Attributes:
        id: The id of the pool, which is a sweep.
        name: Its name.
        sweeps: The ids of the sweeps that it is made of, in their order.
        repeats: How many repeats it has.
        cells: How many cells.
    """

    id: str
    name: str
    sweeps: tuple[str, ...]
    repeats: int
    cells: int


@checked
@audited
def pool(context: Context, refs: Sequence[str], *, name: str | None = None) -> Pool:
    """Make one read-only sweep of several that ran the same rows over the same cases; their runs are its repeats.

    A case's score is the mean over them. Nothing runs, and the sweeps stay as they are. What changes in them later,
    such as scores, does not change the pool; they can be deleted after it. A pool among them stands for its own sweeps.

    Args:
        context: Where, and who pools them.
        refs: Two sweeps or more: ids, beginnings of ids, or names.
        name: What to call it; by default the name of the first with `-pool`.

    Returns:
        The pool.

    Raises:
        InputError: If there are fewer than two, one is there twice, or they differ in project, code, cases, evaluators
            or combinations.
        ConflictError: If one of them is not completed.
    """
    database = context.database
    rows = _flattened(database, [queries.find_sweep(database, ref) for ref in refs])
    if len(rows) < 2:
        raise InputError(f"a pool of {plural(len(rows), 'sweep')}; expected two or more", argument="refs")
    if name is not None and not 0 < len(name) <= 200:
        raise InputError("name: expected 1 to 200 characters", argument="name")
    for row in rows:
        _check_completed(database, row)
    contents = [_contents(database, row) for row in rows]
    sources = [_source(database, rows[0], contents[0], *other) for other in zip(rows, contents, strict=True)]
    called = name or f"{rows[0].name[:190]}-pool"
    pool_id = insert_pool(database, called, context.by, sources)
    repeats = sum(int(row.spec["repeats"]) for row in rows)
    return Pool(pool_id, called, tuple(row.id for row in rows), repeats, sum(row.cells for row in rows))


def check_no_pool(database: Database, sweep: SweepRow, what: str) -> None:
    """Reject a change of a pool.

    Args:
        database: Where it is.
        sweep: A sweep.
        what: What would be done to it, such as "resumed".

    Raises:
        ConflictError: If the sweep is a pool.
    """
    if sources := sources_of(database, sweep.id):
        raise ConflictError(
            f"sweep {sweep.name} ({sweep.id}) is a pool, and cannot be {what}: its cells are those of "
            f"{', '.join(sources)}. Change those, and pool them again"
        )


def _flattened(database: Database, rows: Sequence[SweepRow]) -> list[SweepRow]:
    """Return sweeps, with pools replaced by their sources."""
    by_id: dict[str, SweepRow] = {}
    via: dict[str, str] = {}
    for row in rows:
        sources = sources_of(database, row.id)
        for source in [queries.find_sweep(database, id) for id in sources] or [row]:
            if source.id in by_id:
                where = f"in {via[source.id]} and in {row.id}" if sources or via[source.id] != source.id else "twice"
                raise InputError(
                    f"sweep {source.name} ({source.id}) is there {where}; expected each once", argument="refs"
                )
            by_id[source.id], via[source.id] = source, row.id
    return list(by_id.values())


def _check_completed(database: Database, row: SweepRow) -> None:
    if row.kind == "single":
        raise InputError(f"{row.id} is a single execution; expected a sweep", argument="refs")
    counts = queries.cell_counts(database, row.id)
    missing = sum(count for status, count in counts.items() if status not in FINAL_CELLS)
    if row.status != "completed" or missing:
        raise ConflictError(
            f"sweep {row.name} ({row.id}) is {row.status}, with {plural(missing, 'cell')} without an outcome; expected "
            "completed sweeps: wait for it, or continue with `wtb resume`"
        )
    if additions(row.spec):
        raise InputError(
            f"sweep {row.name} ({row.id}) has rows that were added after results were seen, which are no repeats of "
            "any; expected sweeps as they were submitted",
            argument="refs",
        )


Contents = Mapping[str, tuple[int, int]]  # id of a case -> its digest, its number


def _contents(database: Database, row: SweepRow) -> Contents:
    # Cases are compared by content, because ids may be reused for changed cases.
    return {id: (case_digest(*content), number) for number, id, content in evidence.case_contents(database, row.id)}


def _source(database: Database, first: SweepRow, expected: Contents, row: SweepRow, present: Contents) -> Source:
    """Match a sweep with the first. Raises InputError if it is not a repeat of it."""
    both = f"{first.name} ({first.id}) and {row.name} ({row.id})"

    def different(what: str) -> InputError:
        return InputError(f"sweeps {both} {what}; expected repeats of the same sweep", argument="refs")

    if first.project != row.project:
        raise different("belong to different projects")
    if first.fingerprints != row.fingerprints:
        raise different(f"have different code of {_differing(first.fingerprints, row.fingerprints)}")
    choices = queries.choices(database, first.id)
    theirs = queries.choices(database, row.id)
    if sorted(map(_key, choices)) != sorted(map(_key, theirs)) or _baseline(first) != _baseline(row):
        raise different("compare different combinations")
    other = sorted({id for id in {*expected, *present} if expected.get(id, ())[:1] != present.get(id, ())[:1]})
    if other:
        more = f" and {len(other) - NAMED:,} more" if len(other) > NAMED else ""
        raise different(f"have different cases: {', '.join(other[:NAMED])}{more}")
    for key, called in _SETTINGS.items():
        if first.spec.get(key) != row.spec.get(key):
            raise different(f"have different {called}")
    if queries.measures(database, first.id) != queries.measures(database, row.id):
        raise different("have different metrics, or read them differently")
    numbers = {_key(choice): number for number, choice in enumerate(choices)}
    return Source(
        row,
        {number: numbers[_key(choice)] for number, choice in enumerate(theirs)},
        {number: expected[id][1] for id, (_, number) in present.items()},
    )


def _baseline(row: SweepRow) -> Any:
    return row.spec.get("baseline_row")


def _key(choice: Mapping[str, str]) -> str:
    return in_words(dict(sorted(choice.items())))


def _differing(first: Mapping[str, Mapping[str, str]], other: Mapping[str, Mapping[str, str]]) -> str:
    nodes = sorted(node for node in {*first, *other} if first.get(node) != other.get(node))
    return ", ".join(nodes[:NAMED]) + (" and others" if len(nodes) > NAMED else "")
