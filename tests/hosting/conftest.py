"""Workers that publish workflows, a folder without any of their code, and the context of a server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hosting.client.sending import Sending, publishing
from tests.support.cluster import Cluster
from wtb.operations.context import Context
from wtb.store.database import Database


@pytest.fixture(scope="module")
def sending(module_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sending]:
    with publishing(module_cluster, tmp_path_factory.mktemp("laptop")) as sending:
        yield sending


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The event loop of tests that are coroutines, as that of the server."""
    return "asyncio"


@pytest.fixture
def context(database: Database) -> Context:
    """The context of somebody who may do everything."""
    return Context(database, by="ann")
