"""Contexts of operations: the database they act on, the actor, and how work is published."""

from __future__ import annotations

import copy
import getpass
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import cached_property
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from wtb.core.arguments import checked
from wtb.core.errors import InputError
from wtb.core.factors import may_name_files
from wtb.core.frozen import frozen
from wtb.core.ids import DEFAULT_PROJECT
from wtb.core.values import Arguments
from wtb.operations.identity import OPERATOR, Identity
from wtb.operations.policy_rules import find_policies
from wtb.operations.registry import Permission
from wtb.store.access.audit import Origin as Origin
from wtb.store.access.sessions import find_session, named_session
from wtb.store.database import Database, open_database
from wtb.store.files.locations import workspaces_of
from wtb.store.files.workspaces import Workspaces
from wtb.store.transactions import Scope

if TYPE_CHECKING:
    from wtb.core.tree.stored_spec import Limits
    from wtb.planning.publishing import Code
    from wtb.store.tables.sweeps import PublicationRow

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
        """Remove the messages of tasks from workers. Return the reason if that was not possible, else None."""

    def close(self) -> None:
        """Close what it opened."""


class LocalRuns(Protocol):
    """Runs executions that no worker and no other process runs, on its own threads; user code is in node processes."""

    @property
    def code(self) -> Code:
        """Code that is registered on this machine at present."""

    def publications(self) -> Sequence[PublicationRow]:
        """Return the registrations of this machine as workers would publish them."""

    def start(self, sweep_id: str, *, execution: str | None = None, limits: Limits | None = None) -> None:
        """Run pending executions of a sweep once this process has room, unless another process runs them.

        Args:
            sweep_id: The sweep.
            execution: Only this one, and its forks.
            limits: New limits, as in a sweep file.
        """

    def has(self, sweep_id: str) -> bool:
        """Return whether this process runs a sweep, or will when it has room."""


def current_user() -> str:
    """Return the user of this process and its machine, as events record an actor."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user without a name; Windows, where nothing names one
        name = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    return f"{name}@{socket.gethostname()}"


def because(by: str, reason: str | None) -> str:
    """Return a person and their reason for a change, as text to store."""
    return f"by {by}" + (f": {reason}" if reason else "")


def throttled(report: Callable[[str], None], seconds: float = REPORT_EVERY_S) -> Callable[[str], None]:
    """Return a function that passes a line on unless the last one was passed on recently."""
    last = time.monotonic()

    def pass_on(text: str) -> None:
        nonlocal last
        if time.monotonic() - last > seconds:
            last = time.monotonic()
            report(text)

    return pass_on


def _new_publisher(broker: str | None) -> Publisher:
    for entry_point in entry_points(group=PUBLISHERS, name="celery"):  # several where WTB is installed more than once
        publisher: Publisher = entry_point.load()(broker)
        return publisher
    raise InputError("the package that sends tasks to workers is not installed; install WTB again")


class Backend(Protocol):
    """A place where operations are executed: a database, by this process (`Context`), or a server."""

    @property
    def place(self) -> str:
        """URL of the place without a password."""

    def call(self, operation: Callable[Concatenate[Context, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Execute an operation.

        Args:
            operation: A function of the registry.
            args: Its arguments after the context.
            kwargs: Its arguments by name.

        Returns:
            The result of the operation.

        Raises:
            WTBError: As the operation does; for a server, also if it cannot be reached or rejects the call.
        """

    def require_database(self, purpose: Callable[..., Any] | str) -> Context:
        """Return the context for work that needs a database.

        Args:
            purpose: The operation, or the reason why a server cannot do it.

        Raises:
            InputError: Operations are executed by a server, with the reason why it cannot do this one.
        """

    def warn(self, text: str, /) -> None:
        """Show a line that needs the attention of people."""

    def close(self) -> None:
        """Close open connections."""


