"""Commands on sessions: who sweeps belong to, and how much of disk, memory, node runs and money they may use."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from wtb.cli import options
from wtb.cli.console import confirm_first, existing_backend, open_backend, put, say
from wtb.cli.output import present, present_all
from wtb.core.errors import InputError
from wtb.core.frozen import frozen
from wtb.core.texts import bytes_of, plural
from wtb.core.units import parse_size
from wtb.display.text import administration
from wtb.display.views import sessions as views
from wtb.operations import sessions as operations
from wtb.store.access import sessions as store

if TYPE_CHECKING:
    from wtb.operations.garbage_collection import Collected

Name = Annotated[str, typer.Argument(metavar="NAME", help="The session's name.")]


@frozen
class _Settings:
    """The limits of a session; those that are not given stay as they are."""

    disk: Annotated[
        str | None, typer.Option("--disk", metavar="SIZE", help="Limit on its files, such as 10GB; none: no limit.")
    ] = None
    node_runs: Annotated[
        str | None, typer.Option("--concurrency", metavar="N", help="Limit on node runs at a time; none: no limit.")
    ] = None
    usd: Annotated[
        str | None, typer.Option("--usd", metavar="AMOUNT", help="Limit on US dollars in all; none: no limit.")
    ] = None
    tokens: Annotated[
        str | None, typer.Option("--tokens", metavar="N", help="Limit on tokens in all; none: no limit.")
    ] = None
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory", metavar="SIZE", help="Limit on memory of node processes, such as 4GB; none: no limit."
        ),
    ] = None
    owner: Annotated[
        str | None, typer.Option("--owner", metavar="TEXT", help="Its owner: a user, a team, an address.")
    ] = None
    metadata: Annotated[
        list[str] | None, typer.Option("--meta", metavar="KEY=TEXT", help="Metadata to store with it.")
    ] = None

    def limits(self) -> dict[str, float | None]:
        """Return limits by their name in a quota, those that were given; None for `none`. Raises InputError."""
        sizes = read_amounts({"disk": self.disk, "memory": self.memory}, parse_size)
        counts = read_amounts({"concurrency": self.node_runs, "tokens": self.tokens}, count_of)
        limits_by_option = {**sizes, **counts, **read_amounts({"usd": self.usd}, amount_of)}
        limits = {"node_runs" if name == "concurrency" else name: limit for name, limit in limits_by_option.items()}
        # Checked here as well, so that invalid limits fail even if there is no database yet.
        store.Quota.of(limits)
        return limits


_NONE = _Settings()


def create(
    name: Name,
    settings: _Settings = _NONE,
    project: Annotated[str | None, typer.Option("--project", metavar="NAME", help="That it belongs to.")] = None,
    db: options.Db = None,
) -> None:
    """Create a session.

    Sweeps go to it by --session NAME, the sweep file's `session`, or WTB_SESSION.

    Examples: wtb admin session create ann  |  wtb admin session create nightly --memory 8GB --usd 20 --owner ops
    --meta cost=4711
    """
    # Checked here as well, because the next call makes the database if there is none.
    store.check_name(name)
    quota = store.Quota.of(settings.limits())
    texts = {key: text for key, text in read_metadata(settings.metadata).items() if text is not None}
    session = open_backend(db, create=True).call(
        operations.create_session, name, quota, owner=settings.owner, metadata=texts, project=project
    )
    put(f"session {name}: made, {administration.quota(session['session']['quota'])}")
    say(f"next: wtb run sweep.yaml --session {shlex.quote(name)}")


def change(name: Name, settings: _Settings = _NONE, db: options.Db = None) -> None:
    """Change a session's quota, owner or metadata; other settings stay.

    Runs that have begun keep the slots that they took. An empty owner or text (--owner '', --meta key=) removes it.

    Examples: wtb admin session change nightly --concurrency 4 --usd none  |  wtb admin session change nightly
    --owner ops
    """
    limits = settings.limits()
    texts = read_metadata(settings.metadata)
    if not limits and settings.owner is None and not texts:
        raise InputError(
            "no change is given; give --disk, --memory, --concurrency, --usd or --tokens (none: no limit), --owner or "
            "--meta"
        )
    quota = open_backend(db).call(operations.change_session, name, limits, owner=settings.owner, metadata=texts or None)
    put(f"session {name}: {administration.quota(views.amounts(quota))}")


def rename(
    name: Name, to: Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")], db: options.Db = None
) -> None:
    """Rename a session, even while its sweeps run.

    Its sweeps, quotas, schedules and baselines stay its own. Sweep files, WTB_SESSION and policies that name the old
    one have to be changed.

    Example: wtb admin session rename nightly ci
    """
    open_backend(db).call(operations.rename_session, name, to)
    put(f"session {name}: called {to} now")


def list_(
    archived: Annotated[bool, typer.Option("--all", help="Include archived sessions.")] = False,
    db: options.Db = None,
    form: options.Form = options.TABLE,
) -> None:
    """List sessions with their usage and quotas.

    JSON: {"sessions": [{name, project, owner, metadata, created_at, active_at, archived_at, sweeps, cells, usage,
    quota}]}. `active_at` is the time of the newest event or attempt. `usage` and `quota`
    hold `disk` (bytes), `node_runs` (at a time: taken, allowed), `usd`, `tokens` and `memory` (bytes; it is measured
    only if there is a quota of it); in a quota null is no limit.

    Examples: wtb admin session list  |  wtb admin session list --all --format json
    """
    backend = existing_backend(db)
    listed_sessions = [] if backend is None else backend.call(operations.list_sessions, archived=archived)
    nothing = "there are no sessions yet; `wtb admin session create NAME` makes one"
    present_all("sessions", listed_sessions, administration.listed, form, nothing)


def show(name: Name, db: options.Db = None, form: options.Form = options.TABLE) -> None:
    """Show a session: its sweeps by status, its usage, and the holders of its slots.

    JSON: {"session": as in `wtb admin session list`, "sweeps_by_status": {status: count}, "runners": [{host, pid,
    slots, state}], "directory": where its attempts work}.

    Example: wtb admin session show nightly
    """
    present(open_backend(db).call(operations.describe_session, name), administration.session_details, form)


def archive(
    name: Name,
    undo: Annotated[bool, typer.Option("--undo", help="Accept new sweeps again.")] = False,
    db: options.Db = None,
) -> None:
    """Archive a session, so it accepts no new sweeps.

    Those it has can be read and resumed; `wtb admin session list` leaves it out.

    Examples: wtb admin session archive ann  |  wtb admin session archive ann --undo
    """
    changed = open_backend(db).call(operations.archive_session, name, undo=undo)
    state = "not archived" if undo else "archived"
    put(f"session {name}: {state}" if changed else f"session {name}: {state} already")


def delete(
    name: Name,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask for confirmation, even if it has sweeps.")
    ] = False,
    db: options.Db = None,
) -> None:
    """Delete a session with its sweeps and their files, permanently.

    Files that other sessions share stay. Files stored within the last hour are freed by a later `wtb admin gc`.

    Example: wtb admin session delete ann --yes
    """
    backend = open_backend(db)
    preview = backend.call(operations.preview_delete_session, name)
    what = f"session {name} with {plural(preview.sweeps, 'sweep')}, {plural(preview.cells, 'cell')}"
    what += f" and {bytes_of(preview.disk_bytes)} of files"
    # An empty session has nothing to lose, so nothing is asked.
    confirm_first(yes or not preview.sweeps, f"Delete {what} permanently?", "nothing was deleted")
    deleted = backend.call(operations.delete_session, name)
    put(f"deleted session {name} with {plural(deleted.sweeps, 'sweep')} and {plural(deleted.cells, 'cell')}")
    if deleted.freed is not None:
        _report_freed(deleted.freed)


def _report_freed(collection: Collected) -> None:
    """Report what was freed with a session, and why more stays."""
    freed = {kind: collection.removed[kind] for kind in ("values", "files")}
    size = sum(removal.bytes or 0 for removal in freed.values())
    counts = " and ".join(plural(removal.count, f"stored {kind[:-1]}") for kind, removal in freed.items())
    say(f"freed {bytes_of(size)}: {counts}; files stored within the last hour are freed by: wtb admin gc")
    for note in collection.notes:
        say(note)


def read_metadata(texts: Iterable[str] | None) -> dict[str, str | None]:
    """Read KEY=TEXT options; None for an empty text, which removes the key. Raises InputError."""
    metadata: dict[str, str | None] = {}
    for pair in texts or ():
        key, equals, text = pair.partition("=")
        if not (key and equals):
            raise InputError(f"--meta {pair!r:.80}: expected KEY=TEXT")
        metadata[key] = text or None
    return metadata


def read_amounts(texts: Mapping[str, str | None], read: Callable[[str], float]) -> dict[str, float | None]:
    """Read the options that were given, by name; None for `none`, which is no limit. Raises InputError."""
    amounts: dict[str, float | None] = {}
    for name, amount_text in texts.items():
        if amount_text is not None:
            try:
                amounts[name] = None if amount_text.strip().lower() == "none" else read(amount_text)
            except ValueError as error:
                raise InputError(f"--{name} {error}; or none for no limit") from None
    return amounts


def count_of(text: str) -> int:
    """A whole number, not yet checked. Raises ValueError."""
    # Stricter than int(), which also accepts `1_000`, and no longer than a 64-bit integer.
    if not re.fullmatch(r"\s*[+-]?\d{1,19}\s*", text):
        raise ValueError(f"{text!r:.80}: expected a positive whole number, such as 4")
    return int(text)


def amount_of(text: str) -> float:
    """US dollars, not yet checked. Raises ValueError."""
    if not re.fullmatch(r"\s*[+-]?\$?\d{1,12}(\.\d{1,6})?\s*", text):
        raise ValueError(f"{text!r:.80}: expected a positive amount of US dollars, such as 20 or 0.50")
    return float(text.replace("$", ""))


SESSION = {
    "create": create,
    "change": change,
    "rename": rename,
    "list": list_,
    "show": show,
    "archive": archive,
    "delete": delete,
}
