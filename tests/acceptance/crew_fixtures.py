"""Workers for the tests of a module: `pytest_plugins = ("tests.acceptance.crew_fixtures",)`, then `crew`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.conftest import Project
from tests.acceptance.crew import FLOW
from tests.conftest import postgres_database
from tests.faults.cluster import Cluster
from wtb.hosting.servers.valkey import ValkeyServer


@pytest.fixture(scope="module")
def module_cluster(
    tmp_path_factory: pytest.TempPathFactory,
    servers_folder: Path,
    postgres_url: str,
    postgres_admin: psycopg.Connection,
    postgres_template: str,
    request: pytest.FixtureRequest,
) -> Iterator[Cluster]:
    """An empty cluster for the tests of a module, with a database and a Valkey of its own; nothing runs yet."""
    project = Project(tmp_path_factory.mktemp("crew") / "project")
    project.write({"flow.py": FLOW})
    with (
        postgres_database(postgres_url, postgres_admin, postgres_template) as project.url,
        ValkeyServer(servers_folder / f"valkey-{request.path.stem}", die_with_parent=True) as valkey,
        closing(project),
        closing(Cluster(project, valkey)) as cluster,
    ):
        yield cluster


@pytest.fixture(scope="module")
def crew(module_cluster: Cluster) -> Cluster:
    """The same with a worker of two slots for the queue `default`, and a tick."""
    module_cluster.start_tick()
    module_cluster.start_worker(concurrency=2)
    return module_cluster
