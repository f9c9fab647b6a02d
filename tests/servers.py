"""The broker of tests: a real Valkey, started by the launcher that `wtb up` uses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from wtb.hosting.servers.valkey import ValkeyServer


@pytest.fixture(scope="session")
def valkey_url(servers_folder: Path) -> Iterator[str]:
    """One Valkey for the whole run: that of WTB_TEST_BROKER_URL, else a private one.

    A test that empties, stops or fills a broker starts its own (`valkey`).
    """
    if given := os.environ.get("WTB_TEST_BROKER_URL"):
        yield given
        return
    with ValkeyServer(servers_folder / "valkey", die_with_parent=True) as server:
        yield server.url


@pytest.fixture
def valkey(servers_folder: Path, request: pytest.FixtureRequest) -> Iterator[ValkeyServer]:
    """A Valkey of the test's own, to be killed, stopped, emptied or filled."""
    folder = servers_folder / f"valkey-{abs(hash(request.node.nodeid)):x}"
    with ValkeyServer(folder, die_with_parent=True) as server:
        yield server
