"""Where the noise of a sweep with repeats comes from, and what would make its intervals narrower for the money."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from wtb.analysis.scores import Scores
from wtb.analysis.statistics.intervals import Floats
from wtb.analysis.statistics.variance import Components, components
from wtb.store.database import Database
from wtb.store.read import queries
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.matrix import Narrower, NoiseDocument
    from wtb.core.documents.workflows.graphs import WorkflowDocument


def noise_of(
    database: Database, sweep: SweepRow, metric: str, choices: Sequence[Mapping[str, str]]
) -> NoiseDocument | None:
    """The components of variance of one score by `metric`, as `noise` of the JSON contract.

    None without repeats, or where fewer than two cases have all of their scores.
    """
    repeats, scored = int(sweep.spec["repeats"]), Scores(database, sweep)
    if repeats < 2 or scored.measures[metric].passes is not None:  # one repeat has no such figure
        return None
    found_scores = scored.by_repeat(metric)
    scores = _by_repeat(found_scores[found_scores[:, 0] < len(choices)], len(choices), repeats)
    nodes = in_order(queries.workflow_graph(database, sweep.workflow_id), choices)
    shared = _common_prefixes(choices, nodes)
    parts = components(scores, shared, len(nodes))
    if parts is None:
        return None
    return {
        "metric": metric,
        "case": parts.case,
        "common": parts.common,
        "nodes": [{"node": node, "variance": part} for node, part in zip(nodes, parts.nodes, strict=True)],
        "rest": parts.rest,
        "cases": parts.cases,
        "incomplete": parts.incomplete,
        "repeats": parts.repeats,
        "narrower": _narrower(scores, parts),
    }


def in_order(graph: WorkflowDocument, choices: Sequence[Mapping[str, str]]) -> list[str]:
    """The varied nodes in the order in which a cell goes through them; empty where that is not one line of nodes.

    Combinations share what they have in common from the beginning on, so that only such a line says what two share.
    """
    varied = {node for row in choices for node in row if len({other.get(node) for other in choices}) > 1}
    following: dict[str, list[str]] = {}
    for edge in graph.get("edges", ()):
        for source in edge["from"]:
            following.setdefault(source, []).append(edge["to"])
    for branch in graph.get("branches", ()):
        following.setdefault(branch["from"], []).extend(branch["to"].values())
    names: list[str] = []
    step, seen = list(graph.get("entries", ())), set[str]()
    while step:
        reached = [node for node in step if node in varied]
        if len(reached) > 1:
            return []
        names += reached
        seen.update(step)
        step = list(dict.fromkeys(to for node in step for to in following.get(node, ()) if to not in seen))
    return names if set(names) == varied else []


def _by_repeat(scores: Floats, combinations: int, repeats: int) -> Floats:
    """Combinations x cases x repeats, NaN where there is no score."""
    cases, columns = np.unique(scores[:, 1], return_inverse=True)
    table = np.full((combinations, len(cases), repeats), np.nan)
    table[scores[:, 0].astype(int), columns, scores[:, 2].astype(int)] = scores[:, 3]
    return table


def _common_prefixes(choices: Sequence[Mapping[str, str]], nodes: Sequence[str]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Rows x rows: how many of the varied nodes two combinations have in common from the first on."""
    names = np.array([[row.get(node, "") for node in nodes] for row in choices], dtype=object)
    names = names.reshape(len(choices), len(nodes))
    same = (names[:, None, :] == names[None, :, :]).astype(np.int64)
    return np.asarray(np.cumprod(same, axis=2).sum(axis=2), dtype=np.int64)


def _narrower(scores: Floats, parts: Components) -> Narrower:
    """How wide the interval of a difference between two combinations would be, as a share of what it is.

    With twice the cases, and with twice the repeats, which cost the same.
    """
    complete = scores[:, np.isfinite(scores).all(axis=(0, 2))]
    differences = complete[1:] - complete[:1]
    if not len(differences):
        return {"cases": None, "repeats": None}
    within = float(differences.var(axis=2, ddof=1).mean())
    each = float(differences.mean(axis=2).var(axis=1, ddof=1).mean())  # of a case's mean difference
    if each <= 0:
        return {"cases": None, "repeats": None}
    less = max(each - within / (2 * parts.repeats), 0.0)
    return {"cases": math.sqrt(0.5), "repeats": max(math.sqrt(less / each), math.sqrt(0.5))}
