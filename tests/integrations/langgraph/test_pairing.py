"""Writes are paired with their checkpoint, whichever comes first, and no thread waits for ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.support.prose import sentence
from wtb.integrations.langgraph.saver import validation
from wtb.integrations.langgraph.saver.validation import Pairing, Waiting

PLACE = ("thread", "")


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "PATIENCE_S", 60.0)


def writes(number: int = 0) -> Waiting:
    return Waiting([{"channel": "x", "number": number}], {})


def offer(pairs: Pairing, parent: str, mine: Waiting) -> bool:
    """Offer writes. Return whether a checkpoint took them along."""
    with pairs.offer(PLACE, parent, mine) as was_stored:
        return was_stored


def taken(pairs: Pairing, parent: str | None) -> list[Waiting]:
    """Return the writes that a checkpoint takes along."""
    with pairs.take_waiting(PLACE, parent) as waiting_writes:
        return list(waiting_writes)


def prove(pairs: Pairing) -> None:
    """Take waiting writes while writes are being stored, so that the pairing expects pairs."""
    with pairs.offer(PLACE, "before", writes()) as was_stored:
        assert not was_stored
        assert taken(pairs, "before") == []


@pytest.mark.usefixtures("patient")
def test_writes_are_taken_along_and_told_so_once_they_are_stored(pool: ThreadPoolExecutor) -> None:
    pairs, mine = Pairing(), writes()
    prove(pairs)

    offered = pool.submit(offer, pairs, "parent", mine)
    with pairs.take_waiting(PLACE, "parent") as waiting_writes:
        assert waiting_writes == [mine]
        assert not offered.done()

    assert offered.result(60)


@pytest.mark.usefixtures("patient")
def test_a_checkpoint_waits_for_the_writes_that_lead_to_it(pool: ThreadPoolExecutor) -> None:
    pairs, mine, taking = Pairing(), writes(), threading.Event()
    prove(pairs)

    def store() -> list[Waiting]:
        taking.set()
        return taken(pairs, "parent")

    stored: Future[list[Waiting]] = pool.submit(store)
    taking.wait(60)

    assert offer(pairs, "parent", mine)
    assert stored.result(60) == [mine]


@pytest.mark.usefixtures("patient")
def test_writes_are_stored_by_themselves_where_their_checkpoint_failed(pool: ThreadPoolExecutor) -> None:
    pairs = Pairing()
    prove(pairs)
    offered = pool.submit(offer, pairs, "parent", writes())

    with pytest.raises(ValueError, match=sentence("cannot be stored")), pairs.take_waiting(PLACE, "parent"):
        raise ValueError("cannot be stored")

    assert offered.result(60) is False


@pytest.mark.usefixtures("patient")
def test_nobody_waits_in_a_thread_whose_writes_and_checkpoints_come_one_after_the_other() -> None:
    pairs = Pairing()

    for parent in "abc":
        assert not offer(pairs, parent, writes())
        assert taken(pairs, parent) == taken(pairs, "that nothing was written from") == []


@pytest.mark.usefixtures("patient")
def test_a_checkpoint_that_no_step_led_to_and_writes_that_none_follows_on_wait_for_nobody() -> None:
    pairs = Pairing()
    prove(pairs)

    assert taken(pairs, None) == []
    assert not offer(pairs, "parent", writes(number=-3))


def test_a_thread_whose_writes_waited_in_vain_waits_no_more_until_a_checkpoint_comes_beside_writes(
    monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor
) -> None:
    pairs, mine = Pairing(), writes()
    prove(pairs)
    monkeypatch.setattr(validation, "PATIENCE_S", 0.0)
    assert [offer(pairs, "parent", writes()) for _ in range(2)] == [False, False]
    monkeypatch.setattr(validation, "PATIENCE_S", 60.0)

    assert not offer(pairs, "parent", writes())
    prove(pairs)
    offered = pool.submit(offer, pairs, "next", mine)

    assert taken(pairs, "next") == [mine]
    assert offered.result(60)


def test_tasks_that_end_apart_end_it_only_for_their_step(
    monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor
) -> None:
    pairs, mine = Pairing(), writes()
    prove(pairs)
    monkeypatch.setattr(validation, "PATIENCE_S", 0.0)
    for _ in range(3):
        assert not offer(pairs, "parent", writes())
    with pairs.offer(PLACE, "parent", writes()) as was_stored:  # the last task, as the checkpoint comes
        assert not was_stored
        taken(pairs, "parent")
    monkeypatch.setattr(validation, "PATIENCE_S", 60.0)

    offered = pool.submit(offer, pairs, "next", mine)

    assert taken(pairs, "next") == [mine]
    assert offered.result(60)


def test_what_is_known_of_threads_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "_MOST_PLACES", 3)
    pairs = Pairing()

    for number in range(10):
        with pairs.take_waiting((str(number), ""), None):
            pass

    assert len(pairs._threads) == 3
