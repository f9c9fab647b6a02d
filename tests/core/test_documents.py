"""The JSON contract: schemas follow from types, and within a version they only gain keys."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any, Literal, NotRequired

import jsonschema
import pytest
from typing_extensions import TypedDict, is_typeddict

from scripts import write_schemas
from scripts.schemas import contract, json_schemas
from tests.support import documents
from wtb.core.documents import event_texts
from wtb.core.documents.catalog import DOCUMENTS
from wtb.core.status import SWEEP
from wtb.store.tables.schema import metadata

ROOT = Path(__file__).parents[2]

SCHEMAS = json_schemas.all_schemas()
CONTRACT = contract.contract_of(SCHEMAS)


def test_the_contract_is_that_of_the_types() -> None:
    assert contract.FILE.read_text("utf-8") == contract.contract_text(CONTRACT), "run `make schemas`"


def test_documents_only_gain_keys_within_a_version() -> None:
    assert contract.contract_breaks(contract.read_contract(contract.FILE.read_text("utf-8")), CONTRACT) == []


def test_the_contract_is_short_and_loses_no_key() -> None:
    text = contract.contract_text(CONTRACT)
    assert len(text.splitlines()) < 3000
    read = contract.read_contract(text)
    assert read == {name: shape for name, shape in CONTRACT.items() if shape.keys}
    assert read.keys() >= SCHEMAS.keys()


def test_files_are_written_and_those_of_old_documents_removed(tmp_path: Path) -> None:
    folder = tmp_path / "schemas"
    folder.mkdir()
    (folder / "old.json").write_text("{}")
    json_schemas.write_files(folder)
    assert {path.stem: json.loads(path.read_text("utf-8")) for path in folder.iterdir()} == SCHEMAS


def test_the_page_lists_all_documents() -> None:
    text = write_schemas.PAGE.read_text("utf-8")
    assert text == write_schemas.page(text), "run `make schemas`"


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_are_schemas_of_their_version(name: str) -> None:
    schema = SCHEMAS[name]
    jsonschema.Draft202012Validator.check_schema(schema)
    version = schema["properties"].get("version", {}).get("const", schema["version"])  # if a document has it
    assert (schema["title"], version) == (name, schema["version"])
    assert schema["$id"] == f"urn:wtb:{schema['title']}:{schema['version']}"


def test_every_document_says_what_it_is() -> None:
    assert [
        name for name, document in DOCUMENTS.items() if not is_typeddict(document.type) or not document.type.__doc__
    ] == []


class Before(TypedDict):
    """A document."""

    name: str
    parts: list[Part]
    about: dict[str, Any] | None


class Part(TypedDict):
    """A part of it."""

    n: int
    kind: Literal["a", "b"]


class Narrowed(Before):
    """The same with more that is said of what it says the least of."""

    about: Part | None


class Grown(Before):
    """The same with a key that may be missing."""

    more: NotRequired[str]


class Demanding(Before):
    """The same with a key that is always there."""

    more: str


class Optional(TypedDict):
    """The same with a key that may now be missing."""

    name: str
    parts: NotRequired[list[Part]]
    about: dict[str, Any] | None


class GrownPart(Part):
    """A part with another key."""

    size: int


class Nested(TypedDict):
    """The same with other parts."""

    name: str
    parts: list[GrownPart]
    about: dict[str, Any] | None


class Less(TypedDict):
    """The same without parts."""

    name: str
    about: dict[str, Any] | None


class Other(TypedDict):
    """The same with another type."""

    name: int
    parts: list[Part]
    about: dict[str, Any] | None


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        (Before, []),
        (Grown, []),
        (Narrowed, []),
        (Demanding, ["x more: new, and required (NotRequired may be missing)"]),
        (Less, ["x parts: removed"]),
        (Optional, ["x parts: was required"]),
        (Other, ["x name: was string"]),
        (Nested, ["x parts: was [Part]"]),
    ],
)
def test_what_breaks_a_version_is_found(type_: Any, expected: list[str]) -> None:
    before, after = (contract_of_type(version) for version in (Before, type_))
    assert contract.contract_breaks(before, after) == expected


def contract_of_type(type_: Any, version: int = 1) -> contract.Contract:
    """Return the contract of one document, after a round trip through its text."""
    terms = contract.contract_of({"x": json_schemas.type_schema("x", type_, version, "")})
    assert contract.read_contract(contract.contract_text(terms)) == terms
    return terms


def test_a_type_that_changes_breaks_each_document_that_has_it() -> None:
    before = contract_of_type(Before)
    part = before["Part"]
    for keys, expected in [
        ({"n": part.keys["n"]}, ["Part kind: removed"]),
        ({**part.keys, "kind": contract.Key('"a"', True)}, ['Part kind: was "a"|"b"']),
        ({**part.keys, "more": contract.Key("string", False)}, []),
    ]:
        after = {**before, "Part": contract.Shape(contract.NO_VERSION, keys)}
        assert contract.contract_breaks(before, after) == expected
        assert contract.contract_breaks(before, {**after, "x": contract_of_type(Before, version=2)["x"]}) == []


def test_two_types_of_one_name_are_refused() -> None:
    Part = TypedDict("Part", {"other": str})  # noqa: UP013
    Root = TypedDict("Root", {"part": Part})  # noqa: UP013
    schemas = {str(n): json_schemas.type_schema("x", document, 1, "") for n, document in enumerate((Before, Root))}
    with pytest.raises(ValueError, match="Part"):
        contract.contract_of(schemas)


def test_unknown_keys_fail_in_tests_and_not_by_the_schema() -> None:
    schema = json_schemas.type_schema("x", Before, 1, "")
    document = {"name": "a", "parts": [{"n": 1, "kind": "a", "unknown": 0}], "about": None}
    jsonschema.validate(document, schema)
    with pytest.raises(jsonschema.ValidationError, match="unknown"):
        jsonschema.validate(document, documents.closed(schema))


def test_what_a_command_prints_is_held_against_its_schema(tmp_path: Any) -> None:
    document = {"database": "sqlite:///x", "version": None, "expected": "1"}
    documents.check_printed(tmp_path, ["admin", "db", "version", "--format", "json"], 0, json.dumps(document))
    with pytest.raises(pytest.fail.Exception, match="unknown"):
        documents.check_printed(
            tmp_path, ["admin", "db", "version", "--format", "json"], 0, json.dumps({**document, "unknown": 1})
        )


def test_documents_name_commands_that_there_are() -> None:
    """Words that are not a command describe its arguments."""
    from wtb.cli.commands import ENTRIES

    named = [command for document in DOCUMENTS.values() for command in document.commands]
    assert [command for command in named if not any(f"{command} ".startswith(f"{words} ") for words in ENTRIES)] == []


# Events

NO_EVENTS = {"execution.json", "node.answered", "node.starting"}  # a file of archives, and fault points
# Written with their status behind the point: "cell." and what its row gets.
BY_STATUS = {
    *(f"sweep.{status}" for status in SWEEP),
    *(f"cell.{status}" for status in ("succeeded", "failed", "set_aside", "cancelled")),
    *(f"execution.{status}" for status in ("completed", "failed", "cancelled", "paused", "waiting")),
    *(f"node_run.{status}" for status in ("started", "succeeded", "failed", "skipped")),
    *(f"approval.{status}" for status in ("answered", "expired", "withdrawn")),
} - {"sweep.pending", "sweep.submitting", "sweep.deleting"}  # the latter two are seen by nobody


def kinds_in_source() -> set[str]:
    """Texts that look like kinds of events, in the packages that write events."""
    kind = re.compile(
        "(sweep|execution|cell|node|node_run|approval|budget|checkpoint|cost|fork|rollback|baseline|worker|attempt|join|comment)"
        r"\.[a-z_]+$|(score\.recorded|case\.erased|policy\.decided|model\.called|tool\.(called|reversed)|variant\.applied)$"
        r"|decision$"
    )
    columns = {f"{table}.{column.name}" for table, of in metadata.tables.items() for column in of.columns}
    kinds: set[str] = set()
    for package in (
        "wtb/store",
        "wtb/execution",
        "wtb/authoring",
        "wtb/features/archive",
        "wtb/operations",
        "workers/wtb_workers",
        "scheduler/wtb_scheduler",
    ):
        for file in (ROOT / package).rglob("*.py"):
            texts = {
                node.value for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.Constant)
            }
            kinds |= {text for text in texts if isinstance(text, str) and kind.match(text)}
    return kinds - columns - NO_EVENTS


def test_every_kind_of_event_that_is_written_has_a_type_and_the_reverse() -> None:
    typed = {name.removeprefix("event-") for name in DOCUMENTS if name.startswith("event-")} - {"counts"}
    assert typed == kinds_in_source() | BY_STATUS


def test_every_kind_of_event_has_words() -> None:
    typed = {name.removeprefix("event-") for name in DOCUMENTS if name.startswith("event-")} - {"counts"}
    assert typed - set(event_texts._SAYS) == {
        "score.recorded"
    }  # its metrics are the user's: they are shown as they are
