"""Commands on sessions: who sweeps belong to, and how much of disk, node runs and money they may use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wtb.cli.console import Db, Format, FormatOption, Output, agreed, open_database, put, say
from wtb.cli.output import present
from wtb.config.retention_policy import Policy
from wtb.core.errors import InputError
from wtb.core.serialization.plain_json import iso
from wtb.core.texts import bytes_of, plural
from wtb.core.units import parse_size
from wtb.display.text.admin.sessions import listed
from wtb.display.text.admin.sessions import quota as in_words
from wtb.execution.runtime.cleanup import clean
from wtb.operations.housekeeping.garbage_collection import collect
from wtb.store.database import Database, database_url
from wtb.store.files.locations import workspaces_of
from wtb.store.files.safe_directories import remove_tree
from wtb.store.housekeeping.deletion import check_deletable, delete_session
from wtb.store.housekeeping.files import mark, other_owners
from wtb.store.limits import sessions
from wtb.store.limits.sessions import Quota, check_name, find_session
from wtb.store.limits.usage import session_rows, sweeps_by_status, usage
from wtb.store.process_identity import is_not_dead, may_live, state_of
from wtb.store.runs.slots import live_runners

if TYPE_CHECKING:
    from wtb.store.files.store import FileStore

session_app = typer.Typer(no_args_is_help=True, help="Keep sweeps of people or purposes apart, with quotas.")

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


def register(app: typer.Typer) -> None:
    session_app.command(epilog="Examples: wtb session create ann  |  wtb session create nightly --disk 10GB --usd 20")(
        create
    )
    session_app.command(epilog="Example: wtb session change nightly --concurrency 4 --usd none")(change)
    session_app.command("list", epilog="Examples: wtb session list  |  wtb session list --all --format json")(list_)
    session_app.command(epilog="Example: wtb session show nightly")(show)
    session_app.command(epilog="Examples: wtb session archive ann  |  wtb session archive ann --undo")(archive)
    session_app.command(epilog="Example: wtb session delete ann --yes")(delete)
    app.add_typer(session_app, name="session")


def create(
    name: Name,
    disk: Disk = None,
    concurrency: Concurrency = None,
    usd: Usd = None,
    tokens: Tokens = None,
    db: Db = None,
) -> None:
    """Make a session. Sweeps go to it by --session NAME, the sweep file's `session`, or WTB_SESSION."""
    sessions.check_name(name)
    quota = sessions.Quota.of(_limits(disk, concurrency, usd, tokens))
    sessions.create(open_database(db, create=True), name, quota)
    put(f"session {name}: made, {in_words(asdict(quota))}")
    say(f"next: wtb run sweep.yaml --session {name}")


def change(
    name: Name,
    disk: Disk = None,
    concurrency: Concurrency = None,
    usd: Usd = None,
    tokens: Tokens = None,
    db: Db = None,
) -> None:
    """Change a session's quota; what is not named stays. Runs that have begun keep the slots that they took."""
    limits = _limits(disk, concurrency, usd, tokens)
    if not limits:
        raise InputError("nothing to change; give --disk, --concurrency, --usd or --tokens (none: no limit)")
    database = open_database(db)
    quota = sessions.change_quota(database, sessions.find_session(database, name)["id"], limits)
    put(f"session {name}: {in_words(asdict(quota))}")


def list_(
    all_: Annotated[bool, typer.Option("--all", help="Archived ones too.")] = False,
    db: Db = None,
    format: FormatOption = Format.table,
    output: Output = None,
) -> None:
    """List sessions with what they use and what they may use.

    JSON: {"sessions": [{name, created_at, archived_at, sweeps, cells, usage, quota}]}. `usage` and `quota` hold
    `disk` (bytes), `node_runs` (at a time: taken, allowed), `usd` and `tokens`; in a quota null is no limit.
    """
    database = Database(database_url(db))
    rows = []
    if database.exists():
        database.prepare()
        rows = session_rows(database, alive=is_not_dead)
    found = [_document(row) for row in rows if all_ or row["archived_at"] is None]
    if found or format is Format.json:
        present({"sessions": found}, listed, format, output)
    else:
        say("there are no sessions yet; `wtb session create NAME` makes one")


