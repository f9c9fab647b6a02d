"""The state as a node reads it: a dict that decodes the value of a key when the key is first read."""

from __future__ import annotations

import threading
from collections.abc import ItemsView, Iterator, ValuesView
from typing import Any

from wtb.core.serialization.codec import decode
from wtb.core.values import Value, Values


class LazyState(dict[str, Any]):
    """A state whose values are decoded when they are read: each once, so that a node that changes one sees its change.

    Several threads may read it. A library in C that reads the storage of dicts directly, such as orjson, sees values
    that were not read as `Value`, and refuses them; `dict(state)` is a plain dict for it.

    Reading raises StateError for a value that cannot be decoded.
    """

    __slots__ = ("_decoding",)

    def __init__(self, values: Values) -> None:
        super().__init__(values)
        self._decoding = threading.Lock()

    def unread(self) -> dict[str, Value]:
        """The stored values of keys that were neither read nor replaced."""
        return {key: value for key, value in super().items() if type(value) is Value}

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        return self._decode(key) if type(value) is Value else value

    def _decode(self, key: str) -> Any:
        with self._decoding:
            value = super().__getitem__(key)
            if type(value) is Value:
                value = decode(value.data)
                super().__setitem__(key, value)
            return value

    def _read_all(self) -> None:
        for key in list(self):
            self[key]

    # A dict of C reads its own storage; what follows makes each way of reading it decode.

    def __iter__(self) -> Iterator[str]:  # where this is overridden, `dict(state)` and `{**state}` use `__getitem__`
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
        return dict, (dict(self),)

    def __reduce_ex__(self, protocol: object) -> tuple[type, tuple[object]]:
        return self.__reduce__()
