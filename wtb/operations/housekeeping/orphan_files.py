"""Orphans: stored files that no snapshot reaches, through its manifest, and removing them.

What is young stays in any case: attempts store files before they name them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import sqlalchemy as sa

from wtb.core.errors import StoreError
from wtb.store.database import Database
from wtb.store.files.store import FileStore
from wtb.store.housekeeping import files as filing
from wtb.store.housekeeping.references import snapshots

_MOST_NAMED = 3
_Item = TypeVar("_Item", str, tuple[str, int])


@dataclass(frozen=True)
class Survey:
    """The content of a file store, and what of it the snapshots of a database refer to.

    Attributes:
        stored: Digest -> (bytes, when it was last added).
        reached: Session -> digest -> bytes.
        noted: Session -> digests.
        unreadable: Errors of snapshots that could not be read, so that it is unknown what they refer to.
    """

    stored: dict[str, tuple[int, float]]
    reached: dict[str, dict[str, int]]
    noted: dict[str, set[str]]
    unreadable: list[str]

    def orphans(self, before: float) -> dict[str, int]:
        """Digest -> bytes of what no snapshot refers to and nothing has added since then."""
        reached: set[str] = set().union(*self.reached.values())
        old = sorted(digest for digest, (_, added) in self.stored.items() if added < before)
        return {digest: self.stored[digest][0] for digest in old if digest not in reached}

    def knows_some(self) -> bool:
        """Return whether any stored file belongs to this database; True if there are none."""
        known: set[str] = set().union(*self.reached.values(), *self.noted.values())
        return not self.stored or not known.isdisjoint(self.stored)


def survey(connection: sa.Connection, files: FileStore, *, imagined: bool = False) -> Survey:
    """Read a store and all snapshots, in a single state of the database, or as imagined."""
    stored = {digest: (size, added) for digest, size, added in files.stored()}
    noted = filing.noted_by_session(connection)
    reached: dict[str, dict[str, int]] = {session: {} for session in noted}
    unreadable = []
    for session, digest in snapshots(connection, imagined=imagined):
        try:
            entries = files.manifest(digest).values()
        except (StoreError, OSError) as error:
            unreadable.append(str(error))
            continue
        reached[session][digest] = stored.get(digest, (0, 0.0))[0]
        reached[session].update((entry.digest, entry.size) for entry in entries)
    return Survey(stored, reached, noted, unreadable)


def refusal(database: Database, files: FileStore, seen: Survey) -> str | None:
    """Return why nothing of a store may be removed: it is unknown what a database needs. None if it may."""
    nothing = "no stored files were removed"
    if seen.unreadable:
        more = len(seen.unreadable) - _MOST_NAMED
        listed = "; ".join(seen.unreadable[:_MOST_NAMED]) + (f" (and {more:,} more)" if more > 0 else "")
        return (
            f"{nothing}, since what these list is not known: {listed}. "
            f"Is {files.root} the folder where this database keeps its files?"
        )
    if others := filing.other_owners(database, files):
        return (
            f"{nothing}: {', '.join(others)} may keep files in {files.root} too; "
            "if a database is gone, remove what stands for it"
        )
    if not seen.knows_some() and not filing.is_marked(database, files):
        return f"{nothing}: this database knows none of those in {files.root}"
    return None


def settle_notes(database: Database, files: FileStore, seen: Survey, before: float, say: Callable[[str], None]) -> None:
    """Record what snapshots of a session refer to, and forget what none of them does, unless it is young."""
    young = {digest for digest, (_, added) in seen.stored.items() if added >= before}
    for session, noted in seen.noted.items():
        reached = seen.reached[session]
        for absent in _parts([(digest, size) for digest, size in reached.items() if digest not in noted]):
            filing.note_files(database, session, absent)
        forgotten = 0
        for stale in _parts(list(noted - reached.keys() - young)):
            with filing.forgetting_files(database, session, stale) as connection:
                # Who notes one of them adds it to the store before, and waits for this transaction.
                filing.add_files(connection, session, _added_since(files, stale, before))
            forgotten += len(stale)
            say(f"notes of {forgotten:,} stored files removed")


def _added_since(files: FileStore, digests: list[str], before: float) -> Iterator[tuple[str, int]]:
    for digest in digests:
        with suppress(FileNotFoundError):
            found = os.stat(files.path(digest))
            if found.st_mtime >= before:
                yield digest, found.st_size


def remove_orphans(database: Database, files: FileStore, seen: Survey, before: float) -> Iterator[tuple[int, int]]:
    """Remove what no session has recorded and nothing has added again. Yields (how many, bytes) part by part."""
    if files.root.is_dir():
        filing.mark(database, files)
    orphans = seen.orphans(before)
    for part in _parts(list(orphans)):
        noted = filing.noted_anywhere(database, part)
        removed = [
            orphans[digest]
            for digest in part
            if digest not in noted and files.remove(digest, unless_added_since=before)
        ]
        yield len(removed), sum(removed)


def _parts(items: list[_Item]) -> Iterator[list[_Item]]:
    items = sorted(items)
    return (items[start : start + filing.PART] for start in range(0, len(items), filing.PART))
