"""What operations notify workers with: it survives a broker that is away, threads that share it, and its end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

import wtb
from wtb.core.ids import new_id
from wtb.hosting.servers.valkey import ValkeyServer
from wtb.operations.context import Context, Notifier
from wtb.store.database import Database
from wtb.store.runs.queue import Notification
from wtb_workers import broker_notifier
from wtb_workers.broker_notifier import CLOSED, BrokerNotifier

ROW = Notification(new_id(), None, "s", "c", {})


@pytest.fixture(scope="module")
def server(servers_folder: Path) -> Iterator[ValkeyServer]:
    with ValkeyServer(servers_folder / "valkey-of-notifiers") as started:
        yield started


def test_a_broker_that_was_away_at_first_is_notified_later(
    server: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_notifier, "RETRY_S", 0.0)
    server.stop()
    with closing(BrokerNotifier(server.url)) as notifier:
        assert notifier.notify([ROW]) is not None
        server.start()
        assert notifier.notify([ROW]) is None


def test_threads_share_a_notifier(server: ValkeyServer) -> None:
    with closing(BrokerNotifier(server.url)) as notifier, ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda _: notifier.notify([ROW]), range(40))) == [None] * 40


def test_a_notifier_that_is_closed_ends_its_thread_and_says_so(server: ValkeyServer) -> None:
    before = set(threading.enumerate())
    notifier = BrokerNotifier(server.url)
    assert notifier.notify([ROW]) is None
    (thread,) = (one for one in set(threading.enumerate()) - before if one.name == "wtb-notifier")
    notifier.close()
    notifier.close()
    assert not thread.is_alive()
    assert notifier.notify([ROW]) == CLOSED


def test_a_bench_has_one_notifier_for_all_threads_and_closes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[FakeNotifier] = []
    together = threading.Barrier(4)

    def make(url: str | None) -> Notifier:
        made.append(FakeNotifier())
        return made[-1]

    def take(context: Context) -> Notifier:
        together.wait()
        return context.notifier

    monkeypatch.setattr("wtb.operations.context.entry_points", lambda **_: [SimpleNamespace(load=lambda: make)])
    with wtb.open(f"sqlite:///{tmp_path / 'wtb.db'}") as bench, ThreadPoolExecutor(4) as threads:
        assert len(set(map(id, threads.map(take, [bench._context] * 4)))) == 1
    assert [one.closed for one in made] == [True]


class FakeNotifier:
    url = None
    closed = False

    def check(self) -> None: ...

    def problem(self) -> str | None: ...

    def notify_pending(self, database: Database) -> str | None: ...

    def close(self) -> None:
        self.closed = True
