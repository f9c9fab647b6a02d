"""Extending sweeps: new work, shared work, unchanged rows and rejected input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import wtb
from tests.support.abc_flow import Abc, changed, write_new
from tests.support.bench import Bench
from tests.support.project import Project
from tests.support.prose import sentence
from wtb.core.errors import ConflictError, InputError
from wtb.display.text.added_cases import PlannedExtension
from wtb.operations.results.comparing import set_baseline
from wtb.operations.running.extending import Extended, extend, plan_extension
from wtb.planning.sweep_spec import Variant
from wtb.store.read import queries

Make = Callable[..., Abc]
Vary = Mapping[str, Sequence[Variant]]


@pytest.fixture
def abc(bench: Callable[..., Bench], tmp_path: Path) -> Make:
    return lambda cases=8, **spec: Abc(tmp_path, bench, cases, **spec)


def cases_of(*numbers: int) -> list[dict[str, Any]]:
    return [{"id": f"c{number}", "input": {"x": number}} for number in numbers]


def add(flow: Abc, **options: Any) -> Extended:
    return extend(flow.context, flow.bench.sweep_id, run=False, code=flow.code, **options)


def plan(flow: Abc, **options: Any) -> PlannedExtension:
    return plan_extension(flow.context, flow.bench.sweep_id, code=flow.code, **options)


def outcomes(flow: Abc) -> dict[tuple[str, int, str], tuple[str, str]]:
    """(case, repeat, variant of b) -> (status, execution) of each cell."""
    every = queries.choices(flow.bench.database, flow.bench.sweep_id)
    return {
        (row.case, row.repeat, every[row.combination]["b"]): (row.status, str(row.execution_id))
        for row in queries.cell_rows(flow.bench.database, flow.bench.sweep_id)
    }


def test_new_cases_run_under_every_combination_and_no_node_of_an_old_cell_runs_again(abc: Make) -> None:
    flow = abc(repeats=2)
    before = outcomes(flow)
    added = add(flow, cases=cases_of(*range(8, 48)))
    assert (added.cells, added.cases, added.status) == (40 * 2 * 2, 40, "completed")
    flow.run()
    after = outcomes(flow)
    assert {key: after[key] for key in before} == before
    assert len(after) == 48 * 2 * 2
    assert {status for status, _ in after.values()} == {"succeeded"}
    assert flow.ran == Counter(a=40 * 2, b=40 * 2 * 2, c=40 * 2 * 2), "a is shared by the combinations of a case"
    assert flow.bench.row.status == "completed"
    assert flow.bench.row.cells == 48 * 4


def test_new_repeats_run_from_the_beginning_and_repeats_are_those_in_all(abc: Make) -> None:
    flow = abc(cases=3)
    before = outcomes(flow)
    added = add(flow, repeats=3)
    assert added.cells == 3 * 2 * 2
    assert added.repeats == 3
    flow.run()
    after = outcomes(flow)
    assert {key: after[key] for key in before} == before
    assert {repeat for _, repeat, _ in after} == {0, 1, 2}
    assert flow.ran == Counter(a=6, b=12, c=12)
    assert flow.matrix()["rows"][0]["n"] == 9


def test_a_new_variant_begins_where_it_differs_and_counts_as_planned(abc: Make) -> None:
    flow = abc(repeats=2)
    write_new(flow)
    planned = plan(flow, vary={"b": ["new"]})
    added = add(flow, vary={"b": ["new"]})
    assert planned.node_runs == (32, 32)
    assert planned.combinations == ({"b": "new"},)
    assert {name: getattr(added, name) for name in vars(planned)} == vars(planned)
    flow.run()
    assert flow.ran == Counter(b=16, c=16), "a ran already"
    matrix = flow.matrix()
    assert [row["combination"]["b"] for row in matrix["rows"]] == ["default", "loud", "new"]
    assert "exploratory" not in matrix["rows"][2]
    assert matrix["best"]["score"]["combination"] == {"b": "new"}


def test_several_new_variants_share_what_they_have_in_common(abc: Make) -> None:
    flow = abc(cases=4)
    write_new(flow)
    added = add(flow, vary={"b": ["off", "new"], "c": ["late"]})
    assert [dict(choices) for choices in added.combinations] == [
        {"b": "off", "c": "default"},
        {"b": "new", "c": "default"},
        {"b": "default", "c": "late"},
        {"b": "off", "c": "late"},
        {"b": "new", "c": "late"},
        {"b": "loud", "c": "late"},
    ]
    flow.run()
    assert flow.ran == Counter(b=4 * 2, c=4 * (2 * 2 + 2)), "off and new run b once each, for both variants of c"
    rows = [row["combination"] for row in flow.matrix()["rows"]]
    assert rows[:2] == [{"b": "default", "c": "default"}, {"b": "loud", "c": "default"}]
    assert len(rows) == 8


def test_cases_repeats_and_variants_together_make_a_whole_grid(abc: Make) -> None:
    flow = abc(cases=3)
    write_new(flow)
    options: dict[str, Any] = {"cases": cases_of(2, 3, 4), "repeats": 2, "vary": {"b": ["new"]}}
    planned, added = plan(flow, **options), add(flow, **options)
    assert (added.cells, added.cases, added.present) == (5 * 3 * 2 - 3 * 2, 2, 1)
    flow.run()
    assert planned.node_runs == (flow.ran.total(), flow.ran.total())
    assert Counter(status for status, _ in outcomes(flow).values()) == {"succeeded": 30}


def test_extending_again_adds_nothing(abc: Make) -> None:
    flow = abc(cases=3)
    write_new(flow)
    options: dict[str, Any] = {"cases": cases_of(3), "repeats": 2, "vary": {"b": ["new"]}}
    add(flow, **options)
    flow.run()
    before = outcomes(flow)
    second = add(flow, **options)
    assert (second.cells, second.present, second.cases) == (0, 1, 0)
    assert sentence("the sweep has {} already", "b=new") in second.notes
    assert outcomes(flow) == before
    assert len(flow.bench.row.spec["extensions"]) == 1


def test_what_had_failed_before_it_differs_fails_alike_and_a_retry_tries_both(abc: Make) -> None:
    flow = abc(cases=4, fails=[1])
    write_new(flow)
    added = add(flow, vary={"b": ["new"]})
    assert added.failed == 1
    flow.run()
    assert outcomes(flow)["c1", 0, "new"][0] == "failed"
    assert flow.ran == Counter(b=3, c=3)


def test_a_case_with_other_content_is_an_error_that_names_it(abc: Make) -> None:
    flow = abc(cases=3)
    changed = [{"id": "c1", "input": {"x": 77}}, {"id": "c2", "input": {"x": 2}, "expected": "y"}]
    with pytest.raises(InputError) as caught:
        add(flow, cases=changed)
    assert [problem.partition(";")[0] for problem in caught.value.problems] == [
        sentence("case {} is in the sweep with another {}", "'c1'", "input 'x'"),
        sentence("case {} is in the sweep with another {}", "'c2'", "expected value"),
    ]
    assert flow.bench.row.cells == 6


def test_an_input_that_is_there_under_another_id_is_a_warning_and_one_cluster(abc: Make) -> None:
    flow = abc(cases=3)
    added = add(flow, cases=[{"id": "twin", "input": {"x": 1}}])
    assert added.notes == (
        sentence("{} {} the input of a case that is in the sweep: {}", 1, "new case has", "'twin' that of 'c1'"),
    )
    flow.run()
    assert flow.matrix()["clusters"] == 3


def test_bad_input_and_a_baseline_are_rejected_before_anything_changes(abc: Make, subtests: pytest.Subtests) -> None:
    flow = abc(cases=2, repeats=2)
    same_name = {"name": "loud", "of": "default", "suffix": "?"}
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, sentence("nothing to add")),
        ({"repeats": 1}, sentence("expected at least as many")),
        ({"vary": {"x": ["new"]}}, sentence("the workflow has no node {}", "'x'")),
        ({"vary": {"b": ["newer"]}}, "newer"),
        ({"vary": {"b": [same_name]}}, sentence("another variant {}", "'loud'")),
        ({"cases": []}, "no cases"),
        ({"cases": [{"id": "c9", "inputs": {"x": 1}}]}, "inputs"),
        ({"cases": [{"id": "c9", "input": {"x": 1}}, {"id": "c9", "input": {"x": 2}}]}, "a second time"),
    ]
    for options, problem in wrong:
        with subtests.test(problem), pytest.raises(InputError, match=problem):
            add(flow, **options)
    set_baseline(flow.context, "main", flow.bench.sweep_id)
    with pytest.raises(ConflictError, match="baseline 'main'"):
        add(flow, repeats=3)
    assert flow.bench.row.cells == 8
    assert "extensions" not in flow.bench.row.spec


def test_changed_code_is_rejected_unless_it_is_allowed(abc: Make) -> None:
    flow = abc(cases=2)
    original = flow.bench.row.fingerprints["c"]["default"]
    flow.wf["c"].variants["default"] = replace(flow.wf["c"].variants["default"], fn=changed)
    with pytest.raises(ConflictError, match=sentence("the code of {}={} has changed", "c", "default")):
        add(flow, repeats=2)
    add(flow, repeats=2, allow_code_change=True)
    assert flow.bench.row.fingerprints["c"]["default"] != original


def test_held_out_cases_stay_out_and_old_membership_stays(abc: Make) -> None:
    flow = abc(cases=12, holdout=0.5)
    before = {case for case, _, _ in outcomes(flow)}
    added = add(flow, cases=cases_of(*range(40)))
    assert added.held_out > 0
    assert added.present == len(before)
    flow.run()
    after = {case for case, _, _ in outcomes(flow)}
    assert before < after
    assert len(after) == len(before) + added.cases


def test_what_was_shown_before_counts_as_a_look(abc: Make) -> None:
    flow = abc(cases=8)
    assert "look" not in " ".join(flow.matrix()["warnings"])
    add(flow, cases=cases_of(8, 9))
    flow.run()
    assert sentence("{} look at these rows by {}", "second", "score") in " ".join(flow.matrix()["warnings"])


def test_a_new_level_of_a_factor_stands_beside_every_other_level(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write({"grid_flow.py": GRID_FLOW, "sweep.yaml": GRID_SWEEP})
    project.inside("run", "sweep.yaml", "--quiet", check=0)
    added = project.inside("extend", "grid", "--vary", "answer.model=huge", "--dry-run", check=0).stdout
    assert sentence("{} of {} combinations", "8 new cells", 4) in added
    project.inside("extend", "grid", "--vary", "answer.model=huge", check=0)
    output = project.inside("extend", "grid", "--vary", "answer.model=huge", check=0)
    assert sentence("nothing new to add") in output.output
    assert "the sweep has answer.model=huge answer.temperature=0.7 already" in output.output
    rows = project.inside("matrix", "grid", "--format", "json", check=0).json["rows"]
    levels = {(row["combination"]["find"], *row["levels"].values()) for row in rows}
    assert levels == {
        (find, model, temperature)
        for find in ("default", "wide")
        for model in ("mini", "large", "huge")
        for temperature in ("0", "0.7")
    }
    cells = project.inside("show", "grid", "--cells", "--format", "json", check=0).json["cells"]
    assert len(cells) == 24
    number = project.inside("extend", "grid", "--vary", "answer.temperature=1.5", check=0)
    assert sentence("{} of {} combinations", "cells added", 6) in number.output
    temperatures = project.inside("matrix", "grid", "--format", "json", check=0).json["rows"]
    assert {row["levels"]["answer.temperature"] for row in temperatures} == {"0", "0.7", "1.5"}
    unknown = project.inside("extend", "grid", "--vary", "answer.modle=huge", check=2)
    assert "modle" in unknown.output


GRID_FLOW = """
from wtb import END, Workflow

