"""The times of schedules: cron texts, time zones, fires that are due, and the next step of a fire. Pure.

Times are seconds since the epoch. A local time that a clock change skips fires at the first time after it; one that
comes twice fires once, the first time. Only schedules with `*` for the minute or the hour follow real time instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from cronsim import CronSim, CronSimError

from wtb.core.errors import InputError, did_you_mean
from wtb.core.frozen import frozen
from wtb.core.provider_faults import is_waiting
from wtb.core.status import ENDED_SWEEPS
from wtb.core.stop import PROCESS_DIED

GRACE_S = 600.0  # a fire that is later than this counts as missed
MOST_MISSED = 1_000  # more are not counted
TRIES = 3  # processes that may die while they carry out a fire
BAD = ("worse", "failed")
_LATE_S = 3_600.0

Step = Literal["submit", "run", "judge", "notify"]


@frozen
class Due:
    """The fires that are due: `fire_at` is the fire to make, or None; `missed` is how many others there would have
    been.
    """

    fire_at: float | None
    missed: int
    next_at: float


def check_name(name: str) -> None:
    """Raise InputError if a schedule must not have this name."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", name):
        raise InputError(
            f"{name!r} cannot be the name of a schedule; expected 1 to 64 letters, digits, '.', '_' or '-', not "
            f"beginning with '.' or '-'"
        )


def check_cron(text: str) -> str:
    """Return a cron text in its normal form. Raises InputError."""
    parts = text.split()
    if len(parts) != 5 or len(text) > 200:
        raise InputError(
            f"cron {text!r}: expected five fields (minute, hour, day of the month, month, day of the week), such as "
            f"'0 3 * * *'",
            argument="cron",
        )
    cron = " ".join(parts)
    try:
        next(CronSim(cron, datetime(2024, 1, 1)))
    except (CronSimError, ValueError) as error:
        raise InputError(f"cron {text!r}: {error}; expected such as '0 3 * * *'", argument="cron") from None
    except StopIteration:
        # For example on the 30th of February.
        raise InputError(f"cron {text!r} never fires", argument="cron") from None
    return cron


def zone_of(name: str) -> ZoneInfo:
    """Return a time zone. Raises InputError with a near match."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        near = did_you_mean(name, available_timezones())
        raise InputError(f"there is no time zone {name!r}{near or ', expected such as Europe/Berlin'}") from None


def in_words(cron: str) -> str:
    """Return a cron text in words, for example `At 03:00 every day`."""
    return CronSim(cron, datetime(2024, 1, 1)).explain()


def next_after(cron: str, zone: ZoneInfo, at: float) -> float:
    """Return the first fire after a moment."""
    return next(_times_after(cron, zone, at))


def _times_after(cron: str, zone: ZoneInfo, at: float) -> Iterator[float]:
    """Yield the times of a cron text, strictly increasing even if the clock is set back."""
    for moment in CronSim(cron, datetime.fromtimestamp(at, zone)):
        fire = moment.timestamp()
        if fire > at:  # otherwise the clock was set back in between
            yield fire
            at = fire


def _last_until(cron: str, zone: ZoneInfo, at: float) -> float:
    """Return the last fire until a moment, including that moment."""
    # The library goes back in local time, where a clock change may hide a fire; the loop goes forward from there.
    fire = next(CronSim(cron, datetime.fromtimestamp(at + 1, zone), reverse=True)).timestamp()
    while (following := next_after(cron, zone, fire)) <= at:
        fire = following
    return fire


def due(cron: str, zone: ZoneInfo, next_at: float, now: float, missed: str) -> Due:
    """Return the fires that are due now for a schedule whose next fire was `next_at`: at most one, that of the latest
    time.

    Args:
        cron: The cron text.
        zone: Its time zone.
        next_at: The next fire as stored.
        now: The present time.
        missed: `once` makes a fire however late it is, `skip` only within GRACE_S.
    """
    latest, count = next_at, 1
    for following in _times_after(cron, zone, next_at):
        if following > now:
            break
        # After a long outage of a schedule that fires each minute, counting would take longer than it is worth.
        if count == MOST_MISSED:
            latest, following = _last_until(cron, zone, now), next_after(cron, zone, now)
            break
        latest, count = following, count + 1
    makes = missed == "once" or now - latest <= GRACE_S
    return Due(latest if makes else None, count - makes, following)


def late_after(cron: str, zone: ZoneInfo, at: float) -> float:
    """Return the seconds after a fire until a result is overdue: two periods, at most an hour."""
    following = next_after(cron, zone, at)
    return min(2 * (following - at), _LATE_S)


def next_step(
    *,
    status: str,
    lease_until: float | None,
    sweep_status: str | None,
    sweep_reason: str | None,
    sweep_queued: bool | None,
) -> Step | None:
    """Return the next step of a fire, or None if nothing can be done just now.

    Args:
        status: The status of the fire.
        lease_until: When its lease ends; after the end of the fire it has one as long as a notification is due.
        sweep_status: The status of its sweep; None if it has none any more.
        sweep_reason: Why its sweep is paused.
        sweep_queued: Whether workers run its sweep.
    """
    if status in ("due", "starting"):
        return "submit"
    if status != "running":
        return "notify" if lease_until is not None else None
    if sweep_status is None or sweep_status in ENDED_SWEEPS:
        return "judge"
    if sweep_status == "paused" and is_waiting(sweep_reason):  # a nightly verdict does not wait for an outage to end
        return "judge"
    # A paused sweep waits for a person, unless it was paused only because its process died.
    died = sweep_status in ("pending", "running") or sweep_reason == PROCESS_DIED
    return "run" if died and not sweep_queued else None
