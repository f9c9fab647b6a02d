"""Workers for the tests of a module: `pytest_plugins = ("tests.acceptance.crew_fixtures",)`, then `crew`."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from tests.acceptance.conftest import Project
from tests.acceptance.crew import FLOW
from tests.faults.cluster import Cluster
from wtb.servers.valkey import ValkeyServer


@pytest.fixture(scope="module")
def module_cluster(
    tmp_path_factory: pytest.TempPathFactory,
    servers_folder: Path,
    postgres_url: str,
    postgres_admin: psycopg.Connection,
) -> Iterator[Cluster]:
    """An empty cluster for the tests of a module, with a database and a Valkey of its own; nothing runs yet."""
    name = f"wtb_test_{secrets.token_hex(6)}"
    postgres_admin.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    project = Project(tmp_path_factory.mktemp("crew") / "project")
    project.write({"flow.py": FLOW})
    project.url = make_url(postgres_url).set(database=name).render_as_string(hide_password=False)
    with ValkeyServer(servers_folder / f"valkey-{name}-{os.getpid()}", die_with_parent=True) as valkey:
        cluster = Cluster(project, valkey)
        try:
            cluster.wtb("db", "upgrade", check=0)
            yield cluster
        finally:
            cluster.close()
            project.close()
    postgres_admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture(scope="module")
def crew(module_cluster: Cluster) -> Cluster:
    """The same with a worker of two slots for the queue `default`, and a tick."""
    module_cluster.start_tick()
    module_cluster.start_worker(concurrency=2)
    return module_cluster
