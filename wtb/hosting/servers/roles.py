"""The roles of a private PostgreSQL: a superuser whom nobody can be, and `wtb`, which owns its database and no more.

They are set up while no server runs, by its single-user mode, which asks for no password. So the superuser has none
that somebody could find, and `pg_hba.conf` lets in `wtb` alone. That it says so is the sign that all is set up.
"""

from __future__ import annotations

import os
from pathlib import Path

from wtb.core.errors import StoreError
from wtb.hosting.servers.binaries import SUPERUSER, Binaries

ROLE = "wtb"  # and its database
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
_ROLE = f"""
DO $$BEGIN
IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{ROLE}') THEN CREATE ROLE {ROLE}; END IF;
END$$
"""
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


def are_set_up(data: Path, *, create_databases: bool) -> bool:
    """Whether a data directory has its roles, and lets in nobody else."""
    path = data / _FILE
    return path.exists() and path.read_text() == _rules(create_databases)


def set_up(binaries: Binaries, data: Path, password: str, *, create_databases: bool) -> None:
    """Make the role and its database, or take from the role what it had too much in an older data directory.

    create_databases: whether it may make others, too. Raises StoreError.
    """
    rights = "CREATEDB" if create_databases else "NOCREATEDB"
    role = f"ALTER ROLE {ROLE} LOGIN NOSUPERUSER {rights} NOCREATEROLE NOREPLICATION NOBYPASSRLS PASSWORD '{password}'"
    binaries.execute(data, "postgres", [_RENAME])
    given = [f"ALTER ROLE {SUPERUSER} PASSWORD NULL", "DROP ROLE IF EXISTS wtb_setup", _ROLE, role]
    binaries.execute(data, "postgres", given, secret=password)
    try:
        binaries.execute(data, "postgres", [f"CREATE DATABASE {ROLE} OWNER {ROLE} TEMPLATE template0"])
    except StoreError as error:
        if "already exists" not in str(error):
            raise
        binaries.execute(data, ROLE, [f"ALTER DATABASE {ROLE} OWNER TO {ROLE}", _OWNER])
    _write(data / _FILE, _rules(create_databases))


def _rules(create_databases: bool) -> str:
    return f"host {'all' if create_databases else ROLE} {ROLE} 127.0.0.1/32 scram-sha-256\n"


def _write(path: Path, text: str) -> None:
    """Replace a file of the server's, so that a kill leaves the old one or the new one."""
    new = path.with_suffix(".new")
    new.write_text(text)
    owner = path.stat()
    os.chown(new, owner.st_uid, owner.st_gid)
    new.chmod(0o600)
    new.replace(path)
