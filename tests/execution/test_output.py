"""Output of running attempts is reported while it grows, within bounds, and never cuts a pattern."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from wtb.core.errors import ConflictError
from wtb.execution.engine import resource_usage
from wtb.execution.engine.resource_usage import PRINTED, Sampler
from wtb.execution.sandbox.attempt_output import CAP, Output


class Listener:
    """Takes reports, and signals when this many have come."""

    def __init__(self, expected: int) -> None:
        self.texts: list[Any] = []
        self._remaining = threading.Semaphore(0)
        self._expected = expected

    def __call__(self, kind: str, details: Any) -> None:
        assert kind == PRINTED
        self.texts.append(details["stdout"])
        self._remaining.release()

    def wait(self) -> None:
        for _ in range(self._expected):
            assert self._remaining.acquire(timeout=10)


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_usage, "PRINTED_S", 0.01)


def test_output_is_reported_while_it_grows_and_only_then() -> None:
    sampler, listener, later = Sampler(), Listener(1), Listener(1)
    output, other = {"stdout": Output(), "stderr": Output()}, {"stdout": Output()}
    with (
        sampler.sampling(1, listener, whole=False, every=0) as printing,
        sampler.sampling(1, later, whole=False, every=0) as printing_later,
    ):
        printing(output)
        for number in range(3):
            output["stdout"].add(f"{number}\n".encode())
            listener.wait()
        printing_later(other)
        for _ in range(5):  # each is a look at both
            other["stdout"].add(b"x")
            later.wait()
    assert listener.texts == ["0\n", "0\n1\n", "0\n1\n2\n"]
    assert output["stdout"].take() == "0\n1\n2\n", "to report it takes nothing away"
    assert output["stdout"].size == 0


def test_of_much_output_some_is_reported_at_a_time_and_all_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_usage, "MOST_PRINTED", 1)
    sampler = Sampler()
    listener, other = Listener(1), Listener(1)
    outputs = [{"stdout": Output()}, {"stdout": Output()}]
    with (
        sampler.sampling(1, listener, whole=False, every=0) as first,
        sampler.sampling(1, other, whole=False, every=0) as second,
    ):
        for printing, output in zip((first, second), outputs, strict=True):
            output["stdout"].add(b"x" * 3 * CAP)
            printing(output)
        listener.wait()
        other.wait()
    assert len(listener.texts) == len(other.texts) == 1
    assert len(listener.texts[0]) < 2 * CAP + 100, "the beginning and the end"


def test_an_attempt_that_lost_its_lease_does_not_stop_reports_of_others() -> None:
    sampler, listener = Sampler(), Listener(1)

    def lose_lease(kind: str, details: Any) -> None:
        raise ConflictError("its lease is gone")

    with (
        sampler.sampling(1, lose_lease, whole=False, every=0) as first,
        sampler.sampling(1, listener, whole=False, every=0) as second,
    ):
        for printing in (first, second):
            output = {"stdout": Output()}
            output["stdout"].add(b"x")
            printing(output)
        listener.wait()
