"""The zip file of an archive: written in parts, and read without ever unpacking to paths.

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
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from wtb.core.errors import InputError
from wtb.core.scoring.measure import PASSES, Figure
from wtb.core.scoring.scores import read_failure_score
from wtb.core.serialization.type_tags import MAX_BYTES
from wtb.core.status import CELL
from wtb.features.archive.row_schemas import (
    TABLES,
    Amount,
    Digest,
    Digests,
    FailureShape,
    Id,
    Moment,
    Name,
    Number,
    Row,
    Strict,
    Whole,
    check_texts,
    check_typed,
    first_of,
    one_of,
    printable,
)
from wtb.store.files.store import BLOCK

VERSION: Final = 1
FORMAT: Final = "wtb execution"


class Case(Strict):
    """The case of the execution, with its input by key."""

    id: Annotated[str, Field(min_length=1, max_length=500)]
    input: Digests
    expected: str | None
    tags: list[str]
    workspace: Digest | None
    cluster: str | None = None


class Cell(Strict):
    """The first cell of the execution."""

    status: Annotated[str, AfterValidator(one_of(CELL))]
    elapsed_s: Amount | None
    usd: Amount | None
    tokens_in: Whole | None
    tokens_out: Whole | None
    node_runs: Whole | None
    failure: FailureShape | None
    finished_at: Moment | None


def _failure_score(text: str) -> str:
    try:
        read_failure_score("on_failure", text)
    except InputError:
        raise PydanticCustomError("on_failure", "expected a number or left_out") from None
    return text


class Metric(Strict):
    """A metric of the execution."""

    name: Name
    number: Number
    better: Literal["higher", "lower"]
    declared: bool = True
    by_median: bool = False
    low: float | None = None
    high: float | None = None
    on_failure: Annotated[str, Field(max_length=32), AfterValidator(_failure_score)] | None = None
    figure: Figure | Annotated[str, Field(pattern=f"^{PASSES}$")] | None = None

    @model_validator(mode="after")
    def _scale(self) -> Metric:
        ends = [end for end in (self.low, self.high) if end is not None]
        if ends and not (len(ends) == 2 and ends[0] < ends[1]):
            raise PydanticCustomError("scale", "low and high are no scale")
        return self


class _Snapshot(BaseModel):
    """A part of a graph snapshot, which may have more keys than WTB needs."""

    model_config = ConfigDict(strict=True)


class _State(_Snapshot):
    type: str
    reducer: str | None


class _Variant(_Snapshot):
    name: Name
    description: str
    params: dict[str, JsonValue]
    active: bool


class _GraphNode(_Snapshot):
    name: Name
    default: Name
    variants: list[_Variant]
    retries: Number
    timeout: Amount | None
    on_error: Name
    durable: bool


class _Edge(_Snapshot):
    sources: Annotated[list[Name], Field(min_length=1, validation_alias="from")]
    to: Name
    when: str | None
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)]
    default: bool


class _Branch(_Snapshot):
    source: Annotated[Name, Field(validation_alias="from")]
    by: str | None
    to: dict[str, Name]
    default: Name | None


class Graph(_Snapshot):
    """A graph snapshot, as `graph_snapshot` of a workflow makes it."""

    name: Name
    version: Annotated[str, Field(max_length=200)]
    description: str
    state: dict[str, _State]
    entries: Annotated[list[Name], Field(min_length=1)]
    nodes: Annotated[list[_GraphNode], Field(min_length=1)]
    edges: list[_Edge]
    branches: list[_Branch]

    def problem(self) -> str | None:
        """Return the problem of missing or repeated names, or None."""
        nodes = [node.name for node in self.nodes]
        if len(nodes) != len(set(nodes)):
            return "a node is there twice"
        for node in self.nodes:
            if node.default not in [variant.name for variant in node.variants]:
                return f"node {node.name!r} has no variant {node.default!r:.100}"
        arrows = [name for edge in self.edges for name in (*edge.sources, edge.to)]
        arrows += [name for branch in self.branches for name in (branch.source, *branch.to.values())]
        arrows += [branch.default for branch in self.branches if branch.default is not None]
        unknown = [name for name in (*self.entries, *arrows) if name not in {*nodes, "END"}]
        return f"there is no node {unknown[0]!r}" if unknown else None


class Member(Strict):
    """A part of the history: its SHA-256 and how many rows it has."""

    sha256: Digest
    rows: Number


class Head(Strict):
    """`execution.json`."""

    format: str
    version: int
    wtb: str
    exported_at: Moment
    host: Annotated[str, Field(max_length=255), AfterValidator(printable)]
    execution: Id
    sweep: Id
    name: Name
    project: Name | None
    spec: dict[str, JsonValue]
    fingerprints: dict[Name, dict[Name, Annotated[str, Field(max_length=64), AfterValidator(printable)]]]
    graph: dict[str, JsonValue]
    case: Case
    repeat: Number
    choices: dict[Name, Name]
    edited: bool
    cell: Cell | None
    metrics: list[Metric]
    history: dict[str, Member]


def head_of(content: bytes) -> Head:
    """Return the content of `execution.json`, checked. Raises InputError."""
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise InputError(f"execution.json is not JSON ({error})") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError("execution.json is not that of an exported execution")
    # The version comes first: a newer format would fail the checks below with misleading messages.
    version = document.get("version")
    if not isinstance(version, int) or version < VERSION:
        shown_version = "no version" if version is None else f"version {version!r:.40}"
        raise InputError(f"execution.json is damaged: it has {shown_version}; expected {VERSION}")
    if version != VERSION:
        raise InputError(
            f"the archive is of version {version!r:.40}, and this WTB reads version {VERSION}: use a newer WTB"
        )
    try:
        head = Head.model_validate_json(content)
    except ValidationError as error:
        raise InputError(f"execution.json: {first_of(error)}") from None
    try:
        problem = Graph.model_validate(head.graph).problem()
    except ValidationError as error:
        problem = first_of(error)
    if problem is not None:
        raise InputError(f"execution.json: graph: {problem}")
    names = [metric.name for metric in head.metrics]
    if len(names) != len(set(names)):
        raise InputError("execution.json: metrics: one is there twice")
    check_texts(document, "execution.json")
    check_typed(head.case.expected, "execution.json: case.expected")
    return head


HEAD = "execution.json"
MAX_LINE = 2 * MAX_BYTES
MAX_MEMBERS = 500_000
_CONTENT_NAME = re.compile(r"(values|files)/([0-9a-f]{64})")
_HISTORY = {f"history/{name}.jsonl": name for name in TABLES}
_DATE = (2000, 1, 1, 0, 0, 0)  # the same execution gives the same bytes

Kind = Literal["values", "files"]


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """Prefix the problems raised within the block with the archive's name, once."""
    start = f"{file}: "
    try:
        yield
    except InputError as error:
        raise InputError(
            *(problem if problem.startswith(start) else start + problem for problem in error.problems)
        ) from None


