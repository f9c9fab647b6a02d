"""A sweep of tickets that two variants sort into classes, with figures over all cells of a row."""

from __future__ import annotations

import json

from sklearn import metrics

from tests.support.project import Project

CASES = 60
KINDS = ("refund", "delay", "praise")
FLOW = f"""
from wtb import Workflow

KINDS = {KINDS!r}
wf = Workflow("tickets")


@wf.node
def classify(state, *, every: int = 4):
    x = state["x"]
    wrong = x % every == 0
    return {{"kind": KINDS[(x + wrong) % 3], "p": 0.5 + (0.4 if x % 3 == 0 else -0.4) * (-0.25 if wrong else 1)}}


classify.variant("better", every=8)
wf.entry(classify)
"""
CASE_LINES = [
    {"id": f"c{x}", "input": {"x": x}, "expected": {"kind": KINDS[x % 3], "p": x % 3 == 0}} for x in range(CASES)
]
FIGURES = [{"macro_f1": {"field": "kind"}}, {"auc": {"field": "p"}}, {"calibration_error": {"field": "p"}}]
SWEEP = {"sweep": "tickets", "workflow": "tickets:wf", "cases": "cases.jsonl", "vary": {"classify": "all"}}


def expected(every: int) -> dict[str, float]:
    """Two of the figures by scikit-learn."""
    truth = [x % 3 for x in range(CASES)]
    labels = [(x + (x % every == 0)) % 3 for x in range(CASES)]
    scores = [0.5 + (0.4 if x % 3 == 0 else -0.4) * (-0.25 if x % every == 0 else 1) for x in range(CASES)]
    return {
        "macro_f1": metrics.f1_score(truth, labels, average="macro"),
        "auc": metrics.roc_auc_score([label == 0 for label in truth], scores),
    }


def written(folder: Project, **more: object) -> None:
    cases = "".join(json.dumps(case) + "\n" for case in CASE_LINES)
    sweep = json.dumps({**SWEEP, "evaluate": FIGURES, **more})
    folder.write({"tickets.py": FLOW, "cases.jsonl": cases, "sweep.yaml": sweep})
