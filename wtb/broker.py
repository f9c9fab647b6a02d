"""The broker, asked directly: whether it answers, and how much waits in its queues. Messages go through Celery."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from wtb.distribution import pip_install
from wtb.errors import BrokerError, InputError

PREFIX = "wtb"
ANSWER_S = 2.0
UNNAMED = "no broker is named: set WTB_BROKER_URL to that of a Redis, or start a stack here with `wtb up`"


def queue_key(queue: str | None) -> str:
    """The list in the broker that holds the messages of a queue; the default one has no name of its own."""
    return f"{PREFIX}.{queue}" if queue else PREFIX


def shown_url(url: str) -> str:
    """The URL without its password."""
    return re.sub(r"//([^/@:]*):[^/@]*@", r"//\1:**@", url)


class Broker:
    """A Redis or Valkey. answer_s: how long it may take for one answer, or to be connected to.

    Raises InputError where the client's package is not installed, BrokerError for a URL that is none of Redis.
    """

    def __init__(self, url: str, answer_s: float = ANSWER_S) -> None:
        try:
            import redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
        except ImportError as error:
            raise InputError(f"workers need more packages ({error}): {pip_install('workers')}") from error
        self.url = shown_url(url)
        self._answer_s = answer_s
        self._errors = redis.exceptions
        options: dict[str, Any] = {"socket_timeout": answer_s, "socket_connect_timeout": answer_s}
        try:
            self._client = redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), **options)
        except ValueError as error:
            raise BrokerError(
                f"broker {self.url}: {error}; expected redis://:PASSWORD@HOST:6379/0 in WTB_BROKER_URL"
            ) from error

    def ping(self) -> float:
        """Milliseconds until it answers, once connected. Raises BrokerError that says what is wrong."""
        with self._asked():
            self._client.ping()
            began = time.perf_counter()
            self._client.ping()
            return (time.perf_counter() - began) * 1000

    def depths(self, queues: Iterable[str]) -> dict[str, int]:
        """How many messages wait, by queue. Raises BrokerError."""
        names = list(queues)
        with self._asked():
            pipe = self._client.pipeline(transaction=False)
            for name in names:
                pipe.llen(queue_key(name))
            return dict(zip(names, map(int, pipe.execute()), strict=True))

    def close(self) -> None:
        self._client.close()

    @contextmanager
    def _asked(self) -> Iterator[None]:
        wrong = self._errors
        try:
            yield
        except wrong.AuthenticationError as error:
            raise BrokerError(
                f"broker {self.url} refuses the password ({_plain(error)}): correct it in WTB_BROKER_URL"
            ) from error
        except wrong.TimeoutError as error:
            raise BrokerError(
                f"broker {self.url} does not answer within {self._answer_s:g} s: is it stopped or overloaded, or is a "
                f"firewall in between?"
            ) from error
        except (wrong.RedisError, OSError) as error:
            raise BrokerError(
                f"broker {self.url}: {_plain(error)}; is it running, and is WTB_BROKER_URL right?"
            ) from error


def _plain(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