@frozen
class Context:
    """The place where an operation acts, and its actor.

    Attributes:
        database: Open, at the right version.
        by: The actor, as events record it.
        broker: URL of the broker; None for the one of the environment or of the local stack.
        files: The folder of workspaces; None for the one beside an SQLite database, else `.wtb`.
        session: The default session of operations; None for that of the sweep or environment.
        report: Shows a line about progress. Results are returned instead.
        warn: Shows a line that needs attention.
        identity: The actor with their permissions.
        origin: The origin of the call, as the audit log notes it.
        imports: Whether users' code may be imported here. If not, it is used as workers publish it, and never runs.
        local: Runs executions here that nobody else runs; None if operations run them, or leave them to others.
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
        """Stores of files."""
        return workspaces_of(self.database, self.files)

    @property
    def publisher(self) -> Publisher:
        """Publisher that notifies workers. Its first use begins to import Celery, in a separate thread."""
        # Two threads must not create two publishers: each would keep a connection to the broker.
        with self._lock:
            if not self._publishers:
                self._publishers.append(_new_publisher(self.broker))
            return self._publishers[0]

    @property
    def code(self) -> Code:
        """Source of the code of sweeps."""
        from wtb.planning import publishing  # which takes its time to import, and most operations need no code

        return publishing.IMPORTED if self.imports else self.published_code

    @property
    def published_code(self) -> Code:
        """Code that workers publish; for a process that runs sweeps itself, the registrations of its machine."""
        from wtb.planning import publishing

        return publishing.PublishedCode(self.database) if self.local is None else self.local.code

    @property
    def place(self) -> str:
        """URL of the database without a password."""
        return self.database.shown_url

    def runs_here(self, sweep_id: str) -> bool:
        """Return whether this process runs a sweep on its own threads, or is about to."""
        return self.local is not None and self.local.has(sweep_id)

    def call(self, operation: Callable[Concatenate[Context, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Execute an operation here; see `Backend`."""
        if may_name_files(kwargs):
            from wtb.planning.parameter_files import with_files_read  # which takes long to import

            return operation(self, *args, **with_files_read(kwargs))
        return operation(self, *args, **kwargs)

    def require_database(self, purpose: Callable[..., Any] | str) -> Context:
        """Return the context itself; see `Backend`."""
        return self

    def authorize(self, function: Callable[..., Any], arguments: Arguments) -> None:
        """Check with policies, if there are any, whether the actor may execute an operation; `checked` does so for
        each.

        Args:
            function: The operation.
            arguments: Its arguments by name.

        Raises:
            AccessDenied: The policies do not allow it.
            InputError: The policies are invalid.
        """
        if find_policies() is not None:
            from wtb.operations.policy_requests import authorize  # which few need, and takes its time to import

            authorize(self.database, self.principal, function, arguments)

    @property
    def principal(self) -> str:
        """The actor's name in policies."""
        return self.identity.name or self.by

    def acting_as(self, identity: Identity, permission: Permission, origin: Origin | None = None) -> Context:
        """Return the same place for an actor with a permission, limited to the projects in which they have it.

        Args:
            identity: The actor.
            permission: The permission of the operation.
            origin: The origin of the call; None for the same as before.

        Returns:
            A context; closing either closes both.
        """
        # The scope filters every query by project, so operations need no checks of their own.
        database = self.database.within(Scope(identity.may[permission], identity.token))
        return self._with(
            identity=identity, by=identity.attribution or self.by, database=database, origin=origin or self.origin
        )

    def noting_for(self, by: str | None, origin: Origin) -> Context:
        """Return the same place in which notes name somebody who is about to authenticate.

        Args:
            by: Their name in events; None for the present actor.
            origin: The origin of the call.
        """
        return self._with(by=by or self.by, origin=origin)

    def importing_nothing(self, local: LocalRuns | None = None) -> Context:
        """Return the same place without imports of users' code; closing either closes both.

        Args:
            local: Runs executions there that nobody else runs.
        """
        return self._with(imports=False, local=local or self.local)

    def _with(self, **changes: object) -> Context:
        other = copy.copy(self)  # everything else is shared, what notifies workers, too
        for name, attribute in changes.items():
            object.__setattr__(other, name, attribute)
        return other

    def close(self) -> None:
        """Close the publisher and the connections to the database."""
        with self._lock:
            while self._publishers:
                self._publishers.pop().close()
        self.database.close()

    def session_name(self, name: str | None = None) -> str:
        """Return the session that an operation uses: the given one, else this one, else that of the environment."""
        return named_session(self.database, name or self.session)

    def project_name(self, name: str | None = None) -> str:
        """Return the project of something new: the given one, else the only one of the actor."""
        mine = self.database.scope.projects
        if name is None and mine is not None and len(mine) == 1:
            return next(iter(mine))
        return name or DEFAULT_PROJECT

    def because(self, reason: str | None) -> str:
        """Return the actor and their reason, as the stored reason of a change."""
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
            # A database that the caller opened stays the caller's to close.
            if database is not db:
                database.close()
            raise
    folder = None if files is None else Path(files)
    return Context(database, by=by or current_user(), broker=broker, files=folder, session=session)


def server_of(url: object, of_server: Arguments, of_database: Arguments) -> str | None:
    """Return the URL of a server; None for that of a database.

    Args:
        url: The value to open.
        of_server: Arguments that only a server takes, by name; None if they are not used.
        of_database: Arguments that only a database takes.

    Raises:
        InputError: An argument belongs to the other one only.
    """
    is_server = isinstance(url, str) and url.lower().startswith(("http://", "https://"))
    for name, option in (of_database if is_server else of_server).items():
        if option is not None:
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
    for entry_point in entry_points(group=BACKENDS, name="server"):
        server: Backend = entry_point.load()(url, **options)
        return server
    raise InputError("the client of servers is not installed; install WTB again")
