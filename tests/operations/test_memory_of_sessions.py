"""The memory quota of a session in Python: set, change, lift and reject it."""

from __future__ import annotations

from typing import Any

import pytest

import wtb
from wtb import InputError


def test_a_session_gets_keeps_and_loses_its_memory_quota(prepared_url: str) -> None:
    with wtb.open(prepared_url) as bench:
        document = bench.create_session("ann", memory=4 * 10**9, disk=10**9)
        assert document["session"]["quota"].get("memory") == 4 * 10**9
        assert document["session"]["usage"].get("memory") == 0
        assert bench.change_session("ann", memory=10**9).memory == 10**9
        assert bench.change_session("ann", disk=None).memory == 10**9, "what is not named stays"
        assert bench.change_session("ann", memory=None).memory is None
        assert bench.session("ann")["session"]["usage"].get("memory") is None


def test_what_is_no_number_of_bytes_is_refused(prepared_url: str, subtests: pytest.Subtests) -> None:
    wrong_amounts: list[Any] = [0, -1, 2**63, 0.5, "4GB", True, float("inf")]
    with wtb.open(prepared_url) as bench:
        for wrong in wrong_amounts:
            for name, act in (("ann", bench.create_session), ("default", bench.change_session)):
                with subtests.test(name, memory=wrong), pytest.raises(InputError, match=r"memory is .*expected"):
                    act(name, memory=wrong)
        with pytest.raises(InputError, match=r"no quota of 'memry'; did you mean 'memory'\?"):
            bench.change_session("default", memry=5)
        assert [session["name"] for session in bench.sessions()] == ["default"]
