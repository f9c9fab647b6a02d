"""What requests look like, as the API's description shows it. A test sends each of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wtb.core.values import Json
from wtb.hosting.api.routes import Route

# Stand for ids, which are others in each database.
EXECUTION = "1ngb2g20kqy7"
OTHER_EXECUTION = "1ngb2g3x8d0c"
QUESTION = "1ngb2g41m5vz"
ANSWER = "5f2c0a61"
SCORING = "1ngb2g5q7d3k"
CHECKPOINT = "1ngb2g6r9f2m"

_KEYS = {
    "sweep": "triage-again",
    "workflow": "triage",
    "cases": [{"id": "invoice", "input": {"message": "My invoice is wrong"}, "expected": "billing"}],
    "vary": {"classify": "all"},
    "evaluate": [{"exact_match": {"field": "answer"}}],
}

# By a path, or its first part, and the argument.
_BY_PLACE: Mapping[tuple[str, str], Json] = {
    ("sweeps", "ref"): "triage",
    ("baselines", "ref"): "triage",
    ("executions", "ref"): EXECUTION,
    ("approvals", "ref"): QUESTION,
    ("checkpoints", "ref"): CHECKPOINT,
    ("executions", "name"): "before-the-change",
    ("/executions/{ref}/series", "name"): None,  # nothing was recorded over time
    ("/sweeps/{ref}/outputs", "keys"): ["answer"],
    ("/executions/{ref}/outputs", "keys"): ["answer"],
    ("/sweeps/{ref}/value", "key"): "message",
    ("/executions/{ref}/value", "key"): "answer",
    ("executions", "note"): "the last one with the old index",
    ("workflows", "name"): "triage",
    ("sessions", "name"): "ann",
    ("sessions", "to"): "crew",
    ("sessions", "owner"): "ann@example.com",
    ("sessions", "metadata"): {"ticket": "W-1"},
    ("projects", "name"): "search",
    ("users", "name"): "ann@example.com",
    ("teams", "name"): "core",
    ("tokens", "name"): "nightly",
    ("schedules", "name"): "nightly",
    ("baselines", "name"): "good",
    ("teams", "add"): ["ann@example.com"],
    ("access", "user"): "ann@example.com",
    ("access", "project"): "search",
    ("budgets", "project"): "search",
    ("projects", "sweeps"): "90d",
    ("tokens", "scopes"): ["read", "submit"],
    ("tokens", "budget"): {"usd": 20},
    ("executions", "other"): OTHER_EXECUTION,
    ("executions", "after"): EXECUTION,
    ("executions", "input"): {"message": "My invoice is wrong"},
    ("executions", "workflow"): "triage",
    ("sweeps", "other"): 1,
    ("pools", "refs"): ["triage", "triage-again"],
    ("sweeps", "statuses"): ["failed"],
    ("sweeps", "anyway"): True,
    ("sweeps", "evaluate"): [{"exact_match": {"field": "answer"}}],
    ("sweeps", "scoring"): SCORING,
    ("sweeps", "answer"): ANSWER,
    ("executions", "case"): None,  # it has one
    ("executions", "variants"): {"classify": "other"},
    ("/sweeps/{ref}/comments", "text"): "Right, but rude",
    ("/sweeps/{ref}/comments/{number}/delete", "number"): 1,
    ("/case-files", "cases"): {"headings": ["id", "message"], "rows": [["invoice", "My invoice is wrong"]]},
    ("/evaluators/preview", "evaluator"): {"exact_match": {"field": "answer"}},
    ("/evaluators/preview", "state"): {"answer": "billing"},
    ("/evaluators/preview", "expected"): {"answer": "billing"},
    ("audit", "before"): None,  # a number, and not a sweep
}
_BY_NAME: Mapping[str, Any] = {
    "keys": _KEYS,
    "a": EXECUTION,
    "b": OTHER_EXECUTION,
    "before": "good",
    "after": "triage",
    "case": "invoice",
    "path": "answer.txt",
    "to": "classify",
    "role": "runner",
    "limits": {"usd": 5},
    "combination": {"classify": "other"},
    "row": 0,
    "limit": 20,
    "kinds": ["sweep"],
    "severity": "info",
    "label": 1,
    "action": "approve",
    "questions": [QUESTION],
    "reason": "it answered another question",
}


def examples_of(route: Route, argument: str) -> list[Any] | None:
    """Return what an argument of a route may be, as a list of one.

    Args:
        route: It.
        argument: The argument's name.

    Returns:
        None where the example of the route leaves it out.
    """
    places = [place for place in ((route.path, argument), (route.path.split("/")[1], argument)) if place in _BY_PLACE]
    found = _BY_PLACE[places[0]] if places else _BY_NAME.get(argument)
    return None if found is None else [found]
