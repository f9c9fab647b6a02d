"""Which contents the snapshots of a session refer to: the rows of `files`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import sqlalchemy as sa

from wtb.store.bulk import insert_missing
from wtb.store.database import Database
from wtb.store.tables.sweeps import files, sessions

PART = 5_000


def add_files(connection: sa.Connection, session_id: str, contents: Iterable[tuple[str, int]]) -> None:
    """Note that snapshots of a session refer to contents or manifests, as (digest, bytes); known ones stay."""
    # In one order for all, so that two transactions never wait for each other.
    rows = [{"session_id": session_id, "digest": digest, "size": size} for digest, size in sorted(set(contents))]
    insert_missing(connection, files, rows)


def note_files(database: Database, session_id: str, contents: Iterable[tuple[str, int]]) -> None:
    """The same in a transaction of its own, unless the session is deleted at this moment."""
    with database.write() as connection:
        held = sa.select(sessions.c.id).where(sessions.c.id == session_id).with_for_update(read=True, key_share=True)
        if connection.scalar(held) is not None:
            add_files(connection, session_id, contents)


def missing_files(database: Database, session_id: str, digests: Iterable[str]) -> set[str]:
    """Those of `digests` that are not noted for a session."""
    wanted = sorted(set(digests))
    missing = set(wanted)
    with database.read() as connection:
        for start in range(0, len(wanted), PART):
            part = files.c.digest.in_(wanted[start : start + PART])
            missing.difference_update(
                connection.scalars(sa.select(files.c.digest).where(files.c.session_id == session_id, part))
            )
    return missing


def noted_anywhere(database: Database, digests: Sequence[str]) -> set[str]:
    """Those of `digests`, at most 5,000, that any session has noted."""
    return set(database.scalars(sa.select(files.c.digest).where(files.c.digest.in_(digests))))


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
