"""What an installation brings: three packages and nothing that could collide with a user's own."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The files in the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(ROOT)], check=True, capture_output=True)
    (wheel,) = folder.glob("wtb-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_the_installed_packages_are_three(names: list[str]) -> None:
    found = {name.partition("/")[0] for name in names}
    assert {name for name in found if not name.endswith(".dist-info")} == {"wtb", "wtb_workers", "wtb_scheduler"}


def test_migrations_and_templates_come_along(names: list[str]) -> None:
    assert "wtb/store/migrations/versions/0001_first.py" in names
    assert "wtb/templates/init/sweep.yaml" in names
    assert "wtb/py.typed" in names
