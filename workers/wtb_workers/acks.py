"""Acknowledgements of messages whose connection was lost: there is nobody to tell, and nothing needs telling.

kombu takes such a connection for a mistake of the program (AttributeError), and Celery ends the worker for it. Messages
in hand are not sent back either: what was not claimed is rung for again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kombu.transport import redis, virtual


class Acks(redis.QoS):
    """What a channel knows of the messages that it has delivered."""

    restore_at_shutdown = False

    def ack(self, delivery_tag: str) -> None:
        self._tell(delivery_tag, lambda: super(Acks, self).ack(delivery_tag))  # type: ignore[no-untyped-call]

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        self._tell(delivery_tag, lambda: super(Acks, self).reject(delivery_tag, requeue))  # type: ignore[no-untyped-call]

    def _tell(self, delivery_tag: str, tell: Callable[[], Any]) -> None:
        transport = self.channel.connection
        if self.channel.closed or transport is None or transport.client is None:
            virtual.QoS.ack(self, delivery_tag)  # type: ignore[no-untyped-call]
        else:
            tell()
