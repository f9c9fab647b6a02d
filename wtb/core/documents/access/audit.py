"""The audit log as `wtb audit` prints it."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from wtb.core.values import Json

Outcome = Literal["done", "failed", "unknown"]


class AuditedCall(TypedDict):
    """What somebody asked for that changes something, and how it ended.

    The outcome is unknown where it has not ended yet, or whatever carried it out was killed. Of the result only what
    names it is kept, such as the id of a sweep.
    """

    number: int
    at: str
    by: str
    via: str
    address: str | None
    token: str | None
    operation: str
    arguments: dict[str, Json]
    outcome: Outcome
    result: dict[str, Json]
    error: str | None
    ended_at: str | None


class AuditDocument(TypedDict):
    """Who changed what, the newest first."""

    audit: list[AuditedCall]


class AuditHead(TypedDict):
    """The last row of the log: number 0 where there is none. `head` is both, as `wtb audit verify` takes it."""

    number: int
    hash: str
    head: str


class PrunedAudit(TypedDict):
    """How many rows were removed, and up to which; null where none was."""

    rows: int
    upto: int | None


class AuditVerification(TypedDict):
    """What a check of the log found.

    `checked_heads` are numbers of heads that were held against their rows, `pruned_heads` of those whose rows are gone.
    """

    ok: bool
    rows: int
    first: int | None
    head: AuditHead
    checked_heads: list[int]
    pruned_heads: list[int]
    pruned: PrunedAudit | None
    problems: list[str]
