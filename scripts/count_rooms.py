"""Count the modules of WTB that each module of commands imports, those of other commands left out: `make rooms`.

A command parses, calls an operation and presents, so that it needs to know few of them. Lazy and typing imports count.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMANDS = ROOT / "wtb" / "cli"


def rooms(file: Path) -> set[str]:
    """The modules of WTB that a module imports, without those of commands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "wtb":
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if (ROOT / f"{inner.replace('.', '/')}.py").exists() else node.module)
    return {name for name in found if not name.startswith("wtb.cli")}


def counts() -> dict[str, int]:
    """The number of rooms by module of commands, those with most first."""
    files = {file.relative_to(COMMANDS).as_posix(): len(rooms(file)) for file in COMMANDS.glob("*/*.py")}
    return dict(sorted(files.items(), key=lambda item: -item[1]))


if __name__ == "__main__":
    for name, count in counts().items():
        if count:
            print(f"{count:4}  {name}")
