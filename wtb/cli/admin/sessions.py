"""Commands on sessions: who sweeps belong to, and how much of disk, node runs and money they may use."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wtb.cli import options
from wtb.cli.console import confirm, existing_database, open_database, put, say
from wtb.cli.output import present, present_all
from wtb.config import retention_policy
from wtb.core.errors import InputError
from wtb.core.serialization.plain_json import iso
from wtb.core.texts import bytes_of, plural
from wtb.core.units import parse_size
from wtb.display.text.admin import sessions
from wtb.execution.runtime import cleanup
from wtb.operations.housekeeping import garbage_collection
from wtb.store import process_identity
from wtb.store.files import locations, safe_directories
from wtb.store.housekeeping import deletion
from wtb.store.housekeeping import files as file_store
from wtb.store.limits import sessions as store
from wtb.store.limits import usage
from wtb.store.runs import slots

if TYPE_CHECKING:
    from wtb.store.database import Database
    from wtb.store.files.store import FileStore


Name = Annotated[str, typer.Argument(metavar="NAME", help="The session's name.")]
Disk = Annotated[
    str | None, typer.Option("--disk", metavar="SIZE", help="Most bytes of its files, such as 10GB; none: no limit.")
]
Concurrency = Annotated[
    str | None, typer.Option("--concurrency", metavar="N", help="Most node runs at a time; none: no limit.")
]
Usd = Annotated[
    str | None, typer.Option("--usd", metavar="AMOUNT", help="Most US dollars that it may spend; none: no limit.")
]
Tokens = Annotated[
    str | None, typer.Option("--tokens", metavar="N", help="Most tokens that it may spend; none: no limit.")
]


def create(
    name: Name,
    disk: Disk = None,
    concurrency: Concurrency = None,
    usd: Usd = None,
    tokens: Tokens = None,
    db: options.Db = None,
) -> None:
    """Make a session. Sweeps go to it by --session NAME, the sweep file's `session`, or WTB_SESSION.

    Examples: wtb session create ann  |  wtb session create nightly --disk 10GB --usd 20
    """
    store.check_name(name)
    quota = store.Quota.of(_limits(disk, concurrency, usd, tokens))
    store.create(open_database(db, create=True), name, quota)
    put(f"session {name}: made, {sessions.quota(asdict(quota))}")
    say(f"next: wtb run sweep.yaml --session {name}")


def change(
    name: Name,
    disk: Disk = None,
    concurrency: Concurrency = None,
    usd: Usd = None,
    tokens: Tokens = None,
    db: options.Db = None,
) -> None:
    """Change a session's quota; what is not named stays. Runs that have begun keep the slots that they took.

    Example: wtb session change nightly --concurrency 4 --usd none
    """
    limits = _limits(disk, concurrency, usd, tokens)
    if not limits:
        raise InputError("nothing to change; give --disk, --concurrency, --usd or --tokens (none: no limit)")
    database = open_database(db)
    quota = store.change_quota(database, store.find_session(database, name)["id"], limits)
    put(f"session {name}: {sessions.quota(asdict(quota))}")


def list_(
    all_: Annotated[bool, typer.Option("--all", help="Archived ones too.")] = False,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """List sessions with what they use and what they may use.

    JSON: {"sessions": [{name, created_at, archived_at, sweeps, cells, usage, quota}]}. `usage` and `quota` hold
    `disk` (bytes), `node_runs` (at a time: taken, allowed), `usd` and `tokens`; in a quota null is no limit.

    Examples: wtb session list  |  wtb session list --all --format json
    """
    database = existing_database(db)
    rows = [] if database is None else usage.session_rows(database, alive=process_identity.is_not_dead)
    found = [_document(row) for row in rows if all_ or row["archived_at"] is None]
    nothing = "there are no sessions yet; `wtb session create NAME` makes one"
    present_all("sessions", found, sessions.listed, format, output, nothing)


def show(
    name: Name, db: options.Db = None, format: options.Show = options.Format.table, output: options.Output = None
) -> None:
    """Show a session: its sweeps by status, what it uses, and who holds its slots.

    JSON: {"session": as in `wtb session list`, "sweeps_by_status": {status: count}, "runners": [{host, pid, slots,
    state}], "directory": where its attempts work}.

    Example: wtb session show nightly
    """
    database = open_database(db)
    row = store.find_session(database, name)
    runners = slots.live_runners(database, row["id"], alive=process_identity.is_not_dead)
    document = {
        "session": _document({**row, "usage": usage.usage(database, row["id"], alive=process_identity.is_not_dead)}),
        "sweeps_by_status": usage.sweeps_by_status(database, row["id"]),
        "runners": [
            {"host": one["host"], "pid": one["pid"], "slots": one["slots"], "state": process_identity.state_of(one)}
            for one in runners
        ],
        "directory": str(_directory(database, name)),
    }
    present(document, sessions.one, format, output)


def archive(
    name: Name,
    undo: Annotated[bool, typer.Option("--undo", help="Take new sweeps again.")] = False,
    db: options.Db = None,
) -> None:
    """Let a session take no new sweeps. Those it has can be read and resumed; `wtb session list` leaves it out.

    Examples: wtb session archive ann  |  wtb session archive ann --undo
    """
    database = open_database(db)
    session_id = store.find_session(database, name)["id"]
    changed = (store.unarchive if undo else store.archive)(database, session_id)
    state = "not archived" if undo else "archived"
    put(f"session {name}: {state}" if changed else f"session {name}: {state} already")


def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, although it has sweeps.")] = False,
    db: options.Db = None,
) -> None:
    """Delete a session with its sweeps and their files, for good. What other sessions have too stays there.

    Files that were stored within the last hour are freed by a later `wtb gc`.

    Example: wtb session delete ann --yes
    """
    database = open_database(db)
    row = store.find_session(database, name)
    directory = _directory(database, name)
    used = usage.usage(database, row["id"])
    what = f"session {name} with {plural(used.sweeps, 'sweep')}, {plural(used.cells, 'cell')}"
    what += f" and {bytes_of(used.disk_bytes)} of files"
    deletion.check_deletable(row["id"])
    if used.sweeps and not yes and not confirm(f"Delete {what} for good?"):
        say("nothing was deleted")
        raise typer.Exit(1)
    cleanup.clean(database, directory.parent)  # node processes of dead runners are found by the runners' rows
    files = locations.workspaces_of(database).files
    if used.disk_bytes and files.root.is_dir() and not file_store.other_owners(database, files):
        file_store.mark(database, files)  # once they are deleted, no row would say that these files are this database's
    removed = deletion.delete_session(database, row["id"], may_live=process_identity.may_live)
    safe_directories.remove_tree(directory)
    put(f"deleted session {name} with {plural(removed['sweeps'], 'sweep')} and {plural(removed['cells'], 'cell')}")
    if removed["sweeps"]:
        _free(database, files)


def _free(database: Database, files: FileStore) -> None:
    """Remove stored values and files that nothing refers to any more, and report what stays."""
    found = garbage_collection.collect(
        database, files, retention_policy.Policy(outputs=None, superseded=None, sweeps=None)
    )
    freed = {kind: found.removed.get(kind, [0, 0]) for kind in ("values", "files")}
    size = sum(one[1] or 0 for one in freed.values())
    counts = " and ".join(plural(one[0] or 0, f"stored {kind[:-1]}") for kind, one in freed.items())
    say(f"freed {bytes_of(size)}: {counts}; files stored within the last hour are freed by: wtb gc")
    for note in found.notes:
        say(note)


def _limits(disk: str | None, concurrency: str | None, usd: str | None, tokens: str | None) -> dict[str, Any]:
    """Limits by their name in a quota, those that were given; None for `none`. Raises InputError."""
    disk_limit = read_amounts({"disk": disk}, parse_size)
    counts = read_amounts({"concurrency": concurrency, "tokens": tokens}, count_of)
    found = {**disk_limit, **counts, **read_amounts({"usd": usd}, amount_of)}
    return {"node_runs" if name == "concurrency" else name: limit for name, limit in found.items()}


def read_amounts(texts: Mapping[str, str | None], read: Callable[[str], float]) -> dict[str, float | None]:
    """Read the options that were given, by name; None for `none`, which is no limit. Raises InputError."""
    found: dict[str, float | None] = {}
    for name, value in texts.items():
        if value is not None:
            try:
                found[name] = None if value.strip().lower() == "none" else read(value)
            except ValueError as error:
                raise InputError(f"--{name} {error}; or none for no limit") from None
    return found


def count_of(text: str) -> int:
    """A positive whole number. Raises ValueError."""
    if not text.strip().isdecimal() or not 0 < int(text.strip()[:10]) < 2**31:
        raise ValueError(f"{text!r:.80}: expected a positive whole number, such as 4")
    return int(text)


def amount_of(text: str) -> float:
    """US dollars. Raises ValueError."""
    if not re.fullmatch(r"\s*\$?\d{1,12}(\.\d{1,6})?\s*", text) or not float(text.strip().lstrip("$")):
        raise ValueError(f"{text!r:.80}: expected a positive amount of US dollars, such as 20 or 0.50")
    return float(text.strip().lstrip("$"))


def _document(row: Mapping[str, Any]) -> dict[str, Any]:
    used = row["usage"]
    return {
        "name": row["name"],
        "created_at": iso(row["created_at"]),
        "archived_at": iso(row["archived_at"]),
        "sweeps": used.sweeps,
        "cells": used.cells,
        "usage": {"disk": used.disk_bytes, "node_runs": used.slots, "usd": used.usd, "tokens": used.tokens},
        "quota": asdict(store.Quota.of(row["quota"])),
    }


def _directory(database: Database, name: str) -> Path:
    store.check_name(name)  # what is removed must not lie elsewhere
    return locations.workspaces_of(database).root / name


SESSION = {"create": create, "change": change, "list": list_, "show": show, "archive": archive, "delete": delete}
