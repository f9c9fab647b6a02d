"""Questions to people: keys, valid questions, action nodes, and approval modes as text."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.prose import sentence
from wtb import END, InputError, Workflow
from wtb.authoring.code.fingerprint import fingerprint
from wtb.authoring.context.ask import Questioner
from wtb.authoring.context.attempt_record import CaseView, Record
from wtb.config.run_options import After, Run
from wtb.core.errors import NodeError, Rejected, StateError, Unanswered, WorkflowError
from wtb.core.failures import Failure
from wtb.core.questions import Answer, Asked, Question, how_to_answer
from wtb.core.serialization.codec import encode
from wtb.core.tree.checkpoints import Position
from wtb.execution.engine.protocol import Result, Root, Task
from wtb.execution.holds import error_question
from wtb.execution.sandbox import messages
from wtb.execution.sandbox.framing import Inbox, packed
from wtb.integrations.models.ask import ActionNode
from wtb.planning.sweep_spec import parse_spec
from wtb.testing import run_node


def test_those_who_ask_the_same_share_a_key_and_others_do_not() -> None:
    question = Question("ask", "a", "Go on?", context=encode({"x": 1}), timeout=5, default="yes")
    assert question.key == Question("ask", "a", "Go on?", context=encode({"x": 1})).key
    other_questions = [
        Question("ask", "a", "Go on?", context=encode({"x": 2})),
        Question("ask", "a", "Go on?", 1, context=encode({"x": 1})),
        Question("ask", "b", "Go on?", context=encode({"x": 1})),
        Question("ask", "a", "Go on?", options=("yes",), context=encode({"x": 1})),
    ]
    assert len({question.key, *(other.key for other in other_questions)}) == 5


def test_a_question_reaches_the_runner_from_a_node_process_as_it_was() -> None:
    question = Question("action", "a", "Write", 2, ("x", "y"), encode([1]), 2.5, "x")
    task = Task("a", "default", {}, Position(0, ("a",)), Root(CaseView("c", (), {})), asked=(question,))
    (frame,) = Inbox().feed(packed("task", messages.task(task)))
    assert messages.as_task(frame, {}).asked == (question,)
    (frame,) = Inbox().feed(packed("result", messages.result(Result(1.0, 2.0, Record(), question=question))))
    assert messages.as_result(frame, Record()).question == question


def test_an_answer_reaches_a_node_process_with_its_value() -> None:
    decisions = {"decisions": [{"type": "edit", "at": (1, 2)}], "$odd": b"x"}
    answered = Answer("approve", by="ada", value=encode(decisions).decode())
    task = Task("a", "default", {}, Position(0, ("a",)), Root(CaseView("c", (), {})), answers={"key": answered})
    (frame,) = Inbox().feed(packed("task", messages.task(task)))
    answer = messages.as_task(frame, {}).answers["key"]
    assert answer == answered
    assert answer.given == decisions
    answer.given["decisions"].clear()
    assert answer.given == decisions  # whoever changes it changes a copy
    assert (Answer("approve").given, Answer("approve", value="null").given) == (None, None)


def test_an_answer_is_found_by_its_key_or_by_its_place_and_else_the_attempt_ends() -> None:
    with pytest.raises(Asked) as ended:
        Questioner("a").ask("Go on?")
    question = ended.value.question
    by_key, by_place = Answer("approve", by="ada"), Answer("modify", by="bob")
    assert Questioner("a", {question.key: by_key, question.place: by_place}).ask("Go on?") is by_key
    assert Questioner("a", {question.place: by_place}).ask("Otherwise?") is by_place
    questioner = Questioner("a", {question.key: by_key})
    questioner.ask("Go on?")
    with pytest.raises(Asked):  # the second question is another one
        questioner.ask("Go on?")
    assert questioner.pending is not None
    assert questioner.pending.number == 1


def test_a_rejection_and_time_that_is_up_are_raised() -> None:
    question = Question("ask", "a", "Go on?")
    with pytest.raises(Rejected, match="rejected by ada: too long"):
        Questioner("a", {question.key: Answer("reject", feedback="too long", by="ada")}).ask("Go on?")
    with pytest.raises(Unanswered, match=sentence("nobody answered within {} s", 5)):
        Questioner("a", {question.key: Answer("expired")}).ask("Go on?", timeout=5)
    with pytest.raises(Unanswered, match=sentence("nobody is there")):
        Questioner("a", nobody=True).ask("Go on?")
    assert Questioner("a", nobody=True).ask("Go on?", default="no").choice == "no"


def test_what_may_be_typed_is_the_options_or_else_the_answers() -> None:
    assert how_to_answer("q", "ask", ["send", "hold back"]) == "wtb answer q send|'hold back'|reject|modify"
    assert how_to_answer("q", "before", None) == "wtb answer q approve|reject|modify"
    assert how_to_answer("q", "action", ()) == "wtb answer q approve|reject"
    assert how_to_answer("q", "ask", ["long" * 50]) == "wtb answer q OPTION|reject|modify"


BAD: tuple[tuple[dict[str, Any], str], ...] = (
    ({"text": "  "}, "expected text"),
    ({"text": 5}, "expected text"),
    ({"options": "yes"}, "expected a list of texts"),
    ({"options": ["yes", ""]}, "expected a list of texts"),
    ({"options": ["yes", "yes"]}, "twice"),
    ({"options": ["yes", "reject"]}, "option 'reject' is an answer of its own"),
    ({"options": ["yes"], "default": "no"}, "expected one of the options"),
    ({"timeout": -1.0}, "expected seconds"),
    ({"timeout": float("nan")}, "expected seconds"),
)


@pytest.mark.parametrize(("arguments", "problem"), BAD)
def test_a_question_that_makes_no_sense_is_refused(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        Questioner("a").ask(**{"text": "Go on?", **arguments})
    with pytest.raises(StateError, match=sentence("ctx.ask: its context cannot be stored")):
        Questioner("a").ask("Go on?", context=object())


def test_a_question_about_an_error_does_not_show_the_code_that_failed() -> None:
    failure = Failure("error", "ValueError", "no index\nsecond line", 'File "secret_variant.py"', node="a")
    question = error_question("a", failure, 3)
    assert question.text == sentence("{} failed: {}. Try again?", "a", "ValueError: no index")
    assert b"secret_variant" not in (question.context or b"")
    assert question.key != error_question("a", failure, 4).key


@pytest.mark.parametrize(
    ("written", "mode"),
    [("before", "before"), ("on-error", "on_error"), ("after plan", After(after="plan")), ({"after": "plan"}, None)],
)
def test_modes_are_read_as_files_and_commands_write_them(written: Any, mode: Any) -> None:
    assert Run(approval=written).approval == (mode or After(after="plan"))


def test_several_modes_are_read_and_kept_and_a_list_of_one_is_that_mode() -> None:
    several = Run(approval=["after plan", {"after": "write"}, "on-error"])
    assert several.approval == (After(after="plan"), After(after="write"), "on_error")
    dump = several.model_dump(mode="json")["approval"]
    assert dump == [{"after": "plan"}, {"after": "write"}, "on_error"]
    assert Run(approval=dump) == several
    assert Run(approval=["before"]).approval == "before"


@pytest.mark.parametrize(
    ("modes", "place", "message"),
    [
        (["before", "on_error", "before"], 2, sentence("'{}' twice; expected each mode once", "before")),
        ([{"after": "a"}, "after a"], 1, "'after a' twice"),
        (["none", "before"], 0, r"'none' \(nobody is there to answer\) beside 'before'; expected it alone"),
        (["on_error", "manual"], 1, r"'manual' \(only nodes ask\) beside 'on_error'"),
        (["before", "sometimes"], 1, "'sometimes'; expected none, manual, before"),
        (["before", {"after": 5}], 1, r"expected none, manual, before"),
    ],
)
def test_modes_that_contradict_each_other_are_rejected_with_their_place(modes: Any, place: int, message: str) -> None:
    spec = {"workflow": "a:b", "cases": "c", "vary": {"a": "all"}, "run": {"approval": modes}}
    with pytest.raises(InputError, match=rf"run.approval\[{place}\].*{message}"):
        parse_spec(spec)
    if "sometimes" in modes or {"after": 5} in modes:
        return
    problem = problem_of_workflow([{"after": "a"} if mode == "after a" else mode for mode in modes])
    assert re.search(rf"approval\[{place}\] has {message}", problem)


def problem_of_workflow(approval: Any) -> str:
    wf = Workflow("w", approval=approval)
    wf.node(lambda state: {}, name="a")
    wf.entry("a")
    wf.edge("a", END)
    with pytest.raises(WorkflowError) as raised:
        wf.validate()
    return str(raised.value)


def test_an_approval_mode_that_is_none_is_refused_with_its_place() -> None:
    spec = {"workflow": "a:b", "cases": "c", "vary": {"a": "all"}}
    for mode in ("sometimes", 5, {"after": 5}, {"before": "a"}, [], ["befor"], [["before"]]):
        with pytest.raises(InputError, match=r"run.approval"):
            parse_spec({**spec, "run": {"approval": mode}})
    with pytest.raises(InputError, match=r"run.mode"):
        parse_spec({**spec, "run": {"mode": "batch"}})
    problem = problem_of_workflow(["befor", {"after": "aa"}])
    assert "approval[0] is 'befor'; did you mean 'before'?" in problem
    assert "approval[1]: " + sentence("workflow {} has no node {}", "'w'", "'aa'") in problem
    assert sentence("did you mean '{}'", "before") in problem_of_workflow("befor")
    assert sentence("no node '{}'", "aa") + sentence("; did you mean '{}'", "a") in problem_of_workflow({"after": "aa"})


def reply(state: Any, ctx: Any, *, tone: str = "dry") -> str:
    return f"{tone}: {state['x']}"


def two(state: Any, ctx: Any, *, tone: str = "dry") -> str:
    return f"{tone} {state['x']}"


async def later(state: Any, ctx: Any) -> list[dict[str, str]]:
    return [{"role": "user", "content": "Hello"}]


def keep_response(state: Any, response: str, ctx: Any) -> dict[str, str]:
    return {"y": response}


def test_an_action_node_is_called_as_any_node_and_knows_its_parameters() -> None:
    wf = Workflow("w", resources=lambda: SimpleNamespace(model=lambda prompt: f"[{prompt}]"))
    node = wf.node(ActionNode(reply))
    node.variant("warm", tone="warm")
    assert node.name == "reply"
    assert run_node(wf, "reply", {"x": 1}) == {"response": "[dry: 1]"}
    assert run_node(wf, "reply", {"x": 1}, variant="warm", answers=["mine"]) == {"response": "mine"}
    wf.node(ActionNode(later, keep_response, mode="autonomous"))
    assert run_node(wf, "later", {}, answers=["unused"])["y"].startswith("[[{")
    node.variant("wrong", tonne="x")
    with pytest.raises(InputError, match=sentence("takes no parameter {}", "'tonne'")):
        wf.validate()


def test_an_action_node_with_other_functions_is_refused() -> None:
    with pytest.raises(InputError, match=sentence("{} cannot be called with", "instructions")):
        ActionNode(lambda: "x")
    with pytest.raises(InputError, match=sentence("{} cannot be called with", "confirm")):
        ActionNode(reply, lambda state: {})
    with pytest.raises(InputError, match="expected one of autonomous, interactive"):
        ActionNode(reply, mode="batch")  # type: ignore[arg-type]


def test_the_code_of_an_action_node_is_that_of_both_its_functions() -> None:
    codes = [
        ActionNode(reply),
        ActionNode(two),
        ActionNode(reply, keep_response),
        ActionNode(reply, keep_response, mode="interactive"),
    ]
    assert len({fingerprint(code) for code in codes}) == 4
    assert fingerprint(ActionNode(reply, keep_response)) == fingerprint(ActionNode(reply, keep_response))


def test_a_node_under_test_is_given_answers() -> None:
    wf = Workflow("w")

    @wf.node
    def a(state: Any, ctx: Any) -> Any:
        return {"y": [ctx.ask("One?").choice, ctx.ask("Two?").feedback]}

    assert run_node(wf, "a", {}, answers=["x", Answer("approve", feedback="z")]) == {"y": ["x", "z"]}

    @wf.node
    def b(state: Any, ctx: Any) -> Any:
        return {"y": [ctx.ask("Which?").given["ids"], ctx.ask("Sure?").given]}

    assert run_node(wf, "b", {}, answers=[{"ids": (1, 2)}, True]) == {"y": [(1, 2), True]}
    with pytest.raises(NodeError, match="asks 'Two\\?'"):
        run_node(wf, "a", {}, answers=["x"])
