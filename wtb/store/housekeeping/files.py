"""Stored files: which contents the snapshots of a session refer to, and whose a store is.

The rows of `files` name the contents. Each database that keeps its files in a store leaves a mark there.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import sqlalchemy as sa

from wtb.core.errors import ConflictError
from wtb.core.ids import DEFAULT_PROJECT
from wtb.store.bulk import fetch_among, insert_missing
from wtb.store.database import Database
from wtb.store.files.store import FileStore
from wtb.store.limits.sessions import birth, quota_of
from wtb.store.limits.usage import disk_used
from wtb.store.tables.schema import files, projects, sessions
from wtb.store.transactions import Scope

PART = 5_000
MARKS = ".databases"
_SQLITE = b"SQLite format 3\0"


def add_files(connection: sa.Connection, session_id: str, contents: Iterable[tuple[str, int]]) -> None:
    """Note that snapshots of a session refer to contents or manifests, as (digest, bytes); known ones stay."""
    # In one order for all, so that two transactions never wait for each other.
    rows = [{"session_id": session_id, "digest": digest, "size": size} for digest, size in sorted(set(contents))]
    insert_missing(connection, files, rows)


def note_files(database: Database, session_id: str, contents: Iterable[tuple[str, int]]) -> None:
    """Note files as `add_files` does in a transaction of its own, unless the session is being deleted."""
    with database.write() as connection:
        held = sa.select(sessions.c.id).where(sessions.c.id == session_id).with_for_update(read=True, key_share=True)
        if connection.scalar(held) is not None:
            add_files(connection, session_id, contents)


def missing_files(database: Database, session_id: str, digests: Iterable[str]) -> set[str]:
    """Those of `digests` that are not noted for a session."""
    wanted = set(digests)
    query = sa.select(files.c.digest).where(files.c.session_id == session_id)
    with database.read() as connection:
        return wanted - {row.digest for row in fetch_among(connection, query, files.c.digest, wanted)}


def check_room(database: Database, session_id: str, contents: Mapping[str, int]) -> None:
    """Check that a session has room for more files.

    Args:
        database: The database.
        session_id: The session.
        contents: Bytes by digest, of which it may have some already.

    Raises:
        ConflictError: If they are more than its quota leaves.
    """
    quota = quota_of(database, session_id).disk
    if quota is None or not contents:
        return
    added = sum(contents[digest] for digest in missing_files(database, session_id, contents))
    used = disk_used(database, session_id)
    if used + added > quota:
        raise ConflictError(
            f"its files add {added:,} bytes, and the quota of the session ({quota:,} bytes) leaves "
            f"{max(0, quota - used):,}: free space with `wtb gc`, or raise the quota with `wtb session change`"
        )


def noted_for(database: Database, project: str, digests: Sequence[str]) -> set[str]:
    """Those of `digests`, at most 5,000, that a session has noted which may have sweeps of a project."""
    query = sa.select(files.c.digest).join(sessions, sessions.c.id == files.c.session_id)
    its = sessions.c.project.in_((project, DEFAULT_PROJECT))
    return set(database.scalars(query.where(files.c.digest.in_(digests), its)))


def noted_by_session(connection: sa.Connection) -> dict[str, set[str]]:
    """The digests that are noted, by session; every session is there."""
    noted: dict[str, set[str]] = {session: set() for session in connection.scalars(sa.select(sessions.c.id))}
    for session, digest in connection.execute(sa.select(files.c.session_id, files.c.digest)):
        noted[session].add(digest)
    return dict(sorted(noted.items()))


@contextmanager
def forgetting_files(database: Database, session_id: str, digests: Sequence[str]) -> Iterator[sa.Connection]:
    """Delete notes of a session. Until the end of the block, those who note the same wait, so it can take some back."""
    these = files.c.session_id == session_id, files.c.digest.in_(digests)
    with database.write() as connection:
        # Locked in the order of those who insert.
        held = sa.select(files.c.digest).where(*these).order_by(files.c.digest).with_for_update()
        connection.execute(held)
        connection.execute(files.delete().where(*these))
        yield connection


def mark(database: Database, files: FileStore) -> None:
    """Note in a store that this database keeps its files there: a collection of another one leaves them alone."""
    place = _mark(database, files)
    if not place.exists():
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.write_text(f"{database.shown_url}\n", "utf-8")
        place.chmod(0o600)


def settle(database: Database, files: FileStore) -> None:
    """Move what earlier releases kept for all projects to the folder of the only project of a database.

    Where there are several projects, a garbage collection does it file by file, and readers look in both places.
    """
    shared = files.parts()[0]
    if not (shared.has_shared_contents() or shared.judgements.is_dir()):
        return
    names = database.within(Scope()).scalars(sa.select(projects.c.name))
    if len(names) != 1 or other_owners(database, files):
        return
    own = files.of_project(names[0])
    own.make()
    for name in os.listdir(shared.root):
        if len(name) == 2 or name == shared.judgements.name:
            with suppress(OSError):  # something of the project is there already
                os.rename(shared.root / name, own.root / name)


def is_marked(database: Database, files: FileStore) -> bool:
    """Whether this database has left its mark."""
    return _mark(database, files).exists()


def other_owners(database: Database, files: FileStore) -> list[str]:
    """What stands for other databases that may keep their files in this store: their marks, and SQLite files beside."""
    own = _mark(database, files)
    with suppress(OSError):
        marks = [str(place) for place in sorted(own.parent.iterdir()) if place != own]
        if marks:
            return marks
    if own.exists():
        return []
    here = None if database.path is None else database.path.resolve()
    return [str(place) for place in _databases_in(files.top.parent) if place.resolve() != here]


def _databases_in(folder: Path) -> Iterator[Path]:
    """SQLite databases in a folder: before there were marks, they were the only sign."""
    with suppress(OSError):
        for place in sorted(folder.iterdir()):
            with suppress(OSError):
                if place.is_file() and place.stat().st_size and _is_sqlite(place):
                    yield place


def _is_sqlite(place: Path) -> bool:
    """Return whether a file is an SQLite database, or was one before it was damaged."""
    # Not by its header alone: closing a descriptor of our own would end the locks that connections of this process
    # hold on the file. None of them holds any on a file that SQLite cannot read.
    try:
        with closing(sqlite3.connect(f"{place.resolve().as_uri()}?immutable=1", uri=True)) as connection:
            connection.execute("PRAGMA schema_version")
    except sqlite3.DatabaseError:
        with place.open("rb") as stream:
            return stream.read(len(_SQLITE)) == _SQLITE
    return True


def _mark(database: Database, files: FileStore) -> Path:
    """Named by the database's name and birth, which tell it from others and survive a move."""
    name = database.path.name if database.path is not None else database.url.database or "memory"
    identity = f"{name} {birth(database)!r}"
    return files.top / MARKS / hashlib.sha256(identity.encode()).hexdigest()[:16]
