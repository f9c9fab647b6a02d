"""The broker, asked directly: whether it answers, and how much waits in its queues. Messages go through Celery."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from urllib.parse import urlsplit

from wtb.config.distribution import pip_install
from wtb.config.urls import shown_url
from wtb.core.errors import BrokerAway, BrokerError, InputError, one_line

PREFIX = "wtb"
ANSWER_S = 2.0
_EXPECTED = "expected redis://:PASSWORD@HOST:6379/0, as the broker or in WTB_BROKER_URL"
UNNAMED = "no broker is named: set WTB_BROKER_URL to that of a Redis, or start a stack here with `wtb up`"


def queue_key(queue: str | None, cluster: str) -> str:
    """Return the list in the broker that holds the messages of a queue; the default one has no name of its own.

    Args:
        queue: As a node or `wtb worker --queues` names it.
        cluster: The short id of the database, so that two on one broker do not consume each other's tasks.
    """
    return f"{PREFIX}.{cluster}.{queue}" if queue else f"{PREFIX}.{cluster}"


def _problem(url: str) -> str | None:
    """Describe what is wrong with a URL without quoting it: there may be a password in it."""
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("redis", "rediss"):
            return "is not that of a Redis"
        if "@" in parts.netloc.rpartition("@")[0]:
            return "has more than one @; write %40 for one in the password"
        return "has the port 0" if parts.port == 0 else None
    except ValueError:  # of `port`, too, which is read only now
        return "has a host or port that cannot be read"


def has_client() -> bool:
    """Return whether the package that talks to a broker is installed."""
    return find_spec("redis") is not None


class Broker:
    """A Redis or Valkey. answer_s: how long it may take for one answer, or to be connected to.

    Raises InputError where the client's package is not installed, and for a URL that is none of Redis.
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
        options = {"socket_timeout": answer_s, "socket_connect_timeout": answer_s}
        problem = _problem(url)
        try:
            self._client = redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), **options)
            pool = self._client.connection_pool
            pool.connection_class(**pool.connection_kwargs)  # connects nowhere, but says what it does not know
        except (ValueError, TypeError, redis.exceptions.RedisError) as error:
            unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
            problem = problem or (f"has the unknown option {unknown[1]!r}" if unknown else "cannot be read")
        if problem is not None:
            raise InputError(f"broker URL {self.url!r} {problem}; {_EXPECTED}")

    def ping(self) -> float:
        """Milliseconds until it answers, once connected. Raises BrokerError that says what is wrong."""
        with self._translate_errors():
            self._client.ping()
            began = time.perf_counter()
            self._client.ping()
            return (time.perf_counter() - began) * 1000

    def depths(self, queues: Iterable[str], cluster: str) -> dict[str, int]:
        """Return how many messages wait, by queue of a cluster. Raises BrokerError."""
        names = list(queues)
        with self._translate_errors():
            pipe = self._client.pipeline(transaction=False)
            for name in names:
                pipe.llen(queue_key(name, cluster))
            return dict(zip(names, map(int, pipe.execute()), strict=True))

    def close(self) -> None:
        self._client.close()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        wrong = self._errors
        try:
            yield
        except wrong.AuthenticationError as error:
            raise BrokerError(
                f"broker {self.url} refuses the password ({one_line(error)}): correct it in WTB_BROKER_URL"
            ) from error
        except wrong.TimeoutError as error:
            raise BrokerAway(
                f"broker {self.url} does not answer within {self._answer_s:g} s: is it stopped or overloaded, or is a "
                f"firewall in between?"
            ) from error
        except (wrong.ConnectionError, OSError) as error:
            raise BrokerAway(
                f"broker {self.url}: {one_line(error)}; is it running, and is WTB_BROKER_URL right?"
            ) from error
        except wrong.RedisError as error:
            raise BrokerError(
                f"broker {self.url}: {one_line(error)}; is it running, and is WTB_BROKER_URL right?"
            ) from error
