"""Contents that rows refer to: stored values by the rows that name them, files of snapshots by the session.

The rows of `files` name the contents of files. Each database that keeps its files in a store leaves a mark there.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from wtb.core.errors import ConflictError, DamagedError
from wtb.core.ids import DEFAULT_PROJECT
from wtb.core.serialization.codec import digest as digest_of
from wtb.store.access.sessions import birth, quota_of
from wtb.store.access.usage import disk_used
from wtb.store.bulk import NewRow, insert_missing, parts
from wtb.store.database import Database
from wtb.store.engine import read_only_uri
from wtb.store.files.store import FileStore
from wtb.store.read.queries import as_bytes, stored_bytes
from wtb.store.tables.schema import files, projects, sessions, values
from wtb.store.transactions import Scope

PART = 5_000
MARKS = ".databases"
_SQLITE = b"SQLite format 3\0"


def add_files(connection: sa.Connection, session_id: str, contents: Iterable[tuple[str, int]]) -> None:
    """Record the contents and manifests that snapshots of a session refer to, as (digest, bytes); known ones stay."""
    # In one order for all, so that two transactions never wait for each other.
    rows = [{"session_id": session_id, "digest": digest, "size": size} for digest, size in sorted(set(contents))]
    insert_missing(connection, files, rows)


def note_files(database: Database, session_id: str, contents: Iterable[tuple[str, int]]) -> None:
    """Record files as `add_files` does, in a transaction of its own, unless the session is being deleted."""
    with database.write() as connection:
        session_query = sa.select(sessions.c.id).where(sessions.c.id == session_id)
        if connection.scalar(session_query.with_for_update(read=True, key_share=True)) is not None:
            add_files(connection, session_id, contents)


def missing_files(database: Database, session_id: str, digests: Iterable[str]) -> set[str]:
    """Return the digests that are not recorded for a session."""
    digest_set = set(digests)
    query = sa.select(files.c.digest).where(files.c.session_id == session_id)
    return digest_set - {row.digest for row in database.rows_among(query, files.c.digest, digest_set)}


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
            f"{max(0, quota - used):,}: free space with `wtb admin gc`, or raise the quota with "
            "`wtb admin session change`"
        )


def noted_for(database: Database, project: str, digests: Sequence[str]) -> set[str]:
    """Return the digests, of at most 5,000, that are recorded for a session which may have sweeps of a project."""
    query = sa.select(files.c.digest).join(sessions, sessions.c.id == files.c.session_id)
    its = sessions.c.project.in_((project, DEFAULT_PROJECT))
    return set(database.scalars(query.where(files.c.digest.in_(digests), its)))


def noted_by_session(connection: sa.Connection) -> dict[str, set[str]]:
    """Return the recorded digests by session, including sessions without any."""
    noted: dict[str, set[str]] = {session: set() for session in connection.scalars(sa.select(sessions.c.id))}
    for session, digest in connection.execute(sa.select(files.c.session_id, files.c.digest)):
        noted[session].add(digest)
    return dict(sorted(noted.items()))


@contextmanager
def forgetting_files(database: Database, session_id: str, digests: Sequence[str]) -> Iterator[sa.Connection]:
    """Delete records of a session; others that record the same wait until the end of the block, which may restore
    some.
    """
    these = files.c.session_id == session_id, files.c.digest.in_(digests)
    with database.write() as connection:
        # Locked in the order in which `add_files` inserts.
        lock = sa.select(files.c.digest).where(*these).order_by(files.c.digest).with_for_update()
        connection.execute(lock)
        connection.execute(files.delete().where(*these))
        yield connection


def mark(database: Database, files: FileStore) -> None:
    """Leave the mark of this database in a store, so that a garbage collection of another database spares its files."""
    place = _mark(database, files)
    if not place.exists():
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.write_text(f"{database.shown_url}\n", "utf-8")
        place.chmod(0o600)


def settle(database: Database, files: FileStore) -> None:
    """Move files that earlier releases kept for all projects to the folder of the only project of a database.

    If there are several projects, a garbage collection does it file by file, and readers look in both places.
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
            with suppress(OSError):  # the project has such a folder already
                os.rename(shared.root / name, own.root / name)


def is_marked(database: Database, files: FileStore) -> bool:
    """Return whether this database has left its mark."""
    return _mark(database, files).exists()


def other_owners(database: Database, files: FileStore) -> list[str]:
    """Return the other databases that may keep their files in this store: their marks, or SQLite files beside the
    store.
    """
    own = _mark(database, files)
    with suppress(OSError):
        marks = [str(place) for place in sorted(own.parent.iterdir()) if place != own]
        if marks:
            return marks
    if own.exists():
        return []
    own_path = None if database.path is None else database.path.resolve()
    return [str(place) for place in _databases_in(files.top.parent) if place.resolve() != own_path]


def _databases_in(folder: Path) -> Iterator[Path]:
    """Yield the SQLite databases in a folder, which were the only sign before there were marks."""
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
        with closing(sqlite3.connect(read_only_uri(place, is_unchanging=True), uri=True)) as connection:
            connection.execute("PRAGMA schema_version")
    except sqlite3.DatabaseError:
        with place.open("rb") as stream:
            return stream.read(len(_SQLITE)) == _SQLITE
    return True


def _mark(database: Database, files: FileStore) -> Path:
    """Return the path of a database's mark. Its name depends on the database's name and birth, which survive a move."""
    name = database.path.name if database.path is not None else database.url.database or "memory"
    identity = f"{name} {birth(database)!r}"
    return files.top / MARKS / hashlib.sha256(identity.encode()).hexdigest()[:16]


def named_values(table: str, row: NewRow) -> set[str]:
    """Return the digests of the values that a row of a table refers to."""
    if table == "checkpoints":
        return _digests(row["state"]) | _digests(part_of(row.get("inside"), "saved"))
    if table == "node_runs":
        return _digests(row.get("writes"))
    if table == "approvals":
        return _digests(part_of(row.get("answer"), "set"))
    return _digests(row["input"]) if table == "cases" else set()


def part_of(document: Any, key: str) -> Any:
    """Return the value of a key of a JSON object; None if it has no such key, or is no object."""
    return document.get(key) if isinstance(document, dict) else None


def _digests(by_key: Any) -> set[str]:
    return {digest for digest in by_key.values() if isinstance(digest, str)} if isinstance(by_key, dict) else set()


def value_contents(
    database: Database, connection: sa.Connection, digests: Sequence[str]
) -> Iterator[tuple[str, bytes]]:
    """Yield values by digest, a few at a time. Raises DamagedError for a missing or damaged one."""
    for part in parts(digests, 100):
        query = sa.select(values.c.digest, stored_bytes(database)).where(values.c.digest.in_(part))
        seen = set()
        for key, stored in connection.execute(query.execution_options(yield_per=10)):
            content = as_bytes(stored)
            if digest_of(content) != key:
                raise DamagedError(f"stored value {key} is damaged: its content has another hash")
            seen.add(key)
            yield key, content
        if missing := set(part) - seen:
            raise DamagedError(f"stored value {min(missing)} is missing")
