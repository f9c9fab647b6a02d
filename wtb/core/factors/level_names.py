"""Names of levels and of grid points.

A grid point is a variant that a grid of levels makes. Its name is made from its levels in declared order, such as
`model=mini, temperature=0.7, prompt=v1.md#3b1c5f2a`, and from nothing else: the same point has the same name whatever
other levels the grid has, so that sweeps can be compared. `1`, `1.0`, `"1"` and `true` have different names.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from wtb.core.factors.file_levels import file_reference
from wtb.core.values import Json

MAX_NAME: Final = 200
_LONGEST_LEVEL, _LONGEST_HEAD, _HASH = 40, 24, 8
_PLAIN = re.compile(r"""[^\s,="'#{}\[\]]+""")  # text that needs no quotes
_PAIR = re.compile(r'([^\s,="]+)=("(?:[^"\\]|\\.)*"|[\[{][^\s=]*?(?=, |$)|[^,]*)')
_BASE = re.compile(r'[^,="]+')


def level_label(level: Json) -> str:
    """Return the text of a level: itself if it is short, else its beginning and a hash.

    Args:
        level: A value in JSON; a file as `file://PATH#SHA256`.

    Returns:
        At most about 40 printable characters. Levels that differ have labels that differ, types included.
    """
    if isinstance(level, str):
        return _text_label(level)
    text = canonical(level)
    is_short = len(text) <= _LONGEST_LEVEL and text.isprintable() and not re.search(r"[\s=]", text)
    return text if is_short else f"{_head(text)}#{_hash(text)}"


def _text_label(text: str) -> str:
    if (reference := file_reference(text)) is not None:
        name = reference.path.rpartition("/")[2]
        is_plain = len(name) <= _LONGEST_LEVEL and _PLAIN.fullmatch(name)
        return f"{name if is_plain else _head(name)}#{reference.sha256[:_HASH]}"
    if len(text) > _LONGEST_LEVEL or not text.isprintable():
        return f"{_head(text)}#{_hash(canonical(text))}"
    return text if _PLAIN.fullmatch(text) and not _is_scalar(text) else json.dumps(text, ensure_ascii=False)


def _head(text: str) -> str:
    """Return the first words of a text, in characters that need no quotes."""
    return re.sub(r"[^\w.]+", "-", text[: 4 * _LONGEST_HEAD]).strip("-")[:_LONGEST_HEAD].rstrip("-")


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH]


def _is_scalar(text: str) -> bool:
    """Return whether JSON, or Python, would read a text as something else."""
    if text in ("true", "false", "null"):
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True


def canonical(value: Json) -> str:
    """Return a value as JSON with sorted keys. Values of other types differ: `1`, `1.0`, `"1"` and `true`."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def point_name(levels: Mapping[str, Json], base: str | None = None) -> str:
    """Return the name of a grid point.

    Args:
        levels: Parameter -> level, in declared order.
        base: The variant, or the import path, that it derives from; None for the node's default.

    Returns:
        At most 200 characters.
    """
    parts = [f"{parameter}={level_label(level)}" for parameter, level in levels.items()]
    name = ", ".join([base, *parts] if base else parts)
    if len(name) <= MAX_NAME:
        return name
    exact = canonical([base, [[parameter, level] for parameter, level in levels.items()]])
    return f"{name[: MAX_NAME - _HASH - 2].rstrip(' ,')}…#{_hash(exact)}"


@lru_cache(maxsize=16_384)
def split_name(name: str) -> tuple[str | None, Mapping[str, str]]:
    """Split the name of a variant into the variant that it derives from and the labels of its levels.

    Args:
        name: Of any variant.

    Returns:
        What it derives from, if its name has it, and parameter -> label. Of a variant that is no grid point, the name
        and nothing.
    """
    base, place, labels = None, 0, dict[str, str]()
    if "=" not in name or "…#" in name:
        return name, {}
    if (first := _BASE.match(name)) is not None and name[first.end() : first.end() + 2] == ", ":
        base, place = first[0], first.end() + 2
    while (pair := _PAIR.match(name, place)) is not None and pair[1] not in labels:
        labels[pair[1]] = pair[2]
        if pair.end() == len(name):
            return base, labels
        if name[pair.end() : pair.end() + 2] != ", ":
            break
        place = pair.end() + 2
    return name, {}
