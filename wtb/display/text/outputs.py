"""Outputs side by side in a terminal, and what people say of them: comments and labels."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from wtb.core import texts
from wtb.core.texts import MISSING, plural, printable
from wtb.core.tree.combinations import in_words
from wtb.display.tables import wrapped

if TYPE_CHECKING:
    from wtb.core.documents.outputs import (
        CaseOutputs,
        CellComment,
        CellOutputs,
        CommentsDocument,
        OutputsDocument,
        OutputValue,
    )

LINES: Final = 6  # of a value
_MORE = "…"


def outputs(document: OutputsDocument, width: int, color: bool = False) -> str:
    """Return a page of outputs, case by case, in at most `width` columns."""
    first, last = document["offset"] + 1, document["offset"] + len(document["cases"])
    if not document["cases"]:
        return "no case matches\n" if not document["total"] else f"there are only {document['total']:,} that match\n"
    names = _names(document)
    lines: list[str] = []
    for case in document["cases"]:
        lines += [*_case(case, document, width), ""]
        for cell, name in zip(case["cells"], names, strict=True):
            lines += _cell(cell, name, document, width, color)
        lines.append("─" * min(width, 78))
    what = "cases" if document["repeats"] == 1 else "cases x repeats"
    lines.append(f"{first:,} to {last:,} of {document['total']:,} {what}{_rest(document, last)}")
    return "\n".join(lines) + "\n"


def _rest(document: OutputsDocument, last: int) -> str:
    rest = f"; more with --offset {last}" if last < document["total"] else ""
    left_out = document["combinations"] - len(document["rows"])
    return rest + (f"; {plural(left_out, 'combination')} not shown (--row)" if left_out else "")


def _names(document: OutputsDocument) -> list[str]:
    """The combinations by the nodes in which they differ."""
    every = [row["combination"] for row in document["rows"]]
    nodes = [node for node in every[0] if len({choices.get(node) for choices in every}) > 1] or list(every[0])
    return [in_words({node: choices[node] for node in nodes if node in choices}) for choices in every]


def _case(case: CaseOutputs, document: OutputsDocument, width: int) -> Iterator[str]:
    tags = f"  [{', '.join(case['tags'])}]" if case["tags"] else ""
    repeat = f", repeat {case['repeat']}" if document["repeats"] > 1 else ""
    yield from wrapped(f"case {case['case']}{repeat}{tags}", width)
    for key, output in case["input"].items():
        yield from _value(f"{key}: ", output, width, "  ")
    if case["expected"] is not None:
        yield from _value("expected: ", case["expected"], width, "  ")


def _cell(cell: CellOutputs | None, name: str, document: OutputsDocument, width: int, color: bool) -> Iterator[str]:
    if cell is None:
        yield from wrapped(f"{name}  {MISSING}", width)
        return
    figures = [
        f"{printable(metric)} {_score(cell, metric)}" for metric in document["metrics"] if metric in cell["scores"]
    ]
    if cell["latency_s"] is not None:
        figures.append(texts.duration(cell["latency_s"]))
    if cell["cost_usd"]:
        figures.append(texts.money(cell["cost_usd"]))
    status = "" if cell["status"] == "succeeded" else f"  {texts.colored(cell['status'], cell['status'], color)}"
    yield from wrapped(name, width)
    if figures or status:
        yield from (f"  {line}" for line in wrapped(" · ".join(figures), width - 2))
    if status:
        yield f"{status}"
    for text in _reasons(cell):
        yield from wrapped(text, width, "    ")[:LINES]
    for key, output in cell["outputs"].items():
        yield from _value(f"{key}: " if len(document["keys"]) > 1 else "", output, width, "    ")
    for comment in cell.get("comments", []):
        yield from wrapped(_comment(comment), width, "    ")


def _reasons(cell: CellOutputs) -> Iterator[str]:
    """Yield the error of a cell and the reasons for its scores."""
    if cell["error"]:
        yield cell["error"]
    for metric, score in cell["scores"].items():
        if score["reason"]:
            yield f"{metric}: {score['reason']}"


def comments(document: CommentsDocument, width: int) -> str:
    """Return the comments of a sweep, each below its cell."""
    if not document["comments"]:
        return "no comments\n"
    lines: list[str] = []
    for comment in document["comments"]:
        repeat = f", repeat {comment['repeat']}" if comment["repeat"] else ""
        lines += wrapped(f"case {comment['case']}, row {comment['row']}{repeat}", width)
        lines += wrapped(_comment(comment), width, "    ")
    return "\n".join(lines) + "\n"


def _comment(comment: CellComment) -> str:
    return f"comment {comment['number']} by {comment['by']}, {texts.moment(comment['at'])}: {comment['text']}"


def _score(cell: CellOutputs, metric: str) -> str:
    score = cell["scores"][metric]["value"]
    return MISSING if score is None else texts.score(score)


def _value(label: str, output: OutputValue, width: int, indent: str) -> list[str]:
    """A value in a few lines, with how long it is if that is not all of it."""
    lines = wrapped(label + _text(output["value"]), width, indent)
    if len(lines) > LINES or output["cut"]:
        more = f"{_MORE} {output['bytes']:,} bytes"
        # The last of the lines has the size of the whole value.
        return [*lines[: LINES - 1], f"{indent}{more}"]
    return lines


def _text(content: Any) -> str:
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