def show(name: Name, db: Db = None, format: FormatOption = Format.table, output: Output = None) -> None:
    """Show a session: its sweeps by status, what it uses, and who holds its slots.

    JSON: {"session": as in `wtb session list`, "sweeps_by_status": {status: count}, "runners": [{host, pid, slots,
    state}], "directory": where its attempts work}.
    """
    from wtb.display.text.admin.sessions import one

    database = open_database(db)
    row = find_session(database, name)
    runners = live_runners(database, row["id"], alive=is_not_dead)
    document = {
        "session": _document({**row, "usage": usage(database, row["id"], alive=is_not_dead)}),
        "sweeps_by_status": sweeps_by_status(database, row["id"]),
        "runners": [
            {"host": one["host"], "pid": one["pid"], "slots": one["slots"], "state": state_of(one)} for one in runners
        ],
        "directory": str(_directory(database, name)),
    }
    present(document, one, format, output)


def archive(
    name: Name,
    undo: Annotated[bool, typer.Option("--undo", help="Take new sweeps again.")] = False,
    db: Db = None,
) -> None:
    """Let a session take no new sweeps. Those it has can be read and resumed; `wtb session list` leaves it out."""
    database = open_database(db)
    session_id = sessions.find_session(database, name)["id"]
    changed = (sessions.unarchive if undo else sessions.archive)(database, session_id)
    state = "not archived" if undo else "archived"
    put(f"session {name}: {state}" if changed else f"session {name}: {state} already")


def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, although it has sweeps.")] = False,
    db: Db = None,
) -> None:
    """Delete a session with its sweeps and their files, for good. What other sessions have too stays there.

    Files that were stored within the last hour are freed by a later `wtb gc`.
    """
    database = open_database(db)
    row = find_session(database, name)
    directory = _directory(database, name)
    used = usage(database, row["id"])
    what = f"session {name} with {plural(used.sweeps, 'sweep')}, {plural(used.cells, 'cell')}"
    what += f" and {bytes_of(used.disk_bytes)} of files"
    check_deletable(row["id"])
    if used.sweeps and not yes and not agreed(f"Delete {what} for good?"):
        say("nothing was deleted")
        raise typer.Exit(1)
    clean(database, directory.parent)  # node processes of dead runners are found by the runners' rows
    files = workspaces_of(database).files
    if used.disk_bytes and files.root.is_dir() and not other_owners(database, files):
        mark(database, files)  # once they are deleted, no row would say that these files are this database's
    removed = delete_session(database, row["id"], may_live=may_live)
    remove_tree(directory)
    put(f"deleted session {name} with {plural(removed['sweeps'], 'sweep')} and {plural(removed['cells'], 'cell')}")
    if removed["sweeps"]:
        _free(database, files)


def _free(database: Database, files: FileStore) -> None:
    """Remove stored values and files that nobody reaches any more, and say what stays."""
    found = collect(database, files, Policy(outputs=None, superseded=None, sweeps=None))
    freed = {kind: found.removed.get(kind, [0, 0]) for kind in ("values", "files")}
    size = sum(one[1] or 0 for one in freed.values())
    counts = " and ".join(plural(one[0] or 0, f"stored {kind[:-1]}") for kind, one in freed.items())
    say(f"freed {bytes_of(size)}: {counts}; files stored within the last hour are freed by: wtb gc")
    for note in found.notes:
        say(note)


def _limits(disk: str | None, concurrency: str | None, usd: str | None, tokens: str | None) -> dict[str, Any]:
    """Limits by their name in a quota, those that were given; None for `none`. Raises InputError."""
    limits: dict[str, Any] = {}
    readers = {
        "--disk": ("disk", disk, parse_size),
        "--concurrency": ("node_runs", concurrency, count_of),
        "--usd": ("usd", usd, amount_of),
        "--tokens": ("tokens", tokens, count_of),
    }
    for option, (name, given, read) in readers.items():
        if given is not None:
            try:
                limits[name] = None if given.strip().lower() == "none" else read(given)
            except ValueError as error:
                raise InputError(f"{option} {error}; or none for no limit") from None
    return limits


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
        "quota": asdict(Quota.of(row["quota"])),
    }


def _directory(database: Database, name: str) -> Path:
    check_name(name)  # what is removed must not lie elsewhere
    return workspaces_of(database).root / name
