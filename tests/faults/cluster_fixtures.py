"""Clusters for tests: `pytest_plugins = ("tests.faults.cluster_fixtures",)` in a test's module."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.acceptance.conftest import Project
from tests.conftest import QUICK
from tests.faults.cluster import Cluster, MakeCluster
from wtb.hosting.servers.postgres import PostgresServer
from wtb.hosting.servers.valkey import ValkeyServer


@pytest.fixture
def make_cluster(
    tmp_path: Path, servers_folder: Path, prepared_postgres_url: str, request: pytest.FixtureRequest
) -> Iterator[MakeCluster]:
    """Makes the cluster of a test. postgres, valkey: settings of its servers; None: the session's PostgreSQL."""
    word = re.sub(r"\W+", "-", request.node.name)[-40:] + f"-{os.getpid()}-{id(request):x}"
    with ExitStack() as hands:

        def make(*, postgres: Mapping[str, str] | None = None, valkey: Mapping[str, str] | None = None) -> Cluster:
            project = Project(tmp_path / "project")
            hands.callback(project.close)
            broker = hands.enter_context(
                ValkeyServer(servers_folder / f"valkey-{word}", settings=valkey, die_with_parent=True)
            )
            own = None
            if postgres is None:
                project.url = prepared_postgres_url
            else:
                settings = {**QUICK, **postgres}
                server = PostgresServer(servers_folder / f"postgres-{word}", settings=settings, die_with_parent=True)
                own = hands.enter_context(server)
                project.url = own.url
            made = Cluster(project, broker, own)
            hands.callback(made.close)
            return made

        yield make


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> Cluster:
    """An empty folder, a database of its own on the session's PostgreSQL, and a Valkey of its own."""
    return make_cluster()
