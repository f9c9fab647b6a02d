"""What an extension of a sweep adds, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from wtb.core.texts import listed_names, money, plural, printable
from wtb.core.tree.combinations import in_words

_MOST = 10  # combinations that are listed


class Planned(Protocol):
    """What would be added, as `plan_extension` returns it."""

    @property
    def sweep(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def cases(self) -> int: ...
    @property
    def present(self) -> int: ...
    @property
    def held_out(self) -> int: ...
    @property
    def combinations(self) -> Sequence[Mapping[str, str]]: ...
    @property
    def repeats(self) -> int: ...
    @property
    def cells(self) -> int: ...
    @property
    def node_runs(self) -> tuple[float, float | None]: ...
    @property
    def usd(self) -> tuple[float, float | None] | None: ...
    @property
    def notes(self) -> Sequence[str]: ...


class Added(Planned, Protocol):
    """What was added, as `extend` returns it."""

    @property
    def failed(self) -> int: ...
    @property
    def restarted(self) -> int: ...
    @property
    def queued(self) -> bool: ...
    @property
    def status(self) -> str: ...
    @property
    def problem(self) -> str | None: ...
    @property
    def ended(self) -> object: ...


def planned_in_words(planned: Planned) -> str:
    """Return what an extension would add, as lines."""
    lines = [
        f"{planned.name} ({planned.sweep}): {plural(planned.cells, 'new cell')}{_of_what(planned)}",
        f"node runs: {_range(planned.node_runs)}; cells that are there stay as they are",
        "price: " + ("not known" if planned.usd is None else f"about {_price(planned.usd)}, by what this sweep cost"),
        *(f"  {in_words(choices)}" for choices in planned.combinations[:_MOST]),
    ]
    if len(planned.combinations) > _MOST:
        lines.append(f"  and {len(planned.combinations) - _MOST:,} more combinations")
    return "\n".join([*map(printable, lines), *_notes(planned)])


def added_in_words(added: Added) -> list[str]:
    """Return what an extension has added, and who runs it, as lines."""
    name = f"sweep {added.name} ({added.sweep})"
    again = [f"{name}: {plural(added.restarted, 'cell')} of stopped combinations run again"] if added.restarted else []
    if not added.cells:
        tail = [_who_runs(added)] if again and added.ended is None else []
        return [*(again or [f"{name}: nothing new to add"]), *tail, *_notes(added)]
    lines = [
        f"{name}: {plural(added.cells, 'cell')} added{_of_what(added)} (about {_range(added.node_runs)} node runs)"
    ]
    if added.failed:
        lines.append(f"{plural(added.failed, 'cell')} failed before they differ, as those of other combinations did")
    if added.ended is None:
        lines.append(_who_runs(added))
    return [*map(printable, [*again, *lines]), *_notes(added)]


def _of_what(planned: Planned) -> str:
    parts = []
    if planned.cases:
        parts.append(plural(planned.cases, "case"))
    if planned.combinations:
        parts.append(plural(len(planned.combinations), "combination"))
    return f" of {listed_names(parts)}" if parts else ""


def _notes(planned: Planned) -> list[str]:
    notes = list(planned.notes)
    if planned.held_out:
        notes.insert(0, f"{plural(planned.held_out, 'case')} left out: the holdout decides which of them run")
    if planned.present:
        notes.insert(0, f"{plural(planned.present, 'case')} in the sweep already: skipped")
    return [printable(f"note: {note}") for note in notes]


def _range(amount: tuple[float, float | None]) -> str:
    low, high = amount
    if high is None:
        return f"at least {low:,.0f}"
    return f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"


def _price(amount: tuple[float, float | None]) -> str:
    low, high = amount
    if high is None:
        return f"at least {money(low)}"
    return money(low) if low == high else f"{money(low)} to {money(high)}"


def _who_runs(added: Added) -> str:
    if added.status == "paused":
        return f"it waits, since the sweep is paused: wtb resume {added.sweep}"
    if added.queued:
        because = f"; {added.problem}" if added.problem else ""
        return f"it is for the workers{because}; follow it with: wtb watch {added.sweep}"
    return f"run it with: wtb resume {added.sweep}"
