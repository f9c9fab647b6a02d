"""Values of states: stored, named by the hash of their content, and as nodes read them; mappings that users pass."""

from __future__ import annotations

import threading
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from wtb.core.errors import StateError
from wtb.core.serialization.codec import decode, digest, encode

if TYPE_CHECKING:
    Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
    """A value of JSON, as it is read."""
else:
    # Only type checkers see the recursive type.
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
        encoded = encode(value)
        return cls(digest(encoded), encoded)


def stored(who: str, name: str, value: object) -> Value:
    """Return a value as it is stored. Raises StateError, which names the node and the key."""
    try:
        return Value.of(value)
    except StateError as error:
        raise StateError(f"{who} {name!r} cannot be stored: {error}") from error


Values = Mapping[str, Value]


def differing(values: Values, state: Values) -> dict[str, Value]:
    """Return the values that a state does not have already."""
    return {name: value for name, value in values.items() if name not in state or state[name].digest != value.digest}


State: TypeAlias = Mapping[str, Any]
"""Values by key of a state, an input or a change of them, as nodes see them: of every type that can be stored."""

Params: TypeAlias = Mapping[str, Any]
"""Values of parameters of a workflow or a variant by name: of whatever types its own functions take."""

Options: TypeAlias = Mapping[str, Any]
"""Options of an evaluator by name: of whatever types its function takes, evaluators that it combines among them."""

Arguments: TypeAlias = Mapping[str, Any]
"""Arguments of a call by name, where the function may be any: an operation, a tool, a method of a model's client."""

Namespace: TypeAlias = Mapping[str, Any]
"""Objects by the names that a module, a class or an object has for them."""

JsonSchema: TypeAlias = Mapping[str, Any]
"""A JSON Schema, or a part of an OpenAPI description: keywords, which nest without an end that types could name."""

SweepKeys: TypeAlias = Mapping[str, Any]
"""The keys of a sweep file with what users wrote there, which `SweepSpec` reads and checks."""


class LazyState(dict[str, Any]):
    """A state whose values are decoded when they are read: each once, so that a node sees its own changes of a value.

    Several threads may read it. A library in C that reads the storage of dicts directly, such as orjson, sees unread
    values as `Value`, and rejects them; pass it the plain dict `dict(state)`.

    Reading raises StateError for a value that cannot be decoded.
    """

    __slots__ = ("_decoding",)

    def __init__(self, values: Values) -> None:
        super().__init__(values)
        self._decoding = threading.Lock()

    def unread(self) -> dict[str, Value]:
        """Return the stored values of keys that were neither read nor replaced."""
        return {key: value for key, value in super().items() if type(value) is Value}

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        return self._decode(key) if type(value) is Value else value

    def _decode(self, key: str) -> Any:
        # Two threads that decoded the same key would get two objects, and changes of one would be lost.
        with self._decoding:
            value = super().__getitem__(key)
            if type(value) is Value:
                value = decode(value.data)
                super().__setitem__(key, value)
            return value

    def _read_all(self) -> None:
        for key in list(self):
            self[key]

    # A dict reads its own storage in C, so each method that reads is overridden to decode.

    def __iter__(self) -> Iterator[str]:  # with this override, `dict(state)` and `{**state}` use `__getitem__`
        return super().__iter__()

    def get(self, key: str, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def pop(self, key: str, *default: Any) -> Any:
        if key in self:
            self[key]
        return super().pop(key, *default)

    def popitem(self) -> tuple[str, Any]:
        self._read_all()
        return super().popitem()

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        self._read_all()
        return super().values()

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        self._read_all()
        return super().items()

    def copy(self) -> dict[str, Any]:
        return dict(self)

    def __eq__(self, other: object) -> bool:
        self._read_all()
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        self._read_all()
        return super().__ne__(other)

    def __or__(self, other: Any) -> Any:
        return dict(self) | other

    def __ror__(self, other: Any) -> Any:
        return other | dict(self)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[type, tuple[object]]:
        # A copy in another process needs no lock and no undecoded values.
        return dict, (dict(self),)

    def __reduce_ex__(self, protocol: object) -> tuple[type, tuple[object]]:
        return self.__reduce__()
