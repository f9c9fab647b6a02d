"""The directory of a server: made, locked while somebody starts the server, and the place of its password."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from wtb.core.errors import ConflictError, StoreError


def make_folder(directory: Path, name: str) -> None:
    """Make the directory of a server, closed to others. Raises StoreError where it cannot be made."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{name} cannot have the directory {directory}: {error}") from error


@contextlib.contextmanager
def locked(directory: Path, name: str) -> Iterator[None]:
    """While a server is started, nobody else starts one there. Raises ConflictError where somebody does."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConflictError(f"somebody else is starting {name} in {directory}") from error
        yield
    finally:
        os.close(descriptor)


def keep_password(path: Path, password: str | None = None) -> str:
    """Write a password, by default a new one, for whoever finds the server later: this user alone reads it."""
    password = password or secrets.token_urlsafe(24)
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(password)
    return password
