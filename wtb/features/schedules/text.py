"""Schedules in a terminal: the list, one of them, and the history of one as a chart and a table. Pure."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from wtb.core.cron import BAD, in_words, next_after
from wtb.core.documents import administration as documents
from wtb.core.texts import printable
from wtb.display.figures import decimals_of, number
from wtb.display.tables import facts, grid, wrapped

HEIGHT = 9  # lines of a chart
_LABEL = 9
_PLAIN = str.maketrans("●×│▲┤└─–…", "ox|^++--.")


def moment(at: float | str | None, tz: str, *, zone: bool = True) -> str:
    """Return a time in a time zone, to the minute, or a dash for none. zone: Add the short name of the zone."""
    if at is None:
        return "–"
    seconds = at if isinstance(at, float) else datetime.fromisoformat(str(at)).timestamp()
    return datetime.fromtimestamp(seconds, ZoneInfo(tz)).strftime("%Y-%m-%d %H:%M %Z" if zone else "%Y-%m-%d %H:%M")


def listed(document: documents.SchedulesDocument, width: int, color: bool = False) -> str:
    """Return the table of schedules by name."""
    headers = ["name", "cron", "time zone", "next", "last", "came to"]
    rows = []
    for schedule in document["schedules"]:
        last, tz = schedule["last"], schedule["tz"]
        following = "paused" if schedule["status"] == "paused" else moment(schedule["next_at"], tz, zone=False)
        came = "" if last is None else last["verdict"] or last["status"]
        latest = moment(last and last["fire_at"], tz, zone=False)
        rows.append([schedule["name"], schedule["cron"], tz, following, latest, came])
    return grid(headers, rows, width, whole={"next", "last", "came to"}, color=color)


def schedule_details(document: documents.OneScheduleDocument, width: int, color: bool = False) -> str:
    """Return the details of a schedule: its times, its sweep and its last outcome."""
    schedule = document["schedule"]
    tz, last = schedule["tz"], schedule["last"]
    title = printable(schedule["name"]) + (" (paused)" if schedule["status"] == "paused" else "")
    margin = ", ".join(f"{metric} {figure:g}" for metric, figure in schedule["margin"].items())
    baseline = "its last good fire" if schedule["baseline"] == "last" else schedule["baseline"]
    pairs = [
        ("when", f"{in_words(schedule['cron'])} ({schedule['cron']}), {tz}"),
        ("next", ", ".join(_next(schedule))),
        ("missed", "made up for once" if schedule["missed"] == "once" else "skipped"),
        ("file", schedule["file"]),
        ("folder", schedule["folder"]),
        ("session", schedule["session"]),
        ("run by", "workers" if schedule["queued"] else "the scheduler"),
        ("baseline", baseline or "none"),
        ("margin", margin),
        ("notify", schedule["notify"] or ""),
        ("last", "" if last is None else _outcome(last, tz)),
    ]
    return title + "\n" + facts(pairs, width) + f"more: wtb schedule history {shlex.quote(schedule['name'])}\n"


def _next(schedule: documents.ScheduleDocument) -> list[str]:
    moments = []
    if schedule["next_at"] is not None:
        at = datetime.fromisoformat(schedule["next_at"]).timestamp()
        for _ in range(3):
            moments.append(moment(at, schedule["tz"]))
            at = next_after(schedule["cron"], ZoneInfo(schedule["tz"]), at)
    return moments


def fired(document: documents.FiredDocument, width: int, color: bool = False) -> str:
    """Return the outcome of one fire as text."""
    text = f"{document['schedule']}: {_outcome(document['fire'], document['tz'])}"
    return "\n".join(wrapped(text, width)) + "\n"


def _outcome(fire: documents.FireDocument, tz: str) -> str:
    because = f": {'; '.join(fire['because'])}" if fire["because"] else ""
    because += f"; no notification: {fire['notification_error']}" if fire["notification_error"] else ""
    sweep = f" (sweep {fire['sweep']})" if fire["sweep"] else ""
    return f"{fire['verdict'] or fire['status']} at {moment(fire['fire_at'], tz)}{because}{sweep}"


def history(document: documents.ScheduleHistoryDocument, width: int, color: bool = False) -> str:
    """Return the fires of a schedule: a chart of the metric, and a table, the newest first."""
    fires = document["fires"]
    if not fires:
        return f"{printable(document['schedule'])}: no fires yet\n"
    text = "\n".join(chart(document, width))
    times = [moment(fire["fire_at"], document["tz"]) for fire in fires]
    years = {time[:5] for time in times}
    at, short = (f"fire in {times[0][:4]}", 5) if len(years) == 1 else ("fire", 0)
    metric, digits = printable(document["metric"] or "metric"), _digits(fires)
    rows = [
        [
            time[short:] + (" by hand" if fire["manual"] else ""),
            fire["verdict"] or fire["status"],
            _figure(fire, digits),
            fire["sweep"] or "",
            ", ".join(fire["code_changed"]),
        ]
        for time, fire in zip(times, fires, strict=True)
    ]
    notes = ["; ".join(fire["because"]) if fire["verdict"] in BAD else "" for fire in fires]
    headers = [at, "came to", metric, "sweep", "new code"]
    table = grid(headers, rows[::-1], width, whole={at, metric, "sweep"}, notes=notes[::-1], color=color)
    return f"{text}\n\n{table}" if text else table


def plain(text: str) -> str:
    """Return a history in ASCII, for a terminal that shows no more."""
    return text.translate(_PLAIN).encode("ascii", "replace").decode()


def _digits(fires: Sequence[documents.HistoricFire]) -> int:
    return decimals_of(
        [fire["mean"] for fire in fires if fire["mean"] is not None],
        [end for fire in fires for end in fire["ci"] or ()],
    )


def _figure(fire: documents.HistoricFire, digits: int) -> str:
    if fire["mean"] is None:
        return ""
    ends = f" [{number(fire['ci'][0], digits)}, {number(fire['ci'][1], digits)}]" if fire["ci"] else ""
    return f"{number(fire['mean'], digits)}{ends}"


def chart(document: documents.ScheduleHistoryDocument, width: int) -> list[str]:
    """Return the metric by fire, the oldest left, with its intervals; nothing if fewer than two fires have it.

    Marks differ in shape, not in colour. The last fires are shown where not all have room.
    """
    room = width - _LABEL - 2
    fires = list(document["fires"])[-room:]
    scored = [fire for fire in fires if fire["mean"] is not None]
    if len(scored) < 2:
        return []
    reference = document.get("reference")
    fixed = None if reference is None else reference["mean"]
    ends = [end for fire in scored for end in (fire["mean"], *(fire["ci"] or ()))]
    ends += [] if fixed is None else [fixed]
    low, high = min(ends), max(ends)
    if low == high:
        low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
    step = max(1, min(3, room // len(fires)))
    columns = [_column(fire, low, high) for fire in fires]
    labels = {at: _label(high - (high - low) * at / (HEIGHT - 1), high - low) for at in (0, HEIGHT // 2, HEIGHT - 1)}
    title = f"{printable(document['metric'])} by fire: ● mean, │ 95% interval, × worse or failed, ▲ new code"
    title += "" if fixed is None else f", ─ fixed reference {number(fixed, _digits(scored))}"
    level = None if fixed is None else round((high - fixed) / (high - low) * (HEIGHT - 1))
    lines = [*wrapped(title, width)]
    for place in range(HEIGHT):
        body = "".join(column[place].center(step) for column in columns)
        body = body.replace(" ", "─") if place == level else body
        lines.append(f"{labels.get(place, ''):>{_LABEL}} {'┤' if place in labels else '│'}{body}".rstrip())
    lines.append(f"{'':{_LABEL}} └{'─' * (step * len(fires))}")
    marks = "".join(_mark(fire).center(step) for fire in fires).rstrip()
    lines += [f"{'':{_LABEL}}  {marks}"] if marks else []
    first, last = (moment(fire["fire_at"], document["tz"])[:10] for fire in (fires[0], fires[-1]))
    lines.append(f"{'':{_LABEL}}  " + (first if first == last else f"{first} to {last}"))
    return lines


def _label(score: float, span: float) -> str:
    """Return a value with enough decimals to differ from its neighbours, in at most _LABEL columns."""
    text = f"{score:,.{max(0, 2 - math.floor(math.log10(span)))}f}"
    return text if len(text) <= _LABEL else f"{score:.2g}"


def _column(fire: documents.HistoricFire, low: float, high: float) -> Sequence[str]:
    column = [" "] * HEIGHT
    if fire["mean"] is None:
        return column

    def place(score: float) -> int:
        return round((high - score) / (high - low) * (HEIGHT - 1))

    if fire["ci"]:
        for at in range(place(fire["ci"][1]), place(fire["ci"][0]) + 1):
            column[at] = "│"
    column[place(fire["mean"])] = "×" if fire["verdict"] in BAD else "●"
    return column


def _mark(fire: documents.HistoricFire) -> str:
    """Return the mark below a fire: that its code is new, or that it failed where the chart shows nothing of it."""
    if fire["code_changed"]:
        return "▲"
    return "×" if fire["verdict"] in BAD and fire["mean"] is None else " "
