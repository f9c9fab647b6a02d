"""The credentials of a command: kept where the nodes that it starts do not find them.

A command takes them out of its environment as it begins, and out of what the system shows of its arguments and
environment; parts of a stack get theirs through a pipe. On Linux the process is then closed to others of the same
user, too (its memory, its descriptors). Whoever is root reads it all the same.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

NAMES = (
    *("WTB_DATABASE_URL", "WTB_BROKER_URL", "WTB_FLOWER_AUTH", "WTB_SERVER_TOKEN", "WTB_TOKEN"),
    *("WTB_OIDC_SECRET", "WTB_TELEMETRY_HEADERS", "WTB_AUDIT_KEY"),
)
DATABASE_URL, BROKER_URL, FLOWER_AUTH, SERVER_TOKEN, TOKEN, OIDC_SECRET, TELEMETRY_HEADERS, AUDIT_KEY = NAMES
VARIABLE = re.compile(r"\$\{(\w+)\}")  # of the environment, as texts of sweep files name it
PIPE = "WTB_CREDENTIALS"  # the descriptor to read them from


def is_credential(name: str) -> bool:
    """Return whether a variable of the environment may say how to get at a server of WTB's."""
    return name in NAMES or name == PIPE or name.startswith("FLOWER_")


HIDING_NOTICE = Path(__file__).with_name("hidden.txt")  # which nodes find where the file of a database is
BACKUPS = "backups"  # the folder of copies, beside a database
_COPY = re.compile(r"\d+-\d{8}-\d{6}\.(db|new)")
_PASSWORD = re.compile(r"://[^/@]*:[^/@]+@|[?&]password=.")
_PR_SET_DUMPABLE = 4  # linux/prctl.h

_credentials: dict[str, str] = {}
_guarded = False
_files: set[str] = set()


def credential(name: str) -> str | None:
    """One of NAMES: what the environment says, else what this command took out of it."""
    return os.environ[name] if name in os.environ else _credentials.get(name)


def keep(name: str, value: str) -> None:
    """Have `credential` give it in this process, and in those that are forked off."""
    os.environ.pop(name, None)
    _credentials[name] = value


def take() -> None:
    """Take the credentials of a command that begins out of its environment and off its command line."""
    credentials = {name: os.environ.pop(name) for name in NAMES if name in os.environ}
    secret_texts = [*credentials.values(), *(argument for argument in sys.argv if _PASSWORD.search(argument))]
    if descriptor := os.environ.pop(PIPE, None):
        import json

        with open(int(descriptor), "rb") as pipe:
            credentials |= json.loads(pipe.read())
    _credentials.update(credentials)
    if credentials or secret_texts:
        _erase([text for text in secret_texts if text])
        protect()


def protect() -> None:
    """Close this process, which holds credentials, to other processes of its user. Linux only, and not from root."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def guard(url: str, file: Path | None = None) -> None:
    """Note that this process works with a database: nodes that it starts are walled off if that is a server.

    Its password may be in files and processes beside this one. Of a database that is a file, nodes cannot read that.

    Args:
        url: The URL of the database.
        file: The file of an SQLite database.
    """
    global _guarded
    if file is not None:
        _files.add(os.path.abspath(file))
    if not url.startswith("sqlite") and "://" in url and not _guarded:
        _guarded = True
        protect()


def is_guarded() -> bool:
    """Return whether this process works with a database that nodes must not find a way to."""
    return _guarded


def database_files() -> list[str]:
    """Return the SQLite files that this process works with, by their real paths, whether or not they are there.

    With those that SQLite keeps beside them, the copies that upgrades leave, and hard links in the same folder.
    """
    paths = []
    for path in sorted({os.path.realpath(file) for file in _files}):
        paths += [path, *(f"{path}{suffix}" for suffix in ("-wal", "-shm", "-journal")), *_other_names(path)]
        with suppress(OSError), os.scandir(os.path.join(os.path.dirname(path), BACKUPS)) as entries:
            paths += sorted(entry.path for entry in entries if _COPY.fullmatch(entry.name) and not entry.is_symlink())
    return paths


def _other_names(path: str) -> list[str]:
    """Return the other names that a file has in its folder."""
    try:
        state = os.stat(path)
        if state.st_nlink == 1:
            return []
        with os.scandir(os.path.dirname(path)) as entries:
            same = [entry.path for entry in entries if entry.inode() == state.st_ino and entry.path != path]
        return sorted(name for name in same if os.path.samestat(os.lstat(name), state))
    except OSError:
        return []


def is_hidden_database(file: str) -> bool:
    """Return whether this is a node process from which the file of a database is hidden."""
    try:
        return os.path.samestat(os.stat(file), os.stat(HIDING_NOTICE)) or os.path.samestat(
            os.stat(file), os.stat(os.devnull)
        )
    except OSError:
        return False


def client_credentials() -> Path:
    """Return where tokens for servers are kept: a table for each, by its URL, with `token`."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "wtb" / "credentials.toml"


@contextmanager
def handed(**credentials: str) -> Iterator[tuple[dict[str, str], tuple[int, ...]]]:
    """What a process needs that is to have these credentials: its environment, and the descriptors it inherits."""
    import json

    reads, writes = os.pipe()
    try:
        with open(writes, "wb") as pipe:  # less than a pipe holds
            pipe.write(json.dumps(credentials).encode())
        environment = {name: value for name, value in os.environ.items() if name not in NAMES}
        yield {**environment, PIPE: str(reads)}, (reads,)
    finally:
        os.close(reads)


def known_credentials() -> dict[str, str]:
    """The credentials of this process, by name."""
    return {name: value for name in NAMES if (value := credential(name)) is not None}


def _erase(secrets: Sequence[str]) -> None:
    """Overwrite secrets in what the system shows of this process: `ps`, /proc/PID/cmdline and /proc/PID/environ."""
    if sys.platform != "linux":
        return
    import ctypes

    with open("/proc/self/stat", "rb") as stat:
        fields = stat.read().rpartition(b")")[2].split()
    for start, end in ((int(fields[45]), int(fields[46])), (int(fields[47]), int(fields[48]))):  # arg_*, env_*
        block = ctypes.string_at(start, end - start) if start else b""
        for secret in map(os.fsencode, secrets):
            at = block.find(secret)
            while at >= 0:
                ctypes.memset(start + at, ord("*"), len(secret))
                at = block.find(secret, at + len(secret))
