"""Figures over all cells of a row, wherever results go: matrix, CSV, report, pages, archives, scoring, redaction."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sklearn import metrics

from tests.support.project import Project
from tests.support.tickets import CASES, FIGURES, expected, written

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument


@pytest.fixture(scope="module")
def tickets(shared_project: Project) -> Project:
    written(shared_project)
    shared_project.inside("run", "sweep.yaml", "--quiet", check=0)
    return shared_project


def means(matrix: MatrixDocument) -> list[dict[str, float | None]]:
    return [{name: metric["mean"] for name, metric in row["metrics"].items()} for row in matrix["rows"]]


def test_a_matrix_has_them_and_its_csv_has_the_same(tickets: Project) -> None:
    matrix = tickets.json("matrix", "tickets")
    for figures, every in zip(means(matrix), (4, 8), strict=True):
        assert {name: figures[name] for name in ("macro_f1", "auc")} == pytest.approx(expected(every))
    lines = list(csv.DictReader(io.StringIO(tickets.text("matrix", "tickets", "--format", "csv"))))
    assert len(lines) == 2 * len(FIGURES)
    for line in lines:
        (row,) = [row for row in matrix["rows"] if row["combination"]["classify"] == line["node.classify"]]
        figure = row["metrics"][line["metric"]]
        assert float(line["mean"]) == pytest.approx(figure["mean"])
        assert [float(line["ci_low"]), float(line["ci_high"])] == pytest.approx(figure["ci"]), line["metric"]
        assert (int(line["n"]), line["better"]) == (
            CASES,
            "lower" if line["metric"] == "calibration_error" else "higher",
        )


def test_the_report_shows_them(tickets: Project) -> None:
    tickets.inside("report", "tickets", "--output", "report.html", check=0)
    text = " ".join(re.sub(r"<[^>]*>", " ", (tickets.folder / "report.html").read_text("utf-8")).split())
    for every in (4, 8):
        for mean in expected(every).values():
            assert f"{mean:.3f}" in text
    for figure in FIGURES:
        assert next(iter(figure)) in text


def test_a_finished_sweep_is_scored_by_them_as_if_it_had_been_from_the_start(tickets: Project, tmp_path: Path) -> None:
    other = Project(tmp_path / "other")
    written(other, evaluate=[{"exact_match": {"field": "kind"}}])
    other.inside("run", "sweep.yaml", "--quiet", check=0)
    options = [word for figure in FIGURES for word in ("--evaluate", json.dumps(figure))]
    other.inside("score", "tickets", *options, check=0)
    later = other.json("matrix", "tickets")
    first = tickets.json("matrix", "tickets")
    for row, same in zip(later["rows"], first["rows"], strict=True):
        for name, figure in same["metrics"].items():
            assert row["metrics"][name]["mean"] == pytest.approx(figure["mean"])
            assert row["metrics"][name]["ci"] == pytest.approx(figure["ci"])
    other.close()


def test_an_archive_has_what_a_cell_tells_of_them(tickets: Project, tmp_path: Path) -> None:
    ((execution,),) = tickets.query("SELECT execution_id FROM cells WHERE case_number = 4 AND combination = 0")
    tickets.inside("admin", "export", execution, "-o", str(tmp_path / "one.wtb"), check=0)
    imported = Project(tmp_path / "there")
    imported.inside("admin", "import", str(tmp_path / "one.wtb"), check=0)
    query = "SELECT metric, value, observed FROM scores WHERE observed IS NOT NULL"
    rows = tickets.query(f"{query} AND case_number = 4 AND combination = 0 ORDER BY metric")
    assert rows == imported.query(f"{query} ORDER BY metric")
    assert [json.loads(observed) for *_, observed in rows] == [[0, None], [0, None], ["delay", "praise"]]
    imported.close()


def test_of_redacted_classes_nothing_is_kept_and_they_are_one_class(empty_project: Project) -> None:
    written(empty_project, redact={"patterns": {"kind": "refund|delay"}})
    empty_project.inside("run", "sweep.yaml", "--quiet", check=0)
    observed = [text for (text,) in empty_project.query("SELECT observed FROM scores WHERE metric = 'macro_f1'")]
    assert {label for text in observed for label in json.loads(text)} == {"[redacted:kind]", "praise"}
    stored = b"".join(path.read_bytes() for path in empty_project.file.parent.rglob("*") if path.is_file())
    assert b'"delay"' not in stored
    matrix = empty_project.json("matrix", "tickets")
    for figures, every in zip(means(matrix), (4, 8), strict=True):
        truth = [x % 3 == 2 for x in range(CASES)]
        answers = [(x + (x % every == 0)) % 3 == 2 for x in range(CASES)]
        assert figures["macro_f1"] == pytest.approx(metrics.f1_score(truth, answers, average="macro"))
