"""Writes and the checkpoint that they lead to find each other, whichever comes first, and nobody waits for ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from wtb.langgraph import pairing
from wtb.langgraph.pairing import Pairing, Waiting

PLACE = ("thread", "")


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as made:
        yield made


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "PATIENCE_S", 60.0)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "PATIENCE_S", 0.0)


def writes() -> Waiting:
    return Waiting([{"channel": "x"}], {})


@pytest.mark.usefixtures("patient")
def test_writes_are_taken_along_and_told_so_once_they_are_stored(pool: ThreadPoolExecutor) -> None:
    pairs, mine = Pairing(), writes()

    told = pool.submit(pairs.was_stored, PLACE, "parent", mine)
    with pairs.taken(PLACE, "parent") as found:
        assert found == [mine]
        assert not told.done()

    assert told.result(60)


@pytest.mark.usefixtures("patient")
def test_a_checkpoint_waits_for_the_writes_that_lead_to_it(pool: ThreadPoolExecutor) -> None:
    pairs, mine, begun = Pairing(), writes(), threading.Event()

    def store() -> list[Waiting]:
        begun.set()
        with pairs.taken(PLACE, "parent") as found:
            return list(found)

    stored: Future[list[Waiting]] = pool.submit(store)
    begun.wait(60)

    assert pairs.was_stored(PLACE, "parent", mine)
    assert stored.result(60) == [mine]


@pytest.mark.usefixtures("patient")
def test_writes_are_stored_by_themselves_where_their_checkpoint_failed(pool: ThreadPoolExecutor) -> None:
    pairs = Pairing()
    told = pool.submit(pairs.was_stored, PLACE, "parent", writes())

    with pytest.raises(ValueError, match="cannot be stored"), pairs.taken(PLACE, "parent"):
        raise ValueError("cannot be stored")

    assert told.result(60) is False


@pytest.mark.usefixtures("patient")
def test_a_checkpoint_that_no_step_led_to_waits_for_nobody() -> None:
    with Pairing().taken(PLACE, None) as found:
        assert found == []


@pytest.mark.usefixtures("impatient")
def test_writes_that_no_checkpoint_follows_are_stored_by_themselves() -> None:
    pairs = Pairing()

    assert not pairs.was_stored(PLACE, "parent", writes())
    with pairs.taken(PLACE, "parent") as found:
        assert found == []


def test_a_thread_whose_writes_waited_in_vain_waits_no_more_until_it_is_read_again(
    monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor
) -> None:
    pairs, mine = Pairing(), writes()
    monkeypatch.setattr(pairing, "PATIENCE_S", 0.0)
    assert [pairs.was_stored(PLACE, "parent", writes()) for _ in range(2)] == [False, False]
    monkeypatch.setattr(pairing, "PATIENCE_S", 60.0)

    assert not pairs.was_stored(PLACE, "parent", writes())
    pairs.begin(PLACE)
    told = pool.submit(pairs.was_stored, PLACE, "next", mine)

    with pairs.taken(PLACE, "next") as found:
        assert found == [mine]
    assert told.result(60)


def test_what_is_known_of_threads_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "_MOST_PLACES", 3)
    pairs = Pairing()

    for number in range(10):
        pairs.begin((str(number), ""))

    assert len(pairs._threads) == 3
