"""The findings of `wtb doctor` in a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wtb.core import texts
from wtb.display.tables import wrapped


def checks(document: Mapping[str, Any], width: int, color: bool = False) -> str:
    """One line per check; below a problem, how to fix it."""
    indent = max(len(check["name"]) for check in document["checks"]) + 2
    lines = []
    for check in document["checks"]:
        status = f"{check['status']:<9}"
        found = wrapped(check["found"], width, " " * (len(status) + indent))
        lines.append(f"{texts.colored(status, check['status'], color)}{check['name']:<{indent}}{found[0].lstrip()}")
        lines += found[1:]
        if check["fix"]:
            lines += wrapped(f"→ {check['fix']}", width, " " * (len(status) + indent))
    problems = sum(check["status"] == "problem" for check in document["checks"])
    lines += ["", f"{texts.plural(problems, 'problem')} found" if problems else "all is well"]
    return "\n".join(lines) + "\n"
