"""The publisher of operations survives a broker that is away, threads that share it, and its end."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

import wtb
from tests.support.waiting import until
from wtb.hosting.servers.valkey import ValkeyServer
from wtb.operations.context import Context, Publisher
from wtb.store.database import Database
from wtb_workers import broker_publisher
from wtb_workers.broker_publisher import CLOSED, BrokerPublisher
from wtb_workers.task_messages import TaskSender

TASKS = ["task"]


@pytest.fixture(scope="module")
def server(servers_folder: Path) -> Iterator[ValkeyServer]:
    with ValkeyServer(servers_folder / "valkey-of-publishers") as started:
        yield started


def test_a_broker_that_was_away_at_first_gets_messages_later(
    server: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_publisher, "RETRY_S", 0.0)
    server.stop()
    with closing(BrokerPublisher(server.url)) as publisher:
        assert publisher.revoke(TASKS) is not None
        server.start()
        assert publisher.revoke(TASKS) is None


def test_threads_share_a_publisher(server: ValkeyServer) -> None:
    with closing(BrokerPublisher(server.url)) as publisher, ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda _: publisher.revoke(TASKS), range(40))) == [None] * 40


def test_a_publisher_that_is_closed_ends_its_thread_and_says_so(server: ValkeyServer) -> None:
    before = set(threading.enumerate())
    publisher = BrokerPublisher(server.url)
    assert publisher.revoke(TASKS) is None
    (thread,) = (thread for thread in set(threading.enumerate()) - before if thread.name == "wtb-publisher")
    publisher.close()
    publisher.close()
    assert not thread.is_alive()
    assert publisher.revoke(TASKS) == CLOSED


def test_a_bench_has_one_publisher_for_all_threads_and_closes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publishers: list[FakePublisher] = []
    together = threading.Barrier(4)

    def make(url: str | None) -> Publisher:
        publishers.append(FakePublisher())
        return publishers[-1]

    def take(context: Context) -> Publisher:
        together.wait()
        return context.publisher

    monkeypatch.setattr("wtb.operations.context.entry_points", lambda **_: [SimpleNamespace(load=lambda: make)])
    with wtb.open(f"sqlite:///{tmp_path / 'wtb.db'}") as bench, ThreadPoolExecutor(4) as threads:
        assert len(set(map(id, threads.map(take, [bench.backend] * 4)))) == 1
    assert [publisher.closed for publisher in publishers] == [True]


class FakePublisher:
    url = None
    closed = False

    def check(self) -> None: ...

    def problem(self) -> str | None: ...

    def publish_pending(self, database: Database) -> str | None: ...

    def revoke(self, task_ids: Sequence[str]) -> str | None: ...

    def close(self) -> None:
        self.closed = True


def test_what_is_sent_often_waits_once_and_is_sent_again_after_the_broker_was_away() -> None:
    broker_answers, calls = threading.Event(), threading.Semaphore(0)

    def recovered(app: object) -> None:
        if not broker_answers.is_set():
            raise ConnectionError("away")

    def publish(app: object) -> None:
        recovered(app)
        calls.release()

    sender = TaskSender(MagicMock(), recovered=recovered)
    for _ in range(3):
        sender.submit(publish)
    until(lambda: not sender.healthy)
    sender.submit(publish)  # is given up, since the broker is still away
    broker_answers.set()
    until(lambda: sender.healthy)
    sender.submit(publish)
    assert calls.acquire(timeout=10), "a publication that was given up does not keep out the next one"
    sender.close(10)
