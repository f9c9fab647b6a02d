"""Replace the `conftest.py` of LangGraph's own tests: their checkpointer is `Saver`, or LangGraph's in memory.

WTB_SUITE_DATABASE: the database of `Saver`; without it, LangGraph's InMemorySaver is tested, for comparison. Tests that
use no checkpointer are left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from pytest_mock import MockerFixture

from wtb.integrations.langgraph import Saver
from wtb.store.access.sessions import create
from wtb.store.database import Database

_CHECKPOINTERS = {"sync_checkpointer", "async_checkpointer"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    left_out = [test for test in items if not _CHECKPOINTERS & set(test.fixturenames)]
    items[:] = [test for test in items if _CHECKPOINTERS & set(test.fixturenames)]
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def deterministic_uuids(mocker: MockerFixture) -> Any:
    uuids = (UUID(f"00000000-0000-4000-8000-{number:012}", version=4) for number in range(10_000))
    return mocker.patch("uuid.uuid4", side_effect=uuids)


@pytest.fixture(params=["sync", "async", "exit"])
def durability(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def cache() -> InMemoryCache[Any]:
    return InMemoryCache()


@pytest.fixture
def sync_store() -> InMemoryStore:
    return InMemoryStore()


@pytest.fixture
def async_store() -> InMemoryStore:
    return InMemoryStore()


@pytest.fixture(scope="session")
def database() -> Iterator[Database | None]:
    if (url := os.environ.get("WTB_SUITE_DATABASE")) is None:
        yield None
        return
    opened = Database(url)
    opened.prepare()
    yield opened
    opened.close()


@pytest.fixture(params=["memory"])  # the snapshots of what InMemorySaver gives are stored under this name
def sync_checkpointer(database: Database | None) -> Iterator[BaseCheckpointSaver[Any]]:
    """A saver whose threads no other test sees."""
    if database is None:
        yield InMemorySaver()
        return
    name = f"test-{uuid4().hex}"
    create(database, name)
    with Saver(database, session=name) as saver:
        yield saver


@pytest.fixture
def async_checkpointer(sync_checkpointer: BaseCheckpointSaver[Any]) -> BaseCheckpointSaver[Any]:
    return sync_checkpointer
