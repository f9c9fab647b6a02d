"""How a parameter names a file: `file://PATH` as people write it, `file://PATH#SHA256` once its text was read."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from wtb.core.classes.frozen import frozen
from wtb.core.mappings import Arguments

Place = tuple[str | int, ...]  # keys and positions within data

SCHEME: Final = "file://"
# Arguments of operations that may name files, besides the keys of a sweep file; those of levels in mappings only.
EVALUATOR_ARGUMENTS: Final = ("evaluate", "evaluator")
LEVEL_ARGUMENTS: Final = ("variants", "vary", "typed")
_REFERENCE = re.compile(r"file://(.+)#([0-9a-f]{64})", re.DOTALL)


@frozen
class FileReference:
    """A file by its path, as the sweep file has it, and the SHA-256 of its text in UTF-8."""

    path: str
    sha256: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.path}#{self.sha256}"


def may_name_files(arguments: Arguments) -> bool:
    """Return whether arguments of an operation, by name, may name files."""
    mappings = map(arguments.get, ("keys", *LEVEL_ARGUMENTS))
    return any(map(arguments.get, EVALUATOR_ARGUMENTS)) or any(isinstance(value, Mapping) for value in mappings)


def names_file(value: object) -> bool:
    """Return whether a parameter's value names a file, read or not."""
    return isinstance(value, str) and value.startswith(SCHEME)


def file_reference(value: object) -> FileReference | None:
    """Return the file that a value refers to, if its text was read; None for any other value."""
    match = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
    return None if match is None else FileReference(match[1], match[2])


def sha256_of(text: str) -> str:
    """Return the SHA-256 of a text in UTF-8, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def with_texts(value: Any, texts: Mapping[str, str]) -> Any:
    """Return plain data with the text in place of each reference to a file.

    Args:
        value: Parameters, or a part of them.
        texts: The texts by SHA-256.

    Returns:
        The same data; parts without a reference are not copied.
    """

    def text(_: Place, named: str) -> str:
        reference = file_reference(named)
        return named if reference is None else texts[reference.sha256]

    return replace_files(value, text) if texts else value


def replace_files(value: Any, change: Callable[[Place, str], Any], place: Place = ()) -> Any:
    """Return plain data with the result of `change` in place of each text that names a file, at any depth.

    Args:
        value: The data.
        change: Called with the place and the text.
        place: The place of the data.

    Returns:
        The changed copy.
    """
    if names_file(value):
        return change(place, value)
    if isinstance(value, Mapping):
        return {key: replace_files(part, change, (*place, str(key))) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [replace_files(part, change, (*place, number)) for number, part in enumerate(value)]
    return value


def texts_of(value: Any, texts: Mapping[str, str]) -> dict[str, str]:
    """Return those of some texts, by SHA-256, to which plain data refers."""
    found: dict[str, str] = {}

    def note(_: Place, named: str) -> str:
        if (reference := file_reference(named)) is not None and reference.sha256 in texts:
            found[reference.sha256] = texts[reference.sha256]
        return named

    replace_files(value, note)
    return found
