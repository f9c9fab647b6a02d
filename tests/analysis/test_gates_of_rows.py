"""Gates on rows by their levels hold for every matching row, or name the rows for which they do not."""

from __future__ import annotations

from typing import Any

import pytest

import wtb
from tests.support import prose
from tests.support.project import Project
from wtb.core.errors import InputError

SCORES = {("mini", "short"): 0.4, ("mini", "long"): 0.7, ("large", "short"): 0.8, ("large", "a, b"): 0.9}


def swept(gates: list[Any], **keys: Any) -> wtb.Sweep:
    wf = wtb.Workflow("answers")

    @wf.node
    def answer(state: Any, *, model: str = "mini", prompt: str = "short") -> dict[str, Any]:
        if prompt == "broken":
            raise ValueError("broken")
        return {"score": SCORES.get((model, prompt), 0.6)}

    wf.entry(answer)

    def quality(case: Any, result: Any) -> float:
        return float(result.state["score"])

    cases = [{"id": str(number), "input": {"x": number}} for number in range(3)]
    vary = {"answer": {"model": ["mini", "large"], "prompt": ["short", "long", "a, b"]}}
    return wtb.Sweep(workflow=wf, cases=cases, vary=keys.pop("vary", vary), evaluate=[quality], gates=gates, **keys)


def judged(gate: Any, **keys: Any) -> dict[str, Any]:
    (document,) = swept([gate], **keys).run(db="sqlite:///:memory:").matrix()["gates"]
    return dict(document)


def test_a_gate_holds_for_every_row_of_a_level() -> None:
    gate = judged("answer.model=large: quality.mean >= 0.6")
    assert gate["holds"] is True
    assert gate["because"] == "for all 3 rows: quality.mean = 0.6 to 0.9"


def test_a_gate_that_fails_names_the_row() -> None:
    gate = judged({"answer.model=mini": "quality.mean >= 0.65"})
    assert gate["gate"] == "answer.model=mini: quality.mean >= 0.65"
    assert (gate["holds"], gate["values"]) == (False, {"quality.mean": pytest.approx(0.4)})
    assert gate["because"] == (
        'does not hold for answer.model=mini answer.prompt=short; answer.model=mini answer.prompt="a, b", of 3 rows'
    )


@pytest.mark.parametrize(
    "rows",
    [
        "answer.model=large, answer.prompt=short",
        "answer.model=large,answer.prompt=short",
        'answer="model=large, prompt=short"',
        ' answer.model = "large" , answer.prompt = short ',
    ],
)
def test_a_gate_on_one_combination_has_its_figures(rows: str) -> None:
    gate = judged(f"{rows}: quality.mean > 0.75 and failed == 0")
    assert gate["holds"] is True
    assert gate["values"] == {"quality.mean": pytest.approx(0.8), "failed": 0.0}


def test_a_level_with_a_comma_stands_in_quotes() -> None:
    gate = judged('answer.prompt="a, b": quality.mean >= 0.7')
    assert gate["holds"] is False
    assert "answer.model=mini" in gate["because"]
    assert judged('answer.prompt="a, b", answer.model=large: quality.mean >= 0.7')["holds"] is True


def test_figures_of_all_rows_and_of_the_baseline_stand_beside_those_of_the_row() -> None:
    keys = {"baseline": {"answer.model": "large", "answer.prompt": "short"}}
    assert judged("answer.model=large: quality.mean >= max(quality.mean) - 0.35", **keys)["holds"] is True
    assert judged("answer.prompt=long: quality.mean > baseline.quality.mean", **keys)["holds"] is False


def test_a_row_without_scores_leaves_a_gate_undecided_unless_another_fails() -> None:
    vary = {"answer": {"prompt": ["short", "long", "broken"]}}
    assert judged("answer.prompt=broken: quality.mean > -1", vary=vary)["holds"] is None
    assert judged({"answer.prompt=short": "quality.mean >= 0.5"}, vary=vary)["holds"] is False


def test_a_part_of_a_sweep_without_these_rows_decides_nothing() -> None:
    sweep = swept(["answer.model=mini: quality.mean >= 0"])
    bench = wtb.open("sqlite:///:memory:")
    handle = bench.run(sweep, choices={"answer.model": "large"})
    (gate,) = handle.matrix()["gates"]
    assert gate["holds"] is None
    assert gate["because"] == prose.sentence("no row that was planned and runs to its end is meant by it")


