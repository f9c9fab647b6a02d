"""A submitted sweep made ready to run in this process: its limits, its quotas, and where its code runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wtb.binding import Bound
from wtb.calling import Caller
from wtb.engine import NativeEngine
from wtb.holding import Holds
from wtb.limits import Disk, Limits, Spendable, Stop
from wtb.live import LiveSweep, Progress
from wtb.outline import outline_digest
from wtb.processes.pool import InProcesses
from wtb.store import claims
from wtb.store.database import Database
from wtb.store.filing import missing_files
from wtb.store.reading import choices, spent
from wtb.store.sessions import Quota, quota_of
from wtb.store.usage import Usage, usage
from wtb.usercode import OnThreads, Surroundings, UserCode
from wtb.workspaces import Workspaces

Row = Mapping[str, Any]


class Opened:
    """A sweep as this process runs it, and what others of its session use meanwhile.

    limits: of this run, in place of those of the sweep. shared: others run the sweep too, so that each node run is
    counted in the database where their number is limited.
    """

    def __init__(
        self,
        database: Database,
        row: Row,
        bound: Bound,
        runner_id: str,
        stop: Stop,
        progress: Progress,
        *,
        limits: Mapping[str, Any] | None = None,
        shared: bool = False,
    ) -> None:
        self._database = database
        self._session = row["session_id"]
        self._quota = quota_of(database, self._session)
        self._shared = shared
        self._allowed = {**bound.spec.limits.model_dump(exclude={"cell_timeout"}), **(limits or {})}
        used = _used(database, self._session, self._quota)
        self.sweep = LiveSweep(
            id=row["id"],
            session_id=self._session,
            runner_id=runner_id,
            bound=bound,
            choices=choices(database, row["id"]),
            limits=self._limits(row, used, stop),
            disk=Disk(self._quota.disk, used.disk_bytes, lambda new: missing_files(database, self._session, new)),
            stop=stop,
            progress=progress,
            database=database,
            holds=Holds(),
        )

    def _limits(self, row: Row, used: Usage, stop: Stop) -> Limits:
        limited = self._allowed["node_runs"] is not None or self._allowed["usd"] is not None
        node_runs, usd = spent(self._database, row["id"]) if limited else (0, 0.0)
        quota = self._quota.usd
        return Limits(
            stop,
            **self._allowed,
            used_node_runs=node_runs,
            used_usd=usd,
            session=None if quota is None else Spendable(row["session"], quota, used.usd),
            reserve=self._reserve if self._shared else None,
        )

    def _reserve(self, most: int) -> bool:
        return claims.take_node_run(self._database, self.sweep.id, most)

    def see_others(self) -> None:
        """Others use the quotas of the session, too, and the limits of a sweep that is shared."""
        used = _used(self._database, self._session, self._quota)
        usd = spent(self._database, self.sweep.id)[1] if self._shared and self._allowed["usd"] is not None else 0.0
        self.sweep.limits.seen(usd, used.usd)
        self.sweep.disk.seen(used.disk_bytes)


def _used(database: Database, session: str, quota: Quota) -> Usage:
    """What a session uses, where it has a quota that it is held against."""
    return Usage() if quota.usd is None and quota.disk is None else usage(database, session)


def on_threads(bound: Bound, workspaces: Workspaces, caller: Caller) -> UserCode:
    """The code of a sweep on threads of this process."""
    surroundings = Surroundings(caller, bound.workflow.resources, workspaces)
    return OnThreads(NativeEngine(bound.workflow), bound.evaluators, surroundings)


def in_processes(bound: Bound, workspaces: Workspaces, owner: str, slots: int) -> UserCode:
    """The code of a sweep in node processes, at most `slots` of them."""
    return InProcesses(
        NativeEngine(bound.workflow),
        bound.evaluators,
        bound.recipe,
        {"fingerprints": bound.fingerprints, "outline": outline_digest(bound.workflow)},
        bound.spec.run,
        workspaces,
        owner,
        slots,
    )
