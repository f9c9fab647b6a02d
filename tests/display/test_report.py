"""The forms of the report on documents made by hand: round scales, odd figures, large sweeps, hostile text."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import documents
from tests.support.prose import sentence
from wtb.analysis.failure_causes import alike
from wtb.core.texts import printable
from wtb.display import markdown, notebook
from wtb.display.report import junit
from wtb.display.report.charts.workflow_graph import picture
from wtb.display.report.html import page
from wtb.display.report.html.layout import concerned
from wtb.display.report.html.open_cases import marked_texts
from wtb.display.report.html.page import section
from wtb.display.report.html.scales import scale

UNKNOWN: dict[str, Any] = dict.fromkeys(
    ("mean", "ci", "delta", "delta_ci", "p", "p_adjusted", "effect", "detectable"), None
)


def evidence(vary: dict[str, list[str]], metrics: dict[str, str], *, scored: bool = True) -> dict[str, Any]:
    """A document as `gather` gives it, of figures that rise from row to row; nothing is known where not `scored`."""
    rows: list[dict[str, Any]] = []
    for i, names in enumerate(itertools.product(*vary.values())):
        found = {
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
                "metrics": {metric: found if scored else {"n": 0, "n_pairs": 0, **UNKNOWN} for metric in metrics},
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


class Parsed(HTMLParser):
    """The elements and the text of a page; it is well-formed where every element is closed in turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in ("meta", "link", "input", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data if self.open[-1:] not in (["style"], ["script"]) else ""


@given(st.lists(st.floats(-1e12, 1e12, allow_nan=False), min_size=1, max_size=9))
def test_a_scale_holds_all_values_between_few_round_ticks(values: list[float]) -> None:
    found = scale(values)
    assert all(-1e-6 <= found.at(value) <= 100 + 1e-6 for value in values)
    assert 2 <= len(found.ticks) <= 8
    assert all(re.fullmatch(r"−?[\d,.]+(e−?\d+)?", found.label(tick)) for tick in found.ticks)
    steps = {round((b - a) / (found.ticks[1] - found.ticks[0]), 6) for a, b in itertools.pairwise(found.ticks)}
    assert steps <= {1.0}


def test_ticks_are_what_people_would_choose() -> None:
    assert [scale([0.21, 0.68]).label(tick) for tick in scale([0.21, 0.68]).ticks] == ["0.2", "0.4", "0.6", "0.8"]
    assert [scale([-3, 11]).label(tick) for tick in scale([-3, 11]).ticks] == ["−5", "0", "5", "10", "15"]
    assert [scale([0, 5.5e-9]).label(tick) for tick in scale([0, 5.5e-9]).ticks] == ["0", "2e−9", "4e−9", "6e−9"]
    big = scale([5.5e12, 5.5015e12])
    assert [big.label(tick) for tick in big.ticks] == ["5.5e12", "5.5005e12", "5.501e12", "5.5015e12"]
    assert scale([]).ticks[0] == 0
    assert scale([math.nan, 5.0, 5.0]).low < 5 < scale([5.0, 5.0]).high


@pytest.mark.parametrize("vary", [{"a": ["x", "y"], "b": ["1", "2", "3"]}, {"a": ["only"]}, {}])
@pytest.mark.parametrize("metrics", [{"m": "higher", "n": "lower"}, {}])
@pytest.mark.parametrize("scored", [True, False])
def test_every_form_is_whole_whatever_is_unknown(
    vary: dict[str, list[str]], metrics: dict[str, str], scored: bool
) -> None:
    document = evidence(vary, metrics, scored=scored)
    text = Parsed(page.render(document)).text
    assert "None" not in text
    assert "nan" not in text
    assert sentence("nothing is scored by {}", "m") in text, "why a gate cannot be told"
    assert ElementTree.fromstring(junit.render(document).encode()).get("failures") == "1"
    assert "None" not in markdown.report(document)


def test_a_sweep_of_very_many_combinations_stays_a_small_file() -> None:
    vary = {f"{node} {'long ' * 30}": [f"{variant} {'longer ' * 25}" for variant in range(10)] for node in "abc"}
    document = evidence(vary, {f"metric {'m' * 100} {number}": "higher" for number in range(20)})
    text = page.render(document)
    assert len(text.encode()) < 3_000_000
    assert "The best 201 of 1,000 combinations are shown" in Parsed(text).text
    assert len(markdown.report(document).encode()) < 65_536, "what a comment on GitHub may have"


def test_text_that_no_xml_can_hold_is_replaced() -> None:
    document = evidence({"a": ["x", "y"]}, {})
    document["matrix"]["warnings"] = ["bell \x07, half \ud800, </testsuite>"]
    properties = ElementTree.fromstring(junit.render(document).encode()).iter("property")
    assert [one.get("value") for one in properties][-1] == "bell \ufffd, half \ufffd, </testsuite>"


def test_messages_that_differ_by_case_are_one_cause() -> None:
    assert alike("case 3: no 'Paris' at 0x7f12 after 1.5 s") == alike("case 12: no 'Rome' at 0xab after 22.75 s")
    assert alike("no key") != alike("no value")
    said = r"'ascii' codec can't encode character '{}' in position {}: ordinal not in range(128)"
    assert alike(said.format(r"\u2014", 12)) == alike(said.format(r"\xfc", 8)) != alike("'ascii' codec can't encode")
    assert alike(r"bad byte \x9f in b'a'") == alike(r"bad byte \x80 in b'bc'")


def test_a_combination_of_which_scores_or_cells_failed_fails_and_says_so() -> None:
    document = evidence({"a": ["x", "y", "z"]}, {"m": "higher"})
    document["matrix"]["rows"][1]["failed"] = 3
    document["failures"]["unscored"] = [{"combination": 2, "metric": "m", "scores": 1, "message": "KeyError: 'gold'"}]
    document["failures"]["scores"] = [{"scores": 1, "metric": "m", "message": "KeyError: 'gold'", "combinations": [2]}]
    _, x, y, z = ElementTree.fromstring(junit.render(document).encode()).iter("testcase")
    assert x.find("failure") is None
    messages = [one.get("message") for case in (y, z) for one in case.iter("failure")]
    assert messages == [sentence("{} of {} cells failed", 3, 9), sentence("{} of {} failed", "1 score", "m")]
    assert z.findtext("failure") == "m: KeyError: 'gold'"
    said = markdown.report(document)
    assert "| a | failed | m ↑ |" in said
    assert "1 score of m failed: KeyError: 'gold' (every combination with a=z)" in said


def test_a_sweep_without_a_baseline_has_a_history() -> None:
    document = evidence({"a": ["x", "y"]}, {"m": "higher"})
    document["matrix"]["baseline"] = None
    point = {"n": 9, "mean": 0.5, "ci": [0.4, 0.6]}
    series = [{"combination": {"a": "y"}, "points": [point, None, point, point]}]
    sweeps = [{"sweep": "1", "at": "2026-01-01T00:00:00", "verdict": None, "code_changed": []}] * 4
    history = {
        "sweeps": sweeps,
        "metrics": {"m": {"better": "higher", "series": series}},
        "left_out": 2,
        "because": None,
    }
    drawn = section("history", document | {"history": history})
    assert drawn.count("mark diamond") == 3
    assert "2 sweeps over another number of cases" in drawn
    assert "reference" not in drawn
    history["metrics"]["m"]["reference"] = {"sweep": "0", "at": None, "mean": 0.9, "ci": None}
    assert "fixed reference: 0.9" in section("history", document | {"history": history})
    document["matrix"]["baseline"] = {"a": "y"}
    assert section("history", document | {"history": history}).count("mark square") == 3


def test_an_effect_that_is_the_same_in_every_case_is_drawn_as_certain() -> None:
    document = evidence({"a": ["x", "y"]}, {"m": "higher"})
    variants = [{"variant": name, "effect": effect, "ci": None} for name, effect in (("x", 0.5), ("y", -0.5))]
    node = {"node": "a", "share": 1.0, "p": 0.001, "p_adjusted": 0.001, "variants": variants}
    document["attribution"]["m"] |= {"nodes": [node], "because": None, "cases": 9}
    assert (section("effects", document).count("mark dot"), section("effects", document).count("mark ring")) == (2, 0)
    node["share"] = 0.0
    assert (section("effects", document).count("mark dot"), section("effects", document).count("mark ring")) == (0, 2)


def test_effects_are_shown_by_factor_with_nested_ones_pairs_and_single_changes() -> None:
    document = evidence({"a": ["x", "y"]}, {"m": "higher"})
    variants = [{"variant": name, "effect": effect, "ci": [effect - 0.1, effect + 0.1]} for name, effect in LEVELS]
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
    shown = " ".join(Parsed(section("effects", document)).text.split())
    assert "a.model only in 2 variants" in shown
    assert "explains 40%, p 0.001" in shown
    assert "a.model × a.prompt" in shown
    assert "a.stylechatty → terse b=on" in shown


LEVELS = (("mini", -0.3), ("large", 0.3))


def test_no_two_columns_have_one_name() -> None:
    document = evidence({"n": ["x", "y"], "p50": ["x", "y"]}, {"cost": "lower", "m": "higher"})
    headers = re.findall(r"<th class=\"(?:node|figure)\"[^>]*>(?:<bdi>)?([^<]*)", section("matrix", document))
    assert headers == ["n", "p50", "cost", "m", "median time", "cells"]
    drawn = Parsed(section("cost", document)).text
    assert "m ↑ against cost" in drawn
    assert "cost ↓ against cost" not in drawn


def test_what_failed_is_named_by_what_it_has_in_common() -> None:
    matrix = evidence({"a": ["x", "y"], "b": ["1", "2"]}, {})["matrix"]
    assert concerned(matrix, [0, 1, 2, 3]) == "all combinations"
    assert concerned(matrix, [1, 3]) == sentence("every combination with {}={}", "b", 2)
    assert concerned(matrix, [0, 3]) == "a=x b=1; a=y b=2"


def test_a_graph_with_a_loop_and_branches_is_drawn() -> None:
    def node(name: str) -> dict[str, Any]:
        return {"name": name, "variants": [{"name": "default"}]}

    def edge(a: list[str], b: str, when: str | None = None) -> dict[str, Any]:
        return {"from": a, "to": b, "when": when, "priority": 0, "default": False}

    graph = {
        "entries": ["a"],
        "nodes": [node(name) for name in ("a", "b", "c", "d<", "never")],
        "edges": [edge(["a"], "b"), edge(["a"], "c"), edge(["b", "c"], "d<"), edge(["d<"], "a", "<lambda>")],
        "branches": [{"from": "d<", "by": "f", "to": {"done": "END"}, "default": None}],
    }
    drawn = picture(graph)
    assert drawn.count("<rect") == 5, "what can be reached, and the end"
    assert "d&lt;" in drawn
    assert "if …" in drawn


@pytest.mark.parametrize(
    ("a", "b", "marked"),
    [
        ("the cat sat", "the dog sat", ("the <del>cat</del> sat", "the <ins>dog</ins> sat")),
        ("one", "one two", ("one", "one <ins>two</ins>")),
        ("<b> a", "<i> a", ("<del>&lt;b&gt;</del> a", "<ins>&lt;i&gt;</ins> a")),
        ("a\nb", "a\nc", ("a\n<del>b</del>", "a\n<ins>c</ins>")),
        ("", "x", ("", "<ins>x</ins>")),
    ],
)
def test_words_that_differ_are_marked(a: str, b: str, marked: tuple[str, str]) -> None:
    assert marked_texts(a, b) == marked


@given(st.text(max_size=60), st.text(max_size=60))
def test_marking_leaves_the_texts_as_they_are(a: str, b: str) -> None:
    for text, marked in zip((a, b), marked_texts(a, b), strict=True):
        plain = re.sub(r"</?(del|ins)>", "", marked)
        assert unescape(plain) == "\n".join(printable(line.replace("\t", "    ")) for line in text.split("\n"))


def test_long_texts_are_compared_by_lines_in_no_time() -> None:
    a = "".join(f"line {n} of the text\n" for n in range(5_000))
    first, second = marked_texts(a, a.replace("line 700 ", "row 700 "))
    assert "<del>line 700 of the text" in first
    assert "<ins>row 700 of the text" in second


def section_text(anchor: str, document: dict[str, Any]) -> str:
    """The text of a section, with a space between any two elements."""
    return " ".join(Parsed(str(page.section(anchor, document)).replace("<", " <")).text.split())


def test_what_people_would_say_stands_beside_the_means_of_a_judge() -> None:
    document = evidence({"a": ["x", "y", "z"]}, {"m": "higher"})
    assert sentence("What people would say") not in page.render(document)
    row = {"combination": {"a": "x"}, "mean": 0.25, "ci": [0.125, 0.5], "delta": None, "delta_ci": None}
    other = {"combination": {"a": "z"}, "mean": 0.75, "ci": None, "delta": 0.5, "delta_ci": [0.25, 0.625]}
    rows = [{**row, "labels": 120, "few_labels": False}, {**other, "labels": 1_050, "few_labels": False}]
    document["people"] = [{"metric": "m", "labels": 1_170, "raters": 2, "rows": rows}]
    shown = section_text("people", document)
    assert (
        sentence("by {} and its scores of all cases (PPI++)", "1,170 labels of 2 raters")
        + sentence("{} above are the judge's", ": the means")
        in shown
    )
    assert "z 1,050 0.286 0.750 +0.500 +0.250 to +0.625 x 120 0.000 0.250 0.125 to 0.500" in shown
    assert sentence("fewer than 100 labels") not in shown
    assert sentence("What people would say") in page.render_matrix({**document["matrix"], "people": document["people"]})
    rows[1] = {**rows[1], "labels": 99, "few_labels": True}
    shown = section_text("people", document)
    assert "z 99*" in shown
    assert sentence("* fewer than 100 labels: the interval may be too short.") in shown


HOSTILE = "</script></style>\"'><script>alert(1)</script>\x1b[31m\n@x"


def hostile_evidence() -> dict[str, Any]:
    """A document in which every section has something to show, and every text of a user's is hostile."""
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
    value = {"text": HOSTILE, "cut": 3}
    step = {"node": HOSTILE, "variant": HOSTILE, "status": HOSTILE, "error": HOSTILE}
    call = {"node": HOSTILE, "model": HOSTILE, "tool": None, "prompt": value, "response": value}
    spent = {"duration_s": 1.0, "usd": 0.1, "attempts": 2, "tokens_in": 1, "tokens_out": 1}
    change = {"path": HOSTILE, "kind": HOSTILE, "bytes": 1, "sha256": HOSTILE}
    side = {
        "combination": 1,
        "execution": HOSTILE,
        "status": HOSTILE,
        "scores": {HOSTILE: HOSTILE},
        "totals": {"elapsed_s": 1.0, "usd": 0.1},
        "error": value,
        "output": {HOSTILE: value},
        "steps": [step | spent],
        "calls": [call | spent],
        "files": {"changes": [change], "more": 1},
        "more": {"steps": 1, "calls": 1},
    }
    other = {**side, "error": {"text": f"other {HOSTILE}", "cut": 0}, "files": None}
    opened = {"case": HOSTILE, "why": "failed", "tags": [HOSTILE], "input": {HOSTILE: value}, "expected": value}
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
    said = {"labels": 1, "mean": None, "ci": None, "delta": None, "delta_ci": None, "few_labels": True}
    labelled = [{**said, "combination": row["combination"]} for row in matrix["rows"]]
    matrix["people"] = document["people"] = [{"metric": HOSTILE, "labels": 4, "raters": 1, "rows": labelled}]
    document["gates"] = [{"gate": HOSTILE, "holds": False, "values": {HOSTILE: 1.0}, "because": HOSTILE}]
    return document | {"made_at": HOSTILE}


@pytest.mark.parametrize("anchor", [*page.SECTIONS, "nodes", "causes"])
def test_no_template_obeys_a_text_of_a_users(anchor: str) -> None:
    document = hostile_evidence()
    drawn = page.section(anchor, document)
    assert "alert" in Parsed(drawn).text
    assert "<script" not in drawn
    assert "\x1b" not in drawn
    assert re.findall(r'="[^"]*(?:<|&gt;<)[^"]*"', drawn) == []


@pytest.mark.parametrize("render", [page.render, lambda document: page.render_matrix(document["matrix"])])
def test_a_whole_page_obeys_no_text_of_a_users(render: Callable[[dict[str, Any]], str]) -> None:
    text = render(hostile_evidence())
    assert text.count("<script") == text.count("</script") == 1
    assert text.count("</style>") == 1
    assert "\x1b" not in text
    Parsed(text)


def test_notebooks_obey_no_text_of_a_users() -> None:
    matrix = hostile_evidence()["matrix"]
    about = {"id": HOSTILE, "sweep": {"name": HOSTILE}, "status": HOSTILE, "reason": HOSTILE, "error": HOSTILE}
    step = {"step": 1, "node": HOSTILE, "variant": HOSTILE, "status": HOSTILE, "attempts": 1, "duration_s": 1.0}
    execution = {"execution": about, "path": [step], "state": {HOSTILE: HOSTILE}}
    for shown in (notebook.matrix(matrix), notebook.execution(execution)):
        assert "alert" in Parsed(shown).text
        assert "<script" not in shown
        assert "\x1b" not in shown
