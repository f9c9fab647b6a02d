"""Redaction: secrets are replaced by a marker, in text and in typed JSON. Pure.

A marker names its pattern or key, and contains nothing of the secret: equal input gives equal output, and redacting
twice changes nothing. Bytes, arrays, numbers and times are no text and are not searched; the value of a key is replaced
whatever it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import Final, Protocol

import orjson

from wtb.core.frozen import frozen
from wtb.core.serialization.codec import digest
from wtb.core.values import Json, Value, Values

_MARKER: Final = re.compile(r"(\[redacted:[^\[\]\s]{1,200}\])")
_MANY: Final = frozenset({"$tuple", "$set", "$frozenset"})
_OBJECTS: Final = frozenset({"$dataclass", "$pydantic", "$object"})
_ATTRIBUTES: Final = ("fields", "extra", "private")  # of an object, by their names


class Pattern(Protocol):
    """A compiled regular expression, of a library whose search time is bounded."""

    def search(self, text: str) -> object | None: ...

    def sub(self, replacement: str, text: str) -> str: ...


def marker(name: str) -> str:
    """Return the marker of a pattern or key."""
    return f"[redacted:{name}]"


@frozen
class Redactor:
    """Redacts texts, values and JSON documents.

    Attributes:
        patterns: Patterns by name, in the order in which they apply.
        keys: Names of keys, at any depth, whose values are replaced as a whole.
    """

    patterns: Mapping[str, Pattern]
    keys: Collection[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.patterns or self.keys)

    @cached_property
    def _replacements(self) -> Mapping[str, bytes]:
        return {name: orjson.dumps(marker(name)) for name in self.keys}

    def find_pattern(self, text: str) -> str | None:
        """Return the name of the first pattern that is found in a text, if any is."""
        return next((name for name, pattern in self.patterns.items() if pattern.search(text)), None)

    def text(self, text: str) -> str:
        """Return a text with markers instead of the matches of patterns."""
        for name, pattern in self.patterns.items():
            # Markers are left out, so that a pattern never matches in a marker of an earlier one.
            if pattern.search(text):
                parts = _MARKER.split(text)
                parts[::2] = [pattern.sub(marker(name), part) for part in parts[::2]]
                text = "".join(parts)
        return text

    def optional(self, text: str | None) -> str | None:
        """Redact a text that may be missing."""
        return None if text is None else self.text(text)

    def plain(self, value: Json) -> Json:
        """Redact plain JSON."""
        return self._walk(value, self._plain_object)

    def typed(self, encoded: bytes) -> bytes:
        """Redact an encoded value; the same object if there is nothing to redact."""
        before = orjson.loads(encoded)
        after = self._walk(before, self._typed_object)
        return encoded if after == before else orjson.dumps(after)

    def typed_text(self, text: str | None) -> str | None:
        """Redact an encoded value that is stored as text and may be missing."""
        return None if text is None else self.typed(text.encode()).decode()

    def value(self, key: str, value: Value) -> Value:
        """Redact the value of a key of the state."""
        name = key.rpartition(".")[2]  # the name of a key of a nested graph
        # A redacted key is replaced without looking at its value, which may be no text.
        encoded = self._replacements.get(key) or self._replacements.get(name) or self.typed(value.data)
        return value if encoded is value.data else Value(digest(encoded), encoded)

    def values(self, values: Values) -> dict[str, Value]:
        """Redact values by key."""
        return {key: self.value(key, value) for key, value in values.items()}

    def _walk(self, value: Json, of_object: Callable[[dict[str, Json]], Json]) -> Json:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._walk(member, of_object) for member in value]
        return of_object(value) if isinstance(value, dict) else value

    def _plain_object(self, members: dict[str, Json]) -> Json:
        return self._by_key(members, self._plain_object)

    def _typed_object(self, members: dict[str, Json]) -> Json:
        if len(members) != 1:
            return self._by_key(members, self._typed_object)
        ((tag, content),) = members.items()
        if tag in _OBJECTS and isinstance(content, dict):
            return {tag: self._attributes(content)}
        if tag == "$dict" and isinstance(content, dict):
            return {tag: self._by_key(content, self._typed_object)}
        if tag == "$map" and isinstance(content, list):
            return {tag: [self._pair(pair) for pair in content]}
        if tag in _MANY:
            return {tag: self._walk(content, self._typed_object)}
        return members if tag.startswith("$") else self._by_key(members, self._typed_object)

    def _attributes(self, content: dict[str, Json]) -> dict[str, Json]:
        """Redact the attributes of an object; its class and the names of its fields contain no user data."""
        return {
            key: self._by_key(part, self._typed_object, names=False)
            if key in _ATTRIBUTES and isinstance(part, dict)
            else part
            for key, part in content.items()
        }

    def _pair(self, pair: Json) -> Json:
        if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) and pair[0] in self.keys:
            return [pair[0], marker(pair[0])]
        return self._walk(pair, self._typed_object)

    def _by_key(
        self, members: dict[str, Json], of_object: Callable[[dict[str, Json]], Json], *, names: bool = True
    ) -> dict[str, Json]:
        """Redact values by key, and keys that are data: if two become equal, the later one gets a number."""
        redacted: dict[str, Json] = {}
        for key, member in members.items():
            name, count = self.text(key) if names else key, 1
            while name in redacted:
                count += 1
                name = f"{self.text(key)} {count}"
            redacted[name] = marker(key) if key in self.keys else self._walk(member, of_object)
        return redacted
