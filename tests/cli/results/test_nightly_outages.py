"""Verdicts, gates and winners of nightly sweeps, if the provider fails in 5% of calls, and if it never answers some."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import model_provider as provider_of
from tests.support.model_provider import Fault, ModelProvider, limited, model_provider
from tests.support.prose import sentence
from wtb.core import provider_faults

if TYPE_CHECKING:
    from tests.support.project import Project

pytestmark = pytest.mark.nodes("clients")  # importing openai takes a second of a processor

FLOW = """
import openai

from wtb import END, Workflow

wf = Workflow("nightly")
client = openai.OpenAI(api_key="k", max_retries=0)


@wf.node
def ask(state, *, prompt: str = "brief"):
    message = {"role": "user", "content": f"{prompt}: {state['q']}"}
    reply = client.chat.completions.create(model="m", messages=[message])
    return {"a": reply.choices[0].message.content}


for prompt in ("careful", "long"):
    ask.variant(prompt, prompt=prompt)
wf.entry(ask)
wf.edge(ask, END)
"""
CASES = 21
SPEC = {
    "sweep": "nightly",
    "workflow": "nightly:wf",
    "cases": [{"id": f"c{x}", "input": {"q": f"q{x}"}, "expected": {"a": "right"}} for x in range(CASES)],
    "vary": {"ask": "all"},
    "evaluate": [{"exact_match": {"field": "a"}}],
    "gates": [
        "exact_match.mean >= 0.8",
        "min(exact_match.mean) >= 0.4",
        "failed == 0",
        "provider_failures <= 0.02",
        "no_worse_than: main",
    ],
}
RATES = {"brief": 0.5, "careful": 0.9, "long": 0.6}
WORSE = {**RATES, "careful": 0.45}
FAULTS = [
    Fault(429, "rate_limit_exceeded", "Rate limit reached", {"retry-after-ms": "5"}),
    limited("0.01"),
    Fault(503),
    provider_of.RESET,
    Fault(408, "timeout", "Request timeout"),
    provider_of.OVERLOADED,
    provider_of.CUT_JSON,
]
ENDLESS = [
    Fault(500),
    provider_of.RESET,
    Fault(408),
    provider_of.CUT_JSON,
    Fault(502),
    provider_of.CUT_BODY,
    Fault(504),
]


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_faults, "FIRST_WAIT_S", 0.01)


@pytest.fixture
def provider() -> Iterator[ModelProvider]:
    with model_provider() as running:
        yield running


@pytest.fixture
def nightly(empty_project: Project) -> Project:
    empty_project.write({"nightly.py": FLOW, "sweep.yaml": json.dumps(SPEC)})
    return empty_project


def model(rates: dict[str, float]) -> Callable[[str], str]:
    """Return a model that is right at a rate for each prompt: of every question always or never."""

    def answer(text: str) -> str:
        drawn = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) / 2**32
        return "right" if drawn < rates[text.partition(":")[0]] else "wrong"

    return answer


def every_twentieth(number: int, text: str) -> Fault | None:
    return FAULTS[number // 20 % len(FAULTS)] if number % 20 == 7 else None


def never_for_every_seventh() -> Callable[[int, str], Fault | None]:
    """Return faults for 14% of the questions, in every call. Other questions follow each of them."""
    questions: list[str] = []

    def fault(number: int, text: str) -> Fault | None:
        question = text.partition(": ")[2]
        if question not in questions:
            questions.append(question)
        turn, place = divmod(questions.index(question), 7)
        return ENDLESS[turn] if place == 0 else None

    return fault


def run_night(nightly: Project, provider: ModelProvider, *command: str) -> Any:
    done = nightly.inside(*command, "sweep.yaml", "-q", env={"OPENAI_BASE_URL": f"{provider.url}/v1"})
    assert done.code in (0, 1), done.stderr
    return done


def results_of(nightly: Project) -> dict[str, Any]:
    """Return the verdict, gates and winner of the latest night."""
    matrix = nightly.json("matrix", "nightly")
    return {
        "best": matrix["best"],
        "means": [row["metrics"]["exact_match"]["mean"] for row in matrix["rows"]],
        "gates": matrix["gates"],
        "ended": [(row["succeeded"], row["failed"], row.get("lost_to_provider", 0)) for row in matrix["rows"]],
    }


def nights(nightly: Project, provider: ModelProvider, fault: Callable[[int, str], Fault | None]) -> list[Any]:
    """Run the baseline, a night without a change, and one in which the best prompt got worse."""
    results = []
    for night, rates in (("first", RATES), ("second", RATES), ("third", WORSE)):
        provider.answer, provider.fault = model(rates), fault
        compared: dict[str, Any] = {}
        if night == "first":
            nightly.write({"sweep.yaml": json.dumps({**SPEC, "gates": SPEC["gates"][:-1]})})  # type: ignore[index]
            table = run_night(nightly, provider, "run").stdout
            assert (sentence("no cells were lost") in table) is (len(provider.requests) > 3 * CASES)
            nightly.inside("baseline", "set", "main", "nightly", check=0)
            nightly.write({"sweep.yaml": json.dumps(SPEC)})
        else:
            document = run_night(nightly, provider, "regress", "--baseline", "main", "--format", "json").json
            compared = {"verdict": document["verdict"], "because": document["because"]}
            compared["rows"] = [(row["combination"], row["verdict"]) for row in document["rows"]]
        results.append({**results_of(nightly), **compared})
    return results


def test_faults_in_5_percent_of_calls_change_no_verdict_gate_or_winner(
    nightly: Project, provider: ModelProvider
) -> None:
    undisturbed = nights(nightly, provider, lambda number, text: None)
    calls = len(provider.requests)
    assert calls == 3 * 3 * CASES
    provider.requests.clear()
    shutil.rmtree(nightly.folder / ".wtb")  # in the same database these would be further looks at the same rows
    disturbed = nights(nightly, provider, every_twentieth)
    failed_calls = len(provider.requests) - calls
    assert failed_calls == pytest.approx(0.05 * len(provider.requests), abs=2)
    assert disturbed == undisturbed
    assert [night.get("verdict") for night in disturbed[1:]] == ["same", "worse"]
    assert [night["best"]["exact_match"]["combination"]["ask"] for night in disturbed[:2]] == ["careful"] * 2
    assert all(night["ended"] == [(CASES, 0, 0)] * 3 for night in disturbed)


@pytest.mark.parametrize("rates", [RATES, WORSE], ids=["unchanged", "worse"])
def test_a_night_that_loses_14_percent_of_its_cells_is_unclear(
    nightly: Project, provider: ModelProvider, rates: dict[str, float]
) -> None:
    provider.answer = model(RATES)
    nightly.write({"sweep.yaml": json.dumps({**SPEC, "gates": []})})
    run_night(nightly, provider, "run")
    nightly.inside("baseline", "set", "main", "nightly", check=0)
    provider.answer, provider.fault = model(rates), never_for_every_seventh()
    done = run_night(nightly, provider, "regress", "--baseline", "main", "--strict")
    assert done.code == 1
    assert done.stdout.startswith("unclear against main")
    assert sentence(
        "{} of {} lost to the provider in the {} sweep", "14%", "cells of one combination", "later"
    ) in " ".join(done.stdout.split())
    matrix = nightly.json("matrix", "nightly")
    assert (matrix["provider"]["lost"], matrix["provider"]["share"]) == (9, 1 / 7)
    assert not matrix["best"]["exact_match"]["clear"]
