"""The command on the files of workspaces: files."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wtb.cli import options
from wtb.cli.console import open_database, read_choices, say
from wtb.cli.output import present
from wtb.core.errors import InputError, WTBError, did_you_mean, meant_or_known
from wtb.core.texts import bytes_of, plural
from wtb.display.text.inspect import files as files_text
from wtb.display.views import executions
from wtb.store.files import locations
from wtb.store.read import details, queries

if TYPE_CHECKING:
    from wtb.core.tree.checkpoints import Checkpoint
    from wtb.display.views.executions import Trace
    from wtb.store.database import Database
    from wtb.store.files.manifest import Manifest
    from wtb.store.files.store import FileStore

Ref = Annotated[
    str,
    typer.Argument(metavar="EXECUTION|CHECKPOINT|SWEEP", help="Id, or its beginning; or a sweep, to name a cell of."),
]


def files(
    ref: Ref,
    path: Annotated[str | None, typer.Argument(help="Write the content of this file, as it is.")] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="CHECKPOINT|NODE", help="As they were there: after a node's last visit."),
    ] = None,
    diff: Annotated[
        str | None,
        typer.Option("--diff", metavar="OTHER", help="What changes from here to another execution or checkpoint."),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option("--export", metavar="DIR", help="Write them to a new or empty directory; with PATH, only it."),
    ] = None,
    case: Annotated[str | None, typer.Option("--case", help="Of a sweep: the cell of the case with this id.")] = None,
    combination: Annotated[
        list[str] | None,
        typer.Option("--combination", metavar="NODE=VARIANT", help="Of a sweep: the cell that chooses it."),
    ] = None,
    repeat: Annotated[int | None, typer.Option("--repeat", min=0, help="Of a sweep: this repeat, from 0.")] = None,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """List, read, export or compare the files that nodes left.

    They are those in an execution's workspace.

    See also: `wtb export` writes the whole execution to a file; `wtb diff` compares states.

    Examples: wtb files EXECUTION  |  wtb files EXECUTION out/report.md  |  wtb files nightly --case q1 --combination
    retrieve=bm25 --export q1
    """
    _check_options(path, diff, export, format, output)
    database = open_database(db)
    cell = {"case": case, "repeat": repeat, "choices": read_choices(combination)}
    found = _find(database, ref, cell if any(value not in (None, {}) for value in cell.values()) else None)
    checkpoint = _at(found, at) if at is not None else found.head
    snapshot = checkpoint.workspace if checkpoint else None
    workspaces = locations.workspaces_of(database)
    about = _about(found, checkpoint)
    if diff is not None:
        other = _find(database, diff, None)
        differences = workspaces.compare(snapshot, other.head.workspace if other.head else None)
        changes = [{key: getattr(one, key) for key in ("path", "kind", "before", "after")} for one in differences]
        document = {"a": about, "b": _about(other, other.head), "changes": changes}
        present(document, files_text.changes, format, output)
    elif export is not None:
        written = workspaces.export(snapshot, export, path)
        total = sum(entry.size for entry in written.values())

        say(f"{plural(len(written), 'file')} ({bytes_of(total)}) written to {export}")
    elif path is not None:
        _put_file(workspaces.files, workspaces.files.manifest(snapshot), path, output)
    else:
        present({**about, **_listed(workspaces.files.manifest(snapshot))}, files_text.listed, format, output)


def _check_options(
    path: str | None, diff: str | None, export: Path | None, format: options.Format, output: Path | None
) -> None:
    if diff is not None and (path is not None or export is not None):
        raise InputError("--diff compares all files; give it without PATH and --export")
    if export is not None and output is not None:
        raise InputError("--export and --output both say where to write; give one of them")
    if format is options.Format.json and (path is not None or export is not None):
        raise InputError("--format json is for lists; PATH and --export write files as they are")


def _find(database: Database, ref: str, cell: Mapping[str, Any] | None) -> Trace:
    """The trace of an execution or checkpoint, or of the execution that holds a cell of a sweep."""
    if cell is None:
        try:
            return executions.trace_of(database, ref)
        except InputError as no_trace:
            try:
                sweep = queries.find_sweep(database, ref)
            except InputError as no_sweep:
                raise InputError(*no_trace.problems, *no_sweep.problems) from None
    else:
        sweep = queries.find_sweep(database, ref)
    one_cell = _cell(database, sweep, cell or {"case": None, "repeat": None, "choices": {}})
    if one_cell["execution_id"] is None:
        raise InputError(f"that cell of sweep {ref!r} is {one_cell['status']}; it has no files yet")
    return executions.trace(database, queries.find_execution(database, one_cell["execution_id"]))


def _cell(database: Database, sweep: Mapping[str, Any], cell: Mapping[str, Any]) -> Mapping[str, Any]:
    """The one cell of a sweep that is meant. Raises InputError where there is none, or several."""
    every = queries.choices(database, sweep["id"])
    combinations = _matching(every, cell["choices"])
    case = cell["case"]
    rows = details.cells_like(
        database, sweep["id"], case=case, repeat=cell["repeat"], combinations=combinations, limit=2
    )
    if len(rows) == 1:
        return rows[0]
    if not rows:
        if case is not None:
            is_there, near = details.case_ids(database, sweep["id"], case)
            if not is_there:
                raise InputError(f"the sweep has no case {case!r}{meant_or_known(case, near)}")
        raise InputError(f"the sweep has no repeat {cell['repeat']}; repeats are counted from 0")
    one, other = rows
    differ = "--case" if one["case"] != other["case"] else "--combination"
    if differ == "--combination" and one["combination"] == other["combination"]:
        differ = "--repeat"
    raise InputError(
        f"several cells of sweep {sweep['name']!r} are meant; name one of them, such as with {differ}, "
        f"or give an execution (`wtb show {sweep['name']} --cells` lists them)"
    )


def _matching(every: Sequence[Mapping[str, str]], chosen: Mapping[str, str]) -> list[int] | None:
    """The numbers of the combinations that choose so; None for all. Raises InputError with a near match."""
    for node, variant in chosen.items():
        nodes = {node for choice in every for node in choice}
        if node not in nodes:
            raise InputError(f"--combination: the sweep varies no node {node!r}{meant_or_known(node, sorted(nodes))}")
        variants = {choice[node] for choice in every if node in choice}
        if variant not in variants:
            near = meant_or_known(variant, sorted(variants))
            raise InputError(f"--combination: the sweep has no variant {variant!r} of node {node!r}{near}")
    if not chosen:
        return None
    found = [number for number, choice in enumerate(every) if chosen.items() <= choice.items()]
    if not found:
        raise InputError("--combination: no combination of the sweep chooses these together")
    return found


def _at(found: Trace, at: str) -> Checkpoint:
    """The checkpoint after a node's last visit, or the one of that id on the line. Raises InputError."""
    for checkpoint in reversed(found.line):
        if any(writer.node == at for writer in checkpoint.writers):
            return checkpoint
    like = [checkpoint for checkpoint in found.line if checkpoint.id.startswith(at)] if at else []
    exact = [checkpoint for checkpoint in like if checkpoint.id == at]
    if exact or len(like) == 1:
        return (exact or like)[0]
    if like:
        raise InputError(f"--at {at!r} is the beginning of several checkpoints' ids; give more of it")
    nodes = dict.fromkeys(writer.node for checkpoint in found.line for writer in checkpoint.writers)
    near = meant_or_known(at, nodes) if nodes else "; nothing has run yet"
    raise InputError(f"--at {at!r}: no node or checkpoint on the way here{near}")


