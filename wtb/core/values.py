"""Stored values: encoded, and named by the hash of their content. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from wtb.core.errors import StateError
from wtb.core.serialization.codec import digest, encode

if TYPE_CHECKING:
    Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
    """What JSON can say, as it is read."""
else:
    Json = Any  # pydantic, which makes schemas of documents, follows no recursive alias; any value of theirs is JSON


class Value(NamedTuple):
    """A stored value. It cannot be stored as a value in its turn.

    Args:
        digest: The SHA-256 of its data.
        data: Its typed JSON.

    Example:
        >>> from wtb.history import Value
        >>> Value.of([1, 2]).data
        b'[1,2]'
    """

    digest: str
    data: bytes

    @classmethod
    def of(cls, value: object) -> Value:
        """Encode a value.

        Args:
            value: A value that nodes may write.

        Returns:
            The value as it is stored.

        Raises:
            StateError: If it cannot be stored.
        """
        data = encode(value)
        return cls(digest(data), data)


def stored(who: str, name: str, value: object) -> Value:
    """A value that is to be stored. Raises StateError, which names the node and the key."""
    try:
        return Value.of(value)
    except StateError as error:
        raise StateError(f"{who} {name!r} cannot be stored: {error}") from error


Values = Mapping[str, Value]


def differing(values: Values, state: Values) -> dict[str, Value]:
    """Those of some values that a state does not have already."""
    return {name: value for name, value in values.items() if name not in state or state[name].digest != value.digest}
