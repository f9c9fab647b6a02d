"""Writes to code files are reported before they happen, whichever call makes them; reads are not."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from wtb.authoring.context import audit_hook
from wtb.authoring.context.audit_hook import report_writes, setting_up, watch_files, written_here
from wtb.core.tree.stored_code import OUTSIDE


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(audit_hook, "_watched", audit_hook._Watched())
    (tmp_path / "data").mkdir()
    for name in ("cache.json", "other.json", "data/model.json", "elsewhere.json"):
        (tmp_path / name).write_text("{}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def reported_writes(folder: Path) -> Iterator[list[str]]:
    parts: list[str] = []
    watch_files(
        {str(folder / "cache.json"): "file cache.json", str(folder / "data/model.json"): "file data/model.json"}
    )
    report_writes(parts.extend)
    return parts


def write(path: Path) -> None:
    path.write_text("x")


def update(path: Path) -> None:
    with open(path, "r+") as file:
        file.write("x")


def append_by_descriptor(path: Path) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_APPEND))


def replace(path: Path) -> None:
    os.replace("other.json", path)


def link(path: Path) -> None:
    path.unlink()
    path.symlink_to("other.json")


def connect(path: Path) -> None:
    path.unlink()
    sqlite3.connect(path).close()


WRITES: dict[str, Callable[[Path], object]] = {
    "write": write,
    "update": update,
    "descriptor": append_by_descriptor,
    "bytes": lambda path: open(os.fsencode(path), "ab").close(),
    "relative": lambda path: write(Path("data/../cache.json")),
    "replace": replace,
    "move": lambda path: shutil.move("other.json", path),
    "copy": lambda path: shutil.copy("other.json", path),
    "truncate": lambda path: os.truncate(path, 0),
    "remove": os.remove,
    "rename it": lambda path: path.rename("cache.old"),
    "symbolic link": link,
    "hard link": lambda path: (path.rename("cache.old"), os.link("other.json", path)),
    "database": connect,
}


@pytest.mark.parametrize("way", WRITES)
def test_a_write_is_heard(folder: Path, reported_writes: list[str], way: str) -> None:
    WRITES[way](folder / "cache.json")

    assert set(reported_writes) == {"file cache.json"}


def test_a_write_by_another_path_to_the_same_file_is_heard(folder: Path, reported_writes: list[str]) -> None:
    (folder / "to data").symlink_to("data")

    write(folder / "to data" / "model.json")

    assert reported_writes == ["file data/model.json"]


@pytest.mark.parametrize("way", [shutil.rmtree, lambda path: os.rename(path, "data.old")], ids=["remove", "rename"])
def test_a_folder_that_is_replaced_is_heard(
    folder: Path, reported_writes: list[str], way: Callable[[Path], object]
) -> None:
    way(folder / "data")

    assert set(reported_writes) == {"file data/model.json"}


def test_what_only_reads_and_writes_to_other_files_are_not_heard(folder: Path, reported_writes: list[str]) -> None:
    (folder / "cache.json").read_text()
    os.stat("cache.json")
    os.close(os.open("cache.json", os.O_RDONLY))
    shutil.copy("cache.json", "elsewhere.json")
    write(folder / "data" / "cache.json")
    with tempfile.TemporaryDirectory() as other:
        write(Path(other) / "cache.json")

    assert reported_writes == []


def test_a_file_that_is_opened_at_import_is_known_once_it_is_known_to_be_code(folder: Path) -> None:
    write(folder / "elsewhere.json")
    with setting_up():
        file = (folder / "cache.json").open("a")
    watch_files({str(folder / name): f"file {name}" for name in ("cache.json", "elsewhere.json")})

    assert written_here() == {"file cache.json": OUTSIDE}
    file.close()
