"""Rows that were added to a sweep after it was submitted, as its spec records them. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wtb.core.classes.frozen import frozen
from wtb.core.tree.stored_spec import StoredAddition, StoredSpec

KEY: Final = "added_rows"  # of a stored spec


@frozen(slots=True)
class Addition:
    """A combination that somebody added because of what a case of the sweep showed.

    Attributes:
        combination: Its number, and that of its row.
        base: The number of the combination that it was made from.
        changed: Node -> variant, where it differs from that one.
        case: The id of the case that suggested it.
        left_out: The numbers of the cases that do not count for it: those that suggested it, or what it was made from,
            and whatever shares a cluster with them.
        execution: The id of the execution that it was made from.
        at: The checkpoint that was named, if any.
        by: Who added it.
        reason: Why, for people.
        added_at: When, in seconds since the epoch.
        final: Whether what was planned had come to its end as planned by then.
    """

    combination: int
    base: int
    changed: Mapping[str, str]
    case: str
    left_out: tuple[int, ...]
    execution: str
    at: str | None
    by: str
    reason: str | None
    added_at: float
    final: bool

    def document(self) -> StoredAddition:
        """As it is stored: plain JSON."""
        return {
            "combination": self.combination,
            "base": self.base,
            "changed": dict(self.changed),
            "case": self.case,
            "left_out": list(self.left_out),
            "execution": self.execution,
            "at": self.at,
            "by": self.by,
            "reason": self.reason,
            "added_at": self.added_at,
            "final": self.final,
        }


def additions(spec: StoredSpec) -> list[Addition]:
    """Return the rows that were added to a sweep, given its stored spec, in the order of their numbers."""
    return [_read(row) for row in spec.get(KEY, ())]


def _read(stored: StoredAddition) -> Addition:
    return Addition(
        stored["combination"],
        stored["base"],
        stored["changed"],
        stored["case"],
        tuple(stored["left_out"]),
        stored["execution"],
        stored["at"],
        stored["by"],
        stored["reason"],
        stored["added_at"],
        stored["final"],
    )
