"""What was spent, as a document: by project, session, sweep, workflow, node, variant, model and tool."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, cast

from wtb.core.documents.costs import CostRow, CostsDocument, CostTotal
from wtb.core.serialization.plain_json import iso
from wtb.store.database import Database
from wtb.store.read import costs
from wtb.store.read.costs import Spent, Which

NO_MODEL: Final = "(none)"  # spent without a call that names a model
_FIGURES: Final = (
    *("usd", "tokens_in", "tokens_out", "attempts", "calls"),
    *("failed_attempts", "failed_usd", "innocent_attempts", "innocent_usd"),
)
_OF_ATTEMPTS: Final = dict.fromkeys(("attempts", "failed_attempts", "innocent_attempts"))  # not known by model
_OF_TOOLS: Final = ("failed_calls", "duration_s", "reversed_calls")
_OF_CALLS: Final = ("usd", "tokens_in", "tokens_out")
_APART: Final = ("failed_usd", "innocent_usd")
_LEAST: Final = 1e-9  # of money: a difference of sums below that is rounding


def costs_document(database: Database, by: Sequence[str], which: Which) -> CostsDocument:
    """Rows by what was asked for, the dearest first, and the total.

    Failed attempts are in it, and shown apart; so are innocent ones, which ended with the process of another attempt.
    Attempts are None by model, and what is gone since has only usd. By tool the rows are of calls of tools.
    """
    rest = [name for name in by if name not in ("model", "tool")]
    tried = costs.of_attempts(database, rest, which)
    called = (costs.of_tools if "tool" in by else costs.of_calls)(database, by, which)
    gone = [*costs.of_collected(database, by, which), *costs.of_deleted(database, by, which)]
    if "tool" in by:
        rows = called
    else:
        rows = [*(_by_model if "model" in by else _with_calls)(tried, called, rest), *gone]
    found = sorted(rows, key=lambda row: (-row.amount("usd"), *map(str, row.key(by))))
    whole = {name: sum(row.amount(name) for row in [*tried, *gone]) for name in _FIGURES}
    of_tools = {name: sum(row.amount(name) for row in rows) for name in _OF_TOOLS} if "tool" in by else {}
    return {
        "by": list(by),
        "since": iso(which.since),
        "rows": [_row(by, row) for row in found],
        "total": cast("CostTotal", {**whole, "calls": sum(row.amount("calls") for row in called), **of_tools}),
        "unknown": costs.unknown_costs_of(database, which),
    }


def _with_calls(tried: Iterable[Spent], called: Iterable[Spent], rest: Sequence[str]) -> list[Spent]:
    counts = {row.key(rest): row.amount("calls") for row in called}
    return [row.but(calls=counts.get(row.key(rest), 0)) for row in tried]


def _by_model(tried: Iterable[Spent], called: Sequence[Spent], rest: Sequence[str]) -> list[Spent]:
    """Calls by their model; what attempts spent beyond them, and calls without a model, as one more of each."""
    named = [row.but(**_OF_ATTEMPTS) for row in called if row.names["model"] is not None]
    remaining = []
    for row in tried:
        mine = [one for one in named if one.key(rest) == row.key(rest)]
        beyond = {name: row.amount(name) - sum(one.amount(name) for one in mine) for name in (*_OF_CALLS, *_APART)}
        other, apart = ({name: beyond[name] for name in names} for names in (_OF_CALLS, _APART))
        nameless = (one for one in called if one.names["model"] is None and one.key(rest) == row.key(rest))
        unnamed = sum(one.amount("calls") for one in nameless)
        if abs(other["usd"]) < _LEAST:
            other["usd"] = 0.0
        if any(other.values()) or unnamed:
            apart = {name: usd if abs(usd) >= _LEAST else 0.0 for name, usd in apart.items()}
            left = row.but(**other, **apart, **_OF_ATTEMPTS, calls=unnamed)
            remaining.append(Spent({**left.names, "model": NO_MODEL}, left.figures))
    return named + remaining


def _row(by: Sequence[str], row: Spent) -> CostRow:
    names = [*by, *(["sweep_name"] if "sweep" in by else [])]
    found = {name: row.names[name] for name in names}
    figures = (*_FIGURES, *_OF_TOOLS) if "tool" in by else _FIGURES
    return cast("CostRow", {**found, **{name: row.figures.get(name) for name in figures}})
