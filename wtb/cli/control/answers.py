"""Answering many questions at once: `wtb answer --all`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from wtb.cli import options
from wtb.cli.broker_notifier import BrokerNotifier
from wtb.cli.console import confirm, say
from wtb.cli.output import put_as
from wtb.core.errors import InputError
from wtb.core.questions import ways
from wtb.core.texts import plural, printable
from wtb.operations.control import answers as operations
from wtb.operations.control import pause_cancel
from wtb.store.control import approvals, questions
from wtb.store.read import queries
from wtb.store.runs import leases

if TYPE_CHECKING:
    from wtb.store.database import Database

Row = dict[str, Any]


@dataclass(frozen=True)
class Filters:
    """Which open questions are meant: those of a sweep, of a node, that ask the same as one or have a text in them."""

    sweep: str | None = None
    node: str | None = None
    question: str | None = None


def answer_all(
    database: Database,
    filters: Filters,
    action: str | None,
    *,
    choice: str | None,
    feedback: str | None,
    value: Any,
    yes: bool,
    broker: str | None,
    format: options.Format,
    output: Path | None,
) -> None:
    """Answer all open questions that the filters leave alike, once a person has confirmed their number.

    Exits with 1 where nothing was answered, or somebody else was quicker with some. Raises InputError.
    """
    approvals.expire(database)
    rows = _matching(database, filters)
    if not rows:
        raise InputError("no open question is left by --all with these options; `wtb approvals` lists them")
    if action is None:
        raise InputError(f"how to answer {plural(len(rows), 'question')} is missing; expected: {_ways(rows)}")
    asked = list(dict.fromkeys(printable(row["question"]) for row in rows))
    if not yes:
        for text in asked[:10]:
            say(text)
        if len(asked) > 10:
            say(f"... and {len(asked) - 10:,} other texts")
        if not confirm(f"Answer {plural(len(rows), 'question')} with {choice or action}?"):
            say("nothing was answered")
            raise typer.Exit(1)
    found = operations.answer_all(
        database, rows, action, choice=choice, feedback=feedback, value=value, by=pause_cancel.user()
    )
    answers, conflicts = found["answers"], found["conflicts"]
    put_as(found, f"answered {plural(len(answers), 'question')}: {choice or action}", format, output)
    for one in conflicts:
        say(one["because"])
    for one in _by_sweep(answers):
        report_who_continues(database, one, broker)
    if conflicts:
        raise typer.Exit(1)


def _matching(database: Database, filters: Filters) -> list[Row]:
    sweep = None if filters.sweep is None else queries.find_sweep(database, filters.sweep)["id"]
    question, text = None, filters.question
    if text is not None:
        try:
            question, text = questions.find_approval(database, text), None
        except InputError:  # no id, but what is asked
            question = None
    return questions.alike(database, sweep_id=sweep, node=filters.node, question=question, text=text)


def _ways(rows: list[Row]) -> str:
    """How the questions can be answered, where all of them can be answered so."""
    common = [set(ways(row["kind"], row["options"])) - {"modify"} for row in rows]
    every = [one for one in ways(rows[0]["kind"], rows[0]["options"]) if all(one in way for way in common)]
    return "|".join(every) or "a narrower choice of questions, since they have no answer in common"


def _by_sweep(answers: list[Row]) -> list[Row]:
    """What goes on with the answers, a row for each sweep."""
    found: dict[str, Row] = {}
    for one in answers:
        group = found.setdefault(one["sweep"], {**one, "executions": []})
        group["executions"] += one["executions"]
    return [one for one in found.values() if one["executions"]]


def report_who_continues(database: Database, found: dict[str, Any], broker: str | None) -> None:
    """Report who goes on with what waited for an answer, and notify workers."""
    sweep = queries.find_sweep(database, found["sweep"])
    count = plural(len(found["executions"]), "execution")
    if sweep["queued"] and sweep["status"] in ("pending", "running"):
        problem = BrokerNotifier(broker).notify_pending(database)
        say(f"{count} for the workers{'; ' + problem if problem else ''}")
    elif sweep["status"] == "running" and leases.runs_now(database, sweep):
        say(f"{count} can go on in the process that runs the sweep")
    else:
        say(f"{count} can go on with: wtb resume {sweep['id']}")
