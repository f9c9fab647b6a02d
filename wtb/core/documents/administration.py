"""Retention, schedules, sessions, servers and backups: the documents of `wtb gc`, `schedule`, `backup` and others."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from wtb.core.documents.shared_types import Better, Combination, FixedReference, Interval, Liveness, SweepStatus


class RetentionPolicy(TypedDict):
    """The periods for which things are kept, in seconds; null is forever."""

    outputs: float | None
    superseded: float | None
    sweeps: float | None
    keep: int
    files: float


class RemovedAmount(TypedDict):
    """An amount that was removed; bytes are null if unknown."""

    count: int | None
    bytes: int | None


class CollectionDocument(TypedDict):
    """The amounts that `wtb admin gc` removed, or would remove."""

    dry_run: bool
    at: str
    policy: RetentionPolicy
    removed: dict[str, RemovedAmount]
    notes: list[str]


class FireDocument(TypedDict):
    """A fire of a schedule with its result."""

    fire_at: str
    manual: bool
    status: str
    verdict: str | None
    because: list[str]
    sweep: str | None
    baseline: str | None
    notified_at: str | None
    notification_error: str | None


class FireFigures(TypedDict):
    """The figures of the combination that the sweep file selects, else of the best."""

    combination: Combination | None
    mean: float | None
    ci: Interval | None
    n: int | None


class HistoricFire(FireDocument, FireFigures):
    """A fire with the figures of the combination that the sweep file selects, and changes of its code since the fire
    before.

    Attributes:
        code_changed: Nodes whose code changed, and tools of servers, for example `files.read`.
        baseline_mean: The mean of the sweep that it was compared with.
    """

    code_changed: list[str]
    baseline_mean: NotRequired[float | None]


class ScheduleDocument(TypedDict):
    """A schedule, and its last fire."""

    name: str
    status: str
    session: str
    file: str
    folder: str
    cron: str
    tz: str
    missed: Literal["once", "skip"]
    queued: bool
    baseline: str | None
    margin: dict[str, float]
    notify: str | None
    next_at: str | None
    created_at: str
    last: FireDocument | None


class SchedulesDocument(TypedDict):
    """Schedules of a session, or of all."""

    schedules: list[ScheduleDocument]


class OneScheduleDocument(TypedDict):
    """One schedule."""

    schedule: ScheduleDocument


class FiredDocument(TypedDict):
    """A fire that was made at once."""

    version: Literal[1]
    schedule: str
    tz: str
    fire: FireDocument


class ScheduleHistoryDocument(TypedDict):
    """Fires of a schedule by a metric, the oldest first."""

    version: Literal[1]
    schedule: str
    tz: str
    metric: str | None
    better: Better | None
    fires: list[HistoricFire]
    reference: NotRequired[FixedReference | None]


class Amounts(TypedDict):
    """Bytes on disk and in memory, node runs at a time, US dollars and tokens in all; in a quota null is no limit."""

    disk: int | None
    node_runs: int | None
    usd: float | None
    tokens: int | None
    memory: NotRequired[int | None]  # what is used is null if it is not measured, since there is no quota


class SessionDocument(TypedDict):
    """A session: its contents, its usage and its quota."""

    name: str
    project: NotRequired[str]
    owner: NotRequired[str | None]
    metadata: NotRequired[dict[str, str]]
    created_at: str
    active_at: NotRequired[str | None]  # of the newest event or attempt; null if it has none
    archived_at: str | None
    sweeps: int
    cells: int
    usage: Amounts
    quota: Amounts


class SessionsDocument(TypedDict):
    """All sessions."""

    sessions: list[SessionDocument]


class SessionRunner(TypedDict):
    """A process that holds slots of a session."""

    host: str
    pid: int
    slots: int
    state: Liveness


class OneSessionDocument(TypedDict):
    """One session; `directory` is where its attempts work."""

    session: SessionDocument
    sweeps_by_status: dict[str, int]
    runners: list[SessionRunner]
    directory: str


class ArchiveCounts(TypedDict):
    """The contents of an archive."""

    checkpoints: int
    values: int
    files: int


class ExportedDocument(ArchiveCounts):
    """An archive that was written. `bytes` is its size; its execution stands for other cells, too."""

    execution: str
    case: str
    choices: Combination
    others: int
    file: str
    bytes: int


ImportSource = TypedDict("ImportSource", {"from": str})


class ImportedDocument(ArchiveCounts, ImportSource):
    """A single execution that was read from an archive, and the execution that it was written from."""

    id: str
    name: str
    execution: str
    status: str
    case: str


class CheckDocument(TypedDict):
    """A requirement of WTB: what was found, and how to fix it."""

    name: str
    status: Literal["ok", "problem", "missing"]
    found: str
    fix: str | None


class DoctorDocument(TypedDict):
    """The requirements of WTB on a machine."""

    ok: bool
    checks: list[CheckDocument]


class DatabaseVersionDocument(TypedDict):
    """The version of a database (null without tables), and the one that this WTB expects."""

    database: str
    version: str | None
    expected: str


class StackPart(TypedDict):
    """A server or process of a stack. `memory` is in bytes, including its child processes."""

    name: str
    status: Literal["up", "down"]
    pid: int | None
    address: str | None
    since: str | None
    memory: int | None
    restarts: int
    restarted_at: str | None
    restart_reason: str | None


class FlowerDocument(TypedDict):
    """The address of Flower, with its user and password."""

    url: str
    user: str
    password: str


class StackDocument(TypedDict):
    """The stack that `wtb up` runs in a folder."""

    up: bool
    pid: int | None
    folder: str | None
    since: str | None
    flower: FlowerDocument | None
    api: NotRequired[str | None]  # its URL
    parts: list[StackPart]


class RoundDocument(TypedDict):
    """The work of one round of the scheduler: executions reclaimed and set aside, sweeps ended, tasks sent."""

    taken_back: int
    set_aside: int
    finished: int
    paused: int
    published: int


class CopiedSweepDocument(TypedDict):
    """A sweep that is in another database now.

    Attributes:
        to: That database.
        is_new: Whether this command copied it; otherwise an equal one was there already.
        rows: How many were copied, by table.
        files: How many were copied.
        bytes: The size of the files.
    """

    version: Literal[1]
    id: str
    name: str
    status: SweepStatus
    to: str
    is_new: bool
    rows: dict[str, int]
    files: int
    bytes: int


class ErasedFrom(TypedDict):
    """A sweep that a case was erased from."""

    sweep: str
    name: str
    project: str | None


class ErasedDocument(TypedDict):
    """An erased case. `counts` are by kind; `values` and `files` are how many were removed, without those of other
    cases.
    """

    case: str
    sweeps: list[ErasedFrom]
    counts: dict[str, int]
    values: int
    files: int
    notes: list[str]


class MissingDocument(TypedDict):
    """Digests that rows name and that were missing or damaged when a backup was made."""

    values: list[str]
    files: list[str]


class BackupDocument(TypedDict):
    """A backup that was made; `rows` are by table, `bytes` the size of its database and files."""

    folder: str
    made_at: str
    database: str
    revision: str
    rows: dict[str, int]
    files: int
    bytes: int
    missing: MissingDocument


class RestoredDocument(TypedDict):
    """A backup that was restored into a database, and the number of sweeps that have not ended."""

    folder: str
    made_at: str
    database: str
    rows: dict[str, int]
    files: int
    open_sweeps: int
    missing: MissingDocument
