"""The heartbeat of a runner stops using the database when it ends."""

from __future__ import annotations

import threading

import pytest

from tests.support.bench import in_memory
from wtb.core.errors import StoreError
from wtb.execution.runtime import upkeep
from wtb.execution.runtime.upkeep import Heartbeat
from wtb.store.runs import leases


def test_whoever_ends_it_waits_for_a_beat_that_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "LOOK_S", 0.01)
    monkeypatch.setattr(upkeep, "END_S", 60.0)
    under_way, answered, ended = threading.Event(), threading.Event(), threading.Event()
    order: list[str] = []

    def look() -> None:
        under_way.set()
        answered.wait(60)
        order.append("looked")

    def end() -> None:
        beats.end()
        order.append("ended")
        ended.set()

    beats = Heartbeat(in_memory(), "somebody", 60.0, look=look, stopped=lambda: order.append("stopped"))
    beats.start()
    assert under_way.wait(60)
    threading.Thread(target=end).start()
    assert not ended.wait(0.1)
    answered.set()
    assert ended.wait(60)
    assert order == ["looked", "ended"]


def test_a_database_that_does_not_answer_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "LOOK_S", 0.01)
    monkeypatch.setattr(upkeep, "END_S", 0.01)
    under_way, answered = threading.Event(), threading.Event()

    def look() -> None:
        under_way.set()
        answered.wait(60)

    beats = Heartbeat(in_memory(), "somebody", 60.0, look=look, stopped=lambda: None)
    beats.start()
    assert under_way.wait(60)
    beats.end()
    answered.set()


def test_leases_that_cannot_be_renewed_for_as_long_as_they_last_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "LOOK_S", 0.01)
    stopped, renewals = threading.Event(), 0

    def fail(*arguments: object) -> None:
        nonlocal renewals
        renewals += 1
        raise StoreError("the server closed the connection")

    monkeypatch.setattr(leases, "renew", fail)
    beats = Heartbeat(in_memory(), "somebody", 0.3, look=lambda: None, stopped=stopped.set)
    beats.start()
    assert stopped.wait(20), "others may take over, so its runner has to abandon its work"
    assert renewals > 1, "one that fails may follow from a moment without a network"


def test_one_that_never_began_can_end() -> None:
    Heartbeat(in_memory(), "somebody", 60.0, look=lambda: None, stopped=lambda: None).end()
