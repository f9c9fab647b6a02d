"""The credentials of a command, kept where its nodes cannot find them, and addresses without their secrets.

When a command begins, it removes them from its environment, and from the arguments and environment that the system
shows. Parts of a stack get theirs through a pipe. On Linux the process is then closed to others of the same user, too
(its memory, its descriptors). The root user can read them all the same.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import SplitResult, unquote_plus, urlsplit

NAMES = (
    *("WTB_DATABASE_URL", "WTB_BROKER_URL", "WTB_FLOWER_AUTH", "WTB_SERVER_TOKEN", "WTB_TOKEN"),
    *("WTB_OIDC_SECRET", "WTB_TELEMETRY_HEADERS", "WTB_AUDIT_KEY"),
)
DATABASE_URL, BROKER_URL, FLOWER_AUTH, SERVER_TOKEN, TOKEN, OIDC_SECRET, TELEMETRY_HEADERS, AUDIT_KEY = NAMES
VARIABLE = re.compile(r"\$\{(\w+)\}")  # a variable of the environment in texts of sweep files
PIPE = "WTB_CREDENTIALS"  # the descriptor from which to read them


def is_credential(name: str) -> bool:
    """Return whether a variable of the environment may give access to a server of WTB's."""
    return name in NAMES or name == PIPE or name.startswith("FLOWER_")


HIDING_NOTICE = Path(__file__).with_name("hidden.txt")  # the file that nodes see instead of a database
BACKUPS = "backups"  # the folder of copies, beside a database
_COPY = re.compile(r"\d+-\d{8}-\d{6}\.(db|new)")
_PASSWORD = re.compile(r"://[^/@]*:[^/@]+@|[?&]password=.")
_PR_SET_DUMPABLE = 4  # linux/prctl.h

_credentials: dict[str, str] = {}
_guarded = False
_files: set[str] = set()


def credential(name: str) -> str | None:
    """Return one of NAMES: from the environment, else from those that this command removed from it."""
    return os.environ[name] if name in os.environ else _credentials.get(name)


def keep(name: str, secret: str) -> None:
    """Make `credential` return a value in this process, and in those that are forked off."""
    # Otherwise node processes would inherit it.
    os.environ.pop(name, None)
    _credentials[name] = secret


def take() -> None:
    """Remove the credentials of a command that begins from its environment and its command line."""
    credentials = {name: os.environ.pop(name) for name in NAMES if name in os.environ}
    secret_texts = [*credentials.values(), *(argument for argument in sys.argv if _PASSWORD.search(argument))]
    if descriptor := os.environ.pop(PIPE, None):
        import json

        # The pipe has no name, so that only this process can read the credentials, and only once.
        with open(int(descriptor), "rb") as pipe:
            credentials |= json.loads(pipe.read())
    _credentials.update(credentials)
    if credentials or secret_texts:
        _erase([text for text in secret_texts if text])
        protect()


def protect() -> None:
    """Close this process, which holds credentials, to other processes of its user. Linux only, and not against root."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def guard(url: str, file: Path | None = None) -> None:
    """Record that this process uses a database: nodes that it starts are walled off if that is a server.

    The password of a server may be in files and processes of this machine. Nodes cannot read a database that is a file.

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
    """Return whether this process uses a database that nodes must not reach."""
    return _guarded


def database_files() -> list[str]:
    """Return the SQLite files that this process uses, by their real paths, whether or not they exist.

    The list includes the files that SQLite keeps beside them, the copies that upgrades leave, and hard links in the
    same folder.
    """
    paths = []
    for path in sorted({os.path.realpath(file) for file in _files}):
        paths += [path, *(f"{path}{suffix}" for suffix in ("-wal", "-shm", "-journal")), *_other_names(path)]
        with suppress(OSError), os.scandir(os.path.join(os.path.dirname(path), BACKUPS)) as entries:
            paths += sorted(
                backup.path for backup in entries if _COPY.fullmatch(backup.name) and not backup.is_symlink()
            )
    return paths


