"""Whose a store of files is: each database that keeps its files there leaves a mark in it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from wtb.store.database import Database
from wtb.store.files.store import FileStore
from wtb.store.limits.sessions import birth

MARKS = ".databases"
_SQLITE = b"SQLite format 3\0"


def mark(database: Database, files: FileStore) -> None:
    """Note in a store that this database keeps its files there: a collection of another one leaves them alone."""
    place = _mark(database, files)
    if not place.exists():
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.write_text(f"{database.shown_url}\n", "utf-8")
        place.chmod(0o600)


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
    return [str(place) for place in _databases_in(files.root.parent) if place.resolve() != here]


def _databases_in(folder: Path) -> Iterator[Path]:
    """SQLite databases in a folder: before there were marks, they were the only sign."""
    with suppress(OSError):
        for place in sorted(folder.iterdir()):
            with suppress(OSError):
                if place.is_file() and _begins(place):
                    yield place


def _begins(place: Path) -> bool:
    with place.open("rb") as stream:
        return stream.read(len(_SQLITE)) == _SQLITE


def _mark(database: Database, files: FileStore) -> Path:
    """Named by the database's name and birth, which tell it from others and survive a move."""
    name = database.path.name if database.path is not None else database.url.database or "memory"
    identity = f"{name} {birth(database)!r}"
    return files.root / MARKS / hashlib.sha256(identity.encode()).hexdigest()[:16]
