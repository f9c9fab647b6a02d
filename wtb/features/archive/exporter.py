"""Export of an execution to an archive."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import sqlalchemy as sa
from msgspec import structs
from pydantic import JsonValue

from wtb.core.arguments import AnyPath, checked
from wtb.core.documents.administration import ExportedDocument
from wtb.core.errors import InputError, WTBError
from wtb.core.tree.stored_spec import StoredSpec
from wtb.core.version import __version__
from wtb.features.archive import queries as stored
from wtb.features.archive.row_schemas import TABLES, Row, columns
from wtb.features.archive.zip_file import FORMAT, HEAD, VERSION, Writing
from wtb.operations.context import Context
from wtb.planning.prepare import as_written
from wtb.store.database import Database
from wtb.store.files.locations import check_outside
from wtb.store.files.manifest import decode
from wtb.store.files.store import FileStore
from wtb.store.housekeeping.contents import named_values, part_of, value_contents
from wtb.store.read import queries
from wtb.store.read.details import find_one
from wtb.store.tables.executions import ExecutionRow

_ARCHIVE = "archive.wtb"
_BLOCK = 1 << 16

# By which column a table's rows are found, and among whose ids.
_KEYS = {
    "executions": ("id", "executions"),
    "checkpoints": ("id", "checkpoints"),
    "node_runs": ("id", "node_runs"),
    "attempts": ("node_run_id", "node_runs"),
    "calls": ("node_run_id", "node_runs"),
    "invocations": ("node_run_id", "node_runs"),
    "decisions": ("checkpoint_id", "checkpoints"),
    "approvals": ("checkpoint_id", "checkpoints"),
    "rollbacks": ("execution_id", "executions"),
}


@checked
def export_execution(
    context: Context, ref: str, file: AnyPath | None = None, *, force: bool = False
) -> ExportedDocument:
    """Write an execution with its history, values and files to a file, whole or not at all.

    Args:
        context: Where it is.
        ref: Its id, the beginning of it, or that of a single execution.
        file: The file to write; by default `EXECUTION.wtb` in the working directory.
        force: Replace a file that is there.

    Returns:
        What was written.

    Raises:
        StoreError: If a part of it is missing or damaged.
        InputError: If there is no such execution, no folder for the file, or a file already.
        WTBError: If the file cannot be written.
    """
    file = None if file is None else Path(file)
    database = context.database
    row = find_one(database, ref)
    target = file or Path(f"{row.id}.wtb")
    check_outside(context.workspaces, target)
    with (
        _replacing(target, force=force) as temporary,
        Writing(temporary) as out,
        database.read(long=True) as connection,
    ):
        written = _write(database, connection, row, context.workspaces.files, out)
    return {**written, "file": str(target), "bytes": target.stat().st_size}


@checked
def read_archive(context: Context, ref: str) -> Iterator[bytes]:
    """Read the archive of an execution in blocks, as `export_execution` writes it. It is complete before the first.

    Args:
        context: Where it is.
        ref: Its id, the beginning of it, or that of a single execution.

    Returns:
        Iterator[bytes]: the archive, a zip file.

    Raises:
        StoreError: If a part of it is missing or damaged.
        InputError: If there is no such execution.
    """
    folder = TemporaryDirectory(prefix="wtb-archive-")
    try:
        # Complete before the first block is sent, because a server cannot report an error in the middle of a download.
        export_execution(context, ref, Path(folder.name) / _ARCHIVE)
    except BaseException:
        folder.cleanup()
        raise
    return _blocks(folder)


def save_archive(blocks: Iterable[bytes], target: Path, *, force: bool = False) -> int:
    """Write the blocks of an archive to a file, whole or not at all.

    Args:
        blocks: As `read_archive` returns them, of a server.
        target: The file.
        force: Replace a file that is there.

    Returns:
        Its size in bytes.

    Raises:
        InputError: If there is no folder for the file, or a file already.
        WTBError: If it cannot be written.
    """
    with _replacing(target, force=force) as temporary, open(temporary, "wb", opener=_for_this_user) as out:
        out.writelines(blocks)
    return target.stat().st_size


@contextmanager
def _replacing(target: Path, *, force: bool) -> Iterator[Path]:
    """Yield a temporary file that replaces the target once it is written. Raises InputError and WTBError."""
    if target.is_dir():
        raise InputError(f"{target} is a directory; give the name of a file in it")
    if target.exists() and not force:
        raise InputError(f"{target} exists already; give another name, or force its replacement", argument="force")
    if not target.parent.is_dir():
        raise InputError(f"{target}: there is no folder {target.parent}; make it first, or name another")
    # In the folder of the target, because a rename is atomic only within one file system.
    temporary = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        try:
            yield temporary
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise WTBError(f"{target}: cannot be written ({error.strerror or error})") from error


def _for_this_user(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _blocks(folder: TemporaryDirectory[str]) -> Iterator[bytes]:
    with folder, (Path(folder.name) / _ARCHIVE).open("rb") as archive:
        while block := archive.read(_BLOCK):
            yield block


def _write(
    database: Database, connection: sa.Connection, row: ExecutionRow, files: FileStore, out: Writing
) -> ExportedDocument:
    sweep = queries.find_sweep(database, row.sweep_id)
    graph = queries.workflow_graph(database, sweep.workflow_id)
    case = queries.case_rows(database, sweep.id, [row.case_number])[row.case_number]
    choices, combination = _find_choices(database, row)
    defaults = {node["name"]: node["default"] for node in graph["nodes"]}
    line = stored.line_ids(connection, row)
    ids: dict[str, Sequence[str]] = {
        "executions": stored.ancestors(connection, row, line),
        "checkpoints": line,
        "node_runs": stored.node_run_ids(connection, row, line, {**defaults, **choices}),
    }
    cell = None if combination is None else stored.cell_of(connection, row, combination)
    # Values and snapshots are collected while rows are written, so history is read once.
    values = set(case.input.values())
    snapshots = {case.workspace}
    for name, table in TABLES.items():
        rows = _rows(connection, table, row, ids, cell, combination)
        out.rows(name, _noting(name, rows, values, snapshots))
    for key in sorted(values):
        out.add(f"values/{key}", (content for _, content in value_contents(database, connection, [key])))
    contents = _write_files(
        out, files.of_project(sweep.project), {snapshot for snapshot in snapshots if snapshot is not None}
    )
    measured = queries.metric_rows(database, sweep.id) if cell is not None else []
    head = {
        "format": FORMAT,
        "version": VERSION,
        "wtb": __version__,
        "exported_at": time.time(),
        "host": socket.gethostname(),
        "execution": row.id,
        "sweep": sweep.id,
        "name": sweep.name,
        "project": sweep.project,
        "spec": _spec(sweep.spec, sweep.kind, choices),
        "fingerprints": sweep.fingerprints,
        "graph": graph,
        "case": {name: getattr(case, name) for name in ("id", "input", "expected", "tags", "workspace", "cluster")},
        "repeat": row.repeat,
        "choices": choices,
        "edited": row.edited,
        "cell": cell and {name: cell[name] for name in CELL},
        "metrics": [
            {name: field for name, field in structs.asdict(metric_row).items() if name != "sweep_id"}
            for metric_row in measured
        ],
        "history": {name: member.model_dump() for name, member in out.history.items()},
    }
    out.add(HEAD, [orjson.dumps(head, option=orjson.OPT_INDENT_2)])
    return {
        "execution": row.id,
        "case": case.id,
        "choices": choices,
        "others": max(0, len(row.combinations) - 1),
        "checkpoints": len(line),
        "values": len(values),
        "files": contents,
        "file": "",
        "bytes": 0,
    }


CELL = ("status", "elapsed_s", "usd", "tokens_in", "tokens_out", "node_runs", "failure", "finished_at")


def _find_choices(database: Database, row: ExecutionRow) -> tuple[dict[str, str], int | None]:
    """Return the variants of the first combination of an execution, and the combination's number."""
    if row.choices is not None:
        return dict(row.choices), None
    first = row.combinations[0]
    return dict(queries.choices(database, row.sweep_id)[first]), first


