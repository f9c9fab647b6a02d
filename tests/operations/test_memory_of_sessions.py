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


@pytest.mark.parametrize("wrong", [0, -1, 2**63, 0.5, "4GB", True, float("inf")])
def test_what_is_no_number_of_bytes_is_refused(prepared_url: str, wrong: Any) -> None:
    with wtb.open(prepared_url) as bench:
        with pytest.raises(InputError, match=r"memory is .*expected"):
            bench.create_session("ann", memory=wrong)
        with pytest.raises(InputError, match=r"memory is .*expected"):
            bench.change_session("default", memory=wrong)
        with pytest.raises(InputError, match=r"no quota of 'memry'; did you mean 'memory'\?"):
            bench.change_session("default", memry=5)
        assert [session["name"] for session in bench.sessions()] == ["default"]
