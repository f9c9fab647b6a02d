"""The roles of a private PostgreSQL: a superuser whom nobody can be, and three that may do no more than they have to.

`wtb` owns its database; `wtb_worker` and `wtb_server` are those of `wtb.store.tables.walls`. They are set up while no
server runs, by its single-user mode, which asks for no password. So the superuser has none that somebody could find,
and `pg_hba.conf` lets in those three alone. That it says so is the sign that all is set up.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from pathlib import Path

from wtb.core.errors import StoreError
from wtb.hosting.servers.binaries import SUPERUSER, Binaries
from wtb.store.tables.walls import SERVER, WORKER

ROLE = "wtb"  # and its database
_OTHERS = (WORKER, SERVER)
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


def are_set_up(data: Path, *, create_databases: bool) -> bool:
    """Whether a data directory has its roles, and lets in nobody else."""
    path = data / _FILE
    return path.exists() and path.read_text() == _rules(create_databases)


def set_up(binaries: Binaries, data: Path, password: str, *, create_databases: bool) -> None:
    """Make the roles and the database, or take from the role what it had too much in an older data directory.

    create_databases: whether it may make others, too. Raises StoreError.
    """
    databases = dict.fromkeys(_OTHERS, "NOCREATEDB") | {ROLE: "CREATEDB" if create_databases else "NOCREATEDB"}
    binaries.execute(data, "postgres", [_RENAME])
    given = [f"ALTER ROLE {SUPERUSER} PASSWORD NULL", "DROP ROLE IF EXISTS wtb_setup"]
    secrets = {role: password_of(role, password) for role in databases}
    for role, rights in databases.items():
        login = f"ALTER ROLE {role} {_RIGHTS.format(databases=rights)} PASSWORD '{secrets[role]}'"
        given += [_ROLE.format(role=role), login]
    given.append(f"GRANT {', '.join(_OTHERS)} TO {ROLE}")  # whoever owns the database may end their connections
    binaries.execute(data, "postgres", given, secrets=list(secrets.values()))
    try:
        binaries.execute(data, "postgres", [f"CREATE DATABASE {ROLE} OWNER {ROLE} TEMPLATE template0"])
    except StoreError as error:
        if "already exists" not in str(error):
            raise
        binaries.execute(data, ROLE, [f"ALTER DATABASE {ROLE} OWNER TO {ROLE}", _OWNER])
    _write(data / _FILE, _rules(create_databases))


def password_of(role: str, password: str) -> str:
    """Return the password of a role, which gives away neither that of the owner nor that of the other one.

    Args:
        role: Which.
        password: That of the owner.
    """
    return password if role == ROLE else hmac.new(password.encode(), role.encode(), hashlib.sha256).hexdigest()


def _rules(create_databases: bool) -> str:
    databases = "all" if create_databases else ROLE
    return "".join(f"host {databases} {role} 127.0.0.1/32 scram-sha-256\n" for role in (ROLE, *_OTHERS))


def _write(path: Path, text: str) -> None:
    """Replace a file of the server's, so that a kill leaves the old one or the new one."""
    new = path.with_suffix(".new")
    new.write_text(text)
    owner = path.stat()
    os.chown(new, owner.st_uid, owner.st_gid)
    new.chmod(0o600)
    new.replace(path)
