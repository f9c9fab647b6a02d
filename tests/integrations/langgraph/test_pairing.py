"""Writes and the checkpoint that they lead to find each other, whichever comes first, and nobody waits for ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.support.prose import sentence
from wtb.integrations.langgraph.saver import write_buffer
from wtb.integrations.langgraph.saver.write_buffer import Pairing, Waiting

PLACE = ("thread", "")


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as made:
        yield made


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_buffer, "PATIENCE_S", 60.0)


def writes(number: int = 0) -> Waiting:
    return Waiting([{"channel": "x", "number": number}], {})


def offer(pairs: Pairing, parent: str, mine: Waiting) -> bool:
    """Whether a checkpoint took the writes along."""
    with pairs.offer(PLACE, parent, mine) as was_stored:
        return was_stored


def prove(pairs: Pairing) -> None:
    """A checkpoint comes while writes are being stored."""
    with pairs.offer(PLACE, "before", writes()) as was_stored:
        assert not was_stored
        with pairs.take_waiting(PLACE, "before") as found:
            assert found == []


@pytest.mark.usefixtures("patient")
def test_writes_are_taken_along_and_told_so_once_they_are_stored(pool: ThreadPoolExecutor) -> None:
    pairs, mine = Pairing(), writes()
    prove(pairs)

    told = pool.submit(offer, pairs, "parent", mine)
    with pairs.take_waiting(PLACE, "parent") as found:
        assert found == [mine]
        assert not told.done()

    assert told.result(60)


@pytest.mark.usefixtures("patient")
def test_a_checkpoint_waits_for_the_writes_that_lead_to_it(pool: ThreadPoolExecutor) -> None:
    pairs, mine, begun = Pairing(), writes(), threading.Event()
    prove(pairs)

    def store() -> list[Waiting]:
        begun.set()
        with pairs.take_waiting(PLACE, "parent") as found:
            return list(found)

    stored: Future[list[Waiting]] = pool.submit(store)
    begun.wait(60)

    assert offer(pairs, "parent", mine)
    assert stored.result(60) == [mine]


@pytest.mark.usefixtures("patient")
def test_writes_are_stored_by_themselves_where_their_checkpoint_failed(pool: ThreadPoolExecutor) -> None:
    pairs = Pairing()
    prove(pairs)
    told = pool.submit(offer, pairs, "parent", writes())

    with pytest.raises(ValueError, match=sentence("cannot be stored")), pairs.take_waiting(PLACE, "parent"):
        raise ValueError("cannot be stored")

    assert told.result(60) is False


@pytest.mark.usefixtures("patient")
def test_nobody_waits_in_a_thread_whose_writes_and_checkpoints_come_one_after_the_other() -> None:
    pairs = Pairing()

    for parent in "abc":
        assert not offer(pairs, parent, writes())
        with pairs.take_waiting(PLACE, parent) as found:
            assert found == []
        with pairs.take_waiting(PLACE, "that nothing was written from") as found:
            assert found == []


@pytest.mark.usefixtures("patient")
def test_a_checkpoint_that_no_step_led_to_waits_for_nobody() -> None:
    pairs = Pairing()
    prove(pairs)

    with pairs.take_waiting(PLACE, None) as found:
        assert found == []


@pytest.mark.usefixtures("patient")
def test_writes_that_no_checkpoint_follows_on_wait_for_none() -> None:
    pairs = Pairing()
    prove(pairs)

    assert not offer(pairs, "parent", writes(number=-3))


def test_a_thread_whose_writes_waited_in_vain_waits_no_more_until_a_checkpoint_comes_beside_writes(
    monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor
) -> None:
    pairs, mine = Pairing(), writes()
    prove(pairs)
    monkeypatch.setattr(write_buffer, "PATIENCE_S", 0.0)
    assert [offer(pairs, "parent", writes()) for _ in range(2)] == [False, False]
    monkeypatch.setattr(write_buffer, "PATIENCE_S", 60.0)

    assert not offer(pairs, "parent", writes())
    prove(pairs)
    told = pool.submit(offer, pairs, "next", mine)

    with pairs.take_waiting(PLACE, "next") as found:
        assert found == [mine]
    assert told.result(60)


def test_tasks_that_end_apart_end_it_only_for_their_step(
    monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor
) -> None:
    pairs, mine = Pairing(), writes()
    prove(pairs)
    monkeypatch.setattr(write_buffer, "PATIENCE_S", 0.0)
    for _ in range(3):
        assert not offer(pairs, "parent", writes())
    with pairs.offer(PLACE, "parent", writes()) as was_stored:  # the last task, as the checkpoint comes
        assert not was_stored
        with pairs.take_waiting(PLACE, "parent"):
            pass
    monkeypatch.setattr(write_buffer, "PATIENCE_S", 60.0)

    told = pool.submit(offer, pairs, "next", mine)

    with pairs.take_waiting(PLACE, "next") as found:
        assert found == [mine]
    assert told.result(60)


def test_what_is_known_of_threads_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_buffer, "_MOST_PLACES", 3)
    pairs = Pairing()

    for number in range(10):
        with pairs.take_waiting((str(number), ""), None):
            pass

    assert len(pairs._threads) == 3
