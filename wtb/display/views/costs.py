"""What was spent, as a document: by project, session, sweep, workflow, node, variant and model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from wtb.core.documents.costs import CostRow, CostsDocument, CostTotal
from wtb.core.serialization.plain_json import iso
from wtb.store.database import Database
from wtb.store.read import costs
from wtb.store.read.costs import Which

Document = dict[str, Any]

NO_MODEL: Final = "(none)"  # spent without a call that names a model
_FIGURES: Final = (
    *("usd", "tokens_in", "tokens_out", "attempts", "calls"),
    *("failed_attempts", "failed_usd", "innocent_attempts", "innocent_usd"),
)
_OF_ATTEMPTS = dict.fromkeys(("attempts", "failed_attempts", "innocent_attempts"))  # not known by model
_LEAST: Final = 1e-9  # of money: a difference of sums below that is rounding


def costs_document(database: Database, by: Sequence[str], which: Which) -> CostsDocument:
    """Rows by what was asked for, the dearest first, and the total.

    Failed attempts are in it, and shown apart; so are innocent ones, which ended with the process of another attempt.
    Attempts are None by model, and what is gone since has only usd.
    """
    rest = [name for name in by if name != "model"]
    tried = costs.of_attempts(database, rest, which)
    called = costs.of_calls(database, by, which)
    gone = [*costs.of_collected(database, by, which), *costs.of_deleted(database, by, which)]
    rows = _by_model(tried, called, rest) if "model" in by else _with_calls(tried, called, rest)
    found = sorted([*rows, *gone], key=lambda row: (-row["usd"], *(str(row[name]) for name in by)))
    whole = {name: sum(row[name] or 0 for row in [*tried, *gone] if name in row) for name in _FIGURES}
    return {
        "by": list(by),
        "since": iso(which.since),
        "rows": [_row(by, row) for row in found],
        "total": cast("CostTotal", {**whole, "calls": sum(row["calls"] for row in called)}),
    }


def _key(row: Mapping[str, Any], rest: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in rest)


def _with_calls(tried: Iterable[Document], called: Iterable[Document], rest: Sequence[str]) -> list[Document]:
    counts = {_key(row, rest): row["calls"] for row in called}
    return [{**row, "calls": counts.get(_key(row, rest), 0)} for row in tried]


def _by_model(tried: Iterable[Document], called: Sequence[Document], rest: Sequence[str]) -> list[Document]:
    """Calls by their model; what attempts spent beyond them, and calls without a model, as one more of each."""
    named = [{**row, **_OF_ATTEMPTS} for row in called if row["model"] is not None]
    remaining = []
    for row in tried:
        mine = [one for one in named if _key(one, rest) == _key(row, rest)]
        other = {name: row[name] - sum(one[name] for one in mine) for name in ("usd", "tokens_in", "tokens_out")}
        apart = {name: row[name] - sum(one[name] for one in mine) for name in ("failed_usd", "innocent_usd")}
        unnamed = sum(one["calls"] for one in called if one["model"] is None and _key(one, rest) == _key(row, rest))
        if abs(other["usd"]) < _LEAST:
            other["usd"] = 0.0
        if any(other.values()) or unnamed:
            apart = {name: usd if abs(usd) >= _LEAST else 0.0 for name, usd in apart.items()}
            remaining.append({**row, **other, **apart, **_OF_ATTEMPTS, "calls": unnamed, "model": NO_MODEL})
    return named + remaining


def _row(by: Sequence[str], row: Mapping[str, Any]) -> CostRow:
    named = {name: row[name] for name in by}
    if "sweep" in by:
        named["sweep_name"] = row["sweep_name"]
    return cast("CostRow", named | {name: row.get(name) for name in _FIGURES})
