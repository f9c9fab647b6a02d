"""Import of an archive as a single execution with new ids."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import sqlalchemy as sa
from pydantic import JsonValue

from wtb.core.arguments import AnyPath, Whole, checked
from wtb.core.documents.administration import ImportedDocument
from wtb.core.errors import InputError, StoreError
from wtb.core.ids import DEFAULT_PROJECT, new_id, short_id
from wtb.core.status import OPEN_EXECUTIONS
from wtb.core.values import Json
from wtb.features.archive import queries as stored
from wtb.features.archive import row_schemas
from wtb.features.archive.exporter import CELL
from wtb.features.archive.zip_file import Reading, naming
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.planning.prepare import as_written
from wtb.planning.sweep_spec import parse_single
from wtb.store.access.projects import choose_project, project_to_submit_to, scope_of
from wtb.store.access.sessions import find_session, session_to_submit_to
from wtb.store.bulk import insert_rows, insert_values
from wtb.store.files.manifest import Manifest, decode
from wtb.store.files.store import FileStore
from wtb.store.housekeeping.contents import add_files, check_room, named_values
from wtb.store.log import add_event, subject
from wtb.store.tables.schema import cells
from wtb.store.tables.sweeps import SessionRow

MAX_BYTES = 4_000_000_000  # bytes that an archive may unpack to, unless more is allowed
# What tells the rows of a table from each other; events have nothing of the kind.
_KEYS: Mapping[str, tuple[str, ...]] = {
    name: tuple(column.name for column in table.primary_key if column in row_schemas.columns(table))
    for name, table in row_schemas.TABLES.items()
}
_ENDED_CELLS = {"completed": "succeeded", "failed": "failed", "cancelled": "cancelled"}


@checked
@audited
def import_execution(
    context: Context,
    file: AnyPath,
    *,
    session: str | None = None,
    name: str | None = None,
    max_bytes: Whole = MAX_BYTES,
) -> ImportedDocument:
    """Read an archive into a session, whole or not at all.

    An execution that had not ended is paused at its head.

    Args:
        context: The database to import into, and who does, for the event log.
        file: The archive.
        session: The session's name; None for the context's, else that of the environment.
        name: What to call it; None for its old name.
        max_bytes: Whole that it may unpack to.

    Returns:
        What was read. An execution that had not ended is `paused`.

    Raises:
        InputError: If the archive is damaged or not one, or the name is too long.
        ConflictError: If the session accepts no more.
    """
    file = Path(file)
    database, files = context.database, context.workspaces.files
    session = context.session_name(session)
    check_file(file)
    if name is not None and not 0 < len(name) <= 200:
        raise InputError("name: expected 1 to 200 characters")
    with Reading(file, max_bytes) as archive:
        with naming(file):
            plan = _Plan(archive)
            manifests = _check_values_and_files(archive, plan)
        session_row = find_session(database, session)
        # Space is checked before files are stored, or a rejected archive would fill the disk.
        check_room(database, session_row.id, archive.contents("files"))
        _store_files(
            archive, files.of_project(choose_project(_named_project(archive, session_row), session_row.project))
        )
        contents = archive.contents("files")
        called = name or archive.head.name
        # Files are stored before this transaction, so that its rows never name missing files.
        with stored.refusing_bad_rows(database, str(file)), database.write(long=True) as connection:
            owner = session_to_submit_to(connection, session)
            insert_values(connection, _values(archive))
            add_files(connection, owner.id, contents.items())
            status = _insert(connection, archive, plan, owner, called, context.by)
    return {
        "id": plan.sweep_id,
        "name": called,
        "execution": plan.renamed[archive.head.execution],
        "status": status,
        "from": archive.head.execution,
        "case": archive.head.case.id,
        "checkpoints": archive.head.history["checkpoints"].rows,
        "values": len(archive.contents("values")),
        "files": len(contents.keys() - manifests.keys()),
    }


def check_file(file: Path) -> None:
    """Reject paths that are no file, before anything is created. Raises InputError."""
    if file.is_dir():
        raise InputError(f"{file} is a folder; expected a file that `wtb admin export` wrote")
    if not file.is_file():
        raise InputError(f"there is no file {file}")


class _Plan:
    """The references of an archive's rows and their new ids. Creating it checks every row."""

    def __init__(self, archive: Reading) -> None:
        self.archive = archive
        self.sweep_id = short_id()  # of the single execution as well: people know it by one id
        self.ids: dict[str, dict[str, str]] = {name: {} for name in row_schemas.TABLES}
        self.values = set(archive.head.case.input.values())
        self.snapshots: set[str] = _digest_set(archive.head.case.workspace)
        execution: row_schemas.ExecutionLine | None = None
        self._later: list[tuple[str, str, str]] = []
        self._attempts: dict[str, tuple[int, bool]] = {}  # how many, and whether the node run describes the only one
        self._parents: dict[str, str | None] = {}
        self._metrics = {metric.name for metric in archive.head.metrics}
        for name in row_schemas.TABLES:
            seen: set[tuple[JsonValue, ...]] = set()
            for line in self._lines(name):
                self._check_references(name, line)
                self.values |= named_values(name, line.columns)
                self.snapshots |= _digest_set(line.text("workspace"))
                key = tuple(line.columns.get(column) for column in _KEYS[name])
                if key and key in seen:
                    raise InputError(f"{line.where}: {key[0]!r} is there twice")
                seen.add(key)
                if id := line.text("id"):
                    self.ids[name][id] = short_id() if name == "approvals" else new_id()
                if isinstance(line.record, row_schemas.ExecutionLine) and line.record.id == archive.head.execution:
                    execution = line.record
                    # A single execution and its sweep share one id, which is how people refer to it.
                    self.ids[name][execution.id] = self.sweep_id
        if execution is None:
            raise InputError(f"history/executions.jsonl: execution {archive.head.execution!r} is missing")
        self.execution = execution
        for column, id in (("head_id", execution.head_id), ("passed_id", execution.passed_id)):
            self._must_come(id, "checkpoints", f"history/executions.jsonl: {column}")
        # Heads and writers may refer to rows of later tables, so they are checked when all ids are known.
        for id, table, where in self._later:
            if id not in self.ids[table]:
                raise InputError(f"{where} names {id!r}, which is not there")
        self._check_ancestry()
        self.renamed = {old: new for ids in self.ids.values() for old, new in ids.items()}

    def _lines(self, name: str) -> Iterator[row_schemas.Line]:
        for number, line in enumerate(self.archive.lines(name), 1):
            yield row_schemas.read_row(row_schemas.TABLES[name], line, f"history/{name}.jsonl, line {number}")

    def _check_references(self, name: str, line: row_schemas.Line) -> None:
        """Check that a row refers only to earlier rows, so that no line of checkpoints leads back to itself."""
        where = line.where
        for column, target in row_schemas.REFERS[name].items():
            id = line.text(column)
            optional = name == "executions"  # where it came from may be gone, and its checkpoints come after it
            if not (id is None or id in self.ids[target] or optional):
                raise InputError(f"{where}: {column} names {id!r}, which is not there before it")
        self._check_record(line.record, where)

    def _check_record(self, record: object, where: str) -> None:
        """Check references that only rows of one table have."""
        match record:
            case row_schemas.ExecutionLine() as execution:
                self._parents[execution.id] = execution.parent_id
            case row_schemas.CheckpointLine() as checkpoint:
                self._check_checkpoint(checkpoint, where)
            case row_schemas.NodeRunLine() as run:
                self._attempts[run.id] = (run.attempts, run.begun_at is not None)
                _check_node_run(run, where)
            case (
                row_schemas.AttemptLine(node_run_id=node_run, number=number)
                | row_schemas.CallLine(node_run_id=node_run, attempt=number)
            ):
                self._check_attempt(node_run, number, where, has_row=isinstance(record, row_schemas.AttemptLine))
            case row_schemas.RollbackLine() as rollback:
                named = {"from_id": rollback.from_id, "to_id": rollback.to_id, "head_id": rollback.head_id}
                for column, checkpoint_id in named.items():
                    self._must_come(checkpoint_id, "checkpoints", f"{where}: {column}")
            case row_schemas.ScoreLine(metric=metric) if metric not in self._metrics:
                raise InputError(f"{where}: metric {metric!r:.100} is not among those in execution.json")

    def _check_attempt(self, node_run: str, number: int, where: str, *, has_row: bool) -> None:
        """Check that an attempt's number exists and that no attempt is described twice."""
        attempts, is_described = self._attempts[node_run]
        if not 1 <= number <= attempts:
            raise InputError(f"{where}: attempt {number} of a node run that had {attempts}")
        if has_row and is_described:
            raise InputError(
                f"{where}: an attempt of node run {node_run!r}, which has begun_at and describes it itself"
            )

    def _check_checkpoint(self, checkpoint: row_schemas.CheckpointLine, where: str) -> None:
        for _, _, node_run in checkpoint.writers:
            self._must_come(node_run, "node_runs", f"{where}: writers")
        if checkpoint.inside is not None:
            self._must_come(checkpoint.inside.node_run, "node_runs", f"{where}: inside")

    def _check_ancestry(self) -> None:
        """Check that each execution comes after its parent, so that none descends from itself."""
        seen: set[str] = set()
        for id, parent in self._parents.items():
            if parent in self._parents and parent not in seen:
                raise InputError(
                    f"history/executions.jsonl: parent_id of {id!r} names {parent!r}, which comes after it"
                )
            seen.add(id)

    def _must_come(self, id: str | None, table: str, where: str) -> None:
        """Record a reference that must exist once all rows are read."""
        if id is not None:
            self._later.append((id, table, where))

    def rows(self, name: str) -> Iterator[row_schemas.Row]:
        """Yield the rows of a table with their new ids."""
        for line in self._lines(name):
            # A line may end where what is left of its history began.
            references: row_schemas.Row = {
                column: self.ids[target].get(line.text(column) or "")
                for column, target in row_schemas.REFERS[name].items()
            }
            if id := line.text("id"):
                references["id"] = self.ids[name][id]
            yield {**{key: self._renamed(field) for key, field in line.columns.items()}, **references}

    def _renamed(self, part: JsonValue) -> JsonValue:
        """Return a value in which ids of the archive are replaced, at any depth."""
        if isinstance(part, str):
            # Any text that equals an id is renamed: events and answers hold ids within their data.
            return self.renamed.get(part, part)
        if isinstance(part, list):
            return [self._renamed(inner) for inner in part]
        if isinstance(part, dict):
            return {key: self._renamed(inner) for key, inner in part.items()}
        return part


