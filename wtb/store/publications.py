"""What workers publish of the code that they can run: workflows by registered names, evaluators by import paths."""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa

from wtb.core.classes.frozen import frozen
from wtb.core.documents.workflows.publications import PublicationKind
from wtb.store.bulk import insert_missing
from wtb.store.database import Database
from wtb.store.tables.publications import PublicationRow
from wtb.store.tables.schema import now, publications


@frozen
class Publication:
    """What a worker says of something that is registered where it runs.

    Attributes:
        name: The registered name; of an evaluator its import path.
        description: As JSON, with its SHA-256 in `digest`; None where it cannot be imported, for the reason `error`.
    """

    kind: PublicationKind
    name: str
    path: str
    description: str | None = None
    digest: str | None = None
    error: str | None = None


def publish(database: Database, by: str, found: Collection[Publication]) -> None:
    """Store what a worker publishes, in place of what it had published.

    That it cannot import something leaves in place what another worker has published of that.

    Args:
        database: Where.
        by: The name of the worker.
        found: All that is registered where it runs.
    """
    kept = [(one.kind, one.name) for one in found]
    with database.write() as connection:
        only_failed = sa.and_(publications.c.failed_by == by, publications.c.description.is_(None))
        mine = sa.or_(publications.c.published_by == by, only_failed)
        named = sa.tuple_(publications.c.kind, publications.c.name).in_(kept)
        connection.execute(publications.delete().where(mine, sa.not_(named)))
        for one in found:
            _put(connection, by, one)


def _put(connection: sa.Connection, by: str, one: Publication) -> None:
    found: dict[str, str | None] = {"kind": one.kind, "name": one.name, "path": one.path}
    if one.error is None:
        found |= {"description": one.description, "digest": one.digest, "published_by": by}
        found |= {"error": None, "failed_by": None}
        times = {"published_at": now(), "failed_at": None}
    else:
        found |= {"error": one.error, "failed_by": by}
        times = {"failed_at": now()}
    insert_missing(connection, publications, [found])
    this = sa.and_(publications.c.kind == one.kind, publications.c.name == one.name)
    connection.execute(publications.update().where(this).values(found | times))


def list_publications(database: Database) -> list[PublicationRow]:
    """List all that is published, by kind and name."""
    return database.records(PublicationRow, sa.select(publications).order_by(publications.c.kind, publications.c.name))


def find_publication(database: Database, kind: PublicationKind, name: str) -> PublicationRow | None:
    """Return what is published under a name, or of an import path; None if nothing is."""
    named = sa.or_(publications.c.name == name, publications.c.path == name)
    query = sa.select(publications).where(publications.c.kind == kind, named).order_by(publications.c.name != name)
    return database.record(PublicationRow, query.limit(1))
