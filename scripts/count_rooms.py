"""Count the modules of WTB that each module of commands imports, those of other commands left out: `make rooms`.

A command parses, calls an operation and presents, so that it needs to know few of them. Lazy and typing imports count.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
WTB = ROOT / "wtb"


def rooms(file: Path) -> set[str]:
    """Return the modules of WTB that a module imports, without those of commands."""
    imported: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "wtb":
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                imported.add(inner if (ROOT / f"{inner.replace('.', '/')}.py").exists() else node.module)
    return {name for name in imported if not name.startswith("wtb.cli") and not name.endswith("commands")}


def counts() -> dict[str, int]:
    """Return the number of rooms by module of commands, largest first."""
    modules = [*WTB.glob("cli/*/*.py"), *WTB.glob("features/*/*commands.py")]
    files = {file.relative_to(WTB).as_posix(): len(rooms(file)) for file in modules}
    return dict(sorted(files.items(), key=lambda pair: -pair[1]))


if __name__ == "__main__":
    for name, count in counts().items():
        if count:
            print(f"{count:4}  {name}")
