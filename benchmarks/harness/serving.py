"""`wtb serve` in another process, on a database of a benchmark."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from wtb.config.credentials import SERVER_TOKEN

TOKEN = "of-the-benchmark-alone"
_URL = re.compile(r"http://([\d.]+):(\d+)(/\S+)")


@dataclass(frozen=True)
class Served:
    """The address of a server; TOKEN is its access token."""

    pid: int
    host: str
    port: int
    prefix: str


@contextmanager
def serving(url: str) -> Iterator[Served]:
    """Serve a database until the block ends."""
    with subprocess.Popen(
        [sys.executable, "-m", "wtb", "serve", "--port", "0", "--db", url],
        env={**os.environ, SERVER_TOKEN: TOKEN},
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stderr is not None
        match = _URL.search(server.stderr.readline())
        assert match, "it does not say where it listens"
        host, port, prefix = match.groups()
        try:
            yield Served(server.pid, host, int(port), prefix)
        finally:
            server.terminate()
