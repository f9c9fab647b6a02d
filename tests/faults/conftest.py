"""Projects on either database, and small disks that can be filled."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.project import Project


# What a cluster does, it does on PostgreSQL: without one, that repeats what was tested on SQLite.
@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    """An empty folder, and a database of its own; the test runs on SQLite, among the slow ones on PostgreSQL too."""
    project = Project(tmp_path / "project")
    if request.param == "postgresql":
        project.url = request.getfixturevalue("prepared_postgres_url")
    yield project
    project.close()


class SmallDisk:
    """A file system of a few MB in memory, mounted somewhere."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.filler = place / "filler"

    @property
    def free(self) -> int:
        return shutil.disk_usage(self.place).free

    def fill(self, leaving: int) -> None:
        """Take up all but so many bytes."""
        with self.filler.open("ab") as file:
            file.write(bytes(self.free - leaving))

    def make_room(self) -> None:
        self.filler.unlink()


@pytest.fixture
def small_disk() -> Iterator[Callable[[Path, int], SmallDisk]]:
    """Mounts a disk of so many bytes at a path. Where that cannot be done the test fails: nothing hides it."""
    mounted: list[Path] = []
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]

    def mount(place: Path, size: int) -> SmallDisk:
        place.mkdir(parents=True, exist_ok=True)
        options = f"size={size},mode=0700,uid={os.geteuid()}"
        command = [*sudo, "mount", "-t", "tmpfs", "-o", options, "wtb-small-disk", str(place)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.fail(f"a full disk needs a mount (root, or sudo without a password): {done.stderr.strip()}")
        mounted.append(place)
        return SmallDisk(place)

    yield mount
    for place in mounted:
        subprocess.run([*sudo, "umount", "--lazy", str(place)], check=True)
