"""This WTB as its next version will be, whose migration adds a column."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from wtb.store import database
from wtb.store.tables import schema

ADDED = """
import sqlalchemy as sa
from alembic import op

revision = "2001"
down_revision = "2000"


def upgrade() -> None:
    op.add_column("cells", sa.Column("note", sa.Text, comment="of the next version"))
"""


@pytest.fixture
def next_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """Have this WTB be the next version, with a migration that adds a column. Returns that version."""

    def become() -> str:
        migrations = tmp_path / "migrations"
        shutil.copytree(database.MIGRATIONS, migrations)
        (migrations / "versions" / "2001_note.py").write_text(ADDED)
        monkeypatch.setattr(database, "MIGRATIONS", migrations)
        for module in (database, schema):
            monkeypatch.setattr(module, "REVISION", "2001")
        return "2001"

    return become
