"""Built-in evaluators accept exactly the options that their published schemas allow."""

from __future__ import annotations

import inspect
from contextlib import suppress
from typing import Any

import pytest

from wtb.authoring.evaluation.built_in import BUILT_IN, COMBINING
from wtb.authoring.evaluation.evaluator_options import check_built_in, options_schema
from wtb.authoring.evaluation.json_schemas import check_schema, fits
from wtb.core.errors import InputError

PLAIN = sorted(BUILT_IN.keys() - COMBINING.keys())
VALUES: list[Any] = [True, 0, 1, -1, 1.5, -0.5, "", "x", "L", "any", [], ["x"], ["email"], [1], {}, {"a": 1}]
CHECKED_BY_OTHERS = {"schema", "dialect", "pattern"}  # beyond their types


def is_taken(name: str, option: str, setting: Any) -> bool:
    with suppress(InputError):
        check_built_in(name, {option: setting})
        return True
    return False


@pytest.mark.parametrize("name", PLAIN)
def test_the_schema_of_options_fits_what_is_taken_and_nothing_else(name: str) -> None:
    parameters = inspect.signature(BUILT_IN[name]).parameters.values()
    options = [parameter for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    schema = options_schema(BUILT_IN[name])
    check_schema(schema)
    assert list(schema["properties"]) == [parameter.name for parameter in options]
    assert schema["required"] == [parameter.name for parameter in options if parameter.default is parameter.empty]
    for option, property_schema in schema["properties"].items():
        assert property_schema["description"]
        if property_schema.get("default") is not None:
            assert fits(property_schema, property_schema["default"])
        if option not in CHECKED_BY_OTHERS:
            assert [setting for setting in VALUES if fits(property_schema, setting)] == [
                v for v in VALUES if is_taken(name, option, v)
            ]
