"""Paths of databases that are as long as SQLite opens, and longer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wtb.core.errors import StoreError
from wtb.store.database import Database


def test_a_path_that_sqlite_cannot_open_is_named_with_its_length(tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["d" * 100] * 5)

    with pytest.raises(StoreError, match=r"its path has \d{3} bytes, and SQLite opens none of more than 503: keep it"):
        Database(f"sqlite:///{folder}/wtb.db").prepare()


def test_the_longest_path_can_be_opened(tmp_path: Path) -> None:
    rest = 503 - len(os.fsencode(tmp_path)) - len("/wtb.db") - 1
    folder = tmp_path.joinpath("d" * (rest - 201), "e" * 200)

    Database(f"sqlite:///{folder}/wtb.db").prepare()

    assert len(os.fsencode(folder / "wtb.db")) == 503
