"""What is published of the options of built-in evaluators is what is taken of them."""

from __future__ import annotations

import inspect
from contextlib import suppress
from typing import Any

import pytest

from wtb.authoring.evaluation.built_in import BUILT_IN, COMBINING
from wtb.authoring.evaluation.json_schemas import check_schema, fits
from wtb.authoring.evaluation.options import check_built_in, options_schema
from wtb.core.errors import InputError

PLAIN = sorted(BUILT_IN.keys() - COMBINING.keys())
VALUES: list[Any] = [True, 0, 1, -1, 1.5, -0.5, "", "x", "L", "any", [], ["x"], ["email"], [1], {}, {"a": 1}]
CHECKED_BY_OTHERS = {"schema", "dialect", "pattern"}  # beyond their types


def is_taken(name: str, option: str, value: Any) -> bool:
    with suppress(InputError):
        check_built_in(name, {option: value})
        return True
    return False


@pytest.mark.parametrize("name", PLAIN)
def test_the_schema_of_options_fits_what_is_taken_and_nothing_else(name: str) -> None:
    parameters = inspect.signature(BUILT_IN[name]).parameters.values()
    options = [one for one in parameters if one.kind is one.KEYWORD_ONLY]
    schema = options_schema(BUILT_IN[name])
    check_schema(schema)
    assert list(schema["properties"]) == [one.name for one in options]
    assert schema["required"] == [one.name for one in options if one.default is one.empty]
    for option, one in schema["properties"].items():
        assert one["description"]
        if one.get("default") is not None:
            assert fits(one, one["default"])
        if option not in CHECKED_BY_OTHERS:
            assert [value for value in VALUES if fits(one, value)] == [v for v in VALUES if is_taken(name, option, v)]
