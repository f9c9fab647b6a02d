"""LangGraph's in-memory store as part of the state: what a cell puts there is its own, and goes where its head goes.

A store outside the process (a database) is used as it is: it is the user's, and all cells share it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any

from langgraph.store.base import BaseStore, Op, PutOp, Result
from langgraph.store.memory import InMemoryStore

from wtb.core.serialization.codec import decode
from wtb.core.tree.checkpoints import HIDDEN
from wtb.core.values import Value, Values, stored

KEPT = HIDDEN + "store "


class KeptStore(InMemoryStore):
    """A store for one attempt, with what the state keeps of it. changed: the items that the attempt put or deleted."""

    def __init__(self, origin: InMemoryStore, state: Values) -> None:
        super().__init__(index=origin.index_config)
        self.changed: dict[tuple[tuple[str, ...], str], None] = {}
        for space, items in origin._data.items():  # what the graph's author put there
            for key, item in items.items():
                self._set(space, key, deepcopy(item.value), origin._vectors.get(space, {}).get(key))
        for name, entry in state.items():
            if name.startswith(KEPT):
                space, key, value, vectors = decode(entry.data)
                self._set(tuple(space), key, value, vectors)

    def _set(self, space: tuple[str, ...], key: str, value: Any, vectors: Any) -> None:
        """Put an item as it was, without asking for its embeddings again."""
        self._apply_put_ops({(space, key): PutOp(space, key, value)})
        if vectors:
            self._vectors[space][key] = dict(vectors)

    def change(self, space: tuple[str, ...], key: str) -> Any:
        """What is to be kept of an item: its place, its value (None where it was deleted) and its embeddings."""
        item, vectors = self._data[space].get(key), self._vectors[space].get(key)
        return [space, key, None if item is None else item.value, dict(vectors) if vectors else None]

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        ops = list(ops)
        self._note(ops)
        return super().batch(ops)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        ops = list(ops)
        self._note(ops)
        return await super().abatch(ops)

    def _note(self, ops: Sequence[Op]) -> None:
        self.changed |= {(op.namespace, op.key): None for op in ops if isinstance(op, PutOp)}


def for_attempt(store: BaseStore | None, state: Values) -> BaseStore | None:
    return KeptStore(store, state) if type(store) is InMemoryStore else store


def changes_of(store: BaseStore | None) -> dict[str, Value]:
    """What an attempt changed in the store, as writes. Raises StateError for what cannot be stored."""
    changed = [store.change(*place) for place in store.changed] if isinstance(store, KeptStore) else []
    return {KEPT + json.dumps([*it[0], it[1]]): stored("what was put into the store as", it[1], it) for it in changed}


def kept(state: Values, writes: Iterable[Values]) -> dict[str, Value]:
    """What the state keeps of the store after these writes."""
    after = {key: value for key, value in state.items() if key.startswith(KEPT)}
    for one in writes:
        after |= {key: value for key, value in one.items() if key.startswith(KEPT)}
    return after


def without_store(values: Values) -> Values:
    return {key: value for key, value in values.items() if not key.startswith(KEPT)}
