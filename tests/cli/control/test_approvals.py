"""Questions to people from the command line: listed, shown, answered and refused."""

from __future__ import annotations

import json

import pytest

from tests.support.project import Project
from tests.support.prose import sentence

FLOW = """
from typing import TypedDict

from wtb import END, Workflow
from wtb.integrations.models.ask import ActionNode


class State(TypedDict, total=False):
    question: str
    draft: str
    said: str


wf = Workflow("letters", state=State)


@wf.node
def draft(state):
    return {"draft": f"About {state['question']}"}


@wf.node
def review(state, ctx, *, style: str = "plain"):
    answer = ctx.ask("Send this draft?", options=["send", "hold back"], context=state["draft"])
    return {"said": f"{answer.choice} {state['draft']} ({answer.feedback}, {style})"}


review.variant("secret", style="secret")
wf.entry(draft)
wf.edge(draft, review)
wf.edge(review, END)


def instructions(state, ctx):
    return f"Write about {state['question']}."


def confirm(state, response, ctx):
    return {"said": response}


calling = Workflow("calling")


@calling.node
def call(state, ctx):
    return {"decisions": ctx.ask("Call these?", context=state["calls"]).given["decisions"]}


calling.entry(call)
calling.edge(call, END)
writing = Workflow("writing", state=State)
write = writing.node(ActionNode(instructions, confirm, name="write"))
writing.entry(write)
writing.edge(write, END)
"""
SWEEP = """
sweep: letters
workflow: letters:wf
cases: cases.jsonl
vary: {review: all}
"""
CASES = '{"id": "c0", "input": {"question": "rain"}}\n{"id": "c1", "input": {"question": "snow"}}\n'


@pytest.fixture
def letters(empty_project: Project) -> Project:
    empty_project.write({"letters.py": FLOW, "sweep.yaml": SWEEP, "cases.jsonl": CASES})
    return empty_project


def list_questions(project: Project, *args: str) -> list[dict[str, object]]:
    """Return the questions, sorted by case, because cases start in any order."""
    questions: list[dict[str, object]] = project.json("approvals", *args)["approvals"]
    return sorted(questions, key=lambda question: str(question["case"]))


def test_a_sweep_waits_and_continues_with_what_people_answer(letters: Project) -> None:
    ran = letters.inside("run", "sweep.yaml", "--quiet", check=1)
    assert sentence("{} answer{}: wtb approvals", 2, "s") in ran.output

    first, second = sorted(list_questions(letters), key=lambda question: str(question["case"]))  # whichever asked first
    assert (first["question"], first["executions"], first["options"]) == ("Send this draft?", 2, ["send", "hold back"])
    table = letters.text("approvals")
    assert "letters" in table
    assert "Send this draft?" in table
    assert "review" in table
    text = letters.text("approvals", str(first["id"]))
    assert "About rain" in text
    assert sentence("wtb answer {} {}", first["id"], "'hold back'") in text
    assert f"wtb answer {first['id']} modify --choose OPTION --set KEY=VALUE" in text
    assert "secret" not in text + table + str(first)
    assert all(len(line) <= 80 for line in (table + text).splitlines())

    outcome = letters.inside("answer", str(first["id"]), "send", "--feedback", "well done", check=0)
    assert sentence("can continue with: wtb resume") in outcome.output
    repeated = letters.inside("answer", str(first["id"]), "send", check=2)
    assert sentence("was answered already") in repeated.output
    assert "'send'" in repeated.output
    letters.write({"new.txt": "About snow, and more"})
    letters.inside("answer", str(second["id"]), "modify", "--choose", "send", "--set", "draft=@new.txt", check=0)

    letters.inside("resume", "letters", "--quiet", check=0)
    cells = letters.json("show", "letters", "--cells")["cells"]
    assert [cell["state"]["said"] for cell in cells] == [
        "send About rain (well done, plain)",
        "send About rain (well done, secret)",
        "send About snow, and more (None, plain)",
        "send About snow, and more (None, secret)",
    ]
    assert not list_questions(letters)
    every = list_questions(letters, "letters", "--all")
    assert [question["answer"]["action"] for question in every] == ["approve", "modify"]  # type: ignore[index]
    assert "→ 'send' by" in " ".join(letters.text("approvals", "--all").split())


MANY = "".join(f'{{"id": "c{n}", "input": {{"question": "rain {n}"}}}}\n' for n in range(6))


