"""When schedules fire: cron texts, time zones, what is due after a while, and what a fire needs next. Pure.

Times are seconds since the epoch. A local time that a clock change leaves out fires at the first one after it; one that
comes twice fires once, the first time. Only schedules that say `*` for the minute or the hour go by real time instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from cronsim import CronSim, CronSimError

from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError, did_you_mean
from wtb.core.providers.faults import is_waiting
from wtb.core.status import ENDED_SWEEPS
from wtb.core.stop import PROCESS_DIED

GRACE_S = 600.0  # a fire that is later than this was missed
MOST_MISSED = 1_000  # more are not counted
TRIES = 3  # processes that may die while they carry out a fire
BAD = ("worse", "failed")
_LATE_S = 3_600.0

Step = Literal["submit", "run", "judge", "notify"]


@frozen
class Due:
    """What is due. fire_at: the fire to make, or None; missed: how many others there would have been."""

    fire_at: float | None
    missed: int
    next_at: float


def check_name(name: str) -> None:
    """Raises InputError where a schedule must not have this name."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", name):
        raise InputError(
            f"{name!r} cannot be the name of a schedule; expected 1 to 64 letters, digits, '.', '_' or '-', not "
            f"beginning with '.' or '-'"
        )


def check_cron(text: str) -> str:
    """A cron text in one form. Raises InputError."""
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
        raise InputError(f"cron {text!r} never fires", argument="cron") from None
    return cron


def zone_of(name: str) -> ZoneInfo:
    """A time zone. Raises InputError with a near match."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        near = did_you_mean(name, available_timezones())
        raise InputError(f"there is no time zone {name!r}{near or ', expected such as Europe/Berlin'}") from None


def in_words(cron: str) -> str:
    """`At 03:00 every day`."""
    return CronSim(cron, datetime(2024, 1, 1)).explain()


def next_after(cron: str, zone: ZoneInfo, at: float) -> float:
    """The first fire after a moment."""
    return next(_times_after(cron, zone, at))


def _times_after(cron: str, zone: ZoneInfo, at: float) -> Iterator[float]:
    """Yield the times of a cron text, strictly increasing also where the clock is set back."""
    for moment in CronSim(cron, datetime.fromtimestamp(at, zone)):
        fire = moment.timestamp()
        if fire > at:  # else the clock was set back meanwhile
            yield fire
            at = fire


def _last_until(cron: str, zone: ZoneInfo, at: float) -> float:
    """The last fire until a moment, that one included."""
    fire = next(CronSim(cron, datetime.fromtimestamp(at + 1, zone), reverse=True)).timestamp()
    while (following := next_after(cron, zone, fire)) <= at:
        fire = following
    return fire


def due(cron: str, zone: ZoneInfo, next_at: float, now: float, missed: str) -> Due:
    """What is due now of a schedule whose next fire was `next_at`: at most one fire, that of the latest time.

    missed: `once` makes it however late it is, `skip` only within GRACE_S.
    """
    latest, count = next_at, 1
    for following in _times_after(cron, zone, next_at):
        if following > now:
            break
        if count == MOST_MISSED:
            latest, following = _last_until(cron, zone, now), next_after(cron, zone, now)
            break
        latest, count = following, count + 1
    makes = missed == "once" or now - latest <= GRACE_S
    return Due(latest if makes else None, count - makes, following)


def late_after(cron: str, zone: ZoneInfo, at: float) -> float:
    """How long after a fire something must have come of it: two periods, at most an hour."""
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
    """Return what a fire needs next, or None if nothing can be done about it just now.

    Args:
        status: The fire's.
        lease_until: When its lease ends; after its end it has one as long as a notification is due.
        sweep_status: Of its sweep; None if it has none any more.
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
    # One that was paused waits for a person, but not one that was on the point of being gone on with.
    died = sweep_status in ("pending", "running") or sweep_reason == PROCESS_DIED
    return "run" if died and not sweep_queued else None
