"""Cases in a terminal: a file of them, what evaluators make of them, and what an extension of a sweep adds."""

from __future__ import annotations

import json
from collections.abc import Mapping

from wtb.core.documents.workflows import CaseFileDocument, EvaluatorPreviewDocument
from wtb.core.frozen import frozen
from wtb.core.texts import cut_one, listed_names, money, plural, printable
from wtb.core.tree.combinations import in_words
from wtb.display.tables import grid, wrapped

_LONGEST = 60


def render(document: CaseFileDocument, width: int) -> str:
    """Return the text of a file of cases.

    Args:
        document: From `read_case_file`.
        width: Columns of the terminal.
    """
    blank = f", {plural(document['blank_rows'], 'blank row')} skipped" if document["blank_rows"] else ""
    parts = [f"{printable(document['name'])}: {plural(document['cases'], 'case')}{blank}\n"]
    if document["columns"] is not None:
        rows = [
            [
                column["heading"],
                f"{column['key'] or '-'}{' (offered)' if column['offered'] else ''}",
                " | ".join(_cut(text) for text in column["examples"][:2]),
            ]
            for column in document["columns"]
        ]
        parts.append(grid(["column", "read as", "values"], rows, width))
    if any(column["offered"] for column in document["columns"] or ()):
        parts.append(
            "In the sweep file this is:\n" + f"columns: {json.dumps(document['mapping'], ensure_ascii=False)}\n"
        )
    if document["preview"]:
        rows = [[case["id"], _text(case["input"]), _text(case["expected"])] for case in document["preview"]]
        parts.append(grid(["case", "input", "expected"], rows, width))
    parts += ["\n".join([*wrapped(f"problem: {problem}", width), ""]) for problem in document["problems"]]
    return "\n".join(parts)


def _text(content: object) -> str:
    if content is None:
        return "-"
    return _cut(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False))


def _cut(text: str) -> str:
    return cut_one(" ".join(text.split()), _LONGEST, 0)


def preview_in_words(document: EvaluatorPreviewDocument) -> str:
    """Return a line for each score, or why there is none."""
    name = printable(document["evaluator"])
    if document["runs"] == "workers":
        return f"{name}: not tried, {document['reason']}\n"
    if document["needs_expected"]:
        return f"{name}: no score, since there is no expected value\n"
    lines = []
    for score in document["scores"]:
        scale = "" if score["scale"] is None else f" on a scale from {score['scale'][0]:g} to {score['scale'][1]:g}"
        score_text = f"{score['value']:g}{scale}" if score["value"] is not None else score["error"] or score["observed"]
        lines.append(f"{printable(score['metric'])}: {printable(score_text)}\n")
    return "".join(lines)


_MAX_LISTED = 10  # combinations that are listed
Amount = tuple[float, float | None]  # at least, and at most; None if there is no bound


@frozen
class PlannedExtension:
    """A planned extension, as `extend` would add it.

    Attributes:
        sweep: The id of the sweep.
        name: Its name.
        cases: How many cases are new.
        present: How many of the given cases are there already, with the same content.
        held_out: How many of them `holdout` leaves out.
        combinations: The new combinations.
        repeats: How many repeats there would be.
        cells: How many cells would be added.
        node_runs: How many node runs they take, at least and at most; None if there is no bound.
        usd: The same in US dollars, by what node runs of this sweep have cost; None if that is not known.
        notes: Sentences about the cases and variants.
    """

    sweep: str
    name: str
    cases: int
    present: int
    held_out: int
    combinations: tuple[Mapping[str, str], ...]
    repeats: int
    cells: int
    node_runs: Amount
    usd: Amount | None
    notes: tuple[str, ...]


@frozen
class AddedExtension(PlannedExtension):
    """An extension that was added.

    Attributes:
        executions: How many executions are to run.
        failed: How many cells failed before they came to what differs, as those of other combinations did.
        restarted: How many cells of stopped combinations run again.
        queued: Whether workers run them.
        status: Of the sweep now.
        problem: Why workers could not be reached; None if they were, or none are needed.
    """

    executions: int
    failed: int
    restarted: int
    queued: bool
    status: str
    problem: str | None = None


def planned_in_words(planned: PlannedExtension) -> str:
    """Return what an extension would add, as lines."""
    lines = [
        f"{planned.name} ({planned.sweep}): {plural(planned.cells, 'new cell')}{_of_what(planned)}",
        f"node runs: {_range(planned.node_runs)}; cells that are there stay as they are",
        "price: " + ("not known" if planned.usd is None else f"about {_price(planned.usd)}, by what this sweep cost"),
        *(f"  {in_words(choices)}" for choices in planned.combinations[:_MAX_LISTED]),
    ]
    if len(planned.combinations) > _MAX_LISTED:
        lines.append(f"  and {len(planned.combinations) - _MAX_LISTED:,} more combinations")
    return "\n".join([*map(printable, lines), *_notes(planned)])


def added_in_words(added: AddedExtension, *, has_run: bool) -> list[str]:
    """Return what an extension has added, and who runs it, as lines."""
    name = f"sweep {added.name} ({added.sweep})"
    restarts = (
        [f"{name}: {plural(added.restarted, 'cell')} of stopped combinations run again"] if added.restarted else []
    )
    if not added.cells:
        tail = [_who_runs(added)] if restarts and not has_run else []
        return [*(restarts or [f"{name}: nothing new to add"]), *tail, *_notes(added)]
    lines = [
        f"{name}: {plural(added.cells, 'cell')} added{_of_what(added)} (about {_range(added.node_runs)} node runs)"
    ]
    if added.failed:
        lines.append(f"{plural(added.failed, 'cell')} failed before they differ, as those of other combinations did")
    if not has_run:
        lines.append(_who_runs(added))
    return [*map(printable, [*restarts, *lines]), *_notes(added)]


def _of_what(planned: PlannedExtension) -> str:
    parts = []
    if planned.cases:
        parts.append(plural(planned.cases, "case"))
    if planned.combinations:
        parts.append(plural(len(planned.combinations), "combination"))
    return f" of {listed_names(parts)}" if parts else ""


def _notes(planned: PlannedExtension) -> list[str]:
    notes = list(planned.notes)
    if planned.held_out:
        notes.insert(0, f"{plural(planned.held_out, 'case')} left out: the holdout decides which of them run")
    if planned.present:
        notes.insert(0, f"{plural(planned.present, 'case')} in the sweep already: skipped")
    return [printable(f"note: {note}") for note in notes]


def _range(amount: Amount) -> str:
    low, high = amount
    if high is None:
        return f"at least {low:,.0f}"
    return f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"


def _price(amount: Amount) -> str:
    low, high = amount
    if high is None:
        return f"at least {money(low)}"
    return money(low) if low == high else f"{money(low)} to {money(high)}"


def _who_runs(added: AddedExtension) -> str:
    if added.status == "paused":
        return f"it waits, since the sweep is paused: wtb resume {added.sweep}"
    if added.queued:
        because = f"; {added.problem}" if added.problem else ""
        return f"it is for the workers{because}; follow it with: wtb watch {added.sweep}"
    return f"run it with: wtb resume {added.sweep}"
