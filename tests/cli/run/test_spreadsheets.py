"""A spreadsheet saved as CSV, by real commands: each problem is named once, and the suggested mapping works."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import TYPE_CHECKING, Any

import pytest

import wtb
from tests.support.prose import sentence

if TYPE_CHECKING:
    from tests.support.project import Project

FLOW = """
from typing import TypedDict

from wtb import END, Workflow


class State(TypedDict, total=False):
    question: str
    answer: str


wf = Workflow("ask", state=State)


@wf.node
def answer(state, *, upper: bool = False):
    return {"answer": state["question"].upper() if upper else state["question"]}


answer.variant("upper", upper=True)
wf.entry(answer)
wf.edge(answer, END)
"""
SWEEP: dict[str, Any] = {
    "workflow": "sheet:wf",
    "vary": {"answer": "all"},
    "evaluate": [{"exact_match": {"field": "answer"}}],
    "run": {"pool": "thread"},
}
# As a spreadsheet program of a European locale writes it.
SHEET = "\ufeffID;Question ;Expected Answer;Area\r\n" + "".join(
    f"Q{n}\u00a0;frage {n}, bitte;FRAGE {n}, BITTE;Ü {n}\r\n;;;\r\n" for n in range(1, 31)
)


@pytest.fixture(scope="module")
def sheet(shared_project: Project) -> Project:
    files = {"sheet.py": FLOW, "sheet.csv": SHEET, "sheet.yaml": sweep(cases="sheet.csv")}
    shared_project.write(files)
    return shared_project


def sweep(**keys: Any) -> str:
    return json.dumps({**SWEEP, **keys})


def offered(text: str) -> str:
    match = re.search(r"such as (columns: \{.*\})", " ".join(text.split()))
    assert match is not None, text
    return match[1]


def test_a_sheet_is_mapped_as_the_message_says_and_then_runs(sheet: Project) -> None:
    refused = sheet.inside("plan", "sheet.yaml", check=2)
    columns = offered(refused.output)
    assert columns == 'columns: {expected: "Expected Answer", ignore: ["Area"]}'
    assert len(refused.output.strip().splitlines()) <= 5
    yaml = "".join(f"{key}: {json.dumps(setting)}\n" for key, setting in SWEEP.items())
    sheet.write({"mapped.yaml": f"{yaml}cases: sheet.csv\n{columns}\n"})
    ran = sheet.inside("run", "mapped.yaml", check=0)
    assert "30 blank rows of sheet.csv skipped" in " ".join(ran.output.split())
    rows = sheet.json("matrix", "mapped")["rows"]
    means = {row["combination"]["answer"]: row["metrics"]["exact_match"]["mean"] for row in rows}
    assert means == {"default": 0.0, "upper": 1.0}
    cells = sheet.json("show", "mapped", "--cells", "--limit", "100")["cells"]
    assert {cell["case"] for cell in cells} == {f"Q{n}" for n in range(1, 31)}


def test_a_sweep_is_extended_by_a_sheet_with_the_same_headings(sheet: Project) -> None:
    columns = {"expected": "Expected Answer", "ignore": ["Area"]}
    sheet.write({"grown.yaml": sweep(cases="sheet.csv", columns=columns)})
    sheet.inside("run", "grown.yaml", "--quiet", "--limit", "3", check=0)
    sheet.write({"more.csv": "Expected Answer,Area,ID,Question\r\nNEU,x,Q99,neu\r\n,,,\r\n"})
    sheet.inside("extend", "grown", "--cases", "more.csv", check=0)
    cells = sheet.json("show", "grown", "--cells", "--case", "Q99")["cells"]
    assert [(cell["expected"], cell["scores"]["exact_match"]) for cell in cells] == [("NEU", 0.0), ("NEU", 1.0)]


def test_from_python_it_is_the_same(sheet: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(sheet.folder)
    monkeypatch.syspath_prepend(sheet.folder)
    with pytest.raises(wtb.InputError, match=r"map in the sweep file, such as columns: \{expected:"):
        wtb.Sweep(cases="sheet.csv", **SWEEP).prepare()
    mapped = wtb.Sweep(cases="sheet.csv", columns={"expected": "Expected Answer", "ignore": ["Area"]}, **SWEEP)
    assert (mapped.prepare().cases, mapped.prepare().blank_rows) == (30, 30)


def test_what_is_wrong_with_each_case_is_told_once(sheet: Project) -> None:
    rows = "".join(f"{n},x\n" for n in range(30))
    sheet.write(
        {
            "typed.py": FLOW.replace("class State(TypedDict, total=False):", "class State(BaseModel):")
            .replace("from typing import TypedDict", "from pydantic import BaseModel")
            .replace("question: str", "question: int")
            .replace('state["question"]', "state.question"),
            "typed.csv": f"id,question\n{rows}",
            "typed.yaml": sweep(workflow="typed:wf", cases="typed.csv"),
            "listed.yaml": sweep(cases=[{"id": f"c{n}", "input": {"Question": "x"}} for n in range(30)]),
        }
    )
    text = " ".join(sheet.refusal("plan", "typed.yaml").split())
    assert text.count("key 'question'") == 1
    assert "typed.csv: case '0' and 29 more: key 'question': " in text
    text = " ".join(sheet.refusal("plan", "listed.yaml").split())
    assert (
        "case 'c0' and 29 more: "
        + sentence("key {} is not in the state", "'Question'")
        + sentence("; did you mean '{}'?", "question")
        in text
    )


def test_ids_are_found_however_they_are_typed(sheet: Project) -> None:
    composed, decomposed = (unicodedata.normalize(form, "Straße é") for form in ("NFC", "NFD"))
    cases = [{"id": f" {decomposed}", "input": {"question": "a"}}, {"id": "b", "input": {"question": "b"}}]
    sheet.write({"ids.yaml": sweep(cases=cases)})
    sheet.inside("run", "ids.yaml", "--quiet", check=0)
    for typed in (composed, decomposed, f"{decomposed} "):
        assert sheet.json("plan", "ids.yaml", f"--case={typed}")["cases"] == 1
        cells = sheet.json("show", "ids", "--cells", "--case", typed)["cells"]
        assert [cell["case"] for cell in cells] == [composed, composed]
