"""The files that nodes left in the workspace of an execution."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path

from wtb.core.arguments import AnyPath, FromZero, check_fields, checked
from wtb.core.documents.lineage import FileChangesDocument, FilesDocument, FilesHeading
from wtb.core.errors import InputError, did_you_mean
from wtb.core.frozen import frozen
from wtb.core.texts import plural
from wtb.core.tree.checkpoints import Checkpoint
from wtb.display.views.executions import Trace, trace, trace_of
from wtb.operations.context import Context
from wtb.planning.prepare import matching
from wtb.store.database import Database
from wtb.store.files.locations import check_outside
from wtb.store.files.manifest import Manifest, compare
from wtb.store.read import details, queries
from wtb.store.read.details import read_history
from wtb.store.records import FoundCell
from wtb.store.tables.sweeps import SweepRow


@frozen
class Cell:
    """One cell of a sweep, by as much as tells it from the others.

    Attributes:
        case: The id of its case; None for any.
        choices: Variants by node that its combination chooses; nothing for any.
        repeat: Its repeat, from 0; None for any.
    """

    case: str | None = None
    choices: Mapping[str, str] = field(default_factory=dict)
    repeat: FromZero | None = None

    def __post_init__(self) -> None:
        check_fields(self)


@frozen
class Exported:
    """The result of `export_files`.

    Attributes:
        files: How many files.
        bytes: How many bytes in all.
    """

    files: int
    bytes: int


@checked
def list_files(context: Context, ref: str, *, at: str | None = None, cell: Cell | None = None) -> FilesDocument:
    """List the files that nodes left.

    Args:
        context: Where.
        ref: An execution, a checkpoint or a sweep, of which `cell` says which cell is meant: its id, the beginning of
            it, or a sweep's name.
        at: A node, for the files after its last visit, or a checkpoint by its id or name; by default that at the head.
        cell: Of a sweep: whose files.

    Returns:
        FilesDocument: the files, with size, mode and digest of each.

    Raises:
        InputError: If that is not there, or several cells are meant.
    """
    trace, checkpoint = _find(context.database, ref, at, cell)
    files = _manifest(context, trace, checkpoint)
    return {
        **_heading(trace, checkpoint),
        "bytes": sum(file.size for file in files.values()),
        "files": [
            {"path": path, "size": file.size, "mode": f"{file.mode & 0o777:04o}", "sha256": file.digest}
            for path, file in sorted(files.items())
        ],
    }


@checked
def read_file(
    context: Context, ref: str, path: str, *, at: str | None = None, cell: Cell | None = None
) -> Iterator[bytes]:
    """Return the content of a file in blocks. It is read once before: nothing is returned of a damaged one.

    Args:
        context: Where.
        ref: Whose file, as for `list_files`.
        path: Its path in the workspace.
        at: As for `list_files`.
        cell: As for `list_files`.

    Returns:
        Iterator[bytes]: its content in blocks.

    Raises:
        InputError: If there is no such file.
        StoreError: If it is missing or damaged.
    """
    trace, checkpoint = _find(context.database, ref, at, cell)
    manifest = _manifest(context, trace, checkpoint)
    if path not in manifest:
        file_count = sum(name.startswith(path.rstrip("/") + "/") for name in manifest)
        if file_count:
            raise InputError(f"{path!r} is a folder of {plural(file_count, 'file')}; name one of them, or export it")
        nothing = "; there are no files" if not manifest else f"{did_you_mean(path, manifest)}; a list shows all"
        raise InputError(f"there is no file {path!r}{nothing}")
    files, digest = context.workspaces.files.of_project(trace.project), manifest[path].digest
    # Reading verifies the hash; a server that has sent half of a file could not report the damage.
    for _ in files.read(digest):
        pass
    return files.read(digest)


@checked
def export_files(
    context: Context,
    ref: str,
    directory: AnyPath,
    *,
    path: str | None = None,
    at: str | None = None,
    cell: Cell | None = None,
) -> Exported:
    """Write files to a new or empty directory of this machine.

    Args:
        context: Where.
        ref: Whose files, as for `list_files`.
        directory: Where to write them.
        path: Only this file or folder.
        at: As for `list_files`.
        cell: As for `list_files`.

    Returns:
        How many files and bytes were written.

    Raises:
        InputError: If there are no such files, the directory is not empty, or it is part of the store.
        StoreError: If one is missing or damaged.
    """
    directory = Path(directory)
    check_outside(context.workspaces, directory)
    trace, checkpoint = _find(context.database, ref, at, cell)
    home = context.workspaces.of_project(trace.project)
    written = home.export(checkpoint.workspace if checkpoint else None, directory, path)
    return Exported(len(written), sum(file.size for file in written.values()))


@checked
def compare_files(
    context: Context, ref: str, other: str, *, at: str | None = None, cell: Cell | None = None
) -> FileChangesDocument:
    """Return what changes in the files from one place to another.

    Args:
        context: Where.
        ref: Whose files, as for `list_files`.
        other: Another execution, checkpoint, or sweep of one cell.
        at: As for `list_files`, of the first.
        cell: As for `list_files`, of the first.

    Returns:
        FileChangesDocument: what was added, removed and changed.

    Raises:
        InputError: If one of them is not there.
        StoreError: If files are missing or damaged.
    """
    sides = _find(context.database, ref, at, cell), _find(context.database, other)
    before, after = (_manifest(context, *side) for side in sides)
    return {
        "a": _heading(*sides[0]),
        "b": _heading(*sides[1]),
        "changes": [
            {"path": change.path, "kind": change.kind, "before": change.before, "after": change.after}
            for change in compare(before, after)
        ],
    }


def _manifest(context: Context, trace: Trace, checkpoint: Checkpoint | None) -> Manifest:
    files = context.workspaces.files.of_project(trace.project)
    return files.manifest(checkpoint.workspace if checkpoint else None)


def _find(
    database: Database, ref: str, at: str | None = None, cell: Cell | None = None
) -> tuple[Trace, Checkpoint | None]:
    """Return the trace of a reference, and the checkpoint on it whose files are meant."""
    trace = _trace(database, ref, cell)
    if at is None:
        return trace, trace.head
    about = trace.execution
    history = trace.history if about is None else read_history(database, queries.find_execution(database, about["id"]))
    return trace, history.resolve(at)


def _trace(database: Database, ref: str, cell: Cell | None) -> Trace:
    """Return the trace of an execution or checkpoint, or of the execution that holds a cell of a sweep."""
    if cell is None:
        try:
            return trace_of(database, ref)
        except InputError as no_trace:
            try:
                sweep = queries.find_sweep(database, ref)
            except InputError as no_sweep:
                raise InputError(*no_trace.problems, *no_sweep.problems) from None
    else:
        sweep = queries.find_sweep(database, ref)
    row = _cell(database, sweep, cell or Cell())
    if row.execution_id is None:
        raise InputError(f"that cell of sweep {ref!r} is {row.status}; it has no files yet")
    return trace(database, queries.find_execution(database, row.execution_id))


def _cell(database: Database, sweep: SweepRow, cell: Cell) -> FoundCell:
    """Return the one cell of a sweep that matches. Raises InputError if there is none, or several."""
    combinations = matching(queries.choices(database, sweep.id), cell.choices) if cell.choices else None
    # Two suffice to know that the cell is ambiguous, and how the candidates differ.
    rows = details.cells_like(
        database, sweep.id, case=cell.case, repeat=cell.repeat, combinations=combinations, limit=2
    )
    if len(rows) == 1:
        return rows[0]
    if not rows:
        if cell.case is not None:
            details.check_case(database, sweep.id, cell.case)
        raise InputError(f"the sweep has no repeat {cell.repeat}; repeats are counted from 0")
    first, other = rows
    differ = "case" if first.case != other.case else "combination"
    if differ == "combination" and first.combination == other.combination:
        differ = "repeat"
    raise InputError(
        f"several cells of sweep {sweep.name!r} are meant; name one of them, such as by its {differ}, or give an "
        f"execution (`wtb show {shlex.quote(sweep.name)} --cells` lists them)"
    )


def _heading(trace: Trace, checkpoint: Checkpoint | None) -> FilesHeading:
    about = trace.execution
    return {
        "execution": None if about is None else about["id"],
        "sweep": trace.about["sweep"]["name"],
        "case": None if about is None else about["case"],
        "repeat": None if about is None else about["repeat"],
        "combinations": [] if about is None else about["combinations"],
        "checkpoint": checkpoint.id if checkpoint else None,
        "step": checkpoint.step if checkpoint else None,
        "after": [writer.node for writer in checkpoint.writers] if checkpoint else [],
        "snapshot": checkpoint.workspace if checkpoint else None,
    }