def test_questions_that_ask_the_same_stand_on_one_line(letters: Project, database_url: str) -> None:
    letters.url = database_url
    letters.write({"cases.jsonl": MANY})
    letters.inside("run", "sweep.yaml", "--quiet", check=1)
    letters.inside("start", "letters:wf", "--set", "question=hail", "--quiet", check=1)
    document = letters.json("approvals")
    assert [(group["questions"], group["executions"], group["cases"]) for group in document["groups"]] == [
        (6, 12, 6),
        (1, 1, 1),
    ]
    assert len(document["approvals"]) == 7

    lines = letters.text("approvals").splitlines()
    (first,) = (line for line in lines if "6 cases" in line)
    id = document["groups"][0]["id"]
    assert first.split()[0] == id
    assert sentence(" {}: wtb answer-all --question {} {}", " all 6", id, "send|'hold back'|reject") in "\n".join(lines)
    assert len([line for line in lines if "Send this draft?" in line]) == 2
    assert "6 cases" not in letters.text("approvals", "--each")
    assert len(letters.json("approvals", "letters", "--each")["approvals"]) == 6


def test_many_questions_are_answered_at_once(letters: Project, database_url: str) -> None:
    letters.url = database_url
    letters.write({"cases.jsonl": MANY})
    letters.inside("run", "sweep.yaml", "--quiet", check=1)
    letters.inside("start", "letters:calling", "--set", "calls=[1]", "--quiet", check=1)
    assert len(list_questions(letters)) == 7

    refused = letters.refusal("answer-all", "send", "--yes")
    assert sentence("nothing was answered") in refused
    assert sentence("cannot be answered with {}", "'send'") in refused
    assert (
        sentence("this needs confirmation, and there is no terminal; give --yes")
        in letters.wtb("answer-all", "send", "--node", "review").output
    )
    assert len(list_questions(letters)) == 7

    done = letters.inside(
        *("answer-all", "send", "--node", "review", "--sweep", "letters", "--feedback", "fine", "--yes"),
        *("--format", "json"),
        check=0,
    )
    assert len(done.json["answers"]) == 6
    assert sum(len(answer["executions"]) for answer in done.json["answers"]) == 12
    assert sentence("{} can continue with: wtb resume", "12 executions") in done.output
    letters.inside("resume", "letters", "--quiet", check=0)
    cells = letters.json("show", "letters", "--cells")["cells"]
    assert {cell["status"] for cell in cells} == {"succeeded"}
    assert cells[0]["state"]["said"] == "send About rain 0 (fine, plain)"
    outcome = letters.inside("answer-all", "--question", "call THESE", "--value", '{"decisions": []}', "--yes", check=0)
    assert "answered 1 question: approve" in outcome.stdout
    assert sentence("no question is open") in letters.refusal("answer-all", "approve", "--yes")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["answer"], "Missing argument 'ID'"),
        (
            ["answer-all", "--yes"],
            sentence(
                "the action of the answer to {} is missing; expected: {}", "2 questions", "send|'hold back'|reject"
            ),
        ),
        (["answer-all", "send", "--sweep", "nope"], sentence("there is no sweep {}", "'nope'")),
    ],
)
def test_answering_at_once_says_what_is_missing(letters: Project, words: list[str], why: str) -> None:
    letters.inside("run", "sweep.yaml", "--quiet", check=1)
    assert why in letters.refusal(*words)
    assert len(list_questions(letters)) == 2


def test_a_single_execution_continues_where_it_is_answered(letters: Project) -> None:
    letters.write({"input.json": '{"question": "fog"}'})
    started = letters.inside("start", "letters:writing", "--input", "input.json", check=1)
    assert sentence("waits for a person") in started.output
    (question,) = list_questions(letters)
    assert f"answer with: wtb answer {question['id']} approve|reject" in started.output
    assert question["kind"] == "action"
    assert question["question"] == "Write about fog."
    assert sentence("asks for a response") in letters.refusal("answer", str(question["id"]), "approve")

    letters.write({"reply.md": "Fog is a cloud.\n"})
    done = letters.inside(
        "answer", str(question["id"]), "approve", "--feedback-file", "reply.md", "--format", "json", check=0
    )
    assert done.json["execution"]["status"] == "completed"
    assert done.json["state"]["said"] == "Fog is a cloud."


CALLS = [
    {"name": "send_email", "args": {"to": "ana@example.org", "body": "Dear Ana,\n\nit rains.\n\nThe weather desk"}},
    {"name": "refund", "args": {"order": 1182, "amount": "34.90", "lines": [{"sku": "kettle", "n": 1}]}},
]


