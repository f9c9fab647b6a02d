"""The state that a node reads behaves like a dict, and decodes its values when they are first read."""

from __future__ import annotations

import copy
import json
import pickle
import threading
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from wtb.core import values as lazy_state
from wtb.core.errors import StateError
from wtb.core.serialization.codec import encode
from wtb.core.values import LazyState, Value

PLAIN = {"x": 1, "pair": (1, 2), "words": ["a"]}
DAMAGED = Value("0" * 64, b'{"$gone": 1}')


def lazy(**more: Value) -> LazyState:
    return LazyState({name: Value.of(value) for name, value in PLAIN.items()} | more)


def keywords(**keys: Any) -> dict[str, Any]:
    return keys


def matched(state: Any) -> dict[str, Any]:
    match state:
        case {"x": x, **rest}:
            return {"x": x, **rest}
    raise AssertionError("a state is a mapping")


READINGS: dict[str, Callable[[LazyState], Any]] = {
    "itself": lambda state: state,
    "dict": dict,
    "unpacked": lambda state: {**state},
    "keywords": lambda state: keywords(**state),
    "update": lambda state: (plain := {}).update(state) or plain,
    "items": lambda state: dict(state.items()),
    "values": lambda state: dict(zip(state, state.values(), strict=True)),
    "copy": lambda state: state.copy(),
    "copy.copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda state: pickle.loads(pickle.dumps(state)),  # noqa: S301 - made here
    "or": lambda state: state | {},
    "or, on the right": lambda state: {} | state,
    "get": lambda state: {name: state.get(name) for name in state},
    "setdefault": lambda state: {name: state.setdefault(name, None) for name in state},
    "pop": lambda state: {name: state.pop(name) for name in PLAIN},
    "popitem": lambda state: dict([state.popitem() for _ in PLAIN]),
    "match": matched,
}


@pytest.mark.parametrize("read", READINGS.values(), ids=READINGS)
def test_every_way_of_reading_decodes(read: Callable[[LazyState], Any]) -> None:
    assert read(lazy()) == PLAIN


def test_it_is_shown_and_compared_as_a_plain_dict() -> None:
    assert repr(lazy()) == repr(PLAIN)
    assert lazy() == PLAIN
    assert lazy() != {**PLAIN, "x": 2}
    assert json.loads(json.dumps(lazy())) == {**PLAIN, "pair": [1, 2]}
    assert isinstance(lazy(), dict)
    assert ("x" in lazy(), "y" in lazy(), len(lazy()), list(lazy())) == (True, False, 3, list(PLAIN))


def test_a_missing_key_is_missing_as_in_a_dict() -> None:
    state = lazy()

    with pytest.raises(KeyError, match="nothing"):
        state["nothing"]
    with pytest.raises(KeyError, match="nothing"):
        state.pop("nothing")
    assert (state.get("nothing"), state.get("nothing", 1), state.pop("nothing", 2)) == (None, 1, 2)
    assert state.setdefault("nothing", 3) == state["nothing"] == 3


def test_only_what_is_read_is_decoded_and_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []

    def decode(json_bytes: bytes) -> Any:
        decoded.append(json_bytes)
        return orjson.loads(json_bytes)

    monkeypatch.setattr(lazy_state, "decode", decode)
    state = lazy()

    assert state["words"] is state["words"]
    assert decoded == [b'["a"]']


def test_a_change_of_what_was_read_is_seen_by_its_reader_alone() -> None:
    values = {name: Value.of(value) for name, value in PLAIN.items()}
    mine, other = LazyState(values), LazyState(values)
    mine["words"].append("b")
    mine["x"] = 2

    assert (mine["words"], mine["x"]) == (["a", "b"], 2)
    assert other == PLAIN
    assert values["x"] == Value.of(1)


def test_a_value_that_cannot_be_decoded_is_an_error_of_whoever_reads_it() -> None:
    state = lazy(gone=DAMAGED)

    assert state["x"] == 1
    with pytest.raises(StateError, match="damaged"):
        state["gone"]
    with pytest.raises(StateError, match="damaged"):
        dict(state)


def test_what_was_not_read_is_there_as_it_is_stored() -> None:
    state = lazy()
    state["x"]

    assert state.unread() == {"pair": Value.of((1, 2)), "words": Value.of(["a"])}


def test_threads_that_read_a_key_at_once_get_the_same_value(monkeypatch: pytest.MonkeyPatch) -> None:
    decoding, proceed = threading.Event(), threading.Event()

    def decode(json_bytes: bytes) -> Any:
        decoding.set()
        assert proceed.wait(10)
        return orjson.loads(json_bytes)

    monkeypatch.setattr(lazy_state, "decode", decode)
    state = lazy()
    read: list[Any] = []
    threads = [threading.Thread(target=lambda: read.append(state["words"])) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert decoding.wait(10)
    proceed.set()
    for thread in threads:
        thread.join(10)

    assert len(read) == 4
    assert all(value is read[0] for value in read)


def test_what_bypasses_reading_finds_what_is_refused_everywhere() -> None:
    """A C library may read the storage of a dict directly, and must get an error instead of a wrong value."""
    with pytest.raises(TypeError, match="not JSON serializable"):
        orjson.dumps(lazy())
    with pytest.raises(StateError, match="Value"):
        encode({"x": dict.get(lazy(), "x")})
    assert orjson.loads(orjson.dumps(dict(lazy()))) == {**PLAIN, "pair": [1, 2]}