@pytest.mark.parametrize(
    ("gate", "problem"),
    [
        ("answer.modle=mini: quality.mean > 0", prose.sentence("did you mean '{}'?", "answer.model")),
        (
            "answer.model=tiny: quality.mean > 0",
            prose.sentence("{} has no level {} in this sweep", "'answer.model'", "'tiny'"),
        ),
        ("answer=mini: quality.mean > 0", prose.sentence("did you mean '{}={}'?", "answer.model", "mini")),
        ("answer.model=mini: total > 0", prose.sentence("no evaluator gives {}", "'total'")),
        ("answer.model=mini: qualty.mean > 0", "'qualty'"),
        ("answer.model=mini, answer.model=large: quality.mean > 0", "expected FACTOR=LEVEL before the colon"),
        ("answer.model: quality.mean > 0", "expected FACTOR=LEVEL before the colon"),
        ({"answer.model=mini": 3}, "expected a comparison such as 'contains.mean >= 0.9', one of rows such as"),
        ({"answer.model=mini": "x", "b=c": "y"}, prose.sentence("or '{}: NAME' of a baseline", "no_worse_than")),
    ],
)
def test_a_gate_that_cannot_be_meant_is_rejected(gate: Any, problem: str) -> None:
    with pytest.raises(InputError) as raised:
        swept([gate]).prepare()
    (message,) = raised.value.problems
    assert message.startswith("gates[0]: ") or "'gates[0]'" in message
    assert problem in message


@pytest.mark.parametrize(
    ("gate", "sentence"),
    [
        ("x", "'gates[0]' is 'x'; expected METRIC.STATISTIC >= NUMBER, such as 'contains.mean >= 0.9'"),
        ("… and 3", "'gates[0]' is '… and 3'; expected METRIC.STATISTIC >= NUMBER, such as 'contains.mean >= 0.9'"),
        (
            "contains.mean >= 0.95 (0)",
            "'gates[0]' is 'contains.mean >= 0.95 (0)'; expected METRIC.STATISTIC >= NUMBER, such as "
            "'contains.mean >= 0.9', without '0.95(0)'",
        ),
        (
            "contains >= 90%",
            "'gates[0]' is 'contains >= 90%'; expected METRIC.STATISTIC >= NUMBER, such as 'contains.mean >= 0.9'; "
            "write 90% as 0.9",
        ),
        ("1 > 0", "'gates[0]' is '1 > 0'; expected METRIC.STATISTIC >= NUMBER, such as 'contains.mean >= 0.9'"),
        ("", "'gates[0]' is ''; expected METRIC.STATISTIC >= NUMBER, such as 'contains.mean >= 0.9'"),
        (
            "answer.model=mini: x",
            "'gates[0]' is 'answer.model=mini: x'; expected METRIC.STATISTIC >= NUMBER, such as 'contains.mean >= 0.9'",
        ),
    ],
)
def test_a_gate_that_cannot_be_read_is_one_sentence(gate: str, sentence: str) -> None:
    with pytest.raises(InputError) as raised:
        swept([gate])
    assert raised.value.problems == (sentence,)


def test_the_exit_code_and_the_matrix_of_a_sweep_file_name_the_row(empty_project: Project) -> None:
    code = "from wtb import Workflow\nwf = Workflow('w')\n"
    code += "@wf.node\ndef a(state, *, k: int = 1):\n    return {'y': k}\nwf.entry(a)\n"
    sweep = """\
workflow: flow:wf
cases: [{input: {}, expected: 2}]
vary: {a.k: [1, 2]}
evaluate: [exact_match: {field: y}]
gates:
- a.k=2: exact_match.mean >= 0.9
- a.k=1: exact_match.mean >= 0.9
"""
    empty_project.write({"flow.py": code, "sweep.yaml": sweep})
    run = empty_project.inside("run", "sweep.yaml", "--quiet", check=1)
    assert "gate holds: a.k=2: exact_match.mean >= 0.9 (1)" in run.stdout
    assert "GATE FAILED: a.k=1: exact_match.mean >= 0.9 (0)" in run.stdout
