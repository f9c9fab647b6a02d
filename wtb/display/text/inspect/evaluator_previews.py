"""What an evaluator gives for one output, as text."""

from __future__ import annotations

from wtb.core.documents.workflows.new_sweeps import EvaluatorPreviewDocument
from wtb.core.texts import printable


def preview_in_words(document: EvaluatorPreviewDocument) -> str:
    """Return a line for each score, or why there is none."""
    name = printable(document["evaluator"])
    if document["runs"] == "workers":
        return f"{name}: not tried, {document['reason']}\n"
    if document["needs_expected"]:
        return f"{name}: no score, since there is no expected value\n"
    lines = []
    for one in document["scores"]:
        scale = "" if one["scale"] is None else f" on a scale from {one['scale'][0]:g} to {one['scale'][1]:g}"
        value = f"{one['value']:g}{scale}" if one["value"] is not None else one["error"] or one["observed"]
        lines.append(f"{printable(one['metric'])}: {printable(value)}\n")
    return "".join(lines)
