"""The forms of the report, for handmade documents: round scales, odd figures, large sweeps, hostile text."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.display.test_render import Tags
from tests.support import documents
from tests.support.prose import sentence
from tests.support.report_page import Look
from wtb.analysis.failure_causes import alike
from wtb.display import markdown, notebook
from wtb.display.report import junit, report_files
from wtb.display.report.matrix_tables import concerned

UNKNOWN: dict[str, Any] = dict.fromkeys(
    ("mean", "ci", "delta", "delta_ci", "p", "p_adjusted", "effect", "detectable"), None
)


def evidence(vary: dict[str, list[str]], metrics: dict[str, str], *, scored: bool = True) -> dict[str, Any]:
    """A document like that of `gather`, with figures that rise from row to row; unless `scored`, none is known."""
    rows: list[dict[str, Any]] = []
    for i, names in enumerate(itertools.product(*vary.values())):
        figures = {
            "n": 9,
            "n_pairs": 9,
            "mean": i / 7,
            "ci": [i / 7 - 0.1, i / 7 + 0.1],
            "delta": i / 7,
            "delta_ci": [0.0, i / 3],
            "p": 0.5,
            "p_adjusted": 1.0,
            "effect": None,
            "detectable": None,
        }
        rows.append(
            {
                "combination": dict(zip(vary, names, strict=True)),
                "n": 9,
                "failed": 0,
                "cost_usd": 0.001 * i if scored else None,
                "cost_failed_usd": 0.0,
                "cost_per_success_usd": 0.001 * i if scored else None,
                "latency_s": {"p50": 0.01 if scored else None, "p95": 0.01 if scored else None},
                "metrics": {metric: figures if scored else {"n": 0, "n_pairs": 0, **UNKNOWN} for metric in metrics},
            }
        )
    first = rows[0]["combination"] if rows else None
    cells = {"total": 9 * len(rows), "succeeded": 9 * len(rows), "failed": 0, "set_aside": 0}
    best = {metric: {"combination": rows[-1]["combination"] if scored else None, "clear": scored} for metric in metrics}
    nothing = {"metric": "", "cases": 0, "missing": 0, "nodes": [], "interactions": [], "unexplained": None}
    return {
        "version": 1,
        "made_at": "2026-01-01T00:00:00+00:00",
        "matrix": documents.whole_matrix(
            {
                "version": 1,
                "sweep": {"id": "1a", "name": "s", "status": "completed", "started_at": None, "finished_at": None},
                "cells": cells,
                "node_runs": {"executed": 1, "unshared": 2, "attempts": 1, "by_node": {}},
                "cost": {"usd": 0.0, "unshared_usd": 0.0, "tokens_in": 0, "tokens_out": 0},
                "baseline": first,
                "rows": rows,
                "primary": next(iter(metrics), None),
                "primary_named": False,
                "best": best,
                "metrics": {metric: {"better": better} for metric, better in metrics.items()},
                "front": {metric: [len(rows) - 1] for metric in metrics},
                "choice": None,
                "warnings": [],
            }
        ),
        "gates": [
            {"gate": "m.mean > 1", "holds": None, "values": {"m.mean": None}, "because": "nothing is scored by m"}
        ],
        "attribution": {
            metric: {**nothing, "metric": metric, "sentences": [], "because": "cannot tell: one case"}
            for metric in metrics
        },
        "pairs": {metric: {"rows": [], "pairs": []} for metric in metrics},
        "tree": {"nodes": [], "levels": None, "folded": [], "because": "no node has run yet"},
        "worst": {"metric": None, "better": None, "cases": [], "because": "nothing was evaluated"},
        "failures": {"cells": [], "scores": [], "unscored": [], "left_out": 0},
        "provenance": {
            "sweep": {"id": "1a", "status": "completed", "project": None, "session": "default", "reason": None}
            | {"created_at": None, "finished_at": None},
            "workflow": "a:b",
            "graph": {},
            "fingerprints": {},
            "size": {"combinations": len(rows), "cases": 9, "repeats": 1, "cells": 9 * len(rows)},
            "environment": None,
            "because": "the sweep recorded no versions",
            "folder": None,
            "settings": "sweep: s\n",
            "command": None,
            "command_because": "its cases are not kept",
        },
        "history": {"sweeps": [], "metrics": {}, "left_out": 0, "because": "there is no earlier sweep"},
    }


def embedded(text: str) -> Any:
    """The data of a page."""
    return json.loads(text.partition('id="evidence">')[2].partition("</script>")[0])


@pytest.mark.parametrize("vary", [{"a": ["x", "y"], "b": ["1", "2", "3"]}, {"a": ["only"]}, {}])
@pytest.mark.parametrize("metrics", [{"m": "higher", "n": "lower"}, {}])
@pytest.mark.parametrize("scored", [True, False])
def test_every_form_is_whole_whatever_is_unknown(
    vary: dict[str, list[str]], metrics: dict[str, str], scored: bool
) -> None:
    document = evidence(vary, metrics, scored=scored)
    text = Tags(report_files.render(document)).text
    assert "None" not in text
    assert "nan" not in text
    assert sentence("nothing is scored by {}", "m") in text, "why a gate cannot be told"
    assert ElementTree.fromstring(junit.render(document).encode()).get("failures") == "1"
    assert "None" not in markdown.report(document)


def test_a_sweep_of_very_many_combinations_stays_a_small_file() -> None:
    vary = {f"{node} {'long ' * 30}": [f"{variant} {'longer ' * 25}" for variant in range(10)] for node in "abc"}
    document = evidence(vary, {f"metric {'m' * 100} {number}": "higher" for number in range(20)})
    text = report_files.render(document)
    assert len(text.encode()) < 3_000_000
    content = embedded(text)
    assert len(content["shown"]) == 201
    assert [number for number, row in enumerate(content["evidence"]["matrix"]["rows"]) if row["metrics"]] == content[
        "shown"
    ]
    assert len(content["evidence"]["matrix"]["metrics"]) == 12
    assert len(markdown.report(document).encode()) < 65_536, "what a comment on GitHub may have"


def test_text_that_no_xml_can_hold_is_replaced() -> None:
    document = evidence({"a": ["x", "y"]}, {})
    document["matrix"]["warnings"] = ["bell \x07, half \ud800, </testsuite>"]
    properties = ElementTree.fromstring(junit.render(document).encode()).iter("property")
    assert [property_node.get("value") for property_node in properties][-1] == "bell \ufffd, half \ufffd, </testsuite>"


def test_messages_that_differ_by_case_are_one_cause() -> None:
    assert alike("case 3: no 'Paris' at 0x7f12 after 1.5 s") == alike("case 12: no 'Rome' at 0xab after 22.75 s")
    assert alike("no key") != alike("no value")
    message = r"'ascii' codec can't encode character '{}' in position {}: ordinal not in range(128)"
    assert (
        alike(message.format(r"\u2014", 12)) == alike(message.format(r"\xfc", 8)) != alike("'ascii' codec can't encode")
    )
    assert alike(r"bad byte \x9f in b'a'") == alike(r"bad byte \x80 in b'bc'")


def test_a_combination_of_which_scores_or_cells_failed_fails_and_says_so() -> None:
    document = evidence({"a": ["x", "y", "z"]}, {"m": "higher"})
    document["matrix"]["rows"][1]["failed"] = 3
    document["failures"]["unscored"] = [{"combination": 2, "metric": "m", "scores": 1, "message": "KeyError: 'gold'"}]
    document["failures"]["scores"] = [{"scores": 1, "metric": "m", "message": "KeyError: 'gold'", "combinations": [2]}]
    _, x, y, z = ElementTree.fromstring(junit.render(document).encode()).iter("testcase")
    assert x.find("failure") is None
    messages = [failure.get("message") for case in (y, z) for failure in case.iter("failure")]
    assert messages == [sentence("{} of {} cells failed", 3, 9), sentence("{} of {} failed", "1 score", "m")]
    assert z.findtext("failure") == "m: KeyError: 'gold'"
    text = markdown.report(document)
    assert "| a | failed | m ↑ |" in text
    assert "1 score of m failed: KeyError: 'gold' (every combination with a=z)" in text


def test_what_failed_is_named_by_what_it_has_in_common() -> None:
    matrix = evidence({"a": ["x", "y"], "b": ["1", "2"]}, {})["matrix"]
    assert concerned(matrix, [0, 1, 2, 3]) == "all combinations"
    assert concerned(matrix, [1, 3]) == sentence("every combination with {}={}", "b", 2)
    assert concerned(matrix, [0, 3]) == "a=x b=1; a=y b=2"


HOSTILE = "</script></style>\"'><script>alert(1)</script>\x1b[31m\n@x"


def hostile_evidence() -> dict[str, Any]:
    """A document in which no section is empty and all text of users is hostile."""
    document = evidence({HOSTILE: [HOSTILE, "x"], "b": ["1", "2"]}, {HOSTILE: "higher"})
    matrix = document["matrix"]
    matrix["sweep"] |= {"id": HOSTILE, "name": HOSTILE, "status": HOSTILE}
    matrix |= {"warnings": [HOSTILE], "primary": HOSTILE}
    matrix["node_runs"]["by_node"] = {HOSTILE: {"executed": 1, "unshared": 2, "attempts": 1, "lag_s": {}}}
    causes = [{"node": HOSTILE, "type": HOSTILE, "message": HOSTILE, "cells": 2, "retry": True}]
    matrix["failures"] = {"causes": [{**causes[0], "example": {"command": HOSTILE}}], "more": 0}
    part = {"mean": 0.5, "delta": 0.1, "p_adjusted": 0.01}
    tags = [{"tag": HOSTILE, "cases": 4, "rows": [part] * 4}]
    matrix["slices"] = {"metric": HOSTILE, "tags": tags, "left_out": 1}
    example = {"case": HOSTILE, "execution": HOSTILE}
    failed = {**causes[0], "combinations": [1], "set_aside": 1, "example": example}
    scores = [{"metric": HOSTILE, "message": HOSTILE, "scores": 1, "combinations": [1]}]
    document["failures"] |= {"cells": [failed], "scores": scores}
    end = {"combination": 0, "score": 0.1, "execution": HOSTILE}
    hard = {"case": HOSTILE, "n": 4, "mean": 0.4, "best": {**end, "combination": 1, "score": 0.9}, "worst": end}
    cases = [{**hard, "why": why, "parted": HOSTILE, "because": None} for why in ("differ", "hard")]
    document["worst"] = {"metric": HOSTILE, "better": "higher", "cases": cases, "because": None}
    cut_text = {"text": HOSTILE, "cut": 3}
    step = {"node": HOSTILE, "variant": HOSTILE, "status": HOSTILE, "error": HOSTILE}
    call = {"node": HOSTILE, "model": HOSTILE, "tool": None, "prompt": cut_text, "response": cut_text}
    spent = {"duration_s": 1.0, "usd": 0.1, "attempts": 2, "tokens_in": 1, "tokens_out": 1}
    change = {"path": HOSTILE, "kind": HOSTILE, "bytes": 1, "sha256": HOSTILE}
    side = {
        "combination": 1,
        "execution": HOSTILE,
        "status": HOSTILE,
        "scores": {HOSTILE: HOSTILE},
        "totals": {"elapsed_s": 1.0, "usd": 0.1},
        "error": cut_text,
        "output": {HOSTILE: cut_text},
        "steps": [step | spent],
        "calls": [call | spent],
        "files": {"changes": [change], "more": 1},
        "more": {"steps": 1, "calls": 1},
    }
    other = {**side, "error": {"text": f"other {HOSTILE}", "cut": 0}, "files": None}
    opened = {"case": HOSTILE, "why": "failed", "tags": [HOSTILE], "input": {HOSTILE: cut_text}, "expected": cut_text}
    sides = [{**opened, "sides": sides} for sides in ([side, other], [side], [])]
    document["opened"] = {"cases": sides, "left_out": 1, "cut": 1}
    variant = {"variant": HOSTILE, "effect": 0.1, "ci": [0.0, 0.2]}
    node = {"node": HOSTILE, "share": 0.5, "p_adjusted": 0.01, "variants": [variant]}
    strongest = {"variants": [HOSTILE, HOSTILE], "effect": 0.1, "ci": [0.0, 0.2]}
    interaction = {"nodes": [HOSTILE, HOSTILE], "share": 0.5, "p_adjusted": 0.01, "strongest": strongest}
    nested = {**node, "factor": HOSTILE, "within": [HOSTILE]}
    both = {**interaction, "factors": [HOSTILE, HOSTILE]}
    change = {"node": HOSTILE, "factor": HOSTILE, "variant": HOSTILE, "over": HOSTILE, "beside": {HOSTILE: HOSTILE}}
    change |= {"effect": 0.1, "ci": [0.0, 0.2], "p": 0.01, "p_adjusted": 0.01}
    document["attribution"][HOSTILE] |= {
        "nodes": [node, nested],
        "interactions": [interaction, both],
        "simple": [change],
        "sentences": [HOSTILE],
    }
    document["pairs"][HOSTILE] = {"rows": [0, 1], "pairs": [{"a": 0, "b": 1, "delta": 0.1, "p_adjusted": 0.01}]}
    ran = {"executed": 1, "unshared": 4, "variant": HOSTILE}
    levels = [{"node": HOSTILE, "prefixes": [{**ran, "combinations": [0, 1, 2, 3]}]}]
    folded = [{"node": HOSTILE, "prefixes": 9}]
    nodes = [{"node": HOSTILE, "executed": 1, "unshared": 4, "variants": [ran]}]
    document["tree"] = {"nodes": nodes, "levels": levels, "folded": folded, "because": HOSTILE}
    point = {"n": 9, "mean": 0.5, "ci": [0.4, 0.6]}
    series = [{"combination": {HOSTILE: "x"}, "points": [point, point]}]
    sweeps = [{"sweep": HOSTILE, "at": "2026-01-01T00:00:00", "verdict": None, "code_changed": [HOSTILE]}] * 2
    metrics = {HOSTILE: {"better": "higher", "series": series}}
    document["history"] = {"sweeps": sweeps, "metrics": metrics, "left_out": 1, "because": None}
    edge = {"from": [HOSTILE], "to": HOSTILE, "when": HOSTILE, "priority": 0, "default": False}
    graph = {"nodes": [{"name": HOSTILE, "variants": [{"name": HOSTILE}]}], "edges": [edge], "entries": [HOSTILE]}
    document["provenance"] |= {
        "sweep": dict.fromkeys(("id", "status", "project", "session", "reason", "created_at", "finished_at"), HOSTILE),
        "graph": {**graph, "branches": [], "version": HOSTILE, "description": HOSTILE},
        "fingerprints": {HOSTILE: {HOSTILE: HOSTILE}},
        **dict.fromkeys(("workflow", "folder", "settings", "command"), HOSTILE),
        "environment": {HOSTILE: HOSTILE},
    }
    defaults = {"labels": 1, "mean": None, "ci": None, "delta": None, "delta_ci": None, "few_labels": True}
    labelled = [{**defaults, "combination": row["combination"]} for row in matrix["rows"]]
    matrix["people"] = document["people"] = [{"metric": HOSTILE, "labels": 4, "raters": 1, "rows": labelled}]
    document["gates"] = [{"gate": HOSTILE, "holds": False, "values": {HOSTILE: 1.0}, "because": HOSTILE}]
    return document | {"made_at": HOSTILE}


@pytest.mark.parametrize(
    "render", [report_files.render, lambda document: report_files.render_matrix(document["matrix"])]
)
def test_a_whole_page_obeys_no_text_of_a_users(render: Callable[[dict[str, Any]], str]) -> None:
    text = render(hostile_evidence())
    assert text.count("<script") == text.count("</script") == 2
    assert text.count("</style>") == 2
    markup = text.partition('<script type="application/json"')[0]
    assert "alert" in Tags(text).text
    assert "\x1b" not in markup
    assert re.findall(r'="[^"]*(?:<|&gt;<)[^"]*"', markup) == []
    assert embedded(text)["evidence"]["matrix"]["sweep"]["name"] == HOSTILE.replace("\x1b", "␛")


def test_no_view_obeys_a_text_of_a_users(look: Look, tmp_path: Path) -> None:
    for name, text in {
        "report": report_files.render(hostile_evidence()),
        "matrix": report_files.render_matrix(hostile_evidence()["matrix"]),
    }.items():
        file = tmp_path / f"{name}.html"
        file.write_text(text, "utf-8")
        view = look(file.as_uri())
        view.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        for part in view.locator("#views > section").all():
            assert "alert(1)" in part.inner_text(), part.get_attribute("id")
        assert view.locator("script").count() == 2
        assert view.locator("img, iframe").count() == 0
        assert "\x1b" not in view.locator("#views").inner_text()


@pytest.mark.parametrize("vary", [{"a": ["x", "y"], "b": ["1", "2", "3"]}, {"a": ["only"]}, {}])
@pytest.mark.parametrize("scored", [True, False])
def test_every_view_is_drawn_whatever_is_unknown(
    look: Look, tmp_path: Path, vary: dict[str, list[str]], scored: bool
) -> None:
    for metrics in ({"m": "higher", "n": "lower"}, {}):
        file = tmp_path / "report.html"
        file.write_text(report_files.render(evidence(vary, metrics, scored=scored)), "utf-8")
        view = look(file.as_uri())
        view.locator("#origins").wait_for()
        text = view.locator("main").inner_text()
        assert not re.search(r"\b(undefined|NaN|null|Infinity)\b", text)
        assert "[object" not in text


def test_effects_are_shown_by_factor_with_nested_ones_pairs_and_single_changes(look: Look, tmp_path: Path) -> None:
    document = evidence({"a": ["x", "y"]}, {"m": "higher"})
    levels = (("mini", -0.3), ("large", 0.3))
    variants = [{"variant": name, "effect": effect, "ci": [effect - 0.1, effect + 0.1]} for name, effect in levels]
    node = {"node": "a", "factor": "a.model", "within": ["p", "q"], "share": 0.4, "p": 0.001, "p_adjusted": 0.001}
    strongest = {"variants": ["mini", "long"], "effect": 0.2, "ci": [0.1, 0.3]}
    pair = {"nodes": ["a", "a"], "factors": ["a.model", "a.prompt"], "share": 0.1, "p": 0.01, "p_adjusted": 0.01}
    change = {"node": "a", "factor": "a.style", "variant": "terse", "over": "chatty", "beside": {"b": "on"}}
    change |= {"effect": -0.25, "ci": [-0.4, -0.1], "p": 0.01, "p_adjusted": 0.01}
    document["attribution"]["m"] |= {
        "nodes": [node | {"variants": variants}],
        "interactions": [pair | {"strongest": strongest}],
        "simple": [change],
        "because": None,
        "cases": 9,
    }
    file = tmp_path / "report.html"
    file.write_text(report_files.render(document), "utf-8")
    effects_text = " ".join(look(file.as_uri()).locator("#effects").inner_text().split())
    for text in (
        "a.model only in 2 variants of a",
        "40%",
        "a.model × a.prompt",
        "chatty → terse b=on",
        "Over 9 cases.",
    ):
        assert text in effects_text


def test_a_sweep_without_a_baseline_has_a_history(look: Look, tmp_path: Path) -> None:
    document = evidence({"a": ["x", "y"]}, {"m": "higher"})
    document["matrix"]["baseline"] = None
    point = {"n": 9, "mean": 0.5, "ci": [0.4, 0.6]}
    series = [{"combination": {"a": "y"}, "points": [point, None, point, point]}]
    sweeps = [{"sweep": "1", "at": "2026-01-01T00:00:00", "verdict": None, "code_changed": []}] * 4
    reference = {"sweep": "0", "at": None, "mean": 0.9, "ci": None}
    metric = {"better": "higher", "series": series, "reference": reference}
    document["history"] = {"sweeps": sweeps, "metrics": {"m": metric}, "left_out": 2, "because": None}
    file = tmp_path / "report.html"
    file.write_text(report_files.render(document), "utf-8")
    drawn = look(file.as_uri()).locator("#history")
    assert drawn.locator(".night circle").count() == 3
    assert drawn.locator("line.fixed").count() == 1
    assert "2 sweeps over another number of cases" in drawn.inner_text()


def test_notebooks_obey_no_text_of_a_users() -> None:
    matrix = hostile_evidence()["matrix"]
    about = {"id": HOSTILE, "sweep": {"name": HOSTILE}, "status": HOSTILE, "reason": HOSTILE, "error": HOSTILE}
    step = {"step": 1, "node": HOSTILE, "variant": HOSTILE, "status": HOSTILE, "attempts": 1, "duration_s": 1.0}
    execution = {"execution": about, "path": [step], "state": {HOSTILE: HOSTILE}}
    for html in (notebook.matrix(matrix), notebook.execution(execution)):
        assert "alert" in Tags(html).text
        assert "<script" not in html
        assert "\x1b" not in html
