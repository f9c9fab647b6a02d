"""`make test-again`: what failed last, once more and alone. Exits with 0 where all of it passes then, and names it.

A test that fails only beside others is still at fault, or has found one: `make steady TESTS=...` repeats it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MAX_FAILED = 10  # more than that is no matter of a busy machine; what is really broken fails alone, too
CACHE = Path(".pytest_cache/v")
STATUS = "wtb/exit_status"  # in the cache: how the last run ended, as tests/conftest.py notes it


def last(name: str) -> Any:
    """Return the value of a name in pytest's cache; None if there is none."""
    path = CACHE / name
    return json.loads(path.read_text()) if path.exists() else None


def main() -> int:
    failed = sorted(last("cache/lastfailed") or {})
    if last(STATUS) != pytest.ExitCode.TESTS_FAILED:
        print("the last run did not come to its end: nothing is tried again", file=sys.stderr)
        return 1
    if not 0 < len(failed) <= MAX_FAILED:
        print(f"{len(failed)} tests failed: none is tried again; at most {MAX_FAILED} would be", file=sys.stderr)
        return 1
    code = subprocess.run([sys.executable, "-m", "pytest", "-v", *failed], check=False).returncode
    if code == 0:
        print("passed only when they ran alone:", *failed, sep="\n  ", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
