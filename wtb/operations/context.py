"""What every operation is given: the database it acts on, who acts, and how work is published."""

from __future__ import annotations

import copy
import getpass
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from wtb.core.arguments.checking import checked
from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError
from wtb.core.factors.file_levels import may_name_files
from wtb.core.ids import DEFAULT_PROJECT
from wtb.operations.identity import OPERATOR, Identity
from wtb.operations.policy.engine import find_policies
from wtb.operations.registry import Permission
from wtb.store.access.audit import Origin as Origin
from wtb.store.database import Database, open_database
from wtb.store.files.locations import workspaces_of
from wtb.store.files.workspaces import Workspaces
from wtb.store.limits.sessions import find_session, named_session
from wtb.store.transactions import Scope

if TYPE_CHECKING:
    from wtb.core.tree.stored_spec import Limits
    from wtb.planning.publishing import Code
    from wtb.store.tables.publications import PublicationRow

PUBLISHERS = "wtb.publishers"  # entry points: URL of a broker, or None -> Publisher
BACKENDS = "wtb.backends"  # entry points: URL of a server -> Backend

REPORT_EVERY_S = 2.0  # of progress, for people

PYTHON = Origin("Python")

_log = logging.getLogger("wtb")
P = ParamSpec("P")
R = TypeVar("R")


class Publisher(Protocol):
    """Publishes work that the database holds as tasks of workers."""

    url: str | None

    def check(self) -> None:
        """Check the configuration, before work starts. Raises InputError."""

    def problem(self) -> str | None:
        """Return why no message can be sent; None if one can."""

    def publish_pending(self, database: Database) -> str | None:
        """Publish pending executions as tasks. Returns why that was not possible, else None; no work is lost."""

    def revoke(self, task_ids: Sequence[str]) -> str | None:
        """Have workers drop the messages of tasks. Returns why that was not possible, else None."""

    def close(self) -> None:
        """End what it has started."""


class LocalRuns(Protocol):
    """Runs here what no worker and no other process runs, on threads of its own; user code is in node processes."""

    @property
    def code(self) -> Code:
        """What is registered on this machine, as it is now."""

    def publications(self) -> Sequence[PublicationRow]:
        """Return what is registered on this machine as workers would publish it."""

    def start(self, sweep_id: str, *, execution: str | None = None, limits: Limits | None = None) -> None:
        """See that pending executions of a sweep run, once this process has room, unless another process runs them.

        Args:
            sweep_id: The sweep.
            execution: Only this one, and what it forks into.
            limits: Other limits from now on, as in a sweep file.
        """

    def has(self, sweep_id: str) -> bool:
        """Return whether this process runs a sweep, or will when it has room."""


def current_user() -> str:
    """Return the user of this process and its machine, as events record who decided."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user without a name; Windows, where nothing names one
        name = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    return f"{name}@{socket.gethostname()}"


def because(by: str, reason: str | None) -> str:
    """Return a person and their reason for a change, as it is kept."""
    return f"by {by}" + (f": {reason}" if reason else "")


def throttled(report: Callable[[str], None], seconds: float = REPORT_EVERY_S) -> Callable[[str], None]:
    """Return a function that passes a line on if the one before was passed on that long ago."""
    last = time.monotonic()

    def pass_on(text: str) -> None:
        nonlocal last
        if time.monotonic() - last > seconds:
            last = time.monotonic()
            report(text)

    return pass_on


def _new_publisher(broker: str | None) -> Publisher:
    for entry in entry_points(group=PUBLISHERS, name="celery"):  # several where WTB is installed more than once
        publisher: Publisher = entry.load()(broker)
        return publisher
    raise InputError("the part of WTB that sends tasks to workers is not installed: install it again")


class Backend(Protocol):
    """Where operations are carried out: on a database, by this process (`Context`), or by a server."""

    @property
    def place(self) -> str:
        """Where that is, for people: a URL without a password."""

    def call(self, operation: Callable[Concatenate[Context, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Carry out an operation.

        Args:
            operation: A function of the registry.
            args: What it takes after the context.
            kwargs: What it takes by name.

        Returns:
            What the operation returns.

        Raises:
            WTBError: As the operation does; where a server carries it out, also if that is out of reach or refuses.
        """

    def require_database(self, purpose: Callable[..., Any] | str) -> Context:
        """Return the context of what needs a database.

        Args:
            purpose: The operation; or why a server does not do it.

        Raises:
            InputError: If a server carries operations out: why it does not do this one.
        """

    def warn(self, text: str, /) -> None:
        """Take a line about what needs the attention of people."""

    def close(self) -> None:
        """Close what is open."""


