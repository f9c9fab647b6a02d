"""Paths and operation ids of the OpenAPI document, which callers generate their clients from, are only gained."""

from __future__ import annotations

from pathlib import Path

from wtb.hosting.api.app import make_app
from wtb.operations.context import Context
from wtb.store.database import Database

CONTRACT = Path(__file__).with_name("openapi_contract.txt")


def operation_lines() -> list[str]:
    """Return each operation of the OpenAPI document as its method, path and operation id."""
    database = Database("sqlite:///:memory:")
    document = make_app(Context(database), token="t", hosts=["testserver"]).openapi()
    database.close()
    return sorted(
        f"{method.upper()} {path} {operation['operationId']}"
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    )


def test_no_path_or_operation_id_was_changed_or_removed() -> None:
    """A new route adds a line to the file: `python -m tests.hosting.api.test_contract`."""
    assert operation_lines() == CONTRACT.read_text("utf-8").splitlines()


if __name__ == "__main__":
    CONTRACT.write_text("".join(f"{line}\n" for line in operation_lines()), "utf-8")
