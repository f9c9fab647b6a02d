"""Sweeps with missing cells: a difference, ★, gates and verdicts hold only if they survive these, on every surface."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import prose
from tests.support.model_provider import Fault, ModelProvider, model_provider
from wtb.core import provider_faults

if TYPE_CHECKING:
    from tests.support.project import Project

CASES = 150
FLOW = """
import hashlib

from wtb import END, Workflow, evaluator

wf = Workflow("crashes")


def passes(name, x):
    return hashlib.sha256(f"{name} {x}".encode()).digest()[0] < 0.7 * 256


@wf.node
def answer(state, *, name: str = "plain"):
    right = passes(name, state["x"])
    if not right and (name == "crashing" or (name == "seldom" and state["x"] < 10)):
        raise ValueError("too hard")
    return {"y": int(right)}


answer.variant("crashing", name="crashing")
answer.variant("seldom", name="seldom")
wf.entry(answer)
wf.edge(answer, END)


@evaluator(better="higher")
def quality(case, result) -> float:
    return float(result.state["y"])
"""
SPEC: dict[str, Any] = {
    "sweep": "crashes",
    "workflow": "crashes:wf",
    "cases": [{"id": f"c{x}", "input": {"x": x}} for x in range(CASES)],
    "vary": {"answer": ["default", "crashing"]},
    "evaluate": ["crashes:quality"],
    "baseline": {"answer": "default"},
}


def passes(name: str, x: int) -> bool:
    return hashlib.sha256(f"{name} {x}".encode()).digest()[0] < 0.7 * 256


@pytest.fixture(scope="module")
def crashes(shared_project: Project) -> Project:
    shared_project.write({"crashes.py": FLOW, "crashes.yaml": json.dumps(SPEC)})
    shared_project.inside("run", "crashes.yaml", "-q", check=1)
    return shared_project


def matrix_of(project: Project, name: str, *options: str) -> Any:
    return project.inside("matrix", name, "--format", "json", *options, check=0).json


def test_a_row_that_crashes_where_it_would_be_wrong_claims_nothing(crashes: Project) -> None:
    matrix = matrix_of(crashes, "crashes")
    row = matrix["rows"][1]["metrics"]["quality"]
    missing = CASES - row["n"]
    assert missing > 30
    assert row["p"] < 0.05
    assert (row["hangs_on"], row["missing"]) == (missing, missing)
    assert row["p_adjusted"] > 0.05
    assert not matrix["best"]["quality"]["clear"]
    low, high = row["delta_at_worst"]
    assert low < 0.1
    assert high == pytest.approx(row["delta_at_worst"][1])


def test_every_surface_shows_the_sentence(crashes: Project) -> None:
    matrix = matrix_of(crashes, "crashes")
    count = matrix["rows"][1]["metrics"]["quality"]["hangs_on"]
    sentence = f"the difference of answer=crashing hangs on {count} missing cells"
    assert any(
        sentence in warning and prose.sentence("declare `scale` or `on_failure`") in warning
        for warning in matrix["warnings"]
    )
    table = crashes.text("matrix", "crashes")
    assert sentence in " ".join(table.split())
    assert "*" not in re.findall(r"\+0\.\d+(\*?)", table)
    assert sentence in crashes.text("matrix", "crashes", "--format", "md")
    crashes.inside("report", "crashes", "--output", "report.html", check=0)
    assert f"hangs on {count} missing cells" in (crashes.folder / "report.html").read_text("utf-8")


def test_gates_hold_only_with_missing_cells_at_their_worst(crashes: Project) -> None:
    right = sum(passes("seldom", x) for x in range(CASES))
    lost = sum(not passes("seldom", x) for x in range(10))
    assert 3 <= lost <= 7, "so that the row is ranked"
    least, seen = right / CASES, right / (CASES - lost)
    gates = [
        f"quality.mean >= {least - 0.001}",
        f"quality.mean >= {(least + seen) / 2}",
        f"quality.mean >= {seen + 0.1}",
    ]
    gates += [f"quality.mean <= {(right + lost) / CASES - 0.001}", "quality.n > 0"]
    spec = {**SPEC, "sweep": "seldom", "vary": {"answer": ["seldom"]}, "baseline": {"answer": "seldom"}, "gates": gates}
    crashes.write({"seldom.yaml": json.dumps(spec)})
    crashes.inside("run", "seldom.yaml", "-q", check=1)
    decided = matrix_of(crashes, "seldom")["gates"]
    assert [gate["holds"] for gate in decided] == [True, None, False, None, True]
    assert decided[1]["because"] == f"it hangs on {lost} missing cells"
    assert f"it hangs on {lost} missing cells" in " ".join(crashes.text("matrix", "seldom").split())


def test_regress_says_nothing_that_missing_cells_could_change(crashes: Project) -> None:
    spec = {**SPEC, "sweep": "nights", "vary": {"answer": ["crashing"]}, "baseline": {"answer": "crashing"}}
    crashes.write({"nights.yaml": json.dumps(spec)})
    crashes.inside("run", "nights.yaml", "-q", check=1)
    crashes.inside("baseline", "set", "night", "nights", check=0)
    calm = FLOW.replace("if not right and", "if False and").replace(
        'return {"y": int(right)}', 'return {"y": int(passes("again", state["x"]))}'
    )
    crashes.write({"crashes.py": calm})
    done = crashes.inside("regress", "nights.yaml", "--baseline", "night", "-q", "--format", "json")
    (row,) = done.json["rows"]
    figures = row["metrics"]["quality"]
    assert figures["delta"] < -0.2, "all wrong answers of the earlier night are missing"
    assert (figures["verdict"], figures["hangs_on"]) == ("unclear", figures["missing"])
    assert figures["because"] == f"hangs on {figures['missing']} missing cells"
    assert any(f"hangs on {figures['missing']} missing cells" in why for why in done.json["because"])
    text = crashes.inside("compare", "night", "nights").stdout
    assert f"hangs on {figures['missing']} missing cells" in " ".join(text.split())
    crashes.write({"crashes.py": FLOW})


def test_a_declared_scale_takes_failures_as_wrong_and_nothing_hangs(crashes: Project) -> None:
    matrix = matrix_of(crashes, "crashes", "--on-failure", "0")
    row = matrix["rows"][1]["metrics"]["quality"]
    assert row["n"] == CASES
    assert "missing" not in row
    assert "hangs_on" not in row


ASKING = """
import openai

