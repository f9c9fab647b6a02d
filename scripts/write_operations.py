"""Write the table of operations to docs/python.md, from their registry: `make operations`."""

from __future__ import annotations

from pathlib import Path

from wtb.operations.registry import OPERATIONS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "python.md"
HEADER = "| command | Python | needs | effect |\n| --- | --- | --- | --- |\n"


def table() -> str:
    """Return the table, one operation a line."""
    lines = []
    for name, operation in OPERATIONS.items():
        methods = ", ".join(f"`{method}`" for method in operation.python)
        more = ["writes files"] * operation.writes_files + ["may take long"] * operation.long
        effect = ", ".join([operation.effect, *more])
        lines.append(f"| `wtb {name}` | {methods} | {operation.needs} | {effect} |\n")
    return HEADER + "".join(lines)


def updated(page: str) -> str:
    """Return the text of the page with the table as it is now."""
    before, header, rest = page.partition(HEADER)
    lines = rest.splitlines(keepends=True)
    count = next((number for number, line in enumerate(lines) if not line.startswith("|")), len(lines))
    return before + table() + "".join(lines[count:]) if header else page


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text("utf-8")), "utf-8")
