"""Looks across sweeps, as a user makes them: again, with more cases, after screening, after a deletion, elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from tests.support import prose

if TYPE_CHECKING:
    from tests.support.project import Project

FLOW = """
import random

from wtb import END, Workflow, evaluator

wf = Workflow("answers")


@wf.node
def answer(state, *, skill: float = 0.5):
    return {"right": random.SystemRandom().random() < skill}


for number in range(1, 6):
    answer.variant(f"v{number}", skill=0.5 + number / 1000)
answer.variant("again", skill=0.501)
wf.entry(answer)
wf.edge(answer, END)


@evaluator(better="higher", scale=(0, 1))
def right(case, result):
    return float(result.state["right"])


@evaluator(better="lower", scale=(0, 1))
def wrong(case, result):
    return float(not result.state["right"])
"""


def sweep(cases: int, *variants: str, evaluator: str = "right", first: int = 0) -> str:
    lines = ", ".join(f"{{id: c{n}, input: {{x: {n}}}}}" for n in range(first, first + cases))
    return f"""
sweep: answers
workflow: answers:wf
cases: [{lines}]
vary: {{answer: [default, {", ".join(variants)}]}}
evaluate: ["answers:{evaluator}"]
run: {{pool: thread}}
"""


@pytest.fixture
def answers(empty_project: Project) -> Project:
    empty_project.write({"answers.py": FLOW})
    return empty_project


def run(project: Project, text: str, *options: str) -> dict[str, Any]:
    """Run a sweep. Returns its matrix."""
    project.write({"sweep.yaml": text})
    outcome = project.inside("run", "sweep.yaml", "-q", "--format", "json", *options)
    assert outcome.code == 0, outcome.stderr
    matrix: dict[str, Any] = outcome.json
    return matrix


def looks(matrix: dict[str, Any], metric: str = "right") -> int:
    number: int = matrix["best"][metric]["looks"]
    return number


def test_the_same_sweep_with_fresh_noise_is_another_look(answers: Project) -> None:
    first, second, third = (run(answers, sweep(10, "v1")) for _ in range(3))
    assert [looks(document) for document in (first, second, third)] == [1, 2, 3]
    assert not any(prose.sentence("look at these rows") in text for text in first["warnings"])
    levels = [document["best"]["right"]["level"] for document in (first, second, third)]
    assert levels[0] == 0.05
    assert levels[0] > levels[1] > levels[2] > 0

    sentence = "third look at these rows by right: p, ★ and * allow for it"
    ids = " ".join(document["sweep"]["id"] for document in (first, second, third))
    pool = (
        f"3 sweeps ran these rows over these cases: pool them as repeats with `wtb pool {ids}` for narrower intervals"
    )
    id = third["sweep"]["id"]
    for command in (
        ("matrix", id, "--warnings"),
        ("matrix", id, "--format", "md"),
        ("report", id, "--format", "json"),
        ("report", id, "--format", "html"),
        ("report", id, "--format", "junit"),
    ):
        output = answers.text(*command)
        if "junit" in command:
            output = " ".join(ElementTree.fromstring(output).itertext()) + output
        output = output.replace("\\", "")  # of Markdown
        assert all(text in " ".join(output.split()) for text in (sentence, pool)), command


def test_more_cases_and_screening_before_a_superset_are_looks(answers: Project) -> None:
    run(answers, sweep(8, "v1", "v2", "v3", "v4", "v5"))
    larger = run(answers, sweep(20, "v3"))
    assert looks(larger) == 2
    assert larger["best"]["right"]["tried"] == 1 + 2, "each of the five counts by the 8 of 20 cases that it had"
    whole = run(answers, sweep(30, "v3"))
    assert looks(whole) == 3
    assert prose.sentence("{} look at these rows by {}", "third", "right") in " ".join(whole["warnings"])
    assert "wtb pool" not in " ".join(whole["warnings"])


def test_a_renamed_variant_and_another_metric_are_looks_and_other_code_is_another_row(answers: Project) -> None:
    run(answers, sweep(10, "v1"))
    assert looks(run(answers, sweep(10, "again"))) == 2
    other = run(answers, sweep(10, "v1", evaluator="wrong"))
    assert looks(other, "wrong") == 3
    answers.write({"answers.py": FLOW.replace("< skill}", "<= skill}")})
    changed = run(answers, sweep(10, "v1"))
    assert looks(changed) == 1
    assert changed["best"]["right"]["tried"] == 4


def test_a_deleted_sweep_still_counts_and_is_not_named(answers: Project) -> None:
    first = run(answers, sweep(10, "v1"))["sweep"]["id"]
    answers.inside("delete", first, "--yes", check=0)
    answers.inside("admin", "gc", check=0)
    document = run(answers, sweep(10, "v1"))
    assert looks(document) == 2
    text = " ".join(document["warnings"])
    assert prose.sentence("{} look at these rows by {}: p, ★ and * allow for it", "second", "right") in text
    assert first not in text
    assert "wtb pool" not in text


def test_another_project_or_session_sees_nothing_of_a_look(answers: Project) -> None:
    for name in ("one", "two"):
        answers.inside("admin", "project", "create", name, check=0)
        answers.inside("admin", "session", "create", f"of-{name}", "--project", name, check=0)
    first = run(answers, sweep(10, "v1") + "session: of-one\n")
    assert looks(run(answers, sweep(10, "v1") + "session: of-one\n")) == 2
    other = run(answers, sweep(10, "v1") + "session: of-two\n")
    assert looks(other) == 1
    assert other["best"]["right"]["tried"] == 1
    assert first["sweep"]["id"] not in str(other)