from wtb import END, Workflow

wf = Workflow("asks")
client = openai.OpenAI(api_key="k", max_retries=0)


@wf.node
def ask(state, *, prompt: str = "brief"):
    message = {"role": "user", "content": f"{prompt}: {state['q']}"}
    reply = client.chat.completions.create(model="m", messages=[message])
    return {"a": reply.choices[0].message.content}


ask.variant("careful", prompt="careful")
wf.entry(ask)
wf.edge(ask, END)
"""
ASKS: dict[str, Any] = {
    "sweep": "asks",
    "workflow": "asks:wf",
    "cases": [{"id": f"c{x}", "input": {"q": f"q{x:02}"}, "expected": {"a": "right"}} for x in range(40)],
    "vary": {"ask": "all"},
    "evaluate": [{"exact_match": {"field": "a"}}],
    "baseline": {"ask": "default"},
}


@pytest.fixture
def provider() -> Iterator[ModelProvider]:
    with model_provider() as running:
        yield running


def test_a_lead_that_a_provider_made_hangs_until_its_cells_are_run_again(
    empty_project: Project, provider: ModelProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_faults, "FIRST_WAIT_S", 0.01)
    empty_project.write({"asks.py": ASKING, "asks.yaml": json.dumps(ASKS)})
    questions: list[str] = []
    is_out = True

    def place_of(question: str) -> int:
        if question not in questions:
            questions.append(question)
        return questions.index(question)

    def reply(text: str) -> str:
        prompt, _, question = text.partition(": ")
        is_wrong = int(question[1:]) % 3 == 0 if prompt == "brief" else place_of(question) % 5 == 0
        return "wrong" if is_wrong else "right"

    def fault(number: int, text: str) -> Fault | None:
        prompt, _, question = text.partition(": ")
        return Fault(500) if prompt == "careful" and place_of(question) % 5 == 0 and is_out else None

    provider.answer, provider.fault = reply, fault
    environment = {"OPENAI_BASE_URL": f"{provider.url}/v1"}
    empty_project.inside("run", "asks.yaml", "-q", env=environment)
    matrix = matrix_of(empty_project, "asks")
    row = matrix["rows"][1]["metrics"]["exact_match"]
    assert (matrix["rows"][1]["lost_to_provider"], row["missing"]) == (8, 8)
    assert row["p"] < 0.05
    assert row["hangs_on"] == 8
    (warning,) = [text for text in matrix["warnings"] if "hangs on 8 missing cells" in text]
    assert f"`wtb retry {matrix['sweep']['id']} --provider`" in warning
    is_out = False
    empty_project.inside("retry", "asks", "--provider", "-q", env=environment)
    row = matrix_of(empty_project, "asks")["rows"][1]["metrics"]["exact_match"]
    assert row["n"] == 40
    assert "hangs_on" not in row
    assert row["p_adjusted"] > 0.05
