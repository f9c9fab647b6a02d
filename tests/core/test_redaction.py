"""Redaction replaces matches of patterns and values of keys, in every type that a state can hold."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import orjson
import pydantic
import pytest

from wtb.core.serialization.codec import decode, encode
from wtb.core.serialization.redaction import Redactor, marker
from wtb.core.values import Value

REDACTOR = Redactor({"mail": re.compile(r"\w+@\w+\.\w+"), "digits": re.compile(r"\d{3,}")}, {"phone"})  # type: ignore[dict-item]


@dataclasses.dataclass
class Person:
    name: str
    phone: str


class Letter(pydantic.BaseModel):
    to: str
    person: Person


def redacted(value: Any) -> Any:
    return decode(REDACTOR.typed(encode(value)))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("write to ana@x.org now", "write to [redacted:mail] now"),
        (["ana@x.org", 7, None, 1.5, True], ["[redacted:mail]", 7, None, 1.5, True]),
        ({"a": {"phone": 5550123}}, {"a": {"phone": "[redacted:phone]"}}),
        (("ana@x.org", {"bob@y.org"}), ("[redacted:mail]", {"[redacted:mail]"})),
        ({("a", 1): "ana@x.org", "phone": "1"}, {("a", 1): "[redacted:mail]", "phone": "[redacted:phone]"}),
        ({"$x": "ana@x.org"}, {"$x": "[redacted:mail]"}),
        (Person("ana@x.org", "55"), Person("[redacted:mail]", "[redacted:phone]")),
        (
            Letter(to="ana@x.org", person=Person("b", "55")),
            Letter(to="[redacted:mail]", person=Person("b", "[redacted:phone]")),
        ),
    ],
)
def test_texts_are_redacted_wherever_they_stand(value: Any, expected: Any) -> None:
    assert redacted(value) == expected


@pytest.mark.parametrize("value", [b"ana@x.org 12345", 12345, 10**30, 1.5, {"a": [1, 2]}, None])
def test_what_is_no_text_stays_the_same_bytes(value: Any) -> None:
    json_bytes = encode(value)
    assert REDACTOR.typed(json_bytes) is json_bytes


def test_a_time_is_not_torn_by_a_pattern_of_digits() -> None:
    import datetime

    moment = datetime.datetime(2026, 11, 25, 8, 30, 0, 123456)
    assert redacted([moment]) == [moment]


def test_keys_that_are_data_are_redacted_and_none_is_lost() -> None:
    assert redacted({"ana@x.org": 1, "bob@y.org": 2}) == {"[redacted:mail]": 1, "[redacted:mail] 2": 2}


def test_what_was_redacted_stays_as_it_is() -> None:
    """This is true even if a pattern matches a part of another pattern's marker."""
    greedy = Redactor({"word": re.compile(r"[a-z]+"), "all": re.compile(r".+")})  # type: ignore[dict-item]
    once = greedy.text("ana 12")
    assert once == "[redacted:word][redacted:all]"
    assert greedy.text(once) == once
    assert REDACTOR.typed(orjson.dumps(marker("phone"))) == orjson.dumps(marker("phone"))


def test_a_key_of_the_state_is_replaced_whatever_it_holds() -> None:
    values = {"phone": Value.of(b"raw"), "sub.phone": Value.of(3), "x": Value.of(3)}
    redacted = REDACTOR.values(values)
    assert {key: decode(value.data) for key, value in redacted.items()} == {
        "phone": "[redacted:phone]",
        "sub.phone": "[redacted:phone]",
        "x": 3,
    }
    assert redacted["x"] is values["x"]
    assert redacted["phone"] == Value.of("[redacted:phone]")
