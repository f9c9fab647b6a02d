"""Resolve all dependencies, with their hashes, into requirements.lock: `make lock`.

It holds for all supported versions of Python and all platforms, and names no index: packages come from the one that is
configured where they are installed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"
GROUPS = ("test", "check", "docs")
_HEADER = (
    "# All dependencies of WTB with their hashes, for each extra and for its tests; `make lock` resolves them again.\n"
    "#   pip install --require-hashes -r requirements.lock && pip install --no-deps workflow-test-bench\n"
)


def main() -> None:
    groups = [option for group in GROUPS for option in ("--group", group)]
    shape = ("--universal", "--generate-hashes", "--no-header", "--no-annotate", "--all-extras", *groups)
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", *shape, "pyproject.toml"]
    resolved = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    LOCK.write_text(_HEADER + resolved)


if __name__ == "__main__":
    main()
