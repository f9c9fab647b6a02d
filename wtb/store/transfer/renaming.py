"""Rows of a sweep under ids of their own, for a copy beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy.types import TypeEngine

from wtb.core.ids import new_id, random_text
from wtb.store.bulk import NewRow, Row
from wtb.store.tables.column_types import Id

_PREFIX: Final = 16  # characters that all ids of a process have in common
_TIME: Final = 7  # of them that are its time
_MADE: Final = re.compile(r"[0-9a-z]{16}[0-9a-f]{6}")
_NOT_RENAMED: Final = frozenset({"session_id"})
# Columns of JSON that hold ids; in others there is only what users wrote.
_DOCUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "executions": ("asked",),
    "checkpoints": ("position", "writers", "inside"),
    "approvals": ("answer",),
    "rollbacks": ("superseded",),
    "events": ("data",),
}
_SPENT: Final = {"usd": 0.0, "tokens_in": 0, "tokens_out": 0}
_OF_SPENDING: Final = ("node_runs", "attempts", "calls")
# A paused sweep may have executions that workers are about to release.
_RELEASED: Final[Mapping[str, Mapping[str, str]]] = {
    "executions": {"running": "pending"},
    "node_runs": {"running": "failed"},
}


class NewIds:
    """Gives rows of a sweep ids of their own, in the same order of time; each old id always becomes the same new one.

    What the rows have spent is left out, since it was spent only once.

    Args:
        old: The id of the sweep.
        new: That of the copy.
    """

    def __init__(self, old: str, new: str) -> None:
        self._known = {old: new}
        self._prefixes: dict[str, str] = {}

    def row(self, table: str, columns: Mapping[str, TypeEngine[Any]], row: NewRow) -> Row:
        """Return a row of the copy.

        Args:
            table: Its table.
            columns: The types of the columns.
            row: The row of the original.
        """
        renamed = {
            name: self.of(value)
            if columns.get(name) is Id and isinstance(value, str) and name not in _NOT_RENAMED
            else value
            for name, value in row.items()
        }
        for name in _DOCUMENTS.get(table, ()):
            renamed[name] = self._within(renamed.get(name))
        if table in _OF_SPENDING:
            renamed |= _SPENT
        released, status = _RELEASED.get(table, {}), str(renamed.get("status"))
        return {**renamed, "status": released[status]} if status in released else renamed

    def of(self, id: str) -> str:
        """Return the new id of an old one."""
        if id in self._known:
            return self._known[id]
        if not _MADE.fullmatch(id):
            self._known[id] = f"{id[:_TIME]}{random_text(25)}" if len(id) == _TIME + 5 else new_id()
            return self._known[id]
        prefix = id[:_PREFIX]
        if prefix not in self._prefixes:
            self._prefixes[prefix] = f"{prefix[:_TIME]}{random_text(45)}"
        return f"{self._prefixes[prefix]}{id[_PREFIX:]}"

    def _within(self, value: Any) -> Any:
        """Return JSON with new ids instead of old ones that are known."""
        if isinstance(value, str):
            is_known = value in self._known or (_MADE.fullmatch(value) and value[:_PREFIX] in self._prefixes)
            return self.of(value) if is_known else value
        if isinstance(value, list):
            return [self._within(item) for item in value]
        if isinstance(value, dict):
            return {key: self._within(item) for key, item in value.items()}
        return value
