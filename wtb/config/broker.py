"""Direct access to the broker: whether it responds, and how many messages wait in its queues. Celery sends messages."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from urllib.parse import urlsplit

from wtb.config.credentials import shown_url
from wtb.config.distribution import pip_install
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
    """Return the problem of a URL, without quoting the URL, because it may contain a password."""
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("redis", "rediss"):
            return "is not that of a Redis"
        if "@" in parts.netloc.rpartition("@")[0]:
            return "has more than one @; write %40 for one in the password"
        return "has the port 0" if parts.port == 0 else None
    except ValueError:  # also from `port`, which is parsed when it is read
        return "has a host or port that cannot be read"


def has_client() -> bool:
    """Return whether the package that talks to a broker is installed."""
    return find_spec("redis") is not None


class Broker:
    """A Redis or Valkey.

    Args:
        url: Its URL.
        answer_s: Seconds to wait for an answer or a connection.

    Raises:
        InputError: If the client's package is not installed, or the URL is not that of a Redis.
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
            # Without retries of the client, no call takes longer than `answer_s`.
            self._client = redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), **options)
            pool = self._client.connection_pool
            pool.connection_class(**pool.connection_kwargs)  # does not connect, but rejects unknown options
        except (ValueError, TypeError, redis.exceptions.RedisError) as error:
            unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
            problem = problem or (f"has the unknown option {unknown[1]!r}" if unknown else "cannot be read")
        if problem is not None:
            raise InputError(f"broker URL {self.url!r} {problem}; {_EXPECTED}")

    def ping(self) -> float:
        """Return the milliseconds until it responds, once connected. Raises BrokerError that names the problem."""
        with self._translate_errors():
            # The first ping includes connecting, so only the second one is timed.
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
                f"broker {self.url} rejected the password ({one_line(error)}); correct it in WTB_BROKER_URL"
            ) from error
        except wrong.TimeoutError as error:
            raise BrokerAway(
                f"broker {self.url} did not respond within {self._answer_s:g} s; check that it runs, and that no "
                f"firewall blocks it"
            ) from error
        except (wrong.ConnectionError, OSError) as error:
            raise BrokerAway(
                f"broker {self.url}: {one_line(error)}; check that it runs, and check WTB_BROKER_URL"
            ) from error
        except wrong.RedisError as error:
            raise BrokerError(
                f"broker {self.url}: {one_line(error)}; check that it runs, and check WTB_BROKER_URL"
            ) from error