def _rows(
    connection: sa.Connection,
    table: sa.Table,
    row: ExecutionRow,
    ids: Mapping[str, Sequence[str]],
    cell: Row | None,
    combination: int | None,
) -> Iterable[Row]:
    column_names = columns(table)
    if table.name == "events":
        return _events(stored.events_of(connection, column_names, row.sweep_id, ids["executions"]), combination)
    if table.name in ("scores", "comments"):
        return [] if cell is None else stored.rows_of_cell(connection, table, column_names, cell)
    key, whose = _KEYS[table.name]
    rows = stored.rows_of(connection, table, column_names, key, [row.id] if table.name == "rollbacks" else ids[whose])
    if table.name == "approvals":
        return (approval for approval in rows if approval["answer"] is not None)
    if table.name == "node_runs":  # of a fork that went on from the head, too
        execution_ids = set(ids["executions"])
        return (
            {
                **node_run,
                "execution_id": node_run["execution_id"] if node_run["execution_id"] in execution_ids else row.id,
            }
            for node_run in rows
        )
    return rows


def _events(rows: Iterable[Row], combination: int | None) -> Iterator[Row]:
    """Yield events without those of other cells; the only cell of an archive has combination 0."""
    for row in rows:
        details = row["data"]
        number = part_of(details, "combination")
        if not isinstance(details, dict) or number is None:
            yield row
        elif number == combination:
            yield {**row, "data": {**details, "combination": 0}}


