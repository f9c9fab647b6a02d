"""Stored values as a page of outputs has them: the beginning of what is long. Reading them needs no class of users."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import orjson

from wtb.core.documents.results.outputs import CUT, OutputValue
from wtb.core.errors import DamagedError
from wtb.core.serialization.plain_json import readable
from wtb.store.read.outputs.output_rows import WHOLE_BYTES, Beginning

_LONGEST_ESCAPE = 12  # characters: two halves of a pair


def output_value(beginning: Beginning, whole: str) -> OutputValue:
    """Return a value for a page of outputs.

    Args:
        beginning: What was read of it.
        whole: The path that returns all of it.

    Raises:
        DamagedError: If it is no JSON.
    """
    is_text = beginning.data.startswith(b'"')
    value, is_cut = _shortened(_whole(beginning.data)) if beginning.is_whole else (_part(beginning.data), True)
    return {
        "value": value,
        "kind": "text" if is_text else "json",
        "cut": is_cut,
        "bytes": beginning.size,
        "whole": whole if is_cut else None,
    }


def value_of_text(text: str, whole: str) -> OutputValue:
    """Return a value that is stored as typed JSON in a row, such as the expected value of a case."""
    data = text.encode()
    return output_value(Beginning(data[:WHOLE_BYTES], len(data)), whole)


def path_of_output(execution: str, key: str) -> str:
    """Return the path of the REST API that returns a whole value of the state of an execution."""
    return f"/executions/{_quoted(execution)}/value?key={_quoted(key)}"


def path_of_case(sweep: str, case: str, key: str | None) -> str:
    """Return the path of the REST API that returns a whole value of the input of a case, or its expected value."""
    path = f"/sweeps/{_quoted(sweep)}/value?case={_quoted(case)}"
    return path if key is None else f"{path}&key={_quoted(key)}"


def _quoted(text: str) -> str:
    return quote(text, safe="")


def as_text(data: bytes) -> str:
    """Return a stored value as text: text as it is, all else as JSON."""
    value = _whole(data)
    if isinstance(value, str):
        return value
    return orjson.dumps(value, default=str, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode()


def _whole(data: bytes) -> Any:
    try:
        return readable(data)
    except orjson.JSONDecodeError as error:
        raise DamagedError(f"a stored value is damaged: {error}") from error


def _part(data: bytes) -> str:
    """Return the beginning of a text, or of JSON as it stands."""
    text = data.decode("utf-8", "ignore")  # a character that is cut in half is left out
    if not text.startswith('"'):
        return text[:CUT]
    for end in range(len(text), len(text) - _LONGEST_ESCAPE, -1):
        try:
            beginning: str = orjson.loads(text[:end] + '"')
        except orjson.JSONDecodeError:
            continue  # an escape is cut in two
        return beginning[:CUT]
    raise DamagedError("a stored value is damaged: it is no JSON")


def _shortened(value: Any) -> tuple[Any, bool]:
    """Return a value with its texts cut, and whether any was."""
    if isinstance(value, str):
        return value[:CUT], len(value) > CUT
    if isinstance(value, list):
        parts = [_shortened(item) for item in value]
        return [part for part, _ in parts], any(is_cut for _, is_cut in parts)
    if isinstance(value, dict):
        items = {key: _shortened(item) for key, item in value.items()}
        return {key: part for key, (part, _) in items.items()}, any(is_cut for _, is_cut in items.values())
    return value, False
