"""Descriptions that workers publish of their code: workflows by registered names, evaluators by import paths."""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa

from wtb.core.documents.workflows import PublicationKind
from wtb.core.frozen import frozen
from wtb.store.bulk import insert_missing
from wtb.store.database import Database
from wtb.store.tables.schema import now, publications
from wtb.store.tables.sweeps import PublicationRow


@frozen
class Publication:
    """A worker's description of registered code.

    Attributes:
        kind: Workflow or evaluator.
        name: The registered name; for an evaluator its import path.
        path: The import path.
        description: As JSON, with its SHA-256 in `digest`; None if it cannot be imported, for the reason `error`.
    """

    kind: PublicationKind
    name: str
    path: str
    description: str | None = None
    digest: str | None = None
    error: str | None = None


def publish(database: Database, by: str, registered: Collection[Publication]) -> None:
    """Store the publications of a worker, instead of its earlier ones.

    If it cannot import something, the publication of another worker stays.

    Args:
        database: The database.
        by: The name of the worker.
        registered: All registrations in its environment.
    """
    names = [(publication.kind, publication.name) for publication in registered]
    with database.write() as connection:
        only_failed = sa.and_(publications.c.failed_by == by, publications.c.description.is_(None))
        mine = sa.or_(publications.c.published_by == by, only_failed)
        named = sa.tuple_(publications.c.kind, publications.c.name).in_(names)
        connection.execute(publications.delete().where(mine, sa.not_(named)))
        for publication in registered:
            _put(connection, by, publication)


def _put(connection: sa.Connection, by: str, publication: Publication) -> None:
    columns: dict[str, str | None] = {"kind": publication.kind, "name": publication.name, "path": publication.path}
    if publication.error is None:
        columns |= {"description": publication.description, "digest": publication.digest, "published_by": by}
        columns |= {"error": None, "failed_by": None}
        times = {"published_at": now(), "failed_at": None}
    else:
        columns |= {"error": publication.error, "failed_by": by}
        times = {"failed_at": now()}
    # Two workers may publish the same name at once, and none of them may fail.
    insert_missing(connection, publications, [columns])
    this = sa.and_(publications.c.kind == publication.kind, publications.c.name == publication.name)
    connection.execute(publications.update().where(this).values(columns | times))


def list_publications(database: Database) -> list[PublicationRow]:
    """List all publications, by kind and name."""
    return database.records(PublicationRow, sa.select(publications).order_by(publications.c.kind, publications.c.name))


def find_publication(database: Database, kind: PublicationKind, name: str) -> PublicationRow | None:
    """Return the publication of a name or an import path; None if there is none."""
    named = sa.or_(publications.c.name == name, publications.c.path == name)
    query = sa.select(publications).where(publications.c.kind == kind, named).order_by(publications.c.name != name)
    return database.record(PublicationRow, query.limit(1))
