"""Rows of a sweep, and the values and files that they refer to, read by SQL and checked by their hashes."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.support.attempts import ATTEMPTS
from tests.support.project import Project


class Cell(NamedTuple):
    """A row of `cells`."""

    case_number: int
    repeat: int
    combination: int
    status: str
    execution_id: str
    usd: float
    node_runs: int
    failure: Any


class Checkpoint(NamedTuple):
    """A row of `checkpoints`. state: key -> digest. writers: [node, variant, node run]."""

    id: str
    parent_id: str | None
    state: dict[str, str]
    writers: list[tuple[str, str, str]]
    workspace: str | None
    position: dict[str, Any]


class NodeRun(NamedTuple):
    """A row of `node_runs`. writes: key -> digest, of one that succeeded."""

    id: str
    checkpoint_id: str
    node: str
    variant: str
    visit: int
    status: str
    writes: dict[str, str] | None


class Rows:
    """The rows of one sweep. contents: the values of its database, by digest."""

    def __init__(self, project: Project, sweep_id: str, contents: Mapping[str, str]) -> None:
        self._project = project
        self._sweep_id = sweep_id
        self._contents = contents
        self.cases: dict[int, str] = dict(self._select("number, id", "cases"))
        self.combinations = {number: _decoded(text) for number, text in self._select("number, choices", "combinations")}
        self.cells = [Cell(*row) for row in self._select(", ".join(Cell._fields), "cells")]
        self.heads = {id: (status, head) for id, status, head in self._select("id, status, head_id", "executions")}
        checkpoints = self._select(", ".join(Checkpoint._fields), "checkpoints", "AND inside IS NULL")
        self.checkpoints = {row[0]: Checkpoint(*map(_decoded, row)) for row in checkpoints}
        runs = self._select(", ".join(NodeRun._fields), "node_runs")
        self.node_runs = {row[0]: NodeRun(*row[:-1], _decoded(row[-1])) for row in runs}
        # Node run -> why each attempt failed, None for one that did not; and the results of its tool calls.
        self.attempts: dict[str, list[str | None]] = defaultdict(list)
        self.tool_results: dict[str, set[str]] = defaultdict(set)
        for run, failure in self._of_node_runs("CAST(failure AS text)", ATTEMPTS, "ORDER BY number"):
            self.attempts[run].append(failure)
        for run, tool_result in self._of_node_runs("result", "invocations", "AND status = 'done'"):
            self.tool_results[run].add(json.loads(tool_result))

    def _select(self, columns: str, table: str, condition: str = "") -> list[tuple[Any, ...]]:
        query = f"SELECT {columns} FROM {table} WHERE sweep_id = :sweep {condition}"
        return self._project.query(query, sweep=self._sweep_id)

    def _of_node_runs(self, column: str, table: str, condition: str) -> list[tuple[Any, ...]]:
        ids = "SELECT id FROM node_runs WHERE sweep_id = :sweep"
        query = f"SELECT node_run_id, {column} FROM {table} WHERE node_run_id IN ({ids}) {condition}"
        return self._project.query(query, sweep=self._sweep_id)

    def value(self, digest: str) -> Any:
        """A stored value. Raises KeyError if it is missing, ValueError if its hash is another one."""
        text = self._contents[digest]
        if hashlib.sha256(text.encode()).hexdigest() != digest:
            raise ValueError(f"the value {digest[:8]} is damaged")
        return json.loads(text)

    def files(self, manifest: str | None) -> dict[str, str]:
        """File -> text, of a snapshot. Raises OSError if a file is missing, ValueError if its hash is another one."""
        if manifest is None:
            return {}
        return {name: self._content(record[0]) for name, record in json.loads(self._content(manifest)).items()}

    def _content(self, digest: str) -> str:
        folder = self._project.folder / ".wtb" / "files" / "projects" / "default"
        content = (folder / digest[:2] / digest[2:]).read_bytes()
        if hashlib.sha256(content).hexdigest() != digest:
            raise ValueError(f"the file {digest[:8]} is damaged")
        return content.decode()

    def lineage(self, head_id: str) -> list[Checkpoint]:
        """The checkpoints from the root to a head. Raises KeyError if one is missing."""
        checkpoints = [self.checkpoints[head_id]]
        while (parent_id := checkpoints[-1].parent_id) is not None:
            checkpoints.append(self.checkpoints[parent_id])
        return checkpoints[::-1]


def stored_values(project: Project) -> dict[str, str]:
    """Digest -> text, of all values of a database."""
    return dict(project.query('SELECT digest, data FROM "values"'))


def _decoded(field: Any) -> Any:
    """A JSON column: SQLite returns text, PostgreSQL what the text stands for. Other texts stay."""
    return json.loads(field) if isinstance(field, str) and field[:1] in ("{", "[") else field
