"""Write the tables of operations to docs/operations.md and docs/api.md: `make operations`."""

from __future__ import annotations

import re
from pathlib import Path

from scripts.write_schemas import with_table
from wtb.hosting.api.routes import ROUTES, WITHOUT_ROUTE
from wtb.hosting.client.server import SEVERAL_REQUESTS
from wtb.operations.registry import OPERATIONS, arguments_of

DOCS = Path(__file__).resolve().parent.parent / "docs"
OPERATIONS_HEADER = "| id | command | Python | needs | effect |\n| --- | --- | --- | --- | --- |\n"
LACKING_HEADER = "| method | why a server does not do it |\n| --- | --- |\n"
ROUTES_HEADER = "| request | arguments | what it does |\n| --- | --- | --- |\n"


def operations() -> str:
    """Return the table of operations, one a line."""
    lines = []
    for id, operation in OPERATIONS.items():
        methods = ", ".join(f"`{method}`" for method in operation.python)
        more = ["writes files"] * operation.writes_files + ["may take long"] * operation.long
        effect = ", ".join([operation.effect, *more])
        place = ", all projects" if operation.everywhere else ""
        lines.append(f"| `{id}` | `wtb {operation.command}` | {methods} | {operation.needs}{place} | {effect} |\n")
    return "".join(lines)


def lacking() -> str:
    """Return the table of the methods that raise InputError for a server, one a line."""
    reasons = {name: why for name, why in WITHOUT_ROUTE.items() if OPERATIONS[name].function not in SEVERAL_REQUESTS}
    done = {method for name, operation in OPERATIONS.items() if name not in reasons for method in operation.python}
    lines = {
        method: f"| `{method}` | {why} |\n"
        for name, why in reasons.items()
        for method in OPERATIONS[name].python
        if method not in done
    }
    return "".join(lines.values())


def routes() -> str:
    """Return the table of the API's routes, one a line; those that differ only in `sweeps` or `executions` share it."""
    paths: dict[tuple[str, str, str], list[str]] = {}
    for route in ROUTES:
        names = [
            argument
            for argument in arguments_of(route.function)
            if argument not in route.left_out and f"{{{argument}}}" not in route.path
        ]
        arguments = ", ".join(f"`{argument}`" for argument in names)
        alike = re.sub("^/(sweeps|executions)/{ref}", "", route.path)
        paths.setdefault((alike, arguments, route.summary), []).append(f"`{route.method} {route.path}`")
    return "".join(
        f"| {', '.join(requests)} | {arguments} | {summary} |\n" for (_, arguments, summary), requests in paths.items()
    )


# The pages, and for each table its header and what makes its lines.
TABLES = {
    DOCS / "operations.md": [(OPERATIONS_HEADER, operations), (LACKING_HEADER, lacking)],
    DOCS / "api.md": [(ROUTES_HEADER, routes)],
}


def updated(page: Path) -> str:
    """Return the text of a page with its tables as they are now."""
    text = page.read_text("utf-8")
    for header, table in TABLES[page]:
        text = with_table(text, header, header + table()) if header in text else text
    return text


if __name__ == "__main__":
    for page in TABLES:
        page.write_text(updated(page), "utf-8")
