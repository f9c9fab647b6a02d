"""Databases of a running PostgreSQL: make one, drop one, connect to one."""

from __future__ import annotations

import psycopg
from psycopg import sql
from sqlalchemy import make_url

from wtb.core.errors import StoreError


def create_database(url: str, name: str) -> str:
    """Make the empty database `name` on the server of `url`; its URL."""
    # Nobody is ever connected to template0, so copying it waits for nobody.
    _execute(url, sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
    return make_url(url).set(database=name).render_as_string(hide_password=False)


def drop_database(url: str, name: str) -> None:
    """Drop the database `name` if it is there, throwing out whoever uses it; `url` must name another one."""
    _execute(url, sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def _execute(url: str, statement: sql.Composed) -> None:
    try:
        with connect(url) as connection:
            connection.execute(statement)
    except psycopg.Error as error:
        raise StoreError(f"PostgreSQL failed at {statement.as_string()}: {error}") from error


def connect(url: str) -> psycopg.Connection:
    """A connection in autocommit mode to the database of an SQLAlchemy URL."""
    # Not as a URL: libpq does not read all that SQLAlchemy writes, such as names with spaces.
    parts = make_url(url)
    arguments = parts.translate_connect_args(username="user", database="dbname")
    return psycopg.connect(**{"connect_timeout": 5, **arguments, **parts.query, "autocommit": True})
