"""Sweeps with a rare class, with counted repeats, and with an excluded pair, from the command to the report."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import prose

if TYPE_CHECKING:
    from tests.support.project import Project

FLOW = """
from wtb import END, Workflow

wf = Workflow("mail")


@wf.node
def retrieve(state, *, wide: bool = False):
    return {"wide": wide}


@wf.node
def answer(state, ctx, *, short: bool = False):
    x = state["x"]
    is_refund = x % 5 == 0
    misses = x % (15 if state["wide"] else 10) == 0 or (ctx.repeat == 1 and x % 4 == 1)
    return {"kind": "refund" if is_refund and not misses else "other", "right": not misses}


retrieve.variant("wide", wide=True)
answer.variant("short", short=True)
wf.entry(retrieve)
wf.edge(retrieve, answer)
wf.edge(answer, END)


def right(case, result) -> bool:
    return result.state["right"]
"""


def sweep(name: str, cases: int) -> str:
    listed = [
        {"id": f"c{x}", "input": {"x": x}, "expected": {"kind": "other" if x % 5 else "refund"}} for x in range(cases)
    ]
    return json.dumps(
        {
            "sweep": name,
            "workflow": "mail:wf",
            "cases": listed,
            "repeats": 2,
            "vary": {"retrieve": "all", "answer": "all"},
            "exclude": [{"retrieve": "wide", "answer": "short"}],
            "baseline": {"retrieve": "default", "answer": "default"},
            "evaluate": [
                "mail:right",
                {"class_recall": {"field": "kind", "positive": "refund"}},
                {"mail:right": {"pass_at": 2}},
                {"mail:right": {"pass_all": 2}},
            ],
            "gates": ["class_recall.low > 0.1", '"pass@2".mean > 0.5'],
            "run": {"pool": "thread"},
        }
    )


@pytest.fixture(scope="module")
def mail(shared_project: Project) -> Project:
    shared_project.write({"mail.py": FLOW, "few.yaml": sweep("few", 60), "many.yaml": sweep("many", 100)})
    shared_project.inside("run", "few.yaml", "--quiet", check=1)
    shared_project.inside("run", "many.yaml", "--quiet", check=0)
    return shared_project


def matrix(mail: Project, name: str) -> dict[str, Any]:
    document: dict[str, Any] = mail.json("matrix", name)
    return document


def test_too_few_cases_of_a_class_are_told_wherever_figures_are(mail: Project) -> None:
    document = matrix(mail, "few")
    sentence = "class_recall rests on 12 cases of the class: there are no intervals below 15"
    classes = document["metrics"]["class_recall"]["classes"]
    assert classes == {"cases": {"positive": 12, "other": 48}, "fewest": 12, "enough": False, "sentence": sentence}
    for row in document["rows"]:
        figures = row["metrics"]["class_recall"]
        assert (figures["class_cases"], figures["ci"], figures["delta_ci"]) == (12, None, None)
    gate, _ = document["gates"]
    assert (gate["holds"], sentence in gate["because"]) == (None, True)
    assert sentence in document["warnings"]
    assert sentence in " ".join(mail.text("matrix", "few").split())
    mail.inside("report", "few", "--output", "few.html", check=0)
    assert sentence in (mail.folder / "few.html").read_text("utf-8")


def test_with_enough_cases_the_count_stands_beside_the_figure(mail: Project) -> None:
    document = matrix(mail, "many")
    sentence = "class_recall rests on 20 cases of the class"
    assert (document["metrics"]["class_recall"]["classes"]["sentence"], sentence in document["warnings"]) == (
        sentence,
        False,
    )
    assert all(row["metrics"]["class_recall"]["ci"] is not None for row in document["rows"])
    assert f"{sentence}." in " ".join(mail.text("matrix", "many").split())
    mail.inside("report", "many", "--output", "many.html", check=0)
    assert sentence in (mail.folder / "many.html").read_text("utf-8")


def test_repeats_that_pass_are_counted_and_decide_gates(mail: Project) -> None:
    document = matrix(mail, "many")
    base = document["rows"][0]["metrics"]
    often = sum(x % 10 != 0 for x in range(100)) / 100
    always = sum(x % 10 != 0 and x % 4 != 1 for x in range(100)) / 100
    assert (base["pass@2"]["mean"], base["pass^2"]["mean"]) == pytest.approx((often, always))
    assert document["gates"][1]["holds"] is True
    text = " ".join(mail.text("matrix", "many").split())
    assert "by pass@2" in text
    mail.write({"short.yaml": sweep("short", 5).replace('"pass_at": 2', '"pass_at": 3').replace("pass@2", "pass@3")})
    message = mail.refusal("run", "short.yaml", "--quiet")
    assert prose.sentence("{} needs {} repeats of each case, and the sweep has {}", "pass@3", 3, "2 repeats") in message


def test_an_excluded_pair_gives_simple_effects(mail: Project) -> None:
    attribution = mail.json("report", "many")["attribution"]["pass@2"]
    wide = next(effect for effect in attribution["simple"] if effect["variant"] == "wide")
    assert (wide["over"], wide["beside"]) == ("default", {"answer": "default"})
    gain = (sum(x % 10 == 0 for x in range(100)) - sum(x % 15 == 0 for x in range(100))) / 100
    assert wide["effect"] == pytest.approx(gain)
    assert not re.search(r"\d\d\d%", " ".join(attribution["sentences"]))
    assert all(node["share"] <= 1 for node in attribution["nodes"])
