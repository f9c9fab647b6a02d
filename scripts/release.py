"""Build a release into dist/ and check it, up to its upload: `make release`. Requires a network."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from wtb.core.version import __version__

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"


def problems(changelog: str, status: str) -> list[str]:
    """Return why nothing is to be released yet.

    Args:
        changelog: The text of CHANGELOG.md.
        status: The output of `git status --porcelain`.
    """
    missing = []
    if status.strip():
        missing.append("uncommitted changes would be part of it; commit them")
    if not re.search(rf"^## {re.escape(__version__)} - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE):
        missing.append(f"CHANGELOG.md has no section '## {__version__} - YYYY-MM-DD'; add its date")
    unreleased = re.search(r"^## Unreleased\n(.*?)^## ", changelog, re.MULTILINE | re.DOTALL)
    if unreleased is not None and re.search(r"^- ", unreleased[1], re.MULTILINE):
        missing.append(f"'Unreleased' in CHANGELOG.md has entries; move them to {__version__}")
    return missing


def try_out(archive: Path) -> None:
    """Install a wheel or sdist into an empty environment, and run a sweep there."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        subprocess.run([sys.executable, "-m", "venv", place / "venv"], check=True)
        run = [place / "venv/bin/python", "-m"]
        subprocess.run([*run, "pip", "install", "--quiet", archive], check=True)
        subprocess.run([*run, "wtb", "init", "demo"], cwd=place, check=True, stdout=subprocess.DEVNULL)
        subprocess.run([*run, "wtb", "run", "sweep.yaml"], cwd=place / "demo", check=True, stdout=subprocess.DEVNULL)
    print(f"{archive.name} runs a sweep in an empty environment")


def main() -> None:
    """Build and check, or exit with what is missing."""
    git = ["git", "-C", str(ROOT), "status", "--porcelain"]
    status = subprocess.run(git, check=True, capture_output=True, text=True).stdout
    if missing := problems((ROOT / "CHANGELOG.md").read_text("utf-8"), status):
        sys.exit("\n".join(missing))
    shutil.rmtree(DIST, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "hatchling", "build"], cwd=ROOT, check=True)
    archives = sorted(DIST.iterdir())
    subprocess.run([Path(sys.executable).with_name("uvx"), "twine", "check", "--strict", *archives], check=True)
    for archive in archives:
        try_out(archive)
    print(f"publish with: git tag v{__version__} && .venv/bin/uv publish dist/*")


if __name__ == "__main__":
    main()
