"""`wtb init --from`: test cases of promptfoo as cases with assertions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.prose import sentence

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
  - description: a sum
    vars: {question: What is 6 times 7?}
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
        "tests[0].assert[3]: 'llm-rubric' (it names no model that can be asked; name one that judges)",
        "left out: description",
        "tests[1].description",
        "tests[1].options",
        "tests[2]: more.yaml: cannot be read",
        "next: cd demo && wtb run sweep.yaml",
    ):
        assert words in done.output
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
    omitted = [line for line in done.stderr.splitlines() if "left out" in line]
    assert [line.split("tests[0].")[1] for line in omitted] == [
        "assert[1]: 'icontains'",
        "assert[2]: 'contains'",
        "assert[4]: 'bleu'",
    ], "a template of its own, no weight, and a second text that is expected; each is named once"


def test_what_was_brought_over_runs_once_a_model_is_called(empty_project: Project) -> None:
    empty_project.write({"promptfooconfig.yaml": CONFIG.replace("openai:gpt-4", "exec:./own.sh")})
    empty_project.inside("init", "--from", "promptfooconfig.yaml", check=0)
    workflow = empty_project.folder / "workflow.py"
    reply = 'return "42" if "times" in prompt else prompt.replace("?", ", sorry")'
    workflow.write_text(
        workflow.read_text("utf-8").replace('raise NotImplementedError("call your model here")', reply), "utf-8"
    )
    empty_project.inside("run", "sweep.yaml", "-q", check=0)
    scores = empty_project.query("SELECT combination, case_number, value FROM scores WHERE metric = 'assertions'")
    assert sorted(score for *_, score in scores) == pytest.approx([0.6, 0.6, 1, 1])
    (answers,) = empty_project.query("SELECT count(*) FROM cells WHERE status = 'succeeded'")
    assert answers == (4,)


PROMPTS = """
prompts:
  - {id: file://p1.txt, label: one}
  - prompts/second.txt
  - my prompts/third.md
  - prompts/*
  - prompts.py:make
  - langfuse://mine
  - "{{ question | upper }}"
  - "{% if vip %}Dear {% endif %}{{question}}"
  - "Hello {{user.name}}"
  - {p1.txt: one}
  - ""
  - {raw: "Say yes/no: {{question}}", label: kept, config: {temperature: 0}}
  - "{{question}}/{{ other }} like notes.txt"
tests:
  - vars: {question: "{{other}}"}
  - vars: {question: "a?", other: "b"}
"""


def test_prompts_that_are_no_texts_are_named(empty_project: Project) -> None:
    empty_project.write({"config.yaml": PROMPTS})
    assert left_out(empty_project) == [
        "prompts[0]: 'file://p1.txt' (p1.txt: cannot be read (No such file or directory); expected a text file)",
        "prompts[1]: 'prompts/second.txt'",
        "prompts[2]: 'my prompts/third.md'",
        "prompts[3]: 'prompts/*'",
        "prompts[4]: 'prompts.py:make'",
        "prompts[5]: 'langfuse://mine'",
        "prompts[6]: '{{ question | upper }}'",
        "prompts[7]: '{% if vip %}Dear {% endif %}{{question}}'",
        "prompts[8]: 'Hello {{user.name}}'",
        "prompts[9]: a mapping",
        "prompts[10]: ''",
        "prompts[11].config",
        "tests[0].vars.question: '{{other}}'",
    ]
    assert prompts(empty_project) == {
        "kept": "Say yes/no: {{question}}",
        "prompt_2": "{{question}}/{{ other }} like notes.txt",
    }


def prompts(project: Project) -> dict[str, str]:
    files = (project.folder / "imported_prompts").iterdir()
    return {file.stem: file.read_text("utf-8") for file in sorted(files)}


def test_a_mapping_of_prompts_has_texts_or_paths_as_keys(empty_project: Project) -> None:
    empty_project.write({"config.yaml": "prompts: {p1.txt: one, 'Say {{a}}': two}\ntests: [{vars: {a: 1}}]"})
    assert left_out(empty_project) == ["prompts.p1.txt: 'one'"]
    assert prompts(empty_project) == {"two": "Say {{a}}"}


def test_prompts_are_filled_in_once_and_as_promptfoo_writes_values(empty_project: Project) -> None:
    empty_project.write({"config.yaml": "prompts: ['{{a}} {{ b }} {{c}} {{none}}.']\ntests: [{vars: {a: 1}}]"})
    empty_project.inside("init", "--from", "config.yaml", check=0)
    text = (empty_project.folder / "workflow.py").read_text("utf-8")
    namespace: dict[str, Any] = {}
    exec(text.replace('raise NotImplementedError("call your model here")', "return prompt"), namespace)
    (prompt,) = prompts(empty_project).values()
    assert namespace["answer"]({"a": "{{ b }}", "b": True, "c": 2.0}, prompt=prompt) == {"answer": "{{ b }} true 2 ."}


TESTS = """
defaultTest: file://default.yaml
prompts: ["{{question}}"]
tests:
  - vars: {question: file://q.txt}
  - vars: {question: [a, file://q.txt]}
  - vars: file://vars.yaml
  - vars: {question: a}
    assert:
      - {type: contains, value: paris, transform: output.toLowerCase()}
      - {type: contains, value: paris, metric: places}
      - {type: equals, value: true}
      - {type: contains-any, value: '"a, b",c'}
      - {type: contains-all, value: [1, {a: 1}]}
      - {type: contains-all, value: ""}
      - {type: bleu, value: [a]}
      - {type: equals}
  - vars: {question: a}
    assert:
      - {type: not-equals, value: {a: 1}}
  - vars: {question: []}
"""


def test_what_of_tests_would_mean_something_else_is_named(empty_project: Project) -> None:
    empty_project.write({"config.yaml": TESTS})
    assert left_out(empty_project) == [
        "defaultTest: 'file://default.yaml'",
        "tests[0].vars.question: 'file://q.txt'",
        "tests[1].vars.question: a list of 2",
        "tests[2].vars",
        "tests[3].assert[0]: 'contains'",
        "tests[3].assert[1].metric: 'places'",
        "tests[3].assert[4]: 'contains-all'",
        "tests[3].assert[5]: 'contains-all'",
        "tests[3].assert[6]: 'bleu'",
        "tests[3].assert[7]: 'equals'",
        "tests[5].vars.question: an empty list",
    ]
    first, second = map(json.loads, (empty_project.folder / "cases.jsonl").read_text("utf-8").splitlines())
    assert first == {
        "id": "4",
        "input": {"question": "a"},
        "expected": {"answer": "true"},
        "assert": [
            {"contains": {"field": "answer", "text": "paris"}},
            {"exact_match": {"field": "answer"}},
            {"contains_any": {"field": "answer", "text": ["a, b", "c"]}},
        ],
    }
    assert second["expected"] == {"answer": {"a": 1}}
    assert second["assert"] == [{"not": {"json_equal": {"field": "answer"}}}]


def left_out(project: Project) -> list[str]:
    lines = project.inside("init", "--from", "config.yaml", check=0).stderr.splitlines()
    return [line.split("left out: ")[1] for line in lines if "left out: " in line]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("prompts: [a]", sentence("'tests' is {}; expected a list of tests", "nothing")),
        ("tests: file://tests.csv", sentence("no test that can be imported: {}", "tests: tests.csv: cannot be read")),
        ("tests: file://../out.csv", sentence("outside of the folder of the configuration")),
        ("tests: [file://a.yaml]", sentence("no test that can be imported")),
        ("tests: [", "config.yaml"),
        ("tests: [{vars: {a: 'file://a'}}]", sentence("no test that can be imported")),
    ],
)
def test_a_configuration_without_tests_is_refused(empty_project: Project, config: str, words: str) -> None:
    empty_project.write({"config.yaml": config})
    assert words in empty_project.refusal("init", "demo", "--from", "config.yaml")
    assert not (empty_project.folder / "demo").exists()


FILES = {
    "config.yaml": """
prompts: [file://prompts/two.txt, file://chat.json, {id: file://prompts/one.md, label: One}]
base: &base {type: contains, value: Paris}
defaults: &more {weight: 2}
tests:
  - file://tests.csv
  - file://more.yaml
  - vars: {question: file://prompts/one.md, country: file://chat.json}
    assert: [*base, {<<: *more, type: icontains, value: france}]
  - vars: {question: file://secret.py}
scenarios:
  - description: capitals
    config: [{vars: {country: France}}, {vars: {country: Italy}, assert: [{type: is-json}]}]
    tests: [{vars: {question: capital}, assert: [*base]}]
  - config: [{vars: {a: 1}}]
    other: x
""",
    "prompts/two.txt": "First {{question}}\n---\nSecond {{question}}\n",
    "prompts/one.md": "Third {{country}}\n",
    "chat.json": '[{"role": "user"}]',
    "tests.csv": (
        "question,__expected,__expected2,__description,__metadata:k\n"
        'a,contains: yes,is-json,first,v\n\nb,"similar(0.8): a, text",,,\nc,Paris: the capital,,,\n,,,,\n'
        "d,not-icontains: no,fn: output.length,,\n"
    ),
    "more.yaml": "- vars: {question: '01'}\n  assert: [{type: equals, value: x}]\n",
}


def test_files_anchors_and_scenarios_are_brought_over_and_the_rest_is_named(empty_project: Project) -> None:
    empty_project.write(FILES)
    assert left_out(empty_project) == [
        "base",
        "defaults",
        "scenarios[0].description",
        "scenarios[1].other",
        "prompts[1]: 'file://chat.json' (chat.json: expected a list of messages, each with a role and a content that "
        "is text)",
        "tests[0][0].description",
        "tests[0][0].metadata:k",
        "tests[0][1].assert[0]: "
        + sentence("its embedding model; embedding_similarity has its own, so look at 'at_least' again"),
        "tests[0][3].assert[1]: 'javascript'",
        "tests[2].vars.question: 'Third {{country}}'",
        "tests[3].vars.question: 'file://secret.py'",
    ]
    cases = [json.loads(line) for line in (empty_project.folder / "cases.jsonl").read_text("utf-8").splitlines()]
    assert [case["input"] for case in cases] == [
        {"question": "a"},
        {"question": "b"},
        {"question": "c"},
        {"question": "d"},
        {"question": "01"},
        {"country": "France", "question": "capital"},
        {"country": "Italy", "question": "capital"},
        {"a": 1},
    ]
    contains = {"contains": {"field": "answer", "text": "Paris"}}
    assert cases[0]["assert"][0] == {"contains": {"field": "answer", "text": "yes"}}
    assert cases[2]["expected"] == {"answer": "Paris: the capital"}
    assert cases[5]["assert"] == [contains]
    assert [*cases[6]["assert"][0], *cases[6]["assert"][1]] == ["json_schema", "contains"]
    assert prompts(empty_project) == {
        "One": "Third {{country}}",
        "two": "First {{question}}",
        "two_2": "Second {{question}}",
    }
    empty_project.inside("plan", "sweep.yaml", check=0)


def test_aliases_that_expand_without_end_are_refused(empty_project: Project) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    empty_project.write({"config.yaml": "\n".join(lines) + "\ntests: [{vars: {a: 1}}]\n"})
    assert sentence("aliases that expand to more than") in empty_project.refusal("init", "--from", "config.yaml")
    empty_project.write({"config.yaml": "a: &a [*a]\ntests: [{vars: {a: 1}}]\n"})
    empty_project.inside("init", "--from", "config.yaml", check=2)


ASKING = """
prompts: ["{{question}}"]
defaultTest:
  options: {provider: "openai:chat:gpt-4o-mini"}
  assert:
    - {type: llm-rubric, value: "It answers {{question}}", weight: 2}
tests:
  - vars: {question: a}
    assert:
      - {type: factuality, value: It is a.}
      - {type: not-llm-rubric, value: It is rude., threshold: 0.5}
      - {type: model-graded-closedqa, value: It is short., provider: "anthropic:messages:claude-sonnet-4-5"}
      - {type: g-eval, value: It is kind., provider: "ollama:llama3"}
      - {type: g-eval, value: [It is kind., It is short.]}
      - {type: answer-relevance, threshold: 0.8}
      - {type: context-faithfulness, threshold: 0.8}
  - vars: {question: b}
    options: {provider: {id: "openai:gpt-4o"}}
    assert:
      - {type: similar, value: It is b.}
      - {type: similar, value: It is b., threshold: 0.6}
      - {type: icontains-any, value: [B, "c.d"]}
      - {type: icontains-all, value: "B, IT"}
"""


def test_assertions_that_ask_a_model_are_judges_and_those_without_one_are_named(empty_project: Project) -> None:
    empty_project.write({"config.yaml": ASKING})
    own = "its embedding model; embedding_similarity has its own, so look at 'at_least' again"
    assert left_out(empty_project) == [
        "tests[0].assert[1].threshold",
        "tests[0].assert[3].provider",
        "tests[0].assert[4]: 'g-eval'",
        "tests[0].assert[5]: 'answer-relevance'",
        "tests[0].assert[6]: 'context-faithfulness'",
        f"tests[1].assert[0]: {own}",
        f"tests[1].assert[1]: {own}",
    ]
    first, second = map(json.loads, (empty_project.folder / "cases.jsonl").read_text("utf-8").splitlines())
    common = {"field": "answer", "model": "gpt-4o-mini"}
    facts = "Nothing in the answer contradicts the facts of the reference. It may contain less, or more."
    claude = {"field": "answer", "model": "claude-sonnet-4-5", "criteria": "It is short.", "provider": "anthropic"}
    assert first["assert"] == [
        {"judge": {**common, "criteria": "It answers a", "weight": 2}},
        {"judge": {**common, "criteria": facts, "reference": True}},
        {"not": {"judge": {**common, "criteria": "It is rude."}}},
        {"judge": claude},
        {"judge": {**common, "criteria": "It is kind."}},
    ]
    assert first["expected"] == {"answer": "It is a."}
    assert second["assert"] == [
        {"judge": {"field": "answer", "model": "gpt-4o", "criteria": "It answers b", "weight": 2}},
        {"embedding_similarity": {"field": "answer", "at_least": 0.75}},
        {"embedding_similarity": {"field": "answer", "at_least": 0.6}},
        {"regex": {"field": "answer", "pattern": r"(?i)B|c\.d"}},
        {"all_of": {"of": [{"regex": {"field": "answer", "pattern": f"(?i){word}"}} for word in ("B", "IT")]}},
    ]
    assert empty_project.text("plan", "sweep.yaml"), "the evaluators of all cases can be made"


@pytest.mark.parametrize(
    ("judge", "options"),
    [
        ("gpt-4o-mini", {"model": "gpt-4o-mini"}),
        ("our:own", {"model": "our:own"}),
        ("anthropic:claude-sonnet-4-5", {"model": "claude-sonnet-4-5", "provider": "anthropic"}),
    ],
)
def test_a_model_that_the_configuration_does_not_name_is_named_by_an_option(
    empty_project: Project, judge: str, options: dict[str, str]
) -> None:
    empty_project.write({"promptfooconfig.yaml": CONFIG})
    done = empty_project.inside("init", "--from", "promptfooconfig.yaml", "--judge", judge, check=0)
    assert "llm-rubric" not in done.stderr
    first = json.loads((empty_project.folder / "cases.jsonl").read_text("utf-8").splitlines()[0])
    assert first["assert"][-1] == {"judge": {"field": "answer", "criteria": "is kind", **options}}
    assert sentence("--judge is given without --from") in empty_project.refusal("init", "other", "--judge", judge)