def _check_node_run(run: row_schemas.NodeRunLine, where: str) -> None:
    """Check that a node run has its writes, and that its task belongs to its node."""
    if run.status == "succeeded" and run.writes is None:
        raise InputError(f"{where}: it succeeded, and writes is missing")
    node, _, part = run.task.rpartition("|") if run.task != run.node else (run.task, "", "0")
    if node != run.node or not (part.isascii() and part.isdigit()):
        raise InputError(f"{where}: task {run.task!r:.100} does not belong to node {run.node!r:.100}")


def _digest_set(digest: str | None) -> set[str]:
    return set() if digest is None else {digest}


def _check_values_and_files(archive: Reading, plan: _Plan) -> dict[str, Manifest]:
    """Verify every value and file by hash, and that exactly the named ones exist. Return the manifests."""
    _same(archive, "values", plan.values)
    for digest in archive.contents("values"):
        row_schemas.check_value(b"".join(archive.content("values", digest)), f"values/{digest}")
    sizes = archive.contents("files")
    manifests: dict[str, Manifest] = {}
    for digest in sorted(plan.snapshots & sizes.keys()):
        try:
            manifests[digest] = decode(b"".join(archive.content("files", digest)), digest)
        except StoreError as error:
            raise InputError(f"files/{digest}: {error}") from None
    named = {file.digest: file.size for manifest in manifests.values() for file in manifest.values()}
    _same(archive, "files", {*plan.snapshots, *named})
    for digest, size in named.items():
        if sizes[digest] != size:
            raise InputError(f"files/{digest} has {sizes[digest]:,} bytes, but {size:,} in a list of files")
    return manifests


