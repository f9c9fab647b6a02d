"""The audit log as people read, verify and prune it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

from wtb.config.credentials import AUDIT_KEY, credential
from wtb.core.arguments import Count, checked
from wtb.core.documents.access import AuditedCall, AuditHead, AuditVerification, PrunedAudit
from wtb.core.errors import InputError
from wtb.core.serialization.plain_json import iso
from wtb.operations.auditing import audited, note
from wtb.operations.context import Context
from wtb.operations.registry import id_of_spelling
from wtb.store.access import audit as store
from wtb.store.access.audit import BEFORE_ALL, Head, hash_of, is_signed, signature_of
from wtb.store.database import Database
from wtb.store.tables.access import AuditRow

MOST_PROBLEMS = 20
_UNKNOWN = ""  # the hash of a row that is gone


@checked
def list_audit(
    context: Context,
    *,
    by: str | None = None,
    command: str | None = None,
    token: str | None = None,
    since: datetime | None = None,
    before: Count | None = None,
    limit: Count = 100,
) -> list[AuditedCall]:
    """List changes in the audit log, newest first.

    Args:
        context: Where.
        by: Only what somebody of this name did.
        command: Only this operation, by its id or the words of its command, or `sign-in` and `sign-out`.
        token: Only what was done by the token of this name.
        since: Only what was done then or later.
        before: Only what has a smaller number: the last one seen, to read on.
        limit: Maximum number.

    Returns:
        A document for each.
    """
    after = None if since is None else since.timestamp()
    operation = None if command is None else id_of_spelling(command) or command
    calls = store.calls(
        context.database, by=by, operation=operation, token=token, since=after, before=before, limit=limit
    )
    return [_document(first, last) for first, last in calls]


@checked
def audit_head(context: Context) -> AuditHead:
    """Return the head of the audit log, to be kept where whoever could change the log cannot change it.

    Args:
        context: Where.

    Returns:
        Number and hash of the last row.
    """
    return _head_document(store.head(context.database))


@checked
def verify_audit(context: Context, heads: Sequence[str] = ()) -> AuditVerification:
    """Check that no row of the audit log was changed, removed, moved or added in between.

    With a key in `WTB_AUDIT_KEY`, what was pruned has to be signed by it: whoever can write to the database can remove
    rows and say that they were pruned, but not sign that.

    Args:
        context: Where.
        heads: Heads that were published, as `NUMBER:HASH`. Without one, a log that was cut off at its end or written
            anew as a whole cannot be told from a good one.

    Returns:
        What was checked, what was pruned, and what is wrong.

    Raises:
        InputError: If something is no head.
    """
    return _Verification(context.database, [_parse(text) for text in heads]).document()


@checked
@audited
def prune_audit(context: Context, before: datetime) -> PrunedAudit:
    """Remove the rows of the audit log that are older than a time; the log says so from then on, and which.

    The newest row stays, whatever its age. With a key in `WTB_AUDIT_KEY`, what the log says of it is signed.

    Args:
        context: Where, and who does it.
        before: The time.

    Returns:
        How many rows were removed, and up to which.
    """
    last = store.last_before(context.database, before.timestamp())
    if last is None:
        return {"rows": 0, "upto": None}
    # The note of the pruning and the removal are one transaction, so the log never lacks rows without a record of it.
    with context.database.write(long=True) as connection:
        key = credential(AUDIT_KEY)
        note(upto=last.number, hash=last.hash, **({} if key is None else {"signature": signature_of(key, last)}))
        return {"rows": store.remove_up_to(connection, last.number), "upto": last.number}


class _Verification:
    """A verification of the log, from its first row to its last."""

    def __init__(self, database: Database, heads: Sequence[Head]) -> None:
        self._database = database
        self._heads = {head.number: head.hash for head in heads}
        self._problems: list[str] = []
        self._pruned: PrunedAudit | None = None
        self._rows = 0

    def document(self) -> AuditVerification:
        """Walk along the log and return the findings."""
        first, last = None, Head(0, BEFORE_ALL)
        for row in store.rows(self._database):
            if first is None:
                first, last = row.number, self._before(row)
            self._check(last, row)
            last = Head(row.number, row.hash)
            self._rows += 1
        # A head beyond the last row is the only sign of a log that was cut off at its end.
        unseen = [number for number in self._heads if number > last.number]
        for number in unseen:
            self._add(f"row {number} was published as a head and is not there: the log was cut off after {last.number}")
        oldest = (first or 1) - 1
        return {
            "ok": not self._problems,
            "rows": self._rows,
            "first": first,
            "head": _head_document(last),
            "checked_heads": sorted(number for number in self._heads if oldest < number <= last.number),
            "pruned_heads": sorted(number for number in self._heads if number < oldest),
            "pruned": self._pruned,
            "problems": self._problems[:MOST_PROBLEMS],
        }

    def _check(self, last: Head, row: AuditRow) -> None:
        if row.number != last.number + 1:
            self._add(f"rows {last.number + 1} to {row.number - 1} are missing")
        elif last.hash != _UNKNOWN and row.hash != hash_of(last.hash, row):
            self._add(f"row {row.number} is not as it was written, or does not follow the row before it")
        if self._heads.get(row.number, row.hash) != row.hash:
            self._add(f"row {row.number} has another hash than the head that was published: the log was written anew")

    def _before(self, row: AuditRow) -> Head:
        """Return the row before the first one that is left, as its pruning recorded it."""
        if row.number == 1:
            return Head(0, BEFORE_ALL)
        for pruning in store.prunings(self._database):
            facts = json.loads(pruning.result or "{}")
            if facts.get("upto") == row.number - 1:
                self._pruned = {"rows": row.number - 1, "upto": row.number - 1}
                before = Head(row.number - 1, str(facts.get("hash")))
                # The published head decides: a forged pruning could name any hash.
                if self._heads.get(before.number, before.hash) != before.hash:
                    self._add(f"row {before.number}, the last that was pruned, is not the head that was published")
                key = credential(AUDIT_KEY)
                if key is not None and not is_signed(key, before, str(facts.get("signature"))):
                    self._add(f"rows 1 to {before.number} were pruned, and {AUDIT_KEY} did not sign that")
                return before
        self._add(f"rows 1 to {row.number - 1} are missing, and no pruning is recorded")
        return Head(row.number - 1, _UNKNOWN)

    def _add(self, problem: str) -> None:
        self._problems.append(problem)


def _parse(text: str) -> Head:
    number, _, hash = text.strip().partition(":")
    if not (number.isdecimal() and len(hash) == len(BEFORE_ALL) and int(number) < 1 << 63):
        detail = f"{text!r} is no head; expected NUMBER:HASH, as `wtb admin audit head` prints it"
        raise InputError(detail, argument="heads")
    return Head(int(number), hash.lower())


def _head_document(head: Head) -> AuditHead:
    return {"number": head.number, "hash": head.hash, "head": f"{head.number}:{head.hash}"}


def _document(first: AuditRow, last: AuditRow | None) -> AuditedCall:
    ended = last if last is not None else first if first.outcome is not None else None
    return {
        "number": first.number,
        "at": str(iso(first.at)),
        "by": first.by,
        "via": first.via,
        "address": first.address,
        "token": first.token,
        "operation": first.operation,
        "arguments": json.loads(first.arguments or "{}"),
        "outcome": "unknown" if ended is None else "done" if ended.outcome == "done" else "failed",
        "result": json.loads((ended or first).result or "{}"),
        "error": None if ended is None else ended.error,
        "ended_at": None if ended is None else iso(ended.at),
    }