def test_an_answer_has_a_value_for_the_node(letters: Project) -> None:
    letters.write({"calls.json": json.dumps({"calls": CALLS})})
    letters.inside("start", "letters:calling", "--input", "calls.json", "--quiet", check=1)
    (question,) = list_questions(letters)
    id = str(question["id"])
    text = letters.text("approvals", id)
    assert f"wtb answer {id} approve [--feedback TEXT] [--value JSON]" in text
    body = """
  - name: send_email
    args:
      to: ana@example.org
      body:
        │ Dear Ana,
        │
        │ it rains.
        │
        │ The weather desk
  - name: refund
    args:
      order: 1182
      amount: "34.90"
      lines:
        - {"sku": "kettle", "n": 1}
"""
    assert body in text

    missing = letters.refusal("answer", id)
    assert (
        sentence("the action of the answer is missing; expected: {}", f"wtb answer {id} approve|reject|modify")
        in missing
    )
    refused = {
        "--value: not JSON: Expecting value (column 5); expected one JSON value": ("--value", "[1, "),
        "--value: NaN is not JSON (column 7); expected a number or null": ("--value", '{"a": NaN}'),
        "--value-file bad.json: key 'a' a second time": ("--value-file", "bad.json"),
        "--value-file nan.json: -Infinity is not JSON (line 2, column 2)": ("--value-file", "nan.json"),
        "--value-file large.json: more than 1,000,000 bytes": ("--value-file", "large.json"),
        "--value-file gone.json: cannot be read": ("--value-file", "gone.json"),
        "--value and --value-file: expected one of them": ("--value", "1", "--value-file", "bad.json"),
        "--feedback-file and --value-file are both -": ("--feedback-file", "-", "--value-file", "-"),
        "the question is rejected, and a value is given": ("reject", "--value", "1"),
    }
    letters.write({"bad.json": '{"a": 1, "a": 2}', "nan.json": '["NaN",\n -Infinity]', "large.json": "1" * 1_000_001})
    for message, arguments in refused.items():
        assert message in " ".join(letters.refusal("answer", id, *arguments).split())
    assert list_questions(letters)

    reply = {"decisions": [{"type": "approve"}, {"type": "edit", "args": {"amount": 30}}]}
    letters.write({"value.json": json.dumps(reply, indent=2)})
    answer = letters.json("answer", id, "--value-file", "value.json", "--no-run")
    assert (answer["action"], answer["value"]) == ("approve", reply)
    letters.inside("resume", str(question["sweep"]["id"]), "--quiet", check=0)  # type: ignore[index]
    (every,) = list_questions(letters, "--all")
    assert every["answer"]["value"] == reply  # type: ignore[index]
    state = letters.json("show", str(question["sweep"]["id"]))["state"]  # type: ignore[index]
    assert state["decisions"] == reply["decisions"]
    table = " ".join(letters.text("approvals", "--all").split())
    assert 'with {"decisions": [{"type": "approve"}, {"type": "edit", "args": {"amount": 30}}]}' in table
    assert "answered with\n\n  decisions:" in letters.text("approvals", id)


def test_what_cannot_be_answered_is_refused_with_what_is_possible(letters: Project) -> None:
    letters.inside("start", "letters:wf", "--set", "question=rain", "--approval", "before", "--quiet", check=1)
    (question,) = list_questions(letters)
    assert question["question"] == "Run draft?"
    assert question["case"] == "input"
    id = str(question["id"])
    assert sentence("there is no question {}", "'nope'") in letters.refusal("answer", "nope", "approve")
    assert sentence("there is no question {} either", "'nope'") in letters.refusal("approvals", "nope")
    assert sentence("did you mean '{}'", "approve") in letters.refusal("answer", id, "aprove")
    assert sentence("{} is not in the state", "'questoin'") + sentence(
        "; did you mean '{}'", "question"
    ) in letters.refusal("answer", id, "modify", "--set", "questoin=x")
    assert "'question': found" in letters.refusal("answer", id, "modify", "--set", "question=[5]")
    assert sentence("cannot be read") in letters.refusal("answer", id, "reject", "--feedback-file", "gone")
    assert sentence("expected one of them") in letters.refusal(
        "answer", id, "reject", "--feedback", "x", "--feedback-file", "gone"
    )
    (still,) = list_questions(letters)
    assert still["status"] == "open"

    rejected = letters.inside("answer", id, "reject", "--feedback", "not today", check=1)
    assert "not today" in rejected.output
    assert sentence("no node '{}'", "drafft") + sentence("; did you mean '{}'", "draft") in letters.refusal(
        "start", "letters:wf", "--set", "question=rain", "--approval", "after drafft"
    )
    assert "expected none, manual, before, on_error" in letters.refusal(
        "start", "letters:wf", "--set", "question=rain", "--approval", "sometimes"
    )


def test_start_takes_several_approval_modes_and_shows_which_of_them_asks(letters: Project) -> None:
    modes = ("--approval", "after draft", "--approval", "on-error")
    assert letters.inside("start", "letters:wf", "--set", "question=rain", *modes, "--quiet", check=1)
    standing = letters.json("status", "letters")
    assert standing["approval"] == [{"after": "draft"}, "on_error"]
    assert [question["mode"] for question in standing["questions"]] == [{"after": "draft"}]
    assert "after draft, on_error" in letters.text("status", "letters")
    assert "Continue with the output of step “draft”? (asked by after draft)" in letters.text("approvals")
    refused = letters.inside("start", "letters:wf", *modes, "--approval", "none", check=2)
    assert "run.approval[2]" in refused.output
    assert "'none' (nobody is there to answer) beside 'after draft'; expected it alone" in refused.output
