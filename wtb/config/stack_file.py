"""The stack of a folder: the servers that `wtb up` started there, and their addresses.

`.wtb/stack/stack.json` (0600) has them, including passwords; it is valid as long as the `wtb up` that wrote it lives.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from wtb.config.credentials import BROKER_URL, credential
from wtb.core.errors import InputError
from wtb.core.frozen import frozen

HOME = ".wtb"
FILE = os.path.join("stack", "stack.json")  # in a directory of its own, which can be hidden while the file is replaced
SECRET = ("stack", "postgres", "valkey", "logs")  # directories of HOME that contain passwords
OPEN = ("files", "sessions", "cache")  # directories of HOME that nodes use


@frozen
class Part:
    """A server or process of the stack.

    Attributes:
        started_at: Seconds since the epoch.
        address: Host and port, if it has one.
    """

    name: str
    pid: int
    started_at: float
    address: str | None = None


@frozen
class Restart:
    """The restarts of a part.

    Attributes:
        count: How often it was restarted.
        at: When that was the last time, in seconds since the epoch.
        reason: Why.
    """

    name: str
    count: int
    at: float
    reason: str


@frozen
class Flower:
    """The address of Flower, with its user and password."""

    url: str
    user: str
    password: str


@frozen
class Stack:
    """A stack that is up, or about to be.

    Attributes:
        pid: The process of `wtb up`.
        ready: Whether all its parts were ready once.
        api: The URL of its server.
    """

    folder: Path
    pid: int
    started_at: float
    ready: bool
    database_url: str
    broker_url: str
    flower: Flower | None
    parts: tuple[Part, ...]
    restarts: tuple[Restart, ...] = ()
    api: str | None = None


class FlowerDocument(TypedDict):
    """Flower, as the file has it."""

    url: str
    user: str
    password: str


class StackDocument(TypedDict):
    """A stack as its file has it."""

    pid: int
    mark: str
    started_at: float
    ready: bool
    database_url: str
    broker_url: str
    flower: FlowerDocument | None
    parts: list[Any]
    restarts: NotRequired[list[Any]]
    api: NotRequired[str | None]


def find_stack(folder: Path | None = None) -> Stack | None:
    """Return the stack of a folder, by default of this one; None if none is up. Raises InputError for an unreadable
    file.
    """
    home = os.path.join(folder or "", HOME)
    path = os.path.join(home, FILE)
    try:
        with open(path, "rb") as file:
            text = file.read()
    except OSError:  # there is none, or it belongs to another user
        return None
    import json

    try:
        facts = json.loads(text)
        # A file that a killed `wtb up` left is ignored, even if another process has its id by now.
        if process_mark(facts["pid"]) != facts["mark"]:
            return None
        return _stack(Path(folder or "").absolute(), facts)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} cannot be read ({error!r}): remove it, then run `wtb up`") from error


def _stack(folder: Path, document: StackDocument) -> Stack:
    return Stack(
        folder=folder,
        pid=document["pid"],
        started_at=document["started_at"],
        ready=document["ready"],
        database_url=document["database_url"],
        broker_url=document["broker_url"],
        flower=Flower(**document["flower"]) if document["flower"] else None,
        parts=tuple(Part(**part) for part in document["parts"]),
        restarts=tuple(Restart(**restart) for restart in document.get("restarts", ())),
        api=document.get("api"),
    )


def is_down(database: Path | None) -> bool:
    """Return whether this folder has a stack that is not up, so that its own SQLite file would be opened.

    `database` is the file that would be opened.
    """
    home = Path(HOME).absolute()
    return database is not None and database.absolute().parent == home and (home / "postgres").is_dir()


def write_stack(stack: Stack) -> None:
    """Write the record of a stack, instead of an earlier one. Raises OSError."""
    import json
    from dataclasses import asdict

    path = stack.folder / HOME / FILE
    path.parent.mkdir(mode=0o700, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    document = {**asdict(stack), "mark": process_mark(stack.pid)}
    # Readers see either the old record or the new one, never a part.
    del document["folder"]
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        json.dump(document, file, indent=2)
    new.replace(path)


def forget_stack(folder: Path) -> None:
    """Remove the record of a stack."""
    (folder / HOME / FILE).unlink(missing_ok=True)


def broker_url(explicit: str | None = None) -> str | None:
    """Return the broker to use: the given one, else `WTB_BROKER_URL`, else that of this folder's stack, else None."""
    if url := explicit or credential(BROKER_URL):
        return url
    stack = find_stack()
    return stack.broker_url if stack else None


def process_mark(pid: int) -> str | None:
    """Return a mark that distinguishes a process from a later one of the same id; None if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
        with open("/proc/sys/kernel/random/boot_id", "rb") as boot:
            # The start time since the boot and the id of the boot identify a process; a zombie has ended.
            return None if fields[0] in b"ZX" else f"{fields[19].decode()} {boot.read().decode().strip()}"
    except (FileNotFoundError, ProcessLookupError):
        if os.path.isdir("/proc/self"):
            return None
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else str(process.create_time())
    except psutil.NoSuchProcess:
        return None
