"""`wtb init --from`: test cases of promptfoo as cases with assertions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.project import Project

CONFIG = """
description: parcels
prompts:
  - "Answer {{question}}"
  - raw: "Be kind. {{ question }}"
  - file://prompt.txt
providers: [openai:gpt-4]
defaultTest:
  assert:
    - {type: latency, threshold: 60000}
tests:
  - vars: {question: Where is my parcel?}
    assert:
      - {type: contains, value: parcel}
      - {type: not-contains, value: sorry, weight: 2}
      - {type: icontains, value: PARCEL}
      - {type: llm-rubric, value: is kind}
  - vars: {question: What is 6 times 7?}
    options: {transform: output}
    assert:
      - {type: equals, value: "42"}
      - {type: contains-any, value: "41, 42"}
  - file://more.yaml
"""


def test_tests_become_cases_and_what_has_no_counterpart_is_named(empty_project: Project) -> None:
    empty_project.write({"promptfooconfig.yaml": CONFIG})
    done = empty_project.inside("init", "demo", "--from", "promptfooconfig.yaml", check=0)
    for words in (
        "prompts[2]",
        "tests[0].assert[3]: 'llm-rubric'",
        "providers",
        "tests[1].options",
        "tests[2]: 'file://more.yaml'",
        "write `ask`",
    ):
        assert words in done.said
    folder = empty_project.folder / "demo"
    first, second = map(json.loads, (folder / "cases.jsonl").read_text("utf-8").splitlines())
    assert first["input"] == {"question": "Where is my parcel?"}
    assert first["assert"] == [
        {"latency": {"at_most": 60}},
        {"contains": {"field": "answer", "text": "parcel"}},
        {"not": {"contains": {"field": "answer", "text": "sorry"}, "weight": 2}},
        {"regex": {"field": "answer", "pattern": "(?i)PARCEL"}},
    ]
    assert second["expected"] == {"answer": "42"}


MORE = """
prompts: ["{{greeting}} {{name}}"]
tests:
  - vars: {greeting: [Hello, Well], name: Ana}
    assert:
      - {type: contains, value: "{{ name }}"}
      - {type: icontains, value: "{{ name | upper }}"}
      - {type: contains, value: "{{greeting}}", weight: 0}
      - {type: not-equals, value: 42, weight: 2}
      - {type: bleu, value: Hello Ana}
"""


def test_variables_with_several_values_are_cases_of_their_own_and_templates_are_filled_in(
    empty_project: Project,
) -> None:
    empty_project.write({"more.yaml": MORE})
    done = empty_project.inside("init", "--from", "more.yaml", check=0)
    first, second = map(json.loads, (empty_project.folder / "cases.jsonl").read_text("utf-8").splitlines())
    assert (first["id"], second["id"], second["input"]) == ("1-1", "1-2", {"greeting": "Well", "name": "Ana"})
    assert first["assert"] == [
        {"contains": {"field": "answer", "text": "Ana"}},
        {"not": {"exact_match": {"field": "answer"}, "weight": 2}},
    ]
    assert first["expected"] == {"answer": "42"}
    left = [line for line in done.stderr.splitlines() if "left out" in line]
    assert [line.split("tests[0].")[1] for line in left] == [
        "assert[1]: 'icontains'",
        "assert[2]: 'contains'",
        "assert[4]: 'bleu'",
    ], "a template of its own, no weight, and a second text that is expected; each is named once"


def test_what_was_brought_over_runs_once_a_model_is_called(empty_project: Project) -> None:
    empty_project.write({"promptfooconfig.yaml": CONFIG})
    empty_project.inside("init", "--from", "promptfooconfig.yaml", check=0)
    workflow = empty_project.folder / "workflow.py"
    asked = 'return "42" if "times" in prompt else prompt.replace("?", ", sorry")'
    workflow.write_text(
        workflow.read_text("utf-8").replace('raise NotImplementedError("call your model here")', asked), "utf-8"
    )
    empty_project.inside("run", "sweep.yaml", "-q", check=0)
    scores = empty_project.query("SELECT combination, case_number, value FROM scores WHERE metric = 'assertions'")
    assert sorted(value for *_, value in scores) == pytest.approx([0.6, 0.6, 1, 1])
    (answers,) = empty_project.query("SELECT count(*) FROM cells WHERE status = 'succeeded'")
    assert answers == (4,)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("prompts: [a]", "'tests' is nothing; expected a list of tests"),
        ("tests: file://tests.csv", "'tests' is 'file://tests.csv'"),
        ("tests: [file://a.yaml]", "no test that can be brought over"),
        ("tests: [", "config.yaml"),
    ],
)
def test_a_configuration_without_tests_is_refused(empty_project: Project, config: str, words: str) -> None:
    empty_project.write({"config.yaml": config})
    assert words in empty_project.inside("init", "demo", "--from", "config.yaml", check=2).said
    assert not (empty_project.folder / "demo").exists()
