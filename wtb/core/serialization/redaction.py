"""Redaction: what may not be stored is replaced by a marker, in text and in typed JSON. Pure.

A marker says which pattern or key it stands for, and nothing of what was there: the same always gives the same, and
what was redacted once stays as it is. Bytes, arrays, numbers and times are no text and have no patterns; a key is
replaced whatever its value is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import Final, Protocol

import orjson

from wtb.core.classes.frozen import frozen
from wtb.core.serialization.codec import digest
from wtb.core.values import Json, Value, Values

_MARKER: Final = re.compile(r"(\[redacted:[^\[\]\s]{1,200}\])")
_MANY: Final = frozenset({"$tuple", "$set", "$frozenset"})
_OBJECTS: Final = frozenset({"$dataclass", "$pydantic", "$object"})
_ATTRIBUTES: Final = ("fields", "extra", "private")  # of an object, by their names


class Pattern(Protocol):
    """A regular expression that was compiled, by a library whose searches take a bounded time."""

    def search(self, text: str) -> object | None: ...

    def sub(self, replacement: str, text: str) -> str: ...


def marker(name: str) -> str:
    """Return what stands for what a pattern or key of a name has redacted."""
    return f"[redacted:{name}]"


@frozen
class Redactor:
    """Redacts texts, values and what a JSON document holds.

    Attributes:
        patterns: By name, in the order in which they apply.
        keys: Names of keys, at any depth, whose values are replaced as a whole.
    """

    patterns: Mapping[str, Pattern]
    keys: Collection[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.patterns or self.keys)

    @cached_property
    def _replacements(self) -> Mapping[str, bytes]:
        return {name: orjson.dumps(marker(name)) for name in self.keys}

    def found(self, text: str) -> str | None:
        """Return the name of the first pattern that is found in a text, if any is."""
        return next((name for name, pattern in self.patterns.items() if pattern.search(text)), None)

    def text(self, text: str) -> str:
        """Return a text with markers in place of what patterns match."""
        for name, pattern in self.patterns.items():
            if pattern.search(text):
                parts = _MARKER.split(text)
                parts[::2] = [pattern.sub(marker(name), part) for part in parts[::2]]
                text = "".join(parts)
        return text

    def optional(self, text: str | None) -> str | None:
        """The same of a text that may be missing."""
        return None if text is None else self.text(text)

    def plain(self, value: Json) -> Json:
        """Redact what JSON says."""
        return self._walk(value, self._plain_object)

    def typed(self, data: bytes) -> bytes:
        """Redact an encoded value; the same object if there is nothing to redact."""
        before = orjson.loads(data)
        after = self._walk(before, self._typed_object)
        return data if after == before else orjson.dumps(after)

    def typed_text(self, text: str | None) -> str | None:
        """The same of one that is kept as text, and may be missing."""
        return None if text is None else self.typed(text.encode()).decode()

    def value(self, key: str, value: Value) -> Value:
        """Redact the value of a key of the state."""
        name = key.rpartition(".")[2]  # of a key of a graph within
        data = self._replacements.get(key) or self._replacements.get(name) or self.typed(value.data)
        return value if data is value.data else Value(digest(data), data)

    def values(self, values: Values) -> dict[str, Value]:
        """Redact values by key."""
        return {key: self.value(key, value) for key, value in values.items()}

    def _walk(self, value: Json, of_object: Callable[[dict[str, Json]], Json]) -> Json:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._walk(item, of_object) for item in value]
        return of_object(value) if isinstance(value, dict) else value

    def _plain_object(self, value: dict[str, Json]) -> Json:
        return self._by_key(value, self._plain_object)

    def _typed_object(self, value: dict[str, Json]) -> Json:
        if len(value) != 1:
            return self._by_key(value, self._typed_object)
        ((tag, held),) = value.items()
        if tag in _OBJECTS and isinstance(held, dict):
            return {tag: self._attributes(held)}
        if tag == "$dict" and isinstance(held, dict):
            return {tag: self._by_key(held, self._typed_object)}
        if tag == "$map" and isinstance(held, list):
            return {tag: [self._pair(pair) for pair in held]}
        if tag in _MANY:
            return {tag: self._walk(held, self._typed_object)}
        return value if tag.startswith("$") else self._by_key(value, self._typed_object)

    def _attributes(self, held: dict[str, Json]) -> dict[str, Json]:
        """What is kept of an object: its class and which fields were set are no data of anybody's."""
        return {
            key: self._by_key(part, self._typed_object, names=False)
            if key in _ATTRIBUTES and isinstance(part, dict)
            else part
            for key, part in held.items()
        }

    def _pair(self, pair: Json) -> Json:
        if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) and pair[0] in self.keys:
            return [pair[0], marker(pair[0])]
        return self._walk(pair, self._typed_object)

    def _by_key(
        self, value: dict[str, Json], of_object: Callable[[dict[str, Json]], Json], *, names: bool = True
    ) -> dict[str, Json]:
        """Redact what stands under keys, and keys that are data: where two become alike, the later has a number."""
        redacted: dict[str, Json] = {}
        for key, item in value.items():
            name, count = self.text(key) if names else key, 1
            while name in redacted:
                count += 1
                name = f"{self.text(key)} {count}"
            redacted[name] = marker(key) if key in self.keys else self._walk(item, of_object)
        return redacted
