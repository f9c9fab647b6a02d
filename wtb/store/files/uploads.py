"""Files that are sent to a server before the sweeps that take their cases from them.

They lie in the database, in parts: each server has them, and nobody sees those of another project. A sweep has its
cases in rows of its own, so nothing names an upload once it was submitted; it is removed after a day.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import sqlalchemy as sa

from wtb.core.classes.frozen import frozen
from wtb.core.errors import ConflictError
from wtb.store.access.expiry import KEPT_S, remove_expired
from wtb.store.access.scope import in_scope
from wtb.store.bulk import fetch_record
from wtb.store.database import Database
from wtb.store.tables.schema import now, upload_parts, uploads
from wtb.store.tables.uploads import UploadRow

MOST_BYTES = 32_000_000
QUOTA_BYTES = 256_000_000  # of a project
PART_BYTES = 1_000_000


@frozen(slots=True)
class NewUpload:
    """An upload that begins; see `UploadRow`."""

    id: str
    project: str
    digest: str
    by: str


def begin_upload(database: Database, new: NewUpload) -> None:
    """Note that somebody sends a file."""
    remove_expired(database)
    given = {"id": new.id, "project": new.project, "digest": new.digest, "by": new.by}
    database.execute(uploads.insert().values(given))


def add_part(database: Database, new: NewUpload, number: int, content: bytes) -> None:
    """Keep the next part of an upload.

    Args:
        database: Where.
        new: The upload.
        number: Of the part, from 0.
        content: At most PART_BYTES.

    Raises:
        ConflictError: If the uploads of its project take too much.
    """
    this = uploads.update().where(uploads.c.id == new.id).values(bytes=uploads.c.bytes + len(content))
    of_project = sa.select(sa.func.sum(uploads.c.bytes)).where(uploads.c.project == new.project)
    with database.write() as connection:
        connection.execute(this)
        taken = int(connection.scalar(of_project) or 0)
        if taken > QUOTA_BYTES:
            raise ConflictError(
                f"the uploads of project {new.project!r} would take more than {QUOTA_BYTES:,} bytes, which is the "
                "limit; each is removed after a day"
            )
        connection.execute(upload_parts.insert().values(upload_id=new.id, number=number, content=content))


def complete_upload(database: Database, new: NewUpload) -> None:
    """Let an upload be found by its digest; where its project has that content, it is kept for a day from now on.

    The earlier one stays rather than the new one, since somebody may be reading it.
    """
    same = uploads.update().where(
        uploads.c.project == new.project, uploads.c.digest == new.digest, uploads.c.completed_at.is_not(None)
    )
    this = uploads.c.id == new.id
    with database.write() as connection:
        if connection.execute(same.values(created_at=now())).rowcount:
            connection.execute(uploads.delete().where(this))
        else:
            connection.execute(uploads.update().where(this).values(completed_at=now()))


def abandon_upload(database: Database, id: str) -> None:
    """Remove an upload that did not come whole, or is not what its digest says."""
    database.execute(uploads.delete().where(uploads.c.id == id, uploads.c.completed_at.is_(None)))


def find_upload(database: Database, digest: str) -> UploadRow | None:
    """Return an upload that has come whole by its digest; None if there is none in a project that may be seen."""
    query = sa.select(uploads).where(
        uploads.c.digest == digest, uploads.c.completed_at.is_not(None), uploads.c.created_at >= now() - KEPT_S
    )
    with database.read() as connection:
        return fetch_record(connection, UploadRow, query.where(*in_scope(connection, uploads)).limit(1))


def read_upload(database: Database, upload: UploadRow) -> Iterator[bytes]:
    """Yield the parts of an upload, one after the other, as they are at one moment.

    Args:
        database: Where.
        upload: As `find_upload` found it.

    Raises:
        ConflictError: After the last part, if all of them are not what its digest says: it was removed meanwhile.
    """
    hashed = hashlib.sha256()
    of_upload = upload_parts.c.upload_id == upload.id
    with database.read() as connection:
        numbers = sa.select(upload_parts.c.number).where(of_upload).order_by(upload_parts.c.number)
        for number in connection.scalars(numbers).all():
            part = sa.select(upload_parts.c.content).where(of_upload, upload_parts.c.number == number)
            content = connection.execute(part).scalar_one()
            hashed.update(content)
            yield content
    if hashed.hexdigest() != upload.digest:
        raise ConflictError(f"upload {upload.digest} was removed while it was read; send the file again")
