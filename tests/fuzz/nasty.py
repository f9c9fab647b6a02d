"""Values and changes that are likely to find unexpected input for a parser. All derive from one seed."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

Place = tuple[str | int, ...]

TEXTS = (
    *("", " ", "\0", "\n", "\x1b[31m", "\ud800", "\u202e", "\ufeff", "a" * 201, "a" * 20_000, "../x", "/etc/passwd"),
    *("nan", "null", "1e999", "{}", "'; DROP TABLE cells; --", "<script>", "%s%n", "${HOME}", "\N{GRINNING FACE}"),
    "~k",
)
NUMBERS = (-1, 0, 1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, 2**70, -(2**63) - 1, 0.5, -0.5, 1e300, -1e300, 5e-324)
NOT_FINITE = (float("nan"), float("inf"), float("-inf"))
ODDITIES: tuple[Any, ...] = (None, True, False, [], {}, [None], [[]], {"a": 1}, {"": None}, {"$dict": 3}, {"$int": "x"})


def deep(levels: int) -> Any:
    """A list within a list within a list."""
    nested: Any = []
    for _ in range(levels):
        nested = [nested]
    return nested


def odd_value(dice: random.Random) -> Any:
    """Return a value that a parser may not expect."""
    choice = dice.choice((*TEXTS, *NUMBERS, *NUMBERS, *NOT_FINITE, *ODDITIES, *ODDITIES, deep(60), deep(300)))
    return copy.deepcopy(choice)


def places(document: Any, at: Place = ()) -> Iterator[Place]:
    """Yield the path of each part of a document, the whole first."""
    yield at
    inner = list(enumerate(document)) if isinstance(document, list) else []
    for key, part in document.items() if isinstance(document, dict) else inner:
        yield from places(part, (*at, key))


def at(document: Any, place: Place) -> Any:
    for part in place:
        document = document[part]
    return document


def mutated(document: Any, dice: random.Random) -> Any:
    """A copy with one thing changed: replaced, removed, added, doubled, or exchanged for another thing in it."""
    changed = copy.deepcopy(document)
    inner = list(places(changed))[1:]
    if not inner:
        return odd_value(dice)
    place = dice.choice(inner)
    holder, key = at(changed, place[:-1]), place[-1]
    match dice.randrange(8):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[dice.choice(("more", "", "\0", "a\nb", "a" * 300))] = odd_value(dice)
        case 1 if isinstance(holder, list):
            holder.insert(int(key), copy.deepcopy(holder[key]))
        case 2:
            holder[key] = copy.deepcopy(at(changed, dice.choice(inner)))
        case 3 if isinstance(holder[key], int | float):
            holder[key] = dice.choice((*NUMBERS, -holder[key], holder[key] * 1e9))
        case _:
            holder[key] = odd_value(dice)
    return changed


def mangled(content: bytes, dice: random.Random) -> bytes:
    """Bytes with some of them changed, removed, doubled or put elsewhere."""
    for _ in range(dice.randint(1, 4)):
        if not content:
            return dice.randbytes(8)
        start = dice.randrange(len(content))
        end = min(len(content), start + dice.choice((1, 1, 2, 8, 64)))
        match dice.randrange(5):
            case 0:
                content = content[:start] + dice.randbytes(end - start) + content[end:]
            case 1:
                content = content[:start] + content[end:]
            case 2:
                content = content[:end] + content[start:]
            case 3:
                mark = dice.choice((b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\x1b"))
                content = content[:start] + mark + content[start:]
            case _:
                content = content[:start]
    return content
