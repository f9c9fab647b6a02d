"""Tests that hang fail in time."""

from __future__ import annotations

import threading

import pytest

from tests.support import deadlines


def test_a_test_that_hangs_fails_with_the_stacks_of_its_threads(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "DEADLINE_S", 0.05)
    with pytest.raises(pytest.fail.Exception) as failed, deadlines._deadline(request.node):
        threading.Event().wait()
    assert "still running after 0.05 s" in str(failed.value)
    assert "in wait" in str(failed.value)


def test_a_bound_within_it_leaves_it_as_it_was() -> None:
    rung: list[str] = []
    with deadlines.alarm(0.2, lambda *_: rung.append("outer")):
        with deadlines.alarm(30.0, lambda *_: rung.append("inner")):
            pass
        for _ in iter(lambda: rung, ["outer"]):
            pass
    assert rung == ["outer"]
