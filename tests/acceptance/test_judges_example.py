"""The example that compares two judges with people: the origin of its labels, and a run over a few cases."""

from __future__ import annotations

import csv
import os
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from examples.judges import compared, demo, pairwise
from examples.judges.picture import draw
from examples.langgraph.retrieval.graph import graph, index
from examples.retrieval.cases import queries
from examples.retrieval.corpus import read
from tests.acceptance.langgraph_alone import run, with_node
from tests.support.model_server import require_small_model
from tests.support.project import run_program
from wtb.hosting.servers.server import free_port

ROOT = Path(__file__).parents[2]
ONE_ROW = ("--combination", "retrieve=tfidf", "--combination", "grade=default")
TOP = {case["id"]: next(iter(case["expected"])) for case in queries()}  # of each case, a document that goes with it
CELLS: list[dict[str, Any]] = [
    {"case": case, "combination": {"grade": grade}, "state": {"ranking": [document]}}
    for case, document in TOP.items()
    for grade in ("default", "names")
]


def test_what_is_found_was_compared_by_people_and_the_first_of_it_is_the_answer() -> None:
    corpus = read()
    for search in (compared.tfidf, compared.latent):
        changed = with_node(with_node(graph, "retrieve", search), "answer", compared.first)
        for case in list(queries())[:3]:
            state = run(changed, case["input"])
            assert set(state["ranking"]) <= compared.NUMBERS.keys() - {case["id"]}
            assert state["answer"] == corpus.documents[state["ranking"][0]]
    assert len(index()) == 350, "the weights of terms are those of all documents"


def test_labels_are_means_over_people_of_cases_drawn_at_random_and_say_so() -> None:
    labels = demo.means(CELLS, 20)
    assert {label["rater"] for label in labels} == {"mean-of-people"}
    assert len(labels) == 2 * 20
    similarity = read().similarity
    for label in labels:
        case = str(label["case"])
        numbers = (compared.NUMBERS[case], compared.NUMBERS[TOP[case]])
        assert label["label"] == similarity[numbers]
    assert labels == demo.means(CELLS, 20)
    assert [label["case"] for label in labels] != [cell["case"] for cell in CELLS[: len(labels)]]


def test_raters_are_called_simulated_and_differ_by_the_noise_that_is_stated() -> None:
    labels = demo.simulated(CELLS, len(TOP))
    assert {label["rater"] for label in labels} == set(demo.RATERS)
    assert all(rater.startswith("simulated-") for rater in demo.RATERS)
    assert {label["label"] for label in labels} <= set(demo.LEVELS)
    cases = [str(label["case"]) for label in labels]
    true = [compared.similarity(case, TOP[case]) for case in cases]
    off = np.array([float(label["label"]) for label in labels]) - true
    assert 0.12 < off.std() < 0.26  # normal with 0.2, cut at 1 and put onto levels


def test_the_picture_shows_a_row_of_which_little_is_known() -> None:
    row = {"combination": {"grade": "names"}, "people": {"value": None, "interval": None}, "judge": None}
    whole = {"combination": {"grade": "names", "answer": "<first>"}}
    picture = draw({"small_model": {"rows": [row]}}, [whole], [0.5])
    assert "small model" in "".join(ElementTree.fromstring(picture).itertext())


def test_rows_are_compared_two_at_a_time_as_the_docs_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("WTB_DATABASE_URL", f"sqlite:///{tmp_path / 'wtb.db'}")
    pairwise.main(["--output", str(tmp_path / "out")])
    lines = [line.rstrip() for line in capsys.readouterr().out.strip().splitlines()]
    page = (ROOT / "examples" / "judges" / "README.md").read_text("utf-8")
    example = page.partition("`python -m examples.judges.pairwise`")[2].partition("```text\n")[2].partition("```")[0]
    assert lines == [line.rstrip() for line in example.strip().splitlines()]
    with (tmp_path / "out" / "pairs.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    pairs = {(row["rater"], row["case"], row["first"], row["second"]): row["preferred"] for row in rows}
    other = {"first": "second", "second": "first", "tie": "tie"}
    assert len(pairs) == 2 * 37 * 6 * 5
    for (rater, case, first, second), preferred in pairs.items():
        assert pairs[rater, case, second, first] == other[preferred], (rater, case, first, second)


def test_a_small_model_judges_and_is_held_against_people(tmp_path: Path) -> None:
    require_small_model()
    options = ["--output", str(tmp_path / "out"), "--labelled", "2", "--port", str(free_port()), "--limit", "3"]
    command = [sys.executable, "-m", "examples.judges.demo", *options, *ONE_ROW]
    env = os.environ | {"WTB_DATABASE_URL": f"sqlite:///{tmp_path / 'wtb.db'}"}
    done = run_program(command, cwd=ROOT, env=env, timeout=240, code=0)
    assert "embedded against 2 labels of 1 rater" in done.stdout
    assert "Raters who are simulated, and no people:" in done.stdout
    for name, raters in (("means", {"mean-of-people"}), ("simulated", set(demo.RATERS))):
        with (tmp_path / "out" / f"{name}.csv").open(encoding="utf-8", newline="") as opened:
            assert {row["rater"] for row in csv.DictReader(opened)} == raters
    ElementTree.parse(tmp_path / "out" / "judged.svg")
