"""What is kept, scheduled and hosted: what `wtb gc`, `schedule`, `session`, `export`, `doctor` and others print."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from wtb.core.documents.common import Better, Combination, FixedReference, Interval, Liveness


class RetentionPolicy(TypedDict):
    """How long what is kept, in seconds; null is for ever."""

    outputs: float | None
    superseded: float | None
    sweeps: float | None
    keep: int
    files: float


class RemovedAmount(TypedDict):
    """How many were removed; bytes are null where they are not known."""

    count: int | None
    bytes: int | None


class CollectionDocument(TypedDict):
    """What `wtb gc` removed, or would remove."""

    dry_run: bool
    at: str
    policy: RetentionPolicy
    removed: dict[str, RemovedAmount]
    notes: list[str]


class FireDocument(TypedDict):
    """A fire of a schedule and what came of it."""

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
    """The figures of the combination that the sweep file asks for, else of the best."""

    combination: Combination | None
    mean: float | None
    ci: Interval | None
    n: int | None


class HistoricFire(FireDocument, FireFigures):
    """A fire with the figures of the combination that the sweep file asks for, and what of its code changed before.

    code_changed: nodes whose code changed, and tools of servers, as `files.read`. baseline_mean: of the sweep that it
    was compared with.
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
    """A session: what it has, what it uses and what it may use."""

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


class ProjectRetention(TypedDict, total=False):
    """How long finished sweeps of a project are kept; what is missing is as the policy says."""

    sweeps: float | None  # in seconds; null is for ever
    keep: int


class ProjectDocument(TypedDict):
    """A project: how long its sweeps are kept, and how many sessions and sweeps it has."""

    name: str
    created_at: str
    created_by: str
    retention: NotRequired[ProjectRetention]  # of servers that know it
    sessions: int
    sweeps: int


class ProjectsDocument(TypedDict):
    """All projects, by name."""

    projects: list[ProjectDocument]


class UserDocument(TypedDict):
    """A user, and the teams that they are in."""

    name: str
    teams: list[str]
    created_at: str
    created_by: str


class UsersDocument(TypedDict):
    """All users, by name."""

    users: list[UserDocument]


class TeamDocument(TypedDict):
    """A team, and the users in it."""

    name: str
    members: list[str]
    created_at: str
    created_by: str


class TeamsDocument(TypedDict):
    """All teams, by name."""

    teams: list[TeamDocument]


class AccessDocument(TypedDict):
    """A role of a user or of a team in a project; of all projects where it names none."""

    project: str | None
    user: str | None
    team: str | None
    role: str
    created_at: str
    created_by: str


class AccessListDocument(TypedDict):
    """Who has which role, by project."""

    access: list[AccessDocument]


TokenState = Literal["active", "expired", "revoked"]


class TokenDocument(TypedDict):
    """A token, without itself; used_at is to the minute. Of all projects where it names none."""

    name: str
    state: TokenState
    scopes: list[str]
    project: NotRequired[str | None]
    user: NotRequired[str | None]
    created_at: str
    created_by: str
    expires_at: str | None
    used_at: str | None
    revoked_at: str | None


class NewTokenDocument(TokenDocument):
    """A token that was made just now; it is shown once."""

    token: str


class TokensDocument(TypedDict):
    """All tokens, the newest first."""

    tokens: list[TokenDocument]


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
    """What an archive holds."""

    checkpoints: int
    values: int
    files: int


class ExportedDocument(ArchiveCounts):
    """An archive that was written, and for how many other cells its execution stands. `bytes`: its size."""

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
    """One thing that WTB needs: what was found, and how to fix it."""

    name: str
    status: Literal["ok", "problem", "missing"]
    found: str
    fix: str | None


class DoctorDocument(TypedDict):
    """What WTB needs on a machine."""

    ok: bool
    checks: list[CheckDocument]


class DatabaseVersionDocument(TypedDict):
    """The version of a database (null without tables), and the one that this WTB expects."""

    database: str
    version: str | None
    expected: str


class StackPart(TypedDict):
    """A server or process of a stack. `memory`: bytes, with all that it started."""

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
    """Where Flower is, and who may look."""

    url: str
    user: str
    password: str


class StackDocument(TypedDict):
    """What `wtb up` runs in a folder."""

    up: bool
    pid: int | None
    folder: str | None
    since: str | None
    flower: FlowerDocument | None
    api: NotRequired[str | None]  # its URL
    parts: list[StackPart]


class RoundDocument(TypedDict):
    """What one round of the scheduler did: executions taken back and set aside, sweeps, tasks that were sent."""

    taken_back: int
    set_aside: int
    finished: int
    paused: int
    published: int
