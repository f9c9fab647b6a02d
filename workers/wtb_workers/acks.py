"""Acknowledging a message whose connection was lost does nothing, in place of an error that ends the worker.

kombu raises AttributeError for such a connection, as for a mistake of the program, and Celery ends the worker for it.
Unacknowledged messages are not put back into the queue either: the scheduler notifies workers again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kombu.transport import redis, virtual


class Acks(redis.QoS):
    """The delivered messages of a channel, which may have lost its connection."""

    restore_at_shutdown = False

    def ack(self, delivery_tag: str) -> None:
        self._if_connected(delivery_tag, lambda: super(Acks, self).ack(delivery_tag))  # type: ignore[no-untyped-call]

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        self._if_connected(delivery_tag, lambda: super(Acks, self).reject(delivery_tag, requeue))  # type: ignore[no-untyped-call]

    def _if_connected(self, delivery_tag: str, send: Callable[[], Any]) -> None:
        transport = self.channel.connection
        if self.channel.closed or transport is None or transport.client is None:
            virtual.QoS.ack(self, delivery_tag)  # type: ignore[no-untyped-call]
        else:
            send()
