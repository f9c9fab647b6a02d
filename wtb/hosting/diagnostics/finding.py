"""One finding of `wtb doctor`."""

from __future__ import annotations

from wtb.core.documents.administration import CheckDocument


def check(name: str, found: str, fix: str = "", *, ok: bool) -> CheckDocument:
    """A finding: ok, or a problem with how to fix it."""
    return {"name": name, "status": "ok" if ok else "problem", "found": found, "fix": None if ok else fix}