def _noting(table: str, rows: Iterable[Row], values: set[str], snapshots: set[Any]) -> Iterator[Row]:
    """Yield rows, and collect what they refer to."""
    for row in rows:
        values |= named_values(table, row)
        snapshots.add(row.get("workspace"))
        yield row


def _write_files(out: Writing, files: FileStore, snapshots: set[str]) -> int:
    """Write manifests and the contents that they list. Return the number of contents."""
    contents: set[str] = set()
    for digest in sorted(snapshots):
        manifest = b"".join(files.read(digest))
        contents |= {file.digest for file in decode(manifest, digest).values()}
        out.add(f"files/{digest}", [manifest])
    for digest in sorted(contents - snapshots):
        out.add(f"files/{digest}", files.read(digest))
    return len(contents)


def _spec(stored_spec: StoredSpec, kind: str, choices: Mapping[str, str]) -> dict[str, JsonValue]:
    """Return the sweep as submitted, for this combination alone, without traces of where it ran."""
    spec = as_written(stored_spec)
    for key in ("session", "notify", "gates", "best", "exclude", "baseline", "margin", "agreement"):
        spec.pop(key, None)
    spec["limits"] = {"cell_timeout": (spec.get("limits") or {}).get("cell_timeout")}  # the others are of all cells
    run = dict(spec.get("run") or {})
    run["mode"] = run.get("mode") or ("interactive" if kind == "single" else "autonomous")
    vary = {
        node: [ref for ref in variants if _name(ref) == choices.get(node)] if isinstance(variants, list) else variants
        for node, variants in (spec.get("vary") or {}).items()
    }
    vary = {
        node: [{"name": choices[node]}] if variants == "all" and node in choices else variants
        for node, variants in vary.items()
    }
    fixed = {node: [{"name": variant}] for node, variant in choices.items() if not vary.get(node)}
    vary = {node: variants for node, variants in {**vary, **fixed}.items() if variants}
    return {**spec, "run": run, "cases": "inline", "repeats": 1, "vary": vary}


def _name(ref: Any) -> Any:
    return ref.get("name") if isinstance(ref, dict) else ref