wf = Workflow("grid")


@wf.node
def find(state):
    return {"found": "narrow"}


@find.variant("wide")
def wide(state):
    return {"found": "wide"}


@wf.node
def answer(state, *, model: str = "mini", temperature: float = 0.0):
    return {"y": f"{model} {temperature} {state['found']}"}


wf.entry(find)
wf.edge(find, answer)
wf.edge(answer, END)
"""
GRID_SWEEP = """
sweep: grid
workflow: grid_flow:wf
cases: [{id: a, input: {x: 1}}, {id: b, input: {x: 2}}]
vary: {find: all, answer: {model: [mini, large], temperature: [0, 0.7]}}
"""
LEVELS_FLOW = """
from typing import Any

from wtb import END, Workflow

wf = Workflow("levels")


@wf.node
def answer(state, *, t: Any = 0, model: str = "mini", share: float = 0.5):
    return {"y": f"{t!r} {model!r} {share!r}"}


wf.entry(answer)
wf.edge(answer, END)
"""
LEVELS_SWEEP = """
sweep: levels
workflow: levels_flow:wf
cases: [{id: a, input: {x: 1}}]
vary: {answer: {t: [5]}}
"""
JSON_LEVELS = [1, 1.0, "1", True, None, "5", [1, 2], {"a": 1}, 0.25, "true"]


def test_any_json_is_a_level_and_types_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = Project(tmp_path)
    project.write({"levels_flow.py": LEVELS_FLOW, "sweep.yaml": LEVELS_SWEEP})
    project.inside("run", "sweep.yaml", "--quiet", check=0)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with wtb.open() as bench:
        handle = bench.sweep("levels")
        added = handle.extend(vary={"answer.t": JSON_LEVELS})
        assert [row["answer"] for row in added.combinations] == [
            *("t=1", "t=1.0", 't="1"', "t=true", "t=null", 't="5"', "t=[1,2]", 't={"a":1}', "t=0.25", 't="true"')
        ]
        seen = {cell["state"]["y"] for cell in handle.cells()}
        assert seen == {f"{level!r} 'mini' 0.5" for level in [5, *JSON_LEVELS]}
        assert handle.plan_extension(vary={"answer.t": JSON_LEVELS}).cells == 0, "all of them are there"
        number = handle.plan_extension(vary={"answer.share": ["0.75"]})
        assert all("share=0.75" in row["answer"] for row in number.combinations), "no parameter of type float has text"
        text = handle.plan_extension(vary={"answer.model": ["7"]})
        assert all('model="7"' in row["answer"] for row in text.combinations)
        with pytest.raises(InputError, match=sentence("is {}; expected {}", 7, "str")):
            handle.plan_extension(vary={"answer.model": [7]})


def test_a_level_is_typed_as_its_parameter_takes_it_and_quoted_as_text(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write({"levels_flow.py": LEVELS_FLOW, "sweep.yaml": LEVELS_SWEEP})
    project.inside("run", "sweep.yaml", "--quiet", check=0)
    typed = ("answer.t=1", 'answer.t="1"', "answer.t=true", "answer.t=[1.0, null]", "answer.t={a: 1}", "answer.t=one")
    options = [part for text in typed for part in ("--vary", text)]
    planned = project.inside("extend", "levels", *options, "--dry-run", "--format", "json", check=0).json
    assert {row["answer"] for row in planned["combinations"]} == {
        *("t=1", 't="1"', "t=true", "t=1.0", "t=null", 't={"a":1}', "t=one")
    }