@frozen
class Context:
    """Where an operation acts, and for whom.

    Attributes:
        database: Open, at the right version.
        by: Who acts, as events record it.
        broker: URL of the broker; None for the one of the environment or of the stack that is up here.
        files: Where workspaces are kept; None for beside an SQLite database, else `.wtb`.
        session: The session that operations use unless they are given one; None for that of the sweep or environment.
        report: Takes a line for people about what has begun. Results are returned.
        warn: Takes a line about what needs their attention.
        identity: Who acts, and what they may do where.
        origin: How they ask, as the audit log notes it.
        imports: Whether code of users may be imported here. Where it may not, it is as workers publish it, and nothing
            of it runs.
        local: Runs here what nobody else runs; None if operations run it themselves, or leave it to others.
    """

    database: Database
    by: str = field(default_factory=current_user)
    broker: str | None = None
    files: Path | None = None
    session: str | None = None
    report: Callable[[str], None] = _log.info
    warn: Callable[[str], None] = _log.warning
    identity: Identity = OPERATOR
    origin: Origin = PYTHON
    imports: bool = True
    local: LocalRuns | None = None
    _publishers: list[Publisher] = field(default_factory=list, init=False, repr=False, compare=False)  # one at most
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    @cached_property
    def workspaces(self) -> Workspaces:
        """Where files are kept."""
        return workspaces_of(self.database, self.files)

    @property
    def publisher(self) -> Publisher:
        """What notifies workers. Its first use begins to import Celery, in a thread of its own."""
        with self._lock:
            if not self._publishers:
                self._publishers.append(_new_publisher(self.broker))
            return self._publishers[0]

    @property
    def code(self) -> Code:
        """Where the code of sweeps comes from."""
        from wtb.planning import publishing  # which takes its time to import, and most operations need no code

        return publishing.IMPORTED if self.imports else self.published_code

    @property
    def published_code(self) -> Code:
        """What workers publish; of a process that runs it itself, what is registered on its machine."""
        from wtb.planning import publishing

        return publishing.PublishedCode(self.database) if self.local is None else self.local.code

    @property
    def place(self) -> str:
        """Where the database is, without a password."""
        return self.database.shown_url

    def runs_here(self, sweep_id: str) -> bool:
        """Return whether this process runs a sweep on threads of its own, or is about to."""
        return self.local is not None and self.local.has(sweep_id)

    def call(self, operation: Callable[Concatenate[Context, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Carry out an operation here; see `Backend`."""
        if may_name_files(kwargs):
            from wtb.planning.factors.parameter_files import with_files_read  # which takes long to import

            return operation(self, *args, **with_files_read(kwargs))
        return operation(self, *args, **kwargs)

    def require_database(self, purpose: Callable[..., Any] | str) -> Context:
        """Return it; see `Backend`."""
        return self

    def authorize(self, function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
        """Ask policies, if there are any, whether who acts may carry out an operation; `checked` does so for each.

        Args:
            function: The operation.
            arguments: Its arguments by name.

        Raises:
            AccessDenied: If they do not allow it.
            InputError: If the policies are wrong.
        """
        if find_policies() is not None:
            from wtb.operations.policy.asking import authorize  # which few need, and takes its time to import

            authorize(self.database, self.principal, function, arguments)

    @property
    def principal(self) -> str:
        """Who acts, as policies know them."""
        return self.identity.name or self.by

    def acting_as(self, identity: Identity, permission: Permission, origin: Origin | None = None) -> Context:
        """Return the same place for somebody who may do something: only the projects in which they may are there.

        Args:
            identity: Who they are.
            permission: What they are about to do.
            origin: How they ask; None for as before.

        Returns:
            A context; closing either closes both.
        """
        database = self.database.within(Scope(identity.may[permission], identity.token))
        return self._with(
            identity=identity, by=identity.attribution or self.by, database=database, origin=origin or self.origin
        )

    def noting_for(self, by: str | None, origin: Origin) -> Context:
        """Return the same place in which what is noted is somebody's who is about to show who they are.

        Args:
            by: What events call them; None for who acts here.
            origin: How they ask.
        """
        return self._with(by=by or self.by, origin=origin)

    def importing_nothing(self, local: LocalRuns | None = None) -> Context:
        """Return the same place where no code of users is imported; closing either closes both.

        Args:
            local: Runs there what nobody else runs.
        """
        return self._with(imports=False, local=local or self.local)

    def _with(self, **changes: object) -> Context:
        other = copy.copy(self)  # everything else is shared, what notifies workers, too
        for name, value in changes.items():
            object.__setattr__(other, name, value)
        return other

    def close(self) -> None:
        """End what notifies workers, and close the connections to the database."""
        with self._lock:
            while self._publishers:
                self._publishers.pop().close()
        self.database.close()

    def session_name(self, name: str | None = None) -> str:
        """Return the session that an operation uses: the one given, else this one, else that of the environment."""
        return named_session(self.database, name or self.session)

    def project_name(self, name: str | None = None) -> str:
        """Return the project that something new belongs to: the one given, else the only one of who acts."""
        mine = self.database.scope.projects
        if name is None and mine is not None and len(mine) == 1:
            return next(iter(mine))
        return name or DEFAULT_PROJECT

    def because(self, reason: str | None) -> str:
        """Return who acts and their reason, as the reason that is kept of a change."""
        return because(self.by, reason)


@checked
def open_context(
    db: str | Path | Database | None = None,
    *,
    broker: str | None = None,
    by: str | None = None,
    files: str | Path | None = None,
    session: str | None = None,
) -> Context:
    """Open a database, which is made or upgraded if need be, for operations from Python.

    Args:
        db: A database URL, the path of an SQLite file, or an open database; the default is that of the command line.
        broker: URL of the broker; by default that of the environment or of the stack that is up here.
        by: Who acts; by default the user of this process.
        files: Where workspaces are kept.
        session: The session that operations use unless they are given one.

    Raises:
        InputError: If there is no such session.
    """
    database = open_database(db)
    database.prepare()
    if session is not None:
        try:
            find_session(database, session)
        except InputError:
            if database is not db:
                database.close()
            raise
    folder = None if files is None else Path(files)
    return Context(database, by=by or current_user(), broker=broker, files=folder, session=session)


def server_of(url: object, of_server: Mapping[str, object], of_database: Mapping[str, object]) -> str | None:
    """Return the URL of a server; None if it is that of a database.

    Args:
        url: What is to be opened.
        of_server: Arguments that only a server takes, by name; None if they are not used.
        of_database: Those that only a database takes.

    Raises:
        InputError: If an argument goes with the other one only.
    """
    is_server = isinstance(url, str) and url.lower().startswith(("http://", "https://"))
    for name, value in (of_database if is_server else of_server).items():
        if value is not None:
            text = "a database, and this is a server" if is_server else "the URL of a server, and this is a database"
            raise InputError(f"{name} goes with {text}", argument=name)
    return str(url) if is_server else None


def open_server(url: str, **options: Any) -> Backend:
    """Return a server as a backend.

    Args:
        url: Where it is.
        options: Of the backend: `token`, `session`, `timeout`.

    Raises:
        InputError: If its client is not installed, or if there is no token.
    """
    from wtb.config.distribution import pip_install

    if find_spec("httpx") is None:
        raise InputError(f"the client of servers is not installed: {pip_install('client')}")
    for entry in entry_points(group=BACKENDS, name="server"):
        server: Backend = entry.load()(url, **options)
        return server
    raise InputError("the part of WTB that asks servers is not installed: install it again")
