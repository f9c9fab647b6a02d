"""`wtb regress` night after night: a slide that `--update` follows, nights without a change, new references."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support import prose

if TYPE_CHECKING:
    from tests.support.project import Outcome, Project

# Passes by chance: what a model does that its provider changes, without any change of code here.
FLOW = """
import os
import random

from wtb import END, Workflow

wf = Workflow("nightly")


@wf.node
def ask(state, *, bonus: float = 0.0):
    drawn = random.Random(f"{os.environ['NIGHT']} {state['x']} {bonus}").random()
    return {"right": float(drawn < float(os.environ["RATE"]) + bonus)}


wf.entry(ask)
wf.edge(ask, END)


def right(case, result):
    return result.state["right"]
"""
SWEEP = """
sweep: nightly
workflow: nightly:wf
cases: cases.jsonl
vary: {ask: all}
evaluate: ["nightly:right"]
run: {pool: thread}
"""
NIGHTS = 14
REGRESS = ("regress", "sweep.yaml", "--baseline", "main", "-q")


def _write_cases(project: Project, first: int = 0) -> None:
    project.write(
        {"cases.jsonl": "".join(f'{{"id": "c{x}", "input": {{"x": {x}}}}}\n' for x in range(first, first + 100))}
    )


@pytest.fixture
def nightly(empty_project: Project) -> Project:
    """A folder with a sweep of 100 cases that pass 90 times of 100, which is the baseline `main`."""
    empty_project.write({"nightly.py": FLOW, "sweep.yaml": SWEEP})
    _write_cases(empty_project)
    empty_project.inside("run", "sweep.yaml", "-q", check=0, env=_env(0, 0.9))
    empty_project.inside("baseline", "set", "main", "nightly", check=0)
    return empty_project


def _env(night: int, rate: float) -> dict[str, str]:
    return {"NIGHT": str(night), "RATE": str(rate)}


def _baseline(project: Project) -> Any:
    return project.json("baseline", "show", "main")


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.deadline(120)
def test_a_slide_is_alarmed_although_the_baseline_moves_along_with_it(nightly: Project) -> None:
    reference = _baseline(nightly)["sweep"]["id"]
    done: Outcome | None = None
    for night in range(1, NIGHTS + 1):
        rate = 0.9 - 0.25 * night / NIGHTS
        done = nightly.inside(*REGRESS, "--update", "--format", "json", env=_env(night, rate))
        if done.code == 1:
            break
        assert prose.sentence("baseline {} is now sweep {}", "main", done.json["after"]["id"]) in done.output
        assert _baseline(nightly)["reference"] == reference
    assert done is not None
    assert done.code == 1, "no night was alarmed"
    document = done.json
    series = document["series"]
    assert (document["verdict"], series["alarm"], series["reference"]["id"]) == ("worse", True, reference)
    assert document["before"]["id"] != reference
    sentence = document["because"][0]
    assert sentence.startswith("right: night ")
    assert " since 20" in sentence
    assert "(fixed reference), p " in sentence
    assert any(test["fall"] for test in series["tests"])
    assert [point["reference"] for point in series["nights"]][:6] == [True] * 5 + [False]
    assert series["nights"][-1]["alarm"]
    rate = 0.9 - 0.25 * (series["night"] + 1) / NIGHTS
    for form in ("table", "md", "junit"):
        rendered = nightly.inside(*REGRESS, "--format", form, check=1, env=_env(100, rate - 0.05))
        assert "right: night " in words(rendered.stdout)
        assert "(fixed reference)" in words(rendered.stdout)
    report = nightly.json("report", document["after"]["id"])
    assert report["history"]["metrics"]["right"]["reference"]["sweep"] == reference
    assert [night["verdict"] for night in report["history"]["sweeps"]][-2:] == [None, "worse"]
    nightly.inside("report", document["after"]["id"], "--output", "night.html", check=0)
    page = (nightly.folder / "night.html").read_text("utf-8")
    assert f'"reference":{{"sweep":"{reference}"' in page
    text = nightly.text("baseline", "show", "main")
    assert prose.sentence("sweep {}, {} since", reference, f"{series['night'] + 3} nights") in words(text)
    refused = nightly.refusal("delete", reference, "--yes")
    assert "is the reference of baseline 'main'" in refused


@pytest.mark.deadline(120)
def test_nights_without_a_change_are_not_alarmed_and_a_fall_of_one_night_alone_is_told(nightly: Project) -> None:
    for night in range(1, 7):
        document = nightly.inside(*REGRESS, "--format", "json", check=0, env=_env(night, 0.9)).json
        assert (document["series"]["night"], document["series"]["alarm"], document["series"]["new_code"]) == (
            night,
            False,
            False,
        )
    assert document["series"]["repeats"] == 5
    before = document["series"]["level"]
    assert before < 0.001
    down = nightly.inside(*REGRESS, "--format", "json", check=1, env=_env(7, 0.65)).json
    assert down["because"][0].startswith("right: fell in this run: 0.")
    # New code is a question of its own, at 5%, as in a pull request.
    nightly.write({"nightly.py": FLOW.replace('return {"right"', 'changed = True\n    return {"right"')})
    document = nightly.inside(*REGRESS, "--format", "json", env=_env(8, 0.9)).json
    assert (document["series"]["new_code"], document["series"]["level"]) == (True, 0.05)
    document = nightly.inside(*REGRESS, "--format", "json", env=_env(9, 0.9)).json
    assert (document["series"]["new_code"], document["series"]["level"]) == (False, before)


@pytest.mark.deadline(120)
def test_a_new_baseline_starts_anew_and_a_reference_of_other_cases_is_named(nightly: Project) -> None:
    nightly.inside(*REGRESS, check=0, env=_env(1, 0.9))
    part = nightly.inside(*REGRESS, "--limit", "20", "--format", "json", env=_env(2, 0.9)).json
    assert "series" not in part
    assert _baseline(nightly)["nights"] == 1
    nightly.inside("baseline", "set", "main", "nightly", check=0)
    assert _baseline(nightly)["nights"] == 0
    _write_cases(nightly, first=50)
    document = nightly.inside(*REGRESS, "--format", "json", env=_env(3, 0.9)).json
    (because,) = document["series"]["because"]
    assert because.startswith(f"the fixed reference (sweep {document['series']['reference']['id']}) has too few cases")
    assert because.endswith("so it shows no slide: `wtb baseline set` starts a new one")
    named = nightly.inside(
        "regress", "sweep.yaml", "--baseline", document["before"]["id"], "-q", "--format", "json", env=_env(3, 0.9)
    )
    assert "series" not in named.json
