"""Values of LangGraph's channels as bytes and back, by WTB's own codec.

LangGraph's `JsonPlusSerializer` loads any class that a checkpoint names, or silently makes a dict of an unknown type.
WTB's codec rejects such a type when it is stored, and loads exactly the stored value.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import orjson
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.store.base import Item
from langgraph.types import Send

from wtb.core.errors import InputError, StateError
from wtb.core.serialization.codec import decode, encode
from wtb.core.serialization.type_tags import LISTED, Listed

KIND = "wtb"
_ADVICE = ", or name it: Saver(url, types=[...])"
_INSTEAD = (
    "keep it in a file or an object store, and its path or key in the state (bytes take a third more than their size)"
)
_OTHER = b"$serde:"  # no JSON begins so
# Those that are neither dataclasses nor models; Command, Interrupt, Overwrite and messages are one or the other.
_LANGGRAPHS: tuple[type, ...] = (Send, Item, _DeltaSnapshot)


class Serializer(SerializerProtocol):
    """A serializer for what WTB's codec stores, LangGraph's own types, and your own `types`.

    Args:
        types: Classes whose objects are stored by their attributes, without a call of `__init__` when they are loaded;
            or named tuples.

    Raises:
        InputError: For a class that is not at the top of a module, or whose objects are more than their attributes.

    Example:
        >>> from wtb.integrations.langgraph import Serializer
        >>> serializer = Serializer()
        >>> serializer.loads_typed(serializer.dumps_typed({"tags": {"a"}}))
        {'tags': {'a'}}
    """

    def __init__(self, types: Iterable[type] = ()) -> None:
        own_types = tuple(types)
        if problems := [problem for kind in own_types if (problem := _problem(kind))]:
            raise InputError(*problems)
        self.listed = Listed({_name(kind): kind for kind in (*_LANGGRAPHS, *own_types)}, _ADVICE, _INSTEAD)

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Encode a value.

        Args:
            obj: The value.

        Returns:
            What kind of bytes these are, and the bytes.

        Raises:
            StateError: Names the type that cannot be stored, and where in the value it is.
        """
        with self._listed():
            return KIND, encode(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Decode a value.

        Args:
            data: What `dumps_typed` returned.

        Returns:
            The value.

        Raises:
            StateError: For damaged data, and for types that are gone or no longer listed.
        """
        kind, content = data
        if kind != KIND:
            raise StateError(f"a stored value is of the kind {kind!r}, expected {KIND!r}: load it as it was stored")
        with self._listed():
            return decode(content)

    @contextmanager
    def _listed(self) -> Iterator[None]:
        # For this call alone: the codec is that of the whole process, where these types are not allowed.
        before = LISTED.set(self.listed)
        try:
            yield
        finally:
            LISTED.reset(before)


def checked_serializer(serde: SerializerProtocol) -> SerializerProtocol:
    """Check a serializer that the user gives, such as one that encrypts. Raises InputError for those that guess."""
    if isinstance(getattr(serde, "serde", serde), JsonPlusSerializer):
        raise InputError(
            "serde: JsonPlusSerializer makes dicts of types that it does not know; give "
            "wtb.integrations.langgraph.Serializer(), as in EncryptedSerializer(cipher, Serializer())"
        )
    return serde


def to_bytes(serde: SerializerProtocol, value: Any) -> bytes:
    """Return a value as the store keeps it, as text: typed JSON, or in Base64 what another serializer made of it."""
    kind, encoded = serde.dumps_typed(value)
    if kind == KIND:
        return encoded
    return _OTHER + orjson.dumps([kind, b2a_base64(encoded, newline=False).decode()])


def from_bytes(serde: SerializerProtocol, stored: bytes) -> Any:
    if not stored.startswith(_OTHER):
        return serde.loads_typed((KIND, stored))
    kind, encoded = orjson.loads(stored.removeprefix(_OTHER))
    return serde.loads_typed((kind, a2b_base64(encoded)))


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _problem(kind: Any) -> str | None:
    if not isinstance(kind, type):
        return f"types: found {kind!r:.100}, expected a class"
    if "<locals>" in kind.__qualname__:
        return f"types: {_name(kind)} is defined inside a function; define it at the top of a module"
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return None
    try:
        object.__new__(kind)  # what loading does; Python refuses it for subclasses of built-in types
    except TypeError:
        return f"types: objects of {_name(kind)} are more than their attributes; store plain data instead"
    return None
