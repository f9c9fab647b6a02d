"""`backup.json`: what a backup is of, and what has to be in it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, StringConstraints, ValidationError

from wtb.core.documents.storage.backups import MissingDocument
from wtb.core.errors import InputError
from wtb.core.version import __version__
from wtb.store.tables.schema import REVISION

FORMAT: Final = "wtb backup"
VERSION: Final = 1
HEAD: Final = "backup.json"
DATABASE: Final = "wtb.db"
FILES: Final = "files"
_MOST_BYTES = 64 << 20

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Missing(_Part):
    """Digests that rows name, and that were missing or damaged when the backup was made."""

    values: list[Digest] = []
    files: list[Digest] = []

    @property
    def document(self) -> MissingDocument:
        """The same for scripts."""
        return {"values": list(self.values), "files": list(self.files)}


class Manifest(_Part):
    """What a backup holds.

    Attributes:
        source: The URL of its database, without passwords.
        rows: How many each table has.
        file_bytes: Of all stored files together.
    """

    format: Literal["wtb backup"] = FORMAT
    version: Literal[1] = VERSION
    wtb: str = __version__
    revision: str = REVISION
    made_at: Annotated[float, Field(gt=0)]
    source: str
    rows: dict[str, NonNegativeInt]
    files: NonNegativeInt
    file_bytes: NonNegativeInt
    missing: Missing


def read_manifest(folder: Path) -> Manifest:
    """Read what a backup is of.

    Args:
        folder: Of the backup.

    Returns:
        What it holds.

    Raises:
        InputError: If it is no backup, a damaged one, or one of another version of the tables.
    """
    place = folder / HEAD
    try:
        if place.stat().st_size > _MOST_BYTES:
            raise InputError(f"{place} is too large to be that of a backup")
        manifest = Manifest.model_validate_json(place.read_bytes())
    except FileNotFoundError:
        raise InputError(f"{folder} is no backup: it has no {HEAD}") from None
    except OSError as error:
        raise InputError(f"{place}: cannot be read ({error.strerror or error})") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise InputError(f"{place} is damaged, or of a newer WTB: {where}: {first['msg']}") from None
    if manifest.revision != REVISION:
        raise InputError(
            f"{folder} is of version {manifest.revision}, by WTB {manifest.wtb}; this WTB expects {REVISION}: "
            f"restore it with the WTB that made it, then run `wtb db upgrade` with this one"
        )
    return manifest
