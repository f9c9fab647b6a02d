"""A file of cases as text: its columns, the first cases, and what is wrong."""

from __future__ import annotations

import json

from wtb.core.documents.workflows.new_sweeps import CaseFileDocument
from wtb.core.texts import cut_one, plural, printable
from wtb.display.tables import grid, wrapped

_LONGEST = 60


def render(document: CaseFileDocument, width: int) -> str:
    """Return the text of a file of cases.

    Args:
        document: From `read_case_file`.
        width: Columns of the terminal.
    """
    blank = f", {plural(document['blank_rows'], 'blank row')} skipped" if document["blank_rows"] else ""
    parts = [f"{printable(document['name'])}: {plural(document['cases'], 'case')}{blank}\n"]
    if document["columns"] is not None:
        rows = [
            [
                column["heading"],
                f"{column['key'] or '-'}{' (offered)' if column['offered'] else ''}",
                " | ".join(_cut(text) for text in column["examples"][:2]),
            ]
            for column in document["columns"]
        ]
        parts.append(grid(["column", "read as", "values"], rows, width))
    if any(column["offered"] for column in document["columns"] or ()):
        parts.append(
            "In the sweep file this is:\n" + f"columns: {json.dumps(document['mapping'], ensure_ascii=False)}\n"
        )
    if document["preview"]:
        rows = [[case["id"], _text(case["input"]), _text(case["expected"])] for case in document["preview"]]
        parts.append(grid(["case", "input", "expected"], rows, width))
    parts += ["\n".join([*wrapped(f"problem: {problem}", width), ""]) for problem in document["problems"]]
    return "\n".join(parts)


def _text(value: object) -> str:
    if value is None:
        return "-"
    return _cut(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _cut(text: str) -> str:
    return cut_one(" ".join(text.split()), _LONGEST, 0)
