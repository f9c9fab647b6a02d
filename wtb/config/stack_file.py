"""The stack of a folder: what `wtb up` started there, and where commands find it.

`.wtb/stack/stack.json` (0600) says it, passwords included; it counts as long as the `wtb up` that wrote it lives.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from wtb.config.credentials import BROKER_URL, credential
from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError

HOME = ".wtb"
FILE = os.path.join("stack", "stack.json")  # in a directory of its own, which can be hidden while the file is replaced
SECRET = ("stack", "postgres", "valkey", "logs")  # in HOME, what tells passwords
OPEN = ("files", "sessions", "cache")  # and what nodes use


@frozen
class Part:
    """A server or process of the stack. started_at: seconds since the epoch. address: host and port, if it has one."""

    name: str
    pid: int
    started_at: float
    address: str | None = None


@frozen
class Restart:
    """How often a part was started again. at: when it was the last time, in seconds since the epoch. reason: why."""

    name: str
    count: int
    at: float
    reason: str


@frozen
class Flower:
    """Where Flower is, and who may look."""

    url: str
    user: str
    password: str


@frozen
class Stack:
    """A stack that is up, or about to be. pid: of `wtb up`. ready: whether all its parts were, once. api: its URL."""

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
    """The stack of a folder, by default of this one; None where none is up. Raises InputError for a file of no use."""
    home = os.path.join(folder or "", HOME)
    path = os.path.join(home, FILE)
    try:
        with open(path, "rb") as file:
            text = file.read()
    except OSError:  # none, or somebody else's
        return None
    import json

    try:
        facts = json.loads(text)
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
    """Return whether this folder has a stack that is not up, so that its own SQLite file is what would be opened.

    database: the file that is to be opened.
    """
    home = Path(HOME).absolute()
    return database is not None and database.absolute().parent == home and (home / "postgres").is_dir()


def write_stack(stack: Stack) -> None:
    """Record that a stack is there, in place of an earlier record. Raises OSError."""
    import json
    from dataclasses import asdict

    path = stack.folder / HOME / FILE
    path.parent.mkdir(mode=0o700, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    document = {**asdict(stack), "mark": process_mark(stack.pid)}
    del document["folder"]
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        json.dump(document, file, indent=2)
    new.replace(path)


def forget_stack(folder: Path) -> None:
    """Say that no stack is there any more."""
    (folder / HOME / FILE).unlink(missing_ok=True)


def broker_url(explicit: str | None = None) -> str | None:
    """The broker to use: the one given, else `WTB_BROKER_URL`, else that of the stack of this folder, else None."""
    if url := explicit or credential(BROKER_URL):
        return url
    stack = find_stack()
    return stack.broker_url if stack else None


def process_mark(pid: int) -> str | None:
    """What distinguishes a process from a later one of the same id; None if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
        with open("/proc/sys/kernel/random/boot_id", "rb") as boot:
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
