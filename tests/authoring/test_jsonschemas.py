"""Schemas are accepted, or rejected before a run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.prose import sentence
from wtb.authoring.evaluation.json_schemas import check_schema, fits
from wtb.core.errors import InputError

ACCEPTED: list[dict[str, Any]] = [
    {},
    {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}},
    {"$ref": "#/components/a", "components": {"a": {"type": "string"}}},
    {"properties": {"x": {"$ref": "#part"}, "y": {"$anchor": "part"}}},
    {"$id": "https://example.com/whole", "$defs": {"a": {"$id": "part"}}, "$ref": "https://example.com/part"},
    {"$ref": "https://json-schema.org/draft/2020-12/schema"},
    {"enum": [{"$ref": "https://example.com"}]},
    {"properties": {"$ref": {"type": "string"}}},
    {"properties": {"next": {"$ref": "#"}}},
]
REFUSED: list[tuple[Any, str]] = [
    ({"$ref": "https://example.com/a"}, "a \\$ref to 'https://example.com/a', which is not in it"),
    ({"$dynamicRef": "https://example.com/a"}, "a \\$dynamicRef to"),
    ({"$id": "https://example.com/whole", "$ref": "part"}, "a \\$ref to 'part'"),
    ({"$ref": "#/components/a", "components": {"a": {"$ref": "file:///etc/hosts"}}}, "a \\$ref to 'file:"),
    ({"$ref": "#/components/a", "components": {"a": {"type": 3}}}, "is not a JSON schema of draft 2020-12"),
    ({"$ref": "#/$defs/a"}, "a \\$ref to '#/\\$defs/a'"),
    ({"$ref": "#/allOf/x", "allOf": [{}]}, "a \\$ref to '#/allOf/x'"),
    ({"$ref": "#/$id/x", "$id": "a"}, "a \\$ref to '#/\\$id/x'"),
    ({"$ref": "http://["}, "a \\$ref to 'http://\\['"),
    ({"$id": "http://[", "properties": {"x": {}}}, "an '\\$id' that cannot be read"),
    ({"properties": {"a": {"type": "nothing"}}}, "'schema.properties.a.type' is not a JSON schema"),
    ("text", "'schema' is 'text'; expected a mapping"),
]


@pytest.mark.parametrize("schema", ACCEPTED, ids=str)
def test_a_schema_that_is_whole_is_taken(schema: dict[str, Any]) -> None:
    check_schema(schema)


@pytest.mark.parametrize(("schema", "problem"), REFUSED, ids=str)
def test_a_schema_that_needs_another_or_is_none_is_refused(schema: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        check_schema(schema)


def test_a_schema_nested_without_end_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"not": deep}
    with pytest.raises(InputError, match=sentence("nested too deeply")):
        check_schema(deep)


def test_values_are_held_against_a_schema() -> None:
    schema = {"properties": {"next": {"$ref": "#"}}, "required": ["n"]}
    assert fits(schema, {"n": 1, "next": {"n": 2}})
    assert not fits(schema, {"n": 1, "next": {}})
