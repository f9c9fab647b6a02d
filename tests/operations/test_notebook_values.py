"""Notebooks show workflows, prepared sweeps and comparisons, and write reports to a path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest

import wtb
from tests.support.prose import sentence
from wtb import InputError, Sweep, SweepHandle, Workflow


def workflow() -> Workflow:
    wf = Workflow("notes")

    @wf.node
    def answer(state: dict[str, Any], *, by: int = 1) -> dict[str, Any]:
        return {"n": state["n"] + by}

    answer.variant("<b>two</b>", by=2)
    wf.entry(answer)
    return wf


def sweep() -> Sweep:
    cases = [{"id": f"c{n}", "input": {"n": n}, "expected": n + 1} for n in range(60)]
    return Sweep(workflow=workflow(), cases=cases, vary={"answer": "all"}, evaluate=[{"exact_match": {"field": "n"}}])


def html_of(document: Any) -> str:
    text: str = document._repr_html_()
    return text


@pytest.fixture(scope="module")
def handle(tmp_path_factory: pytest.TempPathFactory) -> SweepHandle:
    return sweep().run(db=f"sqlite:///{tmp_path_factory.mktemp('notes') / 'notes.db'}")


def test_a_prepared_sweep_is_one_line() -> None:
    assert repr(sweep().prepare()) == sentence("<prepared sweep {}: ", "notes") + sentence(
        "{} combinations x {} cases x {}", 2, 60, "1 repeat = 120 cells>"
    )


def test_a_workflow_is_drawn_with_its_variants() -> None:
    assert wtb.Workflow is Workflow
    drawn = html_of(workflow())
    assert "start ─▶ answer" in drawn
    assert "by: 2" in drawn or "by=2" in drawn
    assert "&lt;b&gt;two&lt;/b&gt;" in drawn
    assert "<b>two" not in drawn


def test_comparisons_are_documents_that_are_shown_as_tables(handle: SweepHandle) -> None:
    second = sweep().run(db=handle.database)
    comparison = second.compare(handle)
    assert comparison["verdict"] == "same"
    assert json.loads(json.dumps(comparison)) == orjson.loads(orjson.dumps(comparison)) == comparison
    assert "120 cells of 2 combinations and 60 cases compared\n" in html_of(comparison)
    assert sentence("{} of {} combinations", "120 cells", 2) in str(comparison)
    rows = handle.compare_rows("answer=default", 1)
    assert rows["wins"] == 60
    assert sentence("{} of both: ", "60 cases") + sentence("{} better, {} worse", 60, 0) in str(rows)
    assert "&lt;b&gt;two" in html_of(rows)


@pytest.mark.parametrize(
    ("name", "content"),
    [("r.html", "<!DOCTYPE html>"), ("r.md", "# "), ("r.csv", "sweep,"), ("r.json", "{"), ("r.xml", "<?xml")],
)
def test_a_report_is_written_by_the_ending_of_its_path(
    handle: SweepHandle, tmp_path: Path, name: str, content: str
) -> None:
    assert handle.report(str(tmp_path / name)) == tmp_path / name
    assert content.lower() in (tmp_path / name).read_text("utf-8").lower()[:300]


def test_a_report_of_no_form_or_nowhere_is_refused(handle: SweepHandle, tmp_path: Path) -> None:
    assert handle.report()["matrix"]["rows"]
    for path, message in (("r.pdf", "there is no report in the form '.pdf'"), ("gone/r.md", "cannot be written")):
        with pytest.raises(InputError, match=message):
            handle.report(tmp_path / path)