def _same(archive: Reading, kind: Any, named: set[Any]) -> None:
    present = archive.contents(kind).keys()
    if missing := named - present:
        raise InputError(f"{archive.file}: {kind}/{min(missing)} is missing")
    if unknown := present - named:
        raise InputError(f"{archive.file}: nothing refers to {kind}/{min(unknown)}")


def _store_files(archive: Reading, files: FileStore) -> None:
    """Store contents first, so that no manifest exists without the files that it lists."""
    sizes = archive.contents("files")
    if not sizes:
        return
    files.make()
    with files.adding() as adding:
        for digest, size in sizes.items():
            adding.add_blocks(archive.content("files", digest), size)
        adding.publish()


def _values(archive: Reading) -> Iterator[tuple[str, bytes]]:
    for digest in sorted(archive.contents("values")):
        yield digest, b"".join(archive.content("values", digest))


def _named_project(archive: Reading, session: SessionRow) -> str | None:
    """Return the project that an archive names, if the session takes executions of other projects."""
    return archive.head.project if session.project == DEFAULT_PROJECT else None


def _insert(connection: sa.Connection, archive: Reading, plan: _Plan, session: SessionRow, name: str, by: str) -> str:
    """Insert an archive's rows. Returns the status of its execution."""
    head, execution = archive.head, plan.execution
    sweep_id = plan.sweep_id
    # The importing database has no process that runs it, so an open execution is paused instead of pending.
    is_open = execution.status in (*OPEN_EXECUTIONS, "forked")
    status = "paused" if is_open else execution.status
    reason = f"imported by {by}; it was {execution.status}"
    graph = orjson.dumps(head.graph)
    graph_row = {"id": hashlib.sha256(graph).hexdigest(), "name": head.graph["name"], "version": head.graph["version"]}
    sweep = {
        "id": sweep_id,
        "session_id": session.id,
        "workflow_id": graph_row["id"],
        "name": name,
        "project": project_to_submit_to(connection, _named_project(archive, session), session.project),
        "token": scope_of(connection).token,
        "status": "paused" if is_open else "completed",
        "reason": reason if is_open else None,
        "spec": _checked_spec(archive, name),
        "fingerprints": head.fingerprints,
        "kind": "single",
        "cells": 1,
        "started_at": execution.created_at,
        "finished_at": None if is_open else execution.finished_at,
    }
    case = head.case.model_dump()
    measured = [metric.model_dump() for metric in head.metrics]
    stored.insert_sweep(connection, sweep, {**graph_row, "graph": head.graph}, case, head.choices, measured)
    owner: row_schemas.Row = {"session_id": session.id, "sweep_id": sweep_id}
    new = plan.renamed[head.execution]
    mine: row_schemas.Row = {"sweep_id": sweep_id}
    place: row_schemas.Row = {"case_number": 0, "repeat": head.repeat}
    changes: dict[str, row_schemas.Row] = {
        "executions": {**owner, **place, "combinations": [0]},
        "checkpoints": mine,
        "node_runs": {**mine, "cells": 1},
        "approvals": owner,
        "rollbacks": mine,
        "events": owner,
        "scores": {**mine, **place, "combination": 0},
        "comments": {**mine, **place, "combination": 0},
    }
    for table_name, table in row_schemas.TABLES.items():
        rows: Iterator[row_schemas.Row] = ({**row, **changes.get(table_name, {})} for row in plan.rows(table_name))
        if table_name == "executions":
            rows = ({**row, **_standing(row, new, status, reason if is_open else None)} for row in rows)
        stored.insert_history(connection, table, rows)
        if table_name == "executions":
            insert_rows(connection, cells, [_cell(archive, sweep_id, new, status)])
    details: dict[str, Json] = {"from": head.execution, "exported_at": head.exported_at, "host": head.host, "by": by}
    add_event(connection, subject(session.id, sweep_id, new), "execution.imported", details)
    return status


