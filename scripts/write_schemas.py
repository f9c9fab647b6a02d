"""Write the files derived from the types of documents: `make schemas`, after a change of `wtb/core/documents`.

The JSON Schemas in `wtb/schemas`, which git ignores and each build writes again; the contract, which is committed; and
the table of docs/json.md.
"""

from __future__ import annotations

from itertools import dropwhile

from scripts.schemas import contract, json_schemas
from wtb.core.documents.catalog import DOCUMENTS

PAGE = json_schemas.ROOT / "docs" / "json.md"
HEADER = "| document | printed by | schema |\n| --- | --- | --- |\n"


def with_table(text: str, header: str, table: str) -> str:
    """Return the text of a page with a table, which begins with its header, in place of the one with that header."""
    before, _, rest = text.partition(header)
    lines = dropwhile(lambda line: line.startswith("|"), rest.splitlines(keepends=True))
    return before + table + "".join(lines)


def table() -> str:
    """Return the table of docs/json.md: each document, the commands that print it, and its file."""
    rows = []
    for name, document in DOCUMENTS.items():
        commands = ", ".join(f"`wtb {command}`" for command in document.commands)
        rows.append(f"| {name} {document.version} | {commands} | `wtb/schemas/{name}.json` |\n")
    return HEADER + "".join(rows)


def page(text: str) -> str:
    """Return the text of docs/json.md with the table as it is to be."""
    return with_table(text, HEADER, table())


def main() -> None:
    current = contract.contract_of(json_schemas.all_schemas())
    committed = contract.read_contract(contract.FILE.read_text("utf-8"))
    if broken := contract.contract_breaks(committed, current):
        raise SystemExit("\n".join([*broken, "raise the version in wtb/core/documents/catalog.py, or keep the keys"]))
    contract.FILE.write_text(contract.contract_text(current), "utf-8")
    json_schemas.write_files()
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
