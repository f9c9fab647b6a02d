"""Grids of levels in a sweep: their notation, their variants and errors."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.support.prose import sentence
from wtb.authoring.workflow import END, Workflow
from wtb.core.errors import InputError
from wtb.core.factors import factors_of, sha256_of
from wtb.core.tree.combinations import in_words
from wtb.operations.running.published import sweep_to_send
from wtb.planning.binding import Bound, bind
from wtb.planning.picking import Only
from wtb.planning.prepare import Prepared, as_written, prepare
from wtb.planning.sweep_spec import load_spec, parse_spec

CASES = [{"id": "a", "input": {"q": "hi"}}]


def workflow() -> Workflow:
    wf = Workflow("app")

    @wf.node
    def retrieve(state: Any, *, k: int = 3) -> dict[str, Any]:
        return {"docs": k}

    @wf.node
    def answer(
        state: Any, *, prompt: str = "", model: Literal["mini", "large"] = "mini", temperature: float = 0.0
    ) -> dict[str, Any]:
        return {"answer": [prompt, model, temperature]}

    @wf.node(name="answer.check")
    def check(state: Any, *, strict: bool = False, **options: Any) -> dict[str, Any]:
        return {}

    retrieve.variant("deep", k=9)
    answer.variant("terse", prompt="Be terse.")
    wf.entry(retrieve)
    wf.edge(retrieve, answer)
    wf.edge(answer, check)
    wf.edge(check, END)
    return wf


def spec_with(**keys: Any) -> Any:
    return parse_spec({"workflow": "app", "cases": CASES, **keys})


def bound_to(**keys: Any) -> Bound:
    return bind(spec_with(**keys), workflow())


def prepared(**keys: Any) -> Prepared:
    return prepare(spec_with(**keys), workflow=workflow())


def refusals(**keys: Any) -> list[str]:
    with pytest.raises(InputError) as raised:
        prepared(**keys)
    return list(raised.value.problems)


def combinations(**keys: Any) -> list[str]:
    return [in_words(choices) for choices in prepared(**keys).choices]


@pytest.mark.parametrize(
    "vary",
    [
        {"answer": {"model": ["mini", "large"], "temperature": [0, 0.7]}},
        {"answer": [{"model": ["mini", "large"], "temperature": [0, 0.7]}]},
        {"answer.model": ["mini", "large"], "answer.temperature": [0, 0.7]},
        {"answer": {"model": ["mini", "large"]}, "answer.temperature": [0, 0.7]},
    ],
)
def test_a_grid_becomes_one_variant_for_each_combination_of_levels(vary: dict[str, Any]) -> None:
    bound = bound_to(vary=vary)
    names = [
        "model=mini, temperature=0",
        "model=mini, temperature=0.7",
        "model=large, temperature=0",
        "model=large, temperature=0.7",
    ]
    assert list(bound.vary["answer"]) == names
    variants = bound.workflow.nodes["answer"].variants
    assert [variants[name].params for name in names] == [
        {"model": "mini", "temperature": 0},
        {"model": "mini", "temperature": 0.7},
        {"model": "large", "temperature": 0},
        {"model": "large", "temperature": 0.7},
    ]
    assert len(set(bound.fingerprints["answer"].values())) == 4


def test_the_stored_sweep_has_the_points_and_is_read_back_as_it_was() -> None:
    bound = bound_to(vary={"answer": ["terse", {"of": "terse", "temperature": [0.5, 1]}], "retrieve": "all"})
    stored = bound.spec.as_stored()
    assert stored["vary"] == {
        "answer": [
            {"name": "terse"},
            {"name": "terse, temperature=0.5", "of": "terse", "levels": [["temperature", 0.5]]},
            {"name": "terse, temperature=1", "of": "terse", "levels": [["temperature", 1]]},
        ],
        "retrieve": "all",
    }
    second_spec = parse_spec(as_written(stored))
    assert second_spec == bound.spec
    assert bind(second_spec, workflow()).fingerprints == bound.fingerprints
    (temperature,) = factors_of(stored["vary"])["answer"]
    assert (temperature.is_nested, [level.label for level in temperature.levels]) == (True, ["0.5", "1"])


def test_a_range_has_levels_at_equal_distances_with_both_ends() -> None:
    def levels(**ends: Any) -> list[Any]:
        bound = bound_to(vary={"answer.temperature": ends})
        return [ref.levels["temperature"] for ref in bound.spec.variants["answer"] if not isinstance(ref, str)]

    assert levels(**{"from": 0, "to": 1, "steps": 5}) == [0, 0.25, 0.5, 0.75, 1]
    assert levels(**{"from": 0.1, "to": 0.4, "steps": 4}) == [0.1, 0.2, 0.3, 0.4]
    assert levels(**{"from": 1.0, "to": 0, "steps": 2}) == [1.0, 0.0]


def test_a_key_with_a_dot_is_the_node_of_that_name_or_a_parameter() -> None:
    node = bound_to(vary={"answer.check": ["default", {"strict": [True]}], "answer.model": ["mini", "large"]})
    assert {key: list(names) for key, names in node.vary.items()} == {
        "answer.check": ["default", "strict=true"],
        "answer": ["model=mini", "model=large"],
    }
    parameters = bound_to(vary={"answer.check.strict": [True, False], "answer.check.level": [1, 2]})
    assert list(parameters.vary["answer.check"])[:2] == ["strict=true, level=1", "strict=true, level=2"]


def test_the_name_of_a_point_does_not_depend_on_other_levels() -> None:
    few = bound_to(vary={"answer": {"model": ["mini"], "temperature": [0.5]}})
    many = bound_to(vary={"answer": {"model": ["large", "mini"], "temperature": {"from": 0.0, "to": 1.0, "steps": 3}}})
    (name,) = few.vary["answer"]
    assert few.fingerprints["answer"][name] == many.fingerprints["answer"][name]


@pytest.mark.parametrize(
    ("vary", "problem"),
    [
        (
            {"answer": {"modl": ["mini"]}},
            "vary.answer.modl: "
            + sentence("{}: takes no parameter {}", "node 'answer'", "'modl'")
            + sentence("; did you mean '{}'?", "model"),
        ),
        (
            {"answer.modl": ["mini"]},
            "vary.answer.modl: "
            + sentence("{}: takes no parameter {}", "node 'answer'", "'modl'")
            + sentence("; did you mean '{}'?", "model"),
        ),
        (
            {"anser.model": ["mini"]},
            "vary.anser.model: "
            + sentence("workflow {} has no node or parameter {}", "'app'", "'anser.model'")
            + sentence("; did you mean '{}", "answer.m"),
        ),
        (
            {"anser": {"model": ["mini"]}},
            "vary.anser: "
            + sentence("workflow {} has no node {}", "'app'", "'anser'")
            + sentence("; did you mean '{}'?", "answer"),
        ),
        (
            {"answer": {"temperature": [0, "hot"]}},
            "vary.answer.temperature[1]: node 'answer': parameter 'temperature' is 'hot'; expected float",
        ),
        ({"answer": {"model": ["mini", "huge"]}}, "vary.answer.model[1]: node 'answer': parameter 'model' is 'huge'"),
        ({"answer": {"model": ["mini", "mini"]}}, "'vary.answer.model[1]' has the level mini a second time"),
        (
            {"answer": {"model": "mini"}},
            "'vary.answer.model' has 'mini'; expected a list of levels, such as [mini], or a range",
        ),
        ({"answer": {"model": []}}, "'vary.answer.model' has an empty list; expected at least one level"),
        ({"answer": {}}, "'vary.answer' has no parameters; expected a list of levels for at least one"),
        ({"answer": {"name": "terse"}}, "'vary.answer' has 'name'; expected a list of variants, or a grid"),
        ({"answer": {"temperature": {"from": 0, "to": 1}}}, "'vary.answer.temperature' has an incomplete range"),
        (
            {"answer": {"temperature": {"from": 0, "to": 1, "step": 2}}},
            "'vary.answer.temperature' has unknown key 'step' of a range",
        ),
        (
            {"answer.temperature": {"from": 0, "to": 1, "steps": 1}},
            "vary.answer.temperature.steps: "
            + sentence("{}; expected a number of levels from 2", "'answer.temperature' has 1"),
        ),
        (
            {"answer": {"temperature": {"from": 0, "to": True, "steps": 2}}},
            "'vary.answer.temperature.to' has true; expected a finite number",
        ),
        (
            {"answer": {"temperature": {"from": 1, "to": 1, "steps": 2}}},
            "'vary.answer.temperature' has a range from 1 to itself",
        ),
        ({"answer": {"temperature": [float("nan")]}}, "'vary.answer.temperature[0]' has nan; expected a finite number"),
        ({"answer": {"temperature": [1e20]}}, "'vary.answer.temperature[0]' has 1e+20, which no database keeps"),
        ({"answer": {"model": [object()]}}, "'vary.answer.model[0]' has an object of builtins.object"),
        ({"answer": {"k v": [1]}}, "'vary.answer.k v' has no parameter of a function: 'k v'"),
        (
            {"answer": {"of": "tense", "model": ["mini"]}},
            "vary.answer[0].of: "
            + sentence("node {} has no variant {} to derive from", "'answer'", "'tense'")
            + sentence("; did you mean '{}'?", "terse"),
        ),
        (
            {"answer": ["terse"], "answer.model": ["mini"]},
            sentence("'vary.{}' lists variants, and '{}.PARAMETER' has levels", "answer", "answer"),
        ),
        (
            {"answer": {"model": ["mini"]}, "answer.model": ["large"]},
            "vary.answer.model: 'answer.model' has levels at vary.answer.model, too",
        ),
        (
            {"answer": ["default", {"model": ["mini", "large"]}]},
            "vary.answer[1]: "
            + sentence("the variants {} and {} of node {} are equal", "'default'", "'model=mini'", "'answer'"),
        ),
        (
            {"answer": [{"name": "hot", "temperature": 0.7}, {"temperature": [0.7]}]},
            "vary.answer[1]: "
            + sentence("the variants {} and {} of node {} are equal", "'hot'", "'temperature=0.7'", "'answer'"),
        ),
        (
            {
                "retrieve": {"k": {"from": 1, "to": 5000, "steps": 5000}},
                "answer": {"temperature": {"from": 0, "to": 1, "steps": 5000}, "prompt": ["a", "b", "c"]},
            },
            "vary.answer: "
            + sentence("the grid of node {} has {} = {} points; expected at most", "'answer'", "5,000 x 3", "15,000"),
        ),
    ],
)
def test_what_is_wrong_with_a_grid_is_refused_where_it_stands(vary: dict[str, Any], problem: str) -> None:
    problems = refusals(vary=vary)
    assert [text for text in problems if text.startswith(problem)], problems


def test_levels_of_other_types_are_other_levels() -> None:
    bound = bound_to(vary={"answer.check": [{"level": [1, 1.0, "1", True]}]})
    assert list(bound.vary["answer.check"]) == ["level=1", "level=1.0", 'level="1"', "level=true"]
    assert len(set(bound.fingerprints["answer.check"].values())) == 4


def test_an_ambiguous_key_is_refused() -> None:
    wf = workflow()

    @wf.node(name="answer.model")
    def model(state: Any) -> dict[str, Any]:
        return {}

    wf.edge("answer.check", model)
    wf.edge(model, END)
    with pytest.raises(InputError, match=r"'answer\.model' is ambiguous: it is a node, and the parameter 'model'"):
        bind(spec_with(vary={"answer.model": ["mini"]}), wf)
    assert list(bind(spec_with(vary={"answer.model": [{"name": "default"}]}), wf).vary) == ["answer.model"]
    assert list(bind(spec_with(vary={"answer": {"model": ["large"]}}), wf).vary) == ["answer"]


GRID = {"retrieve": "all", "answer": {"model": ["mini", "large"], "temperature": [0, 0.7]}}


def test_the_baseline_is_named_by_levels() -> None:
    assert prepared(vary=GRID, baseline={"answer.model": "large"}).baseline == {
        "retrieve": "default",
        "answer": "model=large, temperature=0",
    }
    both = {"answer.model": "large", "answer.temperature": 0.7, "retrieve": "deep"}
    assert in_words(prepared(vary=GRID, baseline=both).baseline or {}) == (
        "retrieve=deep answer.model=large answer.temperature=0.7"
    )


def test_levels_exclude_all_variants_that_have_them() -> None:
    remaining = combinations(
        vary=GRID, exclude=[{"answer.model": "large", "answer.temperature": [0.7], "retrieve": "deep"}]
    )
    assert len(remaining) == 7
    assert "retrieve=deep answer.model=large answer.temperature=0.7" not in remaining
    assert len(combinations(vary=GRID, exclude=[{"answer.temperature": [0, 0.7], "retrieve": "deep"}])) == 4


def test_one_at_a_time_changes_one_factor_at_a_time() -> None:
    assert combinations(vary=GRID, combinations="one-at-a-time", baseline={"answer.model": "large"}) == [
        "retrieve=default answer.model=large answer.temperature=0",
        "retrieve=deep answer.model=large answer.temperature=0",
        "retrieve=default answer.model=mini answer.temperature=0",
        "retrieve=default answer.model=large answer.temperature=0.7",
    ]


def test_combinations_are_listed_by_levels_the_others_being_those_of_the_baseline() -> None:
    listed = [{"answer.model": "large"}, {"answer.temperature": 0, "retrieve": "deep"}]
    baseline = {"answer.temperature": 0.7, "answer.model": "large"}
    assert combinations(vary=GRID, combinations=listed, baseline=baseline) == [
        "retrieve=default answer.model=large answer.temperature=0.7",
        "retrieve=deep answer.model=large answer.temperature=0",
    ]


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (
            {"baseline": {"answer.model": "huge"}},
            "baseline.answer.model: no level huge of 'answer.model'; expected one of: mini, large",
        ),
        ({"baseline": {"answer.temperature": "0.7"}}, None),
        (
            {"baseline": {"answer.temperature": 0.0}},
            "baseline.answer.temperature: no level 0.0 of 'answer.temperature'",
        ),
        (
            {"baseline": {"answer.prompt": "x"}},
            "baseline.answer.prompt: " + sentence("no node or factor {} under 'vary'", "'answer.prompt'"),
        ),
        (
            {"exclude": [{"answer.model": "mini", "answer": "model=large, temperature=0"}]},
            "exclude[0].answer: no variant of node 'answer' fits 'answer.model' and 'answer'",
        ),
    ],
)
def test_levels_that_are_not_in_the_sweep_are_refused(keys: dict[str, Any], problem: str | None) -> None:
    if problem is None:
        prepared(vary=GRID, **keys)
    else:
        problems = refusals(vary=GRID, **keys)
        assert [text for text in problems if text.startswith(problem)], problems


@pytest.mark.parametrize(
    ("choices", "count"),
    [
        ({"answer.model": "mini"}, 4),
        ({"answer.model": "mini", "answer.temperature": "0.7"}, 2),
        ({"answer": "model=mini, temperature=0.7", "retrieve": "deep"}, 1),
    ],
)
def test_a_part_of_a_sweep_is_chosen_by_levels(choices: dict[str, str], count: int) -> None:
    part = prepare(spec_with(vary=GRID), workflow=workflow(), only=Only(choices=choices))
    assert len(part.choices) == count


@pytest.mark.parametrize(
    ("choices", "problem"),
    [
        (
            {"answer.model": "huge"},
            "combination"
            + sentence("{} has no level {} in this sweep", ": 'answer.model'", "'huge'")
            + sentence("; expected one of: {}", "mini"),
        ),
        (
            {"answer.modl": "mini"},
            sentence("{}the sweep does not vary a node {}", "combination: ", "'answer.modl'")
            + sentence("; did you mean '{}'?", "answer.model"),
        ),
    ],
)
def test_a_part_that_is_not_there_is_refused(choices: dict[str, str], problem: str) -> None:
    with pytest.raises(InputError) as raised:
        prepare(spec_with(vary=GRID), workflow=workflow(), only=Only(choices=choices))
    assert str(raised.value).startswith(problem)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "prompts").mkdir(parents=True)
    (folder / "wtb.toml").write_text("")
    (folder / "prompts/v1.md").write_text("Answer briefly.\n")
    (folder / "prompts/v2.md").write_text("Answer in verse: é\n")
    return folder


def sweep_file(project: Path, vary: str, name: str = "sweep.yaml", **keys: str) -> Path:
    path = project / name
    path.parent.mkdir(exist_ok=True)
    lines = [f"{key}: {setting}" for key, setting in keys.items()]
    path.write_text("\n".join(["workflow: app:wf", "cases: [{input: {q: hi}}]", f"vary: {vary}", *lines]))
    return path


def test_the_text_of_a_file_is_read_stored_and_given_to_the_node(project: Path) -> None:
    file = sweep_file(project, "{answer.prompt: ['file://prompts/v1.md', 'file://prompts/v2.md']}")
    bound = bind(load_spec(file), workflow())
    first, second = bound.vary["answer"]
    sha256 = sha256_of("Answer briefly.\n")
    assert first == f"prompt=v1.md#{sha256[:8]}"
    assert bound.workflow.nodes["answer"].variants[first].params == {"prompt": "Answer briefly.\n"}
    stored = bound.spec.as_stored()
    assert stored["vary"]["answer"][0]["levels"] == [["prompt", f"file://prompts/v1.md#{sha256}"]]
    assert stored["texts"][sha256] == "Answer briefly.\n"

    (project / "prompts/v1.md").unlink()  # nobody reads it again
    second_bound = bind(parse_spec(as_written(stored)), workflow())
    assert second_bound.fingerprints == bound.fingerprints

    (project / "prompts/v1.md").write_text("Answer at length.\n")
    changed = bind(load_spec(file), workflow())
    assert second in changed.vary["answer"]
    assert first not in changed.vary["answer"]


def test_a_file_may_stand_wherever_a_parameter_may(project: Path) -> None:
    checked = "[{name: c, rules: [{text: 'file://prompts/v2.md'}]}]"
    vary = f"{{answer: [{{name: brief, prompt: 'file://prompts/v1.md'}}], answer.check: {checked}}}"
    judge = "[{contains: {field: answer, text: 'file://prompts/v1.md'}}]"
    spec = load_spec(sweep_file(project, vary, params="{system: 'file://prompts/v2.md'}", evaluate=judge))
    bound = bind(spec, workflow())
    assert bound.workflow.nodes["answer"].variants["brief"].params == {"prompt": "Answer briefly.\n"}
    assert bound.workflow.nodes["answer.check"].variants["c"].params == {"rules": [{"text": "Answer in verse: é\n"}]}
    assert bound.params == {"system": "Answer in verse: é\n"}
    assert bound.recipe.evaluators[0].options == {"field": "answer", "text": "Answer briefly.\n"}


def test_a_file_is_chosen_by_its_path_or_its_name(project: Path) -> None:
    vary = "{answer.prompt: ['file://prompts/v1.md', 'file://prompts/v2.md']}"
    for written in ("v2.md", "prompts/v2.md", "file://prompts/v2.md"):
        file = sweep_file(project, vary, baseline=f"{{answer.prompt: '{written}'}}")
        baseline = prepare(load_spec(file), workflow=workflow()).baseline or {}
        assert baseline["answer"].startswith("prompt=v2.md#")
    part = prepare(load_spec(file), workflow=workflow(), only=Only(choices={"answer.prompt": "v1.md"}))
    assert len(part.choices) == 1


def test_a_sweep_file_in_a_folder_of_its_own_finds_files_of_the_project(project: Path) -> None:
    file = sweep_file(project, "{answer.prompt: ['file://prompts/v1.md']}", "sweeps/nightly.yaml")
    assert list(load_spec(file).texts.values()) == ["Answer briefly.\n"]


def _prepare_bad_files(project: Path) -> None:
    outside = project.parent / "secret.md"
    outside.write_text("secret")
    prompts = project / "prompts"
    (prompts / "out.md").symlink_to(outside)
    (prompts / "in.md").symlink_to(prompts / "v1.md")
    (prompts / "round.md").symlink_to(prompts / "round.md")
    (prompts / "gone.md").symlink_to(prompts / "nowhere.md")
    os.link(prompts / "v2.md", prompts / "hard.md")
    (prompts / "latin.md").write_bytes(b"caf\xe9")
    (prompts / "binary.md").write_bytes(b"a\0b")
    (prompts / "long.md").write_bytes(b"a" * (1024 * 1024 + 1))
    (prompts / "copy.md").write_text("Answer briefly.\n")
    os.mkfifo(prompts / "pipe.md")


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("prompts/v3.md", sentence("no such file in")),
        ("prompts/v3.md", sentence("did you mean '{}", "v")),
        ("../secret.md", sentence("expected a path within the project, relative to the sweep file and without '..'")),
        ("prompts/../../secret.md", "without '..'"),
        ("/etc/passwd", sentence("expected a path within the project")),
        ("", sentence("expected a path within the project")),
        ("prompts/out.md", "leads out of"),
        ("prompts/round.md", sentence("cannot be read")),
        ("prompts/gone.md", "cannot be read (No such file or directory)"),
        ("prompts/hard.md", sentence("has {} hard links", 2)),
        ("prompts/latin.md", sentence("byte 0x{} in line {} is not UTF-8", "e9", 1)),
        ("prompts/binary.md", sentence("a binary file ({})", "a NUL character")),
        ("prompts/long.md", sentence("has {} bytes; expected at most {}", "1,048,577", "1,048,576")),
        ("prompts/pipe.md", sentence("not a regular file")),
        ("prompts", sentence("a folder; expected a text file")),
    ],
)
def test_a_file_that_is_no_text_of_the_project_is_refused(project: Path, path: str, problem: str) -> None:
    _prepare_bad_files(project)
    with pytest.raises(InputError) as raised:
        load_spec(sweep_file(project, f"\n  answer.prompt: ['file://prompts/in.md', 'file://{path}']"))
    (refusal,) = raised.value.problems
    assert refusal.startswith(f"{project}/sweep.yaml:4: ")
    assert problem in refusal


def test_two_files_of_equal_content_are_refused(project: Path) -> None:
    _prepare_bad_files(project)
    file = sweep_file(project, "{answer.prompt: ['file://prompts/v1.md', 'file://prompts/copy.md']}")
    with pytest.raises(InputError, match=r"v1\.md#\w+ and copy\.md#\w+ have equal content"):
        bind(load_spec(file), workflow())


def test_where_no_file_is_read_its_name_is_refused() -> None:
    with pytest.raises(InputError) as raised:
        spec_with(vary={"answer": {"prompt": ["file:///etc/passwd"]}}, params={"a": ["file://x"]})
    assert raised.value.problems == (
        sentence(
            "{} names a file, which the server does not read; expected its text, which `wtb` and its Python client "
            "send",
            "vary.answer.prompt[0]: 'file:///etc/passwd'",
        ),
        sentence(
            "{} names a file, which the server does not read; expected its text, which `wtb` and its Python client "
            "send",
            "params.a[0]: 'file://x'",
        ),
    )
    texts = {"a" * 64: "other text"}
    with pytest.raises(InputError, match=sentence("a text with another SHA-256")):
        spec_with(vary={"answer": {"prompt": [f"file://x#{'a' * 64}"]}}, texts=texts)


def test_whoever_submits_a_sweep_file_to_a_server_sends_the_texts(project: Path) -> None:
    file = sweep_file(project, "{answer.prompt: ['file://prompts/v1.md', 'file://prompts/v2.md']}")
    keys = json.loads(json.dumps(sweep_to_send(file)))
    assert set(keys["texts"].values()) == {"Answer briefly.\n", "Answer in verse: é\n"}
    sent = bind(parse_spec(keys), workflow())
    assert sent.fingerprints == bind(load_spec(file), workflow()).fingerprints


def test_a_case_may_have_such_a_text(project: Path) -> None:
    assert prepared(vary=GRID, cases=[{"input": {"q": "file:///etc/passwd"}}]).cases == 1


def test_a_stored_sweep_of_a_node_with_a_dot_needs_no_code_to_be_read() -> None:
    vary = {"answer.check": ["default", {"strict": [True]}]}
    bound = bound_to(vary=vary, baseline={"answer.check": "strict=true"})
    second_spec = parse_spec(as_written(bound.spec.as_stored()), is_stored=True)
    assert not second_spec.has_factors
    assert second_spec == bound.spec
    assert second_spec.baseline == {"answer.check": "strict=true"}