def _about(found: Trace, checkpoint: Checkpoint | None) -> dict[str, Any]:
    about = found.about
    return {
        "execution": about["id"] if "case" in about else None,
        "sweep": about["sweep"]["name"],
        "case": about.get("case"),
        "repeat": about.get("repeat"),
        "combinations": about.get("combinations", []),
        "checkpoint": checkpoint.id if checkpoint else None,
        "step": checkpoint.step if checkpoint else None,
        "after": [writer.node for writer in checkpoint.writers] if checkpoint else [],
        "snapshot": checkpoint.workspace if checkpoint else None,
    }


def _listed(manifest: Manifest) -> dict[str, Any]:
    return {
        "bytes": sum(entry.size for entry in manifest.values()),
        "files": [
            {"path": path, "size": entry.size, "mode": f"{entry.mode & 0o777:04o}", "sha256": entry.digest}
            for path, entry in sorted(manifest.items())
        ],
    }


def _put_file(files: FileStore, manifest: Manifest, path: str, output: Path | None) -> None:
    """Write the bytes of one file, which is read once before: nothing is written of a damaged one."""
    if path not in manifest:
        below = sum(name.startswith(path.rstrip("/") + "/") for name in manifest)
        if below:
            text = f"{path!r} is a folder of {plural(below, 'file')}; name one of them, or write them with --export DIR"
            raise InputError(text)
        nothing = "; there are no files" if not manifest else f"{did_you_mean(path, manifest)}; give no PATH for a list"
        raise InputError(f"there is no file {path!r}{nothing}")
    digest = manifest[path].digest
    for _ in files.read(digest):
        pass
    if output is None:
        sys.stdout.flush()
        for block in files.read(digest):
            sys.stdout.buffer.write(block)
        sys.stdout.buffer.flush()
        return
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with output.open("wb") as out:
            for block in files.read(digest):
                out.write(block)
    except OSError as error:
        raise WTBError(f"--output {output}: cannot be written ({error.strerror})") from error
    say(f"written to {output}")
