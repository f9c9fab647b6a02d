"""One finding of `wtb doctor`."""

from __future__ import annotations

from typing import Any

Check = dict[str, Any]


def check(name: str, found: str, fix: str = "", *, ok: bool) -> Check:
    """A finding: ok, or a problem with how to fix it."""
    return {"name": name, "status": "ok" if ok else "problem", "found": found, "fix": None if ok else fix}
