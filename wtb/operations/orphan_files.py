"""Orphans: stored files that no snapshot reaches through its manifest, and their removal.

Young files always stay, because attempts store files before they name them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sa

from wtb.core.errors import StoreError
from wtb.core.frozen import frozen
from wtb.store.database import Database
from wtb.store.files.store import FileStore
from wtb.store.housekeeping import contents as filing
from wtb.store.housekeeping.stored_values import snapshots
from wtb.store.tables.schema import projects

_MOST_NAMED = 3
_Item = TypeVar("_Item", str, tuple[str, int])


@frozen
class Part:
    """The store of one project, or of all of them as earlier releases left it.

    Attributes:
        files: The store.
        project: Its project; None for the store of all.
        stored: Digest -> (bytes, when it was last added).
        reached: Digests that snapshots of the project refer to, or of any project for the store of all.
    """

    files: FileStore
    project: str | None
    stored: dict[str, tuple[int, float]]
    reached: set[str]

    def orphans(self, before: float) -> dict[str, int]:
        """Return digest -> bytes of files that no snapshot refers to and that were not added since then."""
        old = sorted(digest for digest, (_, added) in self.stored.items() if added < before)
        return {digest: self.stored[digest][0] for digest in old if digest not in self.reached}


@frozen
class Survey:
    """The contents of a file store, and the snapshots of a database that refer to them.

    Attributes:
        parts: The store that earlier releases shared between projects, then that of each project.
        reached: Session -> digest -> bytes.
        noted: Session -> digests.
        unreadable: Errors of snapshots that could not be read, so that their references are unknown.
    """

    parts: list[Part]
    reached: dict[str, dict[str, int]]
    noted: dict[str, set[str]]
    unreadable: list[str]

    def orphans(self, before: float) -> list[int]:
        """Return the bytes of each orphan."""
        return [size for part in self.parts for size in part.orphans(before).values()]

    def young(self, before: float) -> set[str]:
        """Return digests of files that were added since then."""
        return {digest for part in self.parts for digest, (_, added) in part.stored.items() if added >= before}

    def knows_some(self) -> bool:
        """Return whether any stored file belongs to this database; True if there are none."""
        digests: set[str] = set().union(*self.reached.values(), *self.noted.values())
        stored: set[str] = set().union(*(part.stored for part in self.parts))
        return not stored or not digests.isdisjoint(stored)


def survey(connection: sa.Connection, files: FileStore, *, imagined: bool = False) -> Survey:
    """Read a store and all snapshots, in a single state of the database, or as imagined."""
    names = {files.of_project(name).root: name for name in connection.scalars(sa.select(projects.c.name))}
    parts: dict[Path, Part] = {}
    for store in (*files.parts(), *(files.of_project(name) for name in names.values())):
        stored = {digest: (size, added) for digest, size, added in store.stored()}
        parts[store.root] = Part(store, names.get(store.root), stored, set())
    noted = filing.noted_by_session(connection)
    reached: dict[str, dict[str, int]] = {session: {} for session in noted}
    unreadable = []
    for session, project, digest in snapshots(connection, imagined=imagined):
        part = parts[files.of_project(project).root]
        try:
            entries = part.files.manifest(digest).values()
        except (StoreError, OSError) as error:
            unreadable.append(str(error))
            continue
        reached[session][digest] = part.stored.get(digest, (0, 0.0))[0]
        reached[session].update((file.digest, file.size) for file in entries)
        part.reached.update((digest, *(file.digest for file in entries)))
    # The shared store has files of any project, so every reference keeps them.
    parts[files.top].reached.update(*(part.reached for part in parts.values()))
    return Survey(list(parts.values()), reached, noted, unreadable)


def refusal(database: Database, files: FileStore, seen: Survey) -> str | None:
    """Return the reason why nothing of a store may be removed, if it is unknown what a database needs; else None."""
    nothing = "no stored files were removed"
    if seen.unreadable:
        more = len(seen.unreadable) - _MOST_NAMED
        listed = "; ".join(seen.unreadable[:_MOST_NAMED]) + (f" (and {more:,} more)" if more > 0 else "")
        return (
            f"{nothing}, since what these list is not known: {listed}. "
            f"Is {files.root} the folder where this database keeps its files?"
        )
    if owners := filing.other_owners(database, files):
        return (
            f"{nothing}: {', '.join(owners)} may keep files in {files.root} too; "
            "if a database is gone, remove what stands for it"
        )
    # A wrong folder looks like a store full of orphans; without any known file or mark nothing is touched.
    if not seen.knows_some() and not filing.is_marked(database, files):
        return f"{nothing}: this database knows none of those in {files.root}"
    return None


def settle_notes(database: Database, seen: Survey, before: float, say: Callable[[str], None]) -> None:
    """Record the files that snapshots of a session refer to, and forget others unless they are young."""
    young = seen.young(before)
    stores = [part.files for part in seen.parts]
    for session, noted in seen.noted.items():
        reached = seen.reached[session]
        for absent in _parts([(digest, size) for digest, size in reached.items() if digest not in noted]):
            filing.note_files(database, session, absent)
        forgotten = 0
        for stale in _parts(list(noted - reached.keys() - young)):
            with filing.forgetting_files(database, session, stale) as connection:
                # Who notes one of them adds it to the store before, and waits for this transaction.
                filing.add_files(connection, session, _added_since(stores, stale, before))
            forgotten += len(stale)
            say(f"notes of {forgotten:,} stored files removed")


def _added_since(stores: list[FileStore], digests: list[str], before: float) -> Iterator[tuple[str, int]]:
    for digest in digests:
        for store in stores:
            with suppress(FileNotFoundError):
                info = os.stat(store.path(digest))
                if info.st_mtime >= before:
                    yield digest, info.st_size
                    break


def move_to_projects(seen: Survey, say: Callable[[str], None]) -> None:
    """Give each project its own copy of files that earlier releases shared between projects, and remove those."""
    shared, *project_parts = seen.parts
    needs = Counter(digest for part in project_parts for digest in part.reached & shared.stored.keys())
    for part in project_parts:
        for digest in part.reached & shared.stored.keys():
            part.files.copy_to_project(digest, alone=needs[digest] == 1)
    for number, digest in enumerate(needs, 1):
        shared.files.remove(digest)
        del shared.stored[digest]
        say(f"{number:,} of {len(needs):,} stored files moved to the folders of their projects")


def remove_orphans(database: Database, files: FileStore, seen: Survey, before: float) -> Iterator[tuple[int, int]]:
    """Remove files that no session has recorded and nothing has added again. Yield (count, bytes) in parts."""
    if files.top.is_dir():
        # Marked before the first removal: an empty store would not show whose it was.
        filing.mark(database, files)
    for part in seen.parts:
        orphans = part.orphans(before)
        for digests in _parts(list(orphans)):
            noted = set() if part.project is None else filing.noted_for(database, part.project, digests)
            removed = [
                orphans[digest]
                for digest in digests
                # An attempt may have added the same content since the survey; its time of addition protects it.
                if digest not in noted and part.files.remove(digest, unless_added_since=before)
            ]
            yield len(removed), sum(removed)
    files.remove_empty_folders()


def _parts(contents: list[_Item]) -> Iterator[list[_Item]]:
    contents = sorted(contents)
    return (contents[start : start + filing.PART] for start in range(0, len(contents), filing.PART))
