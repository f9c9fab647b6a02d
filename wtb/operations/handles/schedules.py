"""The part of `Bench` that is about schedules."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from wtb.config.webhooks import Payload
from wtb.core.arguments.checking import as_path
from wtb.core.documents.administration import FiredDocument, ScheduleDocument, ScheduleHistoryDocument
from wtb.operations.context import Context
from wtb.operations.handles.documentation import documented_by
from wtb.operations.schedules import history
from wtb.operations.schedules import schedules as operations
from wtb.operations.schedules.history import ScheduleCheck
from wtb.operations.schedules.schedules import ScheduleStatus


class Schedules:
    """Sweeps by the clock."""

    _context: Context

    @documented_by(operations.add_schedule)
    def add_schedule(
        self,
        name: str,
        file: str | Path,
        *,
        cron: str,
        tz: str = "UTC",
        baseline: str | None = None,
        margin: Mapping[str, float] | None = None,
        notify: str | None = None,
        allow_private: bool = False,
        payload: Payload | None = None,
        missed: Literal["once", "skip"] = "once",
        queued: bool | None = None,
        session: str | None = None,
    ) -> ScheduleDocument:
        """Run a sweep file by the clock, from the working directory."""
        return operations.add_schedule(
            self._context,
            name,
            as_path("file", file),
            cron=cron,
            tz=tz,
            baseline=baseline,
            margin=margin,
            notify=notify,
            allow_private=allow_private,
            payload=payload,
            missed=missed,
            queued=queued,
            session=session,
        )

    def schedules(self, session: str | None = None) -> list[ScheduleDocument]:
        """List schedules with their next and last fires.

        Args:
            session: Only those of this session; by default that of this object, or all if it has none.

        Returns:
            A document for each.
        """
        return operations.list_schedules(self._context, session)

    @documented_by(operations.show_schedule)
    def schedule(self, name: str) -> ScheduleDocument:
        """Return when a schedule runs next, what it runs, and how its last fire ended.

        Args:
            name: Its name.

        Returns:
            Its document.
        """
        return operations.show_schedule(self._context, name)

    @documented_by(operations.pause_schedule)
    def pause_schedule(self, name: str) -> ScheduleStatus:
        """Make no fires of a schedule until it is resumed; what runs already goes on.

        Args:
            name: Its name.

        Returns:
            What it is now, and was before.
        """
        return operations.pause_schedule(self._context, name)

    @documented_by(operations.resume_schedule)
    def resume_schedule(self, name: str) -> ScheduleStatus:
        """Make fires of a schedule again, from now on.

        Args:
            name: Its name.

        Returns:
            What it is now, and was before.
        """
        return operations.resume_schedule(self._context, name)

    @documented_by(operations.remove_schedule)
    def remove_schedule(self, name: str) -> int:
        """Remove a schedule with its history; the sweeps of its fires stay.

        Args:
            name: Its name.
        """
        return operations.remove_schedule(self._context, name)

    @documented_by(operations.run_now)
    def run_schedule(self, name: str) -> FiredDocument:
        """Fire a schedule at once, whatever the clock says, and wait for it unless workers run it."""
        return operations.run_now(self._context, name)

    def run_due_schedules(self) -> None:
        """Run the schedules that are due, and wait for them. Any number of processes may do so at once."""
        operations.run_due(self._context)

    @documented_by(history.history)
    def schedule_history(self, name: str, *, metric: str | None = None, limit: int = 60) -> ScheduleHistoryDocument:
        """Return the last fires of a schedule, the oldest first, by a metric, with where code changed."""
        return history.history(self._context, name, metric=metric, limit=limit)

    @documented_by(history.check_schedule)
    def check_schedule(self, name: str) -> ScheduleCheck:
        """Check whether the last fire of a schedule ended well, and whether the next ones are on their way.

        Args:
            name: Its name.

        Returns:
            Whether all is well, and why not.
        """
        return history.check_schedule(self._context, name)