def _other_names(path: str) -> list[str]:
    """Return the other names that a file has in its folder."""
    try:
        state = os.stat(path)
        if state.st_nlink == 1:
            return []
        with os.scandir(os.path.dirname(path)) as entries:
            same = [file.path for file in entries if file.inode() == state.st_ino and file.path != path]
        return sorted(name for name in same if os.path.samestat(os.lstat(name), state))
    except OSError:
        return []


def is_hidden_database(file: str) -> bool:
    """Return whether this is a node process from which the file of a database is hidden."""
    try:
        # Walls put the notice, or the null device, in place of the file.
        return os.path.samestat(os.stat(file), os.stat(HIDING_NOTICE)) or os.path.samestat(
            os.stat(file), os.stat(os.devnull)
        )
    except OSError:
        return False


def client_credentials() -> Path:
    """Return the path of the file with tokens for servers: a table for each, by its URL, with `token`."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "wtb" / "credentials.toml"


@contextmanager
def credentials_pipe(**credentials: str) -> Iterator[tuple[dict[str, str], tuple[int, ...]]]:
    """Yield the environment and the inherited descriptors of a process that is to have these credentials."""
    import json

    reads, writes = os.pipe()
    try:
        with open(writes, "wb") as pipe:  # less than a pipe holds
            pipe.write(json.dumps(credentials).encode())
        environment = {name: text for name, text in os.environ.items() if name not in NAMES}
        yield {**environment, PIPE: str(reads)}, (reads,)
    finally:
        os.close(reads)


def known_credentials() -> dict[str, str]:
    """Return the credentials of this process, by name."""
    return {name: secret for name in NAMES if (secret := credential(name)) is not None}


def _erase(secrets: Sequence[str]) -> None:
    """Overwrite secrets in the memory that the system shows of this process: `ps`, /proc/PID/cmdline and environ."""
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


HIDDEN = "***"
_MAX_LENGTH = 300
_HARMLESS = frozenset(
    {
        *("application_name", "connect_timeout", "client_encoding", "db", "dbname", "host", "hostaddr", "options"),
        *("port", "service", "sslmode", "target_session_attrs", "user"),
        *("health_check_interval", "max_connections", "protocol", "socket_connect_timeout", "socket_keepalive"),
        *("socket_timeout", "ssl_cert_reqs"),
    }
)
_PARAMETER = re.compile(r"[?&;]([^=&;?]*)=")


def shown_url(url: str) -> str:
    """Return a URL without its passwords: that of the user, and those of its query, even misspelt ones.

    Texts that are no URL are treated alike. If in doubt, more is hidden.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    rest = _without_parameter(rest)  # first, because an @ in a parameter ends no password
    rest = rest if scheme.startswith("sqlite") else _without_password(rest)
    text = "".join(char if char.isprintable() else "?" for char in f"{scheme}{separator}{rest}")
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}..."


def _without_password(rest: str) -> str:
    user, at, host = rest.rpartition("@")  # the last @, because a password may contain an unescaped one
    if at:
        name, colon, _ = user.partition(":")
        return f"{name}:{HIDDEN}@{host}" if colon else rest
    server = re.split("[/?#]", rest, maxsplit=1)[0]
    address = re.match(r"\[[^]]*]|[^:]*", server)
    port = server[address.end() :] if address else ""
    if port and not re.fullmatch(":[0-9]*", port):
        return f"{server[: -len(port)]}:{HIDDEN}"  # it may be a password whose @ was forgotten
    return rest


def _without_parameter(rest: str) -> str:
    """Remove everything from the first possibly secret parameter on, because a malformed one may have no end."""
    for parameter in _PARAMETER.finditer(rest):
        if unquote_plus(parameter[1]) not in _HARMLESS:
            return rest[: parameter.end()] + HIDDEN
    return rest


def split_url(text: str) -> SplitResult | None:
    """Return the parts of a URL; None if its host or its port cannot be read, such as an IPv6 address without end."""
    try:
        parts = urlsplit(text)
        _ = parts.port  # is read only now
    except ValueError:
        return None
    return parts
