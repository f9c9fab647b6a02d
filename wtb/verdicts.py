"""What a comparison of two sweeps comes to, and why: worse, better, same, unclear or cannot tell. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Document = Mapping[str, Any]

WORSE, BETTER, SAME, UNCLEAR, CANNOT_TELL = "worse", "better", "same", "unclear", "cannot tell"
SIGNIFICANT = 0.05
BY_CHANCE = "could be chance"


@dataclass(frozen=True)
class Facts:
    """What the verdict on two sweeps rests on.

    metrics: name -> direction, of what both are scored by; unknown: others that a tolerance names. cells: how many are
    compared; later: how many the later sweep has. missing: how many have no outcome in the earlier sweep, and in the
    later. unpaired: how many of the later one fail and are compared with nothing. unscored: how many scores failed that
    did not before.
    """

    rows: Sequence[Document]
    metrics: Mapping[str, str]
    cells: int
    later: int
    missing: tuple[int, int]
    unpaired: int
    unscored: int
    changed: Document
    unknown: Sequence[str] = ()


def of_metric(
    better: str, found: Document, *, changed: bool, was_scored: bool, measured: bool = False
) -> tuple[str, str | None]:
    """The verdict on one row by one metric, and what has to be said of it.

    changed: whether anything but the results was. was_scored: whether the row has any score in the earlier sweep.
    measured: of a metric that is never twice the same, so that a difference between a few cases says nothing.
    """
    if not found["n_pairs"]:
        return CANNOT_TELL, "no case has a score in both sweeps" if was_scored else "it had no score before"
    fall = -found["delta"] if better == "higher" else found["delta"]
    p, tolerance = found["p_adjusted"], found["tolerance"]
    clear = p is not None and p < SIGNIFICANT
    if tolerance is not None:
        if fall > tolerance and not math.isclose(fall, tolerance):
            return WORSE, f"beyond its tolerance of {tolerance:g}"
        return BETTER if clear and fall < 0 else SAME, None
    if not found["delta"]:
        return SAME, None
    if clear:
        return (WORSE if fall > 0 else BETTER), None
    if fall > 0 and not measured and 2.0 ** (1 - found["n_differ"]) >= SIGNIFICANT:
        if not changed:
            return UNCLEAR, "nothing that WTB records was changed, so this may be noise; a tolerance says what counts"
        cases = "1 case that differs" if found["n_differ"] == 1 else f"{found['n_differ']} cases that differ"
        return WORSE, f"with {cases} no test can tell, so any fall counts"
    return UNCLEAR, BY_CHANCE


def of_row(counts: Mapping[str, int], metrics: Mapping[str, Document], *, gone: bool, succeeded: bool) -> str:
    """The verdict on one combination.

    gone: whether it was scored by a metric by which it cannot be compared. succeeded: whether any cell of it did, in
    both sweeps.
    """
    found = [one["verdict"] for one in metrics.values()]
    if counts["newly_failed"] or WORSE in found:
        return WORSE
    told = [verdict for verdict in found if verdict != CANNOT_TELL]
    if gone or (not told and not counts["mended"] and (found or not succeeded)):
        return CANNOT_TELL
    if UNCLEAR in told:
        return UNCLEAR
    return BETTER if counts["mended"] or BETTER in told else SAME


def of_sweep(facts: Facts) -> str:
    """The verdict on the whole."""
    found = {row["verdict"] for row in facts.rows}
    if WORSE in found:
        return WORSE
    lost = facts.changed["metrics"]["removed"]
    if not facts.cells or facts.missing[1] or CANNOT_TELL in found or (lost and not facts.metrics):
        return CANNOT_TELL
    return next((verdict for verdict in (UNCLEAR, BETTER) if verdict in found), SAME)


def sentences(facts: Facts) -> list[str]:
    """Why, the worst first; empty where nothing is different and nothing is left out."""
    return [*_nothing_in_common(facts), *_worse(facts), *_others(facts), *_left_out(facts)]


def _nothing_in_common(facts: Facts) -> Iterator[str]:
    cases = facts.changed["cases"]
    if not facts.changed["combinations"]["common"]:
        yield "the two sweeps have no combination in common"
    if not cases["common"]:
        yield "the two sweeps have no case in common"
    elif len(cases["changed"]) == cases["common"]:
        yield "every case that both sweeps have was changed"
    if facts.changed["metrics"]["removed"] and not facts.metrics:
        yield "the two sweeps have no metric in common"
    if 0 < facts.cells < facts.later / 2:
        yield f"{facts.later - facts.cells:,} of {_count(facts.later, 'cell')} are compared with nothing"


def _worse(facts: Facts) -> Iterator[str]:
    failed = sum(row["cells"]["newly_failed"] for row in facts.rows) - facts.unscored
    if failed:
        yield f"{_count(failed, 'cell')} that succeeded {'fails' if failed == 1 else 'fail'} now"
    if facts.unscored:
        yield f"{_count(facts.unscored, 'score')} failed that {'was' if facts.unscored == 1 else 'were'} there before"
    for name, better in facts.metrics.items():
        fallen = [row for row in facts.rows if row["metrics"][name]["verdict"] == WORSE]
        if not fallen:
            continue
        row = max(fallen, key=lambda one: abs(one["metrics"][name]["delta"]))
        one, fell = row["metrics"][name], direction(better, worse=True)
        before, after = (figure(one[key], one["delta"]) for key in ("before", "after"))
        said = f"by {figure(abs(one['delta']))}, from {before} to {after}"
        why = one["because"] or chance(one)
        if len(fallen) == 1:
            yield f"{name} of {called(row)} {fell} {said} ({why})"
        else:
            where = f"{len(fallen):,} of {_count(len(facts.rows), 'combination')}"
            yield f"{name} {fell} in {where}, most in {called(row)}: {said} ({why})"


def _others(facts: Facts) -> Iterator[str]:
    nothing = sum(row["verdict"] == CANNOT_TELL and not row["metrics"] for row in facts.rows)
    if nothing and facts.cells:
        yield f"in {_count(nothing, 'combination')} no cell succeeded in both sweeps"
    if facts.unpaired:
        yield f"{_count(facts.unpaired, 'cell')} that fail{'s' if facts.unpaired == 1 else ''} cannot be compared"
    mended = sum(row["cells"]["mended"] for row in facts.rows)
    if mended:
        yield f"{_count(mended, 'cell')} that failed {'succeeds' if mended == 1 else 'succeed'} now"
    for name, better in facts.metrics.items() if facts.cells else ():
        found = [row["metrics"][name] for row in facts.rows]
        yield from (f"{name} {said}" for said in _of_metric(found, better))


def _of_metric(found: Sequence[Document], better: str) -> Iterator[str]:
    """What one metric did where it is not worse, over the rows: of each kind in how many."""
    kinds: dict[str, list[float]] = {}
    for one in found:
        if said := _kind(one, better):
            kinds.setdefault(said, []).append(abs(one["delta"] or 0.0))
    for said, sizes in sorted(kinds.items()):
        yield said.format(where=_count(len(sizes), "combination"), most=figure(max(sizes)))


def _kind(one: Document, better: str) -> str | None:
    went = direction(better, worse=(one["delta"] or 0.0) * (1 if better == "higher" else -1) < 0)
    if one["verdict"] == BETTER:
        return f"{went} in {{where}}"
    if one["verdict"] == UNCLEAR:
        noise = "" if one["because"] == BY_CHANCE else f" ({one['because']})"
        return f"differs in {{where}} by what could be chance{noise}"
    if one["verdict"] == CANNOT_TELL:
        return "cannot be compared in {where}"
    if one["verdict"] == SAME and one["delta"]:
        why = "within its tolerance" if went == direction(better, worse=True) else "which could be chance"
        return f"{went} in {{where}} by up to {{most}}, {why}"
    if one["verdict"] == SAME and one["n_differ"]:
        return "differs in {where} by case, and not by its mean"
    return None


def _left_out(facts: Facts) -> Iterator[str]:
    combinations, cases = facts.changed["combinations"], facts.changed["cases"]
    for side, key in (("later", "added"), ("earlier", "removed")):
        parts = [
            _count(count, noun)
            for count, noun in ((combinations[key], "combination"), (len(cases[key]), "case"))
            if count
        ]
        if parts:
            yield f"left out: {' and '.join(parts)} of the {side} sweep only"
    if cases["changed"]:
        yield f"left out: {_count(len(cases['changed']), 'case')} of which the input or what is expected was changed"
    for side, count in zip(("earlier", "later"), facts.missing, strict=True):
        if count:
            yield f"left out: {_count(count, 'cell')} without an outcome in the {side} sweep"
    for side, key in (("earlier", "removed"), ("later", "added")):
        if names := facts.changed["metrics"][key]:
            yield f"only the {side} sweep is scored by {', '.join(names)}"
    if facts.unknown:
        yield f"a tolerance is given for {', '.join(facts.unknown)}, by which not both sweeps are scored"


def called(row: Document) -> str:
    """A row's combination in words."""
    return " ".join(f"{node}={variant}" for node, variant in row["combination"].items()) or "the workflow as it is"


def direction(better: str, *, worse: bool) -> str:
    """Which way a metric went: `rose` or `fell`."""
    return "fell" if (better == "higher") == worse else "rose"


def chance(one: Document) -> str:
    p = one["p_adjusted"]
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def figure(value: float, difference: float | None = None) -> str:
    """To four significant figures, and to so many that a difference from it is seen."""
    smallest = min(abs(value), abs(difference)) if difference else abs(value)
    if not 1e-6 <= smallest <= abs(value) < 1e15:
        return f"{value:.4g}"
    digits = 3 - math.floor(math.log10(abs(value)))
    if difference:
        digits = max(digits, 1 - math.floor(math.log10(smallest)))
    return f"{value:,.{max(0, digits)}f}".rstrip("0").rstrip(".") if digits > 0 else f"{value:,.0f}"


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
