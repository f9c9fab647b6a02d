"""What was spent, as a document: by project, session, sweep, workflow, node, variant and model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from wtb.core.errors import InputError, meant_or_known
from wtb.core.serialization.plain_json import iso
from wtb.store.database import Database
from wtb.store.read import costs
from wtb.store.read.costs import DIMENSIONS, Which

Document = dict[str, Any]

NO_MODEL: Final = "(none)"  # spent without a call that names a model
_FIGURES: Final = ("usd", "tokens_in", "tokens_out", "attempts", "calls", "failed_attempts", "failed_usd")
_LEAST: Final = 1e-9  # of money: a difference of sums below that is rounding


def read_dimensions(given: str) -> list[str]:
    """The dimensions that a text names, separated by commas.

    Raises:
        InputError: One is not known; the message has a near match.
    """
    found = [name.strip() for name in given.split(",") if name.strip()]
    for name in found:
        if name not in DIMENSIONS:
            raise InputError(f"--by {name!r}: not known{meant_or_known(name, DIMENSIONS)}")
    if not found:
        raise InputError(f"--by: nothing is named; expected some of: {', '.join(DIMENSIONS)}")
    return list(dict.fromkeys(found))


def costs_document(database: Database, by: Sequence[str], which: Which) -> Document:
    """Rows by what was asked for, the dearest first, and the total. Failed attempts are in it, and shown apart.

    Figures: usd, tokens_in, tokens_out, attempts, calls, failed_attempts, failed_usd; attempts are None by model, and
    what is gone since has only usd.
    """
    rest = [name for name in by if name != "model"]
    tried = costs.of_attempts(database, rest, which)
    called = costs.of_calls(database, by, which)
    gone = [*costs.of_collected(database, by, which), *costs.of_deleted(database, by, which)]
    rows = _by_model(tried, called, rest) if "model" in by else _with_calls(tried, called, rest)
    made = [_row(by, row) for row in [*rows, *gone]]
    made.sort(key=lambda row: (-row["usd"], *(str(row[name]) for name in by)))
    whole = {name: sum(row[name] or 0 for row in [*tried, *gone] if name in row) for name in _FIGURES}
    return {
        "by": list(by),
        "since": iso(which.since),
        "rows": made,
        "total": {**whole, "calls": sum(row["calls"] for row in called)},
    }


def _key(row: Mapping[str, Any], rest: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in rest)


def _with_calls(tried: Iterable[Document], called: Iterable[Document], rest: Sequence[str]) -> list[Document]:
    counts = {_key(row, rest): row["calls"] for row in called}
    return [{**row, "calls": counts.get(_key(row, rest), 0)} for row in tried]


def _by_model(tried: Iterable[Document], called: Sequence[Document], rest: Sequence[str]) -> list[Document]:
    """Calls by their model; what attempts spent beyond them, and calls without a model, as one more of each."""
    named = [{**row, "attempts": None, "failed_attempts": None} for row in called if row["model"] is not None]
    left = []
    for row in tried:
        mine = [one for one in named if _key(one, rest) == _key(row, rest)]
        other = {name: row[name] - sum(one[name] for one in mine) for name in ("usd", "tokens_in", "tokens_out")}
        failed = row["failed_usd"] - sum(one["failed_usd"] for one in mine)
        unnamed = sum(one["calls"] for one in called if one["model"] is None and _key(one, rest) == _key(row, rest))
        if abs(other["usd"]) < _LEAST:
            other["usd"] = 0.0
        if any(other.values()) or unnamed:
            figures = {**other, "failed_usd": failed if abs(failed) >= _LEAST else 0.0, "calls": unnamed}
            left.append({**row, **figures, "model": NO_MODEL, "attempts": None, "failed_attempts": None})
    return named + left


def _row(by: Sequence[str], row: Mapping[str, Any]) -> Document:
    named = {name: row[name] for name in by}
    if "sweep" in by:
        named["sweep_name"] = row["sweep_name"]
    return named | {name: row.get(name) for name in _FIGURES}
