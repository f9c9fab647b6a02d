"""Workers that publish workflows, and a folder without any of their code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hosting.client.sending import Sending, publishing
from tests.support.cluster import Cluster


@pytest.fixture(scope="module")
def sending(module_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sending]:
    with publishing(module_cluster, tmp_path_factory.mktemp("laptop")) as sending:
        yield sending


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The event loop of tests that are coroutines, as that of the server."""
    return "asyncio"
