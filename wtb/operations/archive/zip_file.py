"""The zip of an archive: written part by part, and read without ever being unpacked to paths.

Members are read by name, up to the size that they declare; their names, sizes and hashes are checked.
"""

from __future__ import annotations

import hashlib
import os
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import orjson

from wtb.core.errors import InputError
from wtb.core.serialization.type_tags import MAX_BYTES
from wtb.operations.archive.manifest import Head, Member, head_of
from wtb.operations.archive.row_schemas import TABLES, Row
from wtb.store.files.store import BLOCK

HEAD = "execution.json"
MAX_LINE = 2 * MAX_BYTES
MAX_MEMBERS = 500_000
_CONTENT_NAME = re.compile(r"(values|files)/([0-9a-f]{64})")
_HISTORY = {f"history/{name}.jsonl": name for name in TABLES}
_DATE = (2000, 1, 1, 0, 0, 0)  # the same execution gives the same bytes

Kind = Literal["values", "files"]


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """What is refused within names the archive, once."""
    start = f"{file}: "
    try:
        yield
    except InputError as error:
        raise InputError(
            *(problem if problem.startswith(start) else start + problem for problem in error.problems)
        ) from None


class Writing:
    """An archive on its way to a file."""

    def __init__(self, file: Path) -> None:
        # For this user alone: states may hold secrets.
        self._file = os.fdopen(os.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w+b")
        self._zip = zipfile.ZipFile(self._file, "w", zipfile.ZIP_DEFLATED)
        self.history: dict[str, Member] = {}

    def __enter__(self) -> Writing:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._file:
            self._zip.close()

    def rows(self, table: str, rows: Iterable[Row]) -> None:
        """A part of the history, a row a line."""
        check, count = hashlib.sha256(), 0

        def lines() -> Iterator[bytes]:
            nonlocal count
            for row in rows:
                line = orjson.dumps(row, option=orjson.OPT_SORT_KEYS) + b"\n"
                check.update(line)
                count += 1
                yield line

        self.add(f"history/{table}.jsonl", lines())
        self.history[table] = Member(sha256=check.hexdigest(), rows=count)

    def add(self, name: str, blocks: Iterable[bytes]) -> None:
        info = zipfile.ZipInfo(name, _DATE)
        info.compress_type = zipfile.ZIP_DEFLATED
        with self._zip.open(info, "w", force_zip64=True) as out:
            for block in blocks:
                out.write(block)


class Reading:
    """An archive that was opened: what it holds is known, and bounded. Raises InputError for what is no archive."""

    def __init__(self, file: Path, max_bytes: int) -> None:
        try:
            self._zip = zipfile.ZipFile(file)
        except (OSError, zipfile.BadZipFile, NotImplementedError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise InputError(f"{file}: cannot be read as an archive ({why})") from None
        self.file = file
        try:
            self._members = self._checked(max_bytes)
            with naming(file):
                self.head: Head = head_of(b"".join(self._blocks(HEAD)))
            self._check_history()
        except BaseException:
            self._zip.close()
            raise

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._zip.close()

    def contents(self, kind: Kind) -> dict[str, int]:
        """Digest -> bytes of the values or files that it holds."""
        return {name[-64:]: info.file_size for name, info in self._members.items() if name.startswith(f"{kind}/")}

    def lines(self, table: str) -> Iterator[bytes]:
        """The rows of a table, each a line."""
        name, member = f"history/{table}.jsonl", self.head.history[table]
        check, count = hashlib.sha256(), 0
        with self._opened(name) as source:
            while line := self._read(name, lambda: source.readline(MAX_LINE + 1)):
                if len(line) > MAX_LINE:
                    raise InputError(f"{name}: line {count + 1} is longer than {MAX_LINE:,} bytes")
                check.update(line)
                count += 1
                yield line
        if (check.hexdigest(), count) != (member.sha256, member.rows):
            raise InputError(f"{name} is damaged: it is not what execution.json says of it")

    def content(self, kind: Kind, digest: str) -> Iterator[bytes]:
        """A value or file in blocks of at most 1 MiB. Raises InputError at its end where its hash is another."""
        name, check = f"{kind}/{digest}", hashlib.sha256()
        for block in self._blocks(name):
            check.update(block)
            yield block
        if check.hexdigest() != digest:
            raise InputError(f"{name} is damaged: its content has another hash")

    def _checked(self, max_bytes: int) -> dict[str, zipfile.ZipInfo]:
        members: dict[str, zipfile.ZipInfo] = {}
        infos = self._zip.infolist()
        if len(infos) > MAX_MEMBERS:
            raise InputError(f"{self.file}: {len(infos):,} members; at most {MAX_MEMBERS:,} are expected")
        total = sum(info.file_size for info in infos)
        if total > max_bytes:
            raise InputError(
                f"{self.file}: it unpacks to {total:,} bytes; max_bytes allows {max_bytes:,} at most",
                argument="max_bytes",
            )
        for info in infos:
            name = info.filename
            match = _CONTENT_NAME.fullmatch(name)
            if match is None and name != HEAD and name not in _HISTORY:
                raise InputError(f"{self.file}: {name[:200]!r} does not belong into an archive")
            if name in members:
                raise InputError(f"{self.file}: {name} is there twice")
            if info.flag_bits & 0x1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise InputError(f"{self.file}: {name} is encrypted or compressed in a way that is not expected")
            if info.file_size > MAX_BYTES and (name == HEAD or (match is not None and match[1] == "values")):
                size = f"{info.file_size:,} bytes; at most {MAX_BYTES:,} are expected"
                raise InputError(f"{self.file}: {name} has {size}")
            members[name] = info
        if HEAD not in members:
            raise InputError(f"{self.file}: it has no {HEAD}; expected what `wtb export` writes")
        return members

    def _check_history(self) -> None:
        for table in TABLES:
            name = f"history/{table}.jsonl"
            if (name in self._members) != (table in self.head.history) or name not in self._members:
                raise InputError(f"{self.file}: {name} is missing")
        if unknown := self.head.history.keys() - TABLES.keys():
            raise InputError(f"{self.file}: execution.json names a history of {min(unknown)[:100]!r}, which is unknown")

    def _blocks(self, name: str) -> Iterator[bytes]:
        with self._opened(name) as source:
            while block := self._read(name, lambda: source.read(BLOCK)):
                yield block

    def _opened(self, name: str) -> Any:
        return self._read(name, lambda: self._zip.open(self._members[name]))

    def _read(self, name: str, read: Any) -> Any:
        try:
            return read()
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
            raise InputError(f"{self.file}: {name} is damaged ({error})") from None
