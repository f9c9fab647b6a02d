"""The environment of measurements: fresh SQLite files and PostgreSQL databases on disk, with durable settings."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from wtb.hosting.servers.postgres import PostgresServer

Kind = Literal["sqlite", "postgresql"]
KINDS: tuple[Kind, ...] = ("sqlite", "postgresql")


@dataclass(frozen=True)
class Environment:
    folder: Path
    server: PostgresServer
    cells: int = 1_000_000  # of the benchmark `million`
    only: Sequence[str] = ()  # parts of the benchmarks `pages`, `streams` and `llm`; all if there are none
    beside: int = 100_000  # cells of each sweep that is submitted and deleted meanwhile, of the benchmark `streams`
    streaming: float = 20.0  # seconds that events are written there, at least

    def fresh(self, kind: Kind) -> str:
        """Return the URL of an empty database."""
        name = f"bench_{secrets.token_hex(6)}"
        return f"sqlite:///{self.folder / name}.db" if kind == "sqlite" else self.server.create_database(name)


@contextmanager
def environment(**fields: Any) -> Iterator[Environment]:
    """Start a PostgreSQL with its own settings (fsync on) in a temporary folder, which is removed afterwards.

    fields: fields of the environment.
    """
    with tempfile.TemporaryDirectory(prefix="wtb-bench-") as name:
        folder = Path(name)
        folder.chmod(0o711)  # for root the server runs as another user
        with PostgresServer(folder / "postgres", create_databases=True) as server:
            yield Environment(folder, server, **fields)
