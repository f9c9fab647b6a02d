"""Hearing that the log has grown: who waits for more need not ask all the time. `Announcer` in the log says it."""

from __future__ import annotations

import threading
from typing import Any

import sqlalchemy as sa

from wtb.store.database import Database
from wtb.store.log import CHANNEL

_SNAPSHOT = sa.text(
    "SELECT pg_snapshot_xmin(now)::text::bigint AS oldest, pg_snapshot_xmax(now)::text::bigint AS next "
    "FROM pg_current_snapshot() AS now"
)


class Announcements:
    """What is announced, on a connection of its own."""

    def __init__(self, database: Database) -> None:
        """Make it; nothing is heard before it is opened. database: on PostgreSQL."""
        self._database = database
        self._connection: Any = None
        self._is_closed = False
        self._changing = threading.Lock()

    def open(self) -> None:
        """Listen from now on. Raises StoreError if the database is out of reach."""
        connection = self._database.detached()
        with self._changing:
            if self._is_closed:  # meanwhile, by who waits no longer
                connection.close()
                return
            self._connection = connection
        with self._database.reached():
            connection.execute(f"LISTEN {CHANNEL}")

    def try_out(self) -> None:
        """Announce something, so that one sees whether it is heard. Raises StoreError if the database is away."""
        with self._database.write(is_note=True) as connection:
            connection.exec_driver_sql(f"NOTIFY {CHANNEL}")

    def fileno(self) -> int:
        """Return the descriptor that can be read when something has come."""
        return int(self._connection.fileno())

    def take(self) -> bool:
        """Take what has come, and wait for nothing.

        Returns:
            Whether anything was announced.

        Raises:
            StoreError: If the connection is lost.
        """
        with self._database.reached():
            self._connection.pgconn.consume_input()
            found = False
            while self._connection.pgconn.notifies() is not None:
                found = True
            return found

    def close(self) -> None:
        """Listen no more."""
        with self._changing:
            self._is_closed = True
            if self._connection is not None:
                self._connection.close()


def open_transactions(database: Database) -> tuple[int, int]:
    """Return the oldest transaction that is open, and the next one: what older ones write, all can read by now."""
    with database.read() as connection:
        row = connection.execute(_SNAPSHOT).one()
        return row.oldest, row.next