def _standing(row: row_schemas.Row, target: str, status: str, reason: str | None) -> row_schemas.Row:
    """Return the status of an execution after its import: no process runs it."""
    if row["id"] == target:
        return {"status": status, "reason": reason or row["reason"]}
    return {"status": "forked"} if row["status"] in OPEN_EXECUTIONS else {}


def _cell(archive: Reading, sweep_id: str, execution: str, status: str) -> row_schemas.Row:
    head = archive.head
    cell = {} if head.cell is None else head.cell.model_dump()
    ended = _ENDED_CELLS.get(status, "pending")
    if ended == "failed" and cell.get("status") == "set_aside":
        ended = "set_aside"
    return {
        **{name: cell.get(name) for name in CELL},
        "sweep_id": sweep_id,
        "case_number": 0,
        "repeat": head.repeat,
        "combination": 0,
        "status": ended,
        "execution_id": execution,
        "edited": head.edited,
    }


def _checked_spec(archive: Reading, name: str) -> dict[str, JsonValue]:
    spec = {**as_written(archive.head.spec), "sweep": name}
    # A spec that cannot be parsed is rejected now, not when the execution is resumed.
    parse_single(spec, f"{archive.file}: execution.json: spec")
    return {**spec, "baseline_row": None, "folder": str(Path.cwd())}
