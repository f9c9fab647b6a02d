"""A project with sweeps, for tests that send nonsense to its server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tenants import Tenant
from wtb.operations.context import Context
from wtb.store.database import Database


@pytest.fixture
def tenant(database: Database, tmp_path: Path) -> Tenant:
    return Tenant(Context(database, by="ann", files=tmp_path / "files"), tmp_path / "files", "quokka")