class Writing:
    """An archive that is being written."""

    def __init__(self, file: Path) -> None:
        # For this user alone: states may hold secrets.
        self._file = os.fdopen(os.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w+b")
        self._zip = zipfile.ZipFile(self._file, "w", zipfile.ZIP_DEFLATED)
        self.history: dict[str, Member] = {}

    def __enter__(self) -> Writing:
        return self

    def __exit__(self, *_: object) -> None:
        with self._file:
            self._zip.close()

    def rows(self, table: str, rows: Iterable[Row]) -> None:
        """Write a part of the history, one row per line."""
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
    """An open archive with known, bounded contents. Raises InputError for anything that is no archive."""

    def __init__(self, file: Path, max_bytes: int) -> None:
        try:
            self._zip = zipfile.ZipFile(file)
        except (OSError, zipfile.BadZipFile, NotImplementedError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise InputError(f"{file}: cannot be read as an archive ({why})") from None
        self.file = file
        try:
            # Names and declared sizes are checked before anything is decompressed.
            self._members = self._checked(max_bytes)
            with naming(file):
                self.head: Head = head_of(b"".join(self._blocks(HEAD)))
            self._check_history()
        except BaseException:
            self._zip.close()
            raise

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def contents(self, kind: Kind) -> dict[str, int]:
        """Return digest -> bytes of its values or files."""
        return {name[-64:]: info.file_size for name, info in self._members.items() if name.startswith(f"{kind}/")}

    def lines(self, table: str) -> Iterator[bytes]:
        """Yield the rows of a table, each a line."""
        name, member = f"history/{table}.jsonl", self.head.history[table]
        check, count = hashlib.sha256(), 0
        with self._opened(name) as source:
            while line := self._read(name, lambda: source.readline(MAX_LINE + 1)):
                if len(line) > MAX_LINE:
                    raise InputError(f"{name}: line {count + 1} is longer than {MAX_LINE:,} bytes")
                check.update(line)
                count += 1
                yield line
        # A zip member's own checksum is no protection against a manipulated archive; this hash is in its head.
        if (check.hexdigest(), count) != (member.sha256, member.rows):
            raise InputError(f"{name} is damaged: its content differs from that in execution.json")

    def content(self, kind: Kind, digest: str) -> Iterator[bytes]:
        """Yield a value or file in blocks of at most 1 MiB. Raises InputError at its end if its hash differs."""
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
        # Members are read only up to these declared sizes, so their sum bounds what is unpacked.
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
            raise InputError(f"{self.file}: it has no {HEAD}; expected what `wtb admin export` writes")
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
        # RuntimeError is what zipfile raises for an encrypted member.
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
            raise InputError(f"{self.file}: {name} is damaged ({error})") from None
