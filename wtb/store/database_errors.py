"""What the errors of a database mean: whether waiting helps, and whether to try again."""

from __future__ import annotations

from wtb.core.errors import StoreAway, StoreError

QUERY_CANCELED = "57014"  # a statement took longer than it may
LOCK_NOT_AVAILABLE = "55P03"  # PostgreSQL gave up waiting for a row that another transaction has locked
# What PostgreSQL answers where waiting would not help. Before a session begins there are no codes, only words.
_REFUSALS = ("authentication failed", "does not exist", "no pg_hba.conf entry", "no password supplied", "not permitted")


def sqlstate(error: StoreError) -> str | None:
    """Return the code of PostgreSQL's error, where one is the cause."""
    cause = error.__cause__
    return getattr(getattr(cause, "orig", cause), "sqlstate", None)


def was_deadlock(error: StoreError) -> bool:
    """Return whether a transaction was ended for another to go on, so that it can be made again."""
    return sqlstate(error) == "40P01"


def gave_way(error: StoreError) -> bool:
    """Return whether a transaction was ended since others have its rows, so that it can be made again."""
    return was_deadlock(error) or sqlstate(error) == LOCK_NOT_AVAILABLE


def is_disk_full(error: StoreError) -> bool:
    """Return whether a write failed because the disk of the database is full."""
    return sqlstate(error) == "53100" or "disk is full" in str(getattr(error.__cause__, "orig", error.__cause__))


def out_of_reach(text: str) -> StoreError:
    return StoreError(text) if any(refusal in text for refusal in _REFUSALS) else StoreAway(text)


def first_line(error: BaseException | None) -> str:
    """Return the first line of what a driver says; the others are of its own matters."""
    return str(error).strip().partition("\n")[0]
