"""Questions to people: waiting executions, shared answers, modes, changed states and timeouts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.attempts import attempts
from tests.support.bench import Bench, finish
from tests.support.prose import sentence
from tests.support.waiting import until
from wtb import InputError, Workflow
from wtb.core.errors import ConflictError, Rejected, WTBError
from wtb.display.views.questions import question_document, whole_question
from wtb.display.views.sweeps import status_document
from wtb.integrations.models.ask import ActionNode
from wtb.operations.context import Context
from wtb.operations.control.answers import Answered, answer
from wtb.store.control import approvals, sweeps
from wtb.store.control.forks import retry
from wtb.store.read import queries
from wtb.store.records import ListedQuestion
from wtb.store.tables.schema import approvals as approvals_table

Make = Callable[..., Bench]


def questioner(**ask: Any) -> Workflow:
    """a -> b, where b asks once under either of two variants, and writes the answer."""
    wf = Workflow("asking")

    @wf.node
    def a(state: Any) -> Any:
        return {"x": state["x"] + 1}

    @wf.node
    def b(state: Any, ctx: Any, *, k: int = 0) -> Any:
        reply = ctx.ask("Go on?", context={"x": state["x"]}, **ask)
        return {"y": [state["x"], reply.action, reply.choice, reply.feedback, reply.by, k]}

    b.variant("other", k=1)
    wf.entry(a)
    wf.edge(a, b)
    return wf


def open_questions(sweep: Bench) -> list[ListedQuestion]:
    return approvals.approval_rows(sweep.database, sweep_id=sweep.sweep_id)


def the_question(sweep: Bench) -> ListedQuestion:
    (question,) = open_questions(sweep)
    return question


def answer_question(sweep: Bench, action: str, **fields: Any) -> Answered:
    return answer(who(sweep), the_question(sweep).id, action, bound=sweep.prepared.bound, **fields)


def who(sweep: Bench, by: str = "ada") -> Context:
    return Context(sweep.database, by=by)


def kinds(sweep: Bench) -> list[str]:
    return [event["kind"] for event in sweep.events]


def outputs(sweep: Bench, key: str = "y") -> list[Any]:
    return [cell.state.get(key) for cell in sweep.cells()]


def test_two_variants_that_ask_the_same_share_one_answer(run_sweep: Make) -> None:
    sweep = run_sweep(questioner(options=["yes", "no"]), vary={"b": ["default", "other"]})

    assert sweep.status == "paused"
    assert "1 answer" in sweep.row.reason
    assert sweep.counts == {"waiting": 2}
    assert sorted(row.status for row in sweep.executions) == ["forked", "waiting", "waiting"]
    question = the_question(sweep)
    document = whole_question(sweep.database, question)
    assert document["executions"] == 2
    assert document["context"] == {"x": 2}
    assert document["options"] == ["yes", "no"]
    assert "other" not in str(document)

    reply = answer_question(sweep, "yes", feedback="fine")

    assert len(reply.executions) == 2
    assert sweep.counts == {"pending": 2}
    sweep.run()
    assert sweep.status == "completed"
    assert sweep.counts == {"succeeded": 2}
    assert outputs(sweep) == [[2, "approve", "yes", "fine", "ada", 0], [2, "approve", "yes", "fine", "ada", 1]]
    assert sweep.executed == 3  # a once, and b under each variant: attempts that asked are none
    assert kinds(sweep).count("approval.asked") == kinds(sweep).count("approval.answered") == 1
    with sweep.database.read() as connection:
        tries = connection.execute(sa.select(attempts.c.status, attempts.c.failure)).all()
    assert sorted(row.failure["kind"] for row in tries if row.failure) == ["waiting", "waiting"]


def valued() -> Workflow:
    """Return a workflow with a node that writes the value of its answer."""
    wf = Workflow("valued")

    @wf.node
    def a(state: Any, ctx: Any, *, k: int = 0) -> Any:
        reply = ctx.ask("Which?")
        return {"y": reply.given, "said": [reply.action, reply.feedback, k]}

    a.variant("other", k=1)
    wf.entry(a)
    return wf


VALUE = {
    "decisions": [{"type": "edit", "args": {"to": ["ana"], "amount": 2**70, "at": 0.1}}],
    "$x": "caf\xe9\0",
    "n": None,
}


@pytest.mark.parametrize(("action", "changes"), [("approve", {}), ("modify", {"x": 3})])
def test_an_answer_carries_a_value_to_all_who_ask(run_sweep: Make, action: str, changes: Any) -> None:
    sweep = run_sweep(valued(), vary={"a": "all"})
    reply = answer_question(sweep, action, value=VALUE, feedback="so", set=changes)
    sweep.run()

    assert outputs(sweep) == [VALUE, VALUE]
    assert outputs(sweep, "said") == [[action, "so", 0], [action, "so", 1]]
    expected = {**VALUE, "decisions": [{"type": "edit", "args": {"to": ["ana"], "amount": str(2**70), "at": 0.1}}]}
    assert reply.value == expected
    (row,) = approvals.approval_rows(sweep.database, sweep_id=sweep.sweep_id, closed=True)
    assert question_document(row)["answer"]["value"] == expected
    answered = next(event for event in sweep.events if event["kind"] == "approval.answered")
    assert answered["data"]["value"].startswith('{"decisions":[{"type":"edit"')
    with pytest.raises(ConflictError, match=r"with the value \{.*, with the feedback 'so'"):
        answer(who(sweep, "bob"), row.id, "approve")


def test_nothing_is_a_value_too_and_without_one_there_is_none(run_sweep: Make) -> None:
    sweep = run_sweep(valued(), [{"id": name, "input": {"x": number}} for number, name in enumerate("pq")])
    rows = {row.case: row for row in open_questions(sweep)}
    answer(who(sweep), rows["p"].id, "approve", value=None)
    answer(who(sweep), rows["q"].id, "approve")
    sweep.run()
    assert outputs(sweep) == [None, None]
    answers = {row.case: row.answer for row in approvals.approval_rows(sweep.database, closed=True)}
    assert (answers["p"]["value"], answers["q"]["value"]) == ("null", None)


def test_an_answer_that_was_stored_before_there_were_values_has_none(run_sweep: Make) -> None:
    sweep = run_sweep(valued())
    answer_question(sweep, "approve", feedback="long ago")
    with sweep.database.write() as connection:
        (row,) = connection.execute(sa.select(approvals_table)).mappings()
        earlier = {name: field for name, field in row["answer"].items() if name != "value"}
        connection.execute(approvals_table.update().values(answer=earlier))
    sweep.run()
    assert outputs(sweep) == [None]
    (question,) = approvals.approval_rows(sweep.database, closed=True)
    assert question_document(question)["answer"]["value"] is None


def test_a_value_that_nobody_would_be_given_is_refused(run_sweep: Make) -> None:
    sweep = run_sweep(valued())
    with pytest.raises(InputError, match=sentence("the question is rejected, and a value is given")):
        answer_question(sweep, "reject", value=1)
    with pytest.raises(InputError, match=r"a\[1\] cannot be stored: found builtins.object"):
        answer_question(sweep, "approve", value={"a": [1, object()]})
    with pytest.raises(
        InputError, match=sentence("the value has {} bytes of JSON; expected at most {}", "1,000,002", "1,000,000")
    ):
        answer_question(sweep, "approve", value="x" * 1_000_000)
    assert the_question(sweep).status == "open"
    answer_question(sweep, "approve", value="x" * 999_998)
    sweep.run()
    assert outputs(sweep) == ["x" * 999_998]

    sweep = run_sweep(valued(), run={"approval": "before"})
    with pytest.raises(InputError, match=sentence("is not asked by a node, so that nothing would take a value")):
        answer_question(sweep, "approve", value=1)


def test_a_question_is_asked_again_where_the_node_asks_several(run_sweep: Make) -> None:
    wf = Workflow("several")

    @wf.node
    def a(state: Any, ctx: Any) -> Any:
        try:  # a node's own net does not catch it
            first = ctx.ask("Name?").feedback
        except Exception:  # noqa: BLE001 - as nodes do
            first = "swallowed"
        return {"names": [first, ctx.ask("Name?").feedback]}

    wf.entry(a)
    sweep = run_sweep(wf)
    answer_question(sweep, "approve", feedback="one")
    sweep.run()
    assert sweep.status == "paused"
    answer_question(sweep, "approve", feedback="two")
    sweep.run()
    assert outputs(sweep, "names") == [["one", "two"]]
    assert sweep.node_runs[0]["attempts"] == 3
    assert sweep.executed == 1


def test_a_rejection_that_nobody_handles_cancels_and_a_retry_asks_again(run_sweep: Make) -> None:
    sweep = run_sweep(questioner())
    answer_question(sweep, "reject", feedback="too early")
    sweep.run()

    assert sweep.status == "completed"
    assert sweep.counts == {"cancelled": 1}
    (cell,) = sweep.cells()
    assert cell.failure is not None
    assert cell.failure["kind"] == "rejected"
    assert cell.failure["message"] == "rejected by ada: too early"

    retry(sweep.database, sweep.sweep_id)
    sweep.run()
    assert sweep.counts == {"waiting": 1}
    answer_question(sweep, "approve")
    sweep.run()
    assert sweep.counts == {"succeeded": 1}


def test_a_node_can_handle_a_rejection(run_sweep: Make) -> None:
    wf = Workflow("handled")

    @wf.node(on_error="skip")
    def a(state: Any, ctx: Any) -> Any:
        try:
            ctx.ask("Sure?")
        except Rejected as no:
            return {"y": str(no)}
        return {}

    wf.entry(a)
    sweep = run_sweep(wf)
    answer_question(sweep, "reject")
    sweep.run()
    assert outputs(sweep) == [sentence("rejected by {}", "ada")]


def test_modify_changes_the_state_and_the_node_starts_again_from_it(run_sweep: Make) -> None:
    sweep = run_sweep(questioner(), vary={"b": ["default", "other"]})
    answer_question(sweep, "modify", set={"x": 40}, feedback="better")
    sweep.run()

    assert outputs(sweep) == [[40, "modify", None, "better", "ada", 0], [40, "modify", None, "better", "ada", 1]]
    assert all(row.edited for row in sweep.executions if row.status == "completed")
    assert sweep.status == "completed"
    assert not open_questions(sweep)
    assert kinds(sweep).count("approval.asked") == 1


def test_one_who_asks_late_what_was_answered_continues_at_once(bench: Make) -> None:
    """The second variant reaches its question after an answer with another state to the question of the first."""
    answered = threading.Event()
    wf = Workflow("late")

    @wf.node
    def a(state: Any, ctx: Any, *, late: bool = False) -> Any:
        if late and state["x"] == 1:
            assert answered.wait(60)
        ctx.ask("Go on?")
        return {"y": state["x"]}

    a.variant("late", late=True)
    wf.entry(a)
    sweep = bench(wf, vary={"a": ["default", "late"]}, run={"concurrency": 2})
    run = sweep.start()
    while not open_questions(sweep):
        assert not run.wait(0.02)
    answer_question(sweep, "modify", set={"x": 7})
    answered.set()
    finish(run)
    if sweep.status == "paused":  # it ended before it saw what can go on
        sweep.run()
    assert outputs(sweep) == [7, 7]
    assert kinds(sweep).count("approval.asked") == 1


def test_before_asks_before_each_step_once_for_all_cells(run_sweep: Make) -> None:
    wf = questioner()
    sweep = run_sweep(wf, vary={"b": ["default", "other"]}, run={"approval": "before"})
    first = the_question(sweep)
    assert (first.kind, first.question) == ("before", "Run a?")
    assert whole_question(sweep.database, first)["context"] == {"x": 1}
    answer_question(sweep, "modify", set={"x": 10})
    sweep.run()
    second = the_question(sweep)
    assert second.question == "Run b?"
    assert second.executions == 1
    answer_question(sweep, "approve")
    sweep.run()
    assert the_question(sweep).kind == "ask"
    answer_question(sweep, "approve")
    sweep.run()
    assert sweep.counts == {"succeeded": 2}
    assert outputs(sweep)[0][0] == 11


def test_a_rejected_step_cancels_its_cells(run_sweep: Make) -> None:
    sweep = run_sweep(questioner(), run={"approval": "before"})
    answer_question(sweep, "reject", feedback="no")
    sweep.run()
    assert sweep.counts == {"cancelled": 1}
    assert sweep.executed == 0
    cancelled = next(event for event in sweep.events if event["kind"] == "cell.cancelled")
    assert cancelled["data"]["by"] == "ada"
    assert "no" in cancelled["data"]["reason"]


def test_after_asks_to_continue_with_what_a_node_made(run_sweep: Make) -> None:
    wf = questioner(default="yes")
    wf.approval = {"after": "a"}
    sweep = run_sweep(wf)
    question = the_question(sweep)
    assert (question.kind, question.node) == ("after", "a")
    assert whole_question(sweep.database, question)["context"] == {"x": 2}
    answer_question(sweep, "approve")
    sweep.run()
    assert the_question(sweep).kind == "ask"  # and not of a, a second time


def test_on_error_a_failed_node_run_asks_and_knows_the_feedback(run_sweep: Make) -> None:
    wf = Workflow("failing")

    @wf.node
    def a(state: Any, ctx: Any) -> Any:
        if ctx.previous is None or ctx.previous.feedback is None:
            raise ValueError("no such index")
        return {"y": [state["x"], ctx.previous.error, ctx.previous.feedback]}

    wf.entry(a)
    sweep = run_sweep(wf, [{"id": name, "input": {"x": 1}} for name in ("p", "q", "r")], run={"approval": "on_error"})
    assert sweep.counts == {"waiting": 3}
    ask, bound = who(sweep), sweep.prepared.bound
    by_case = {row.case: row for row in open_questions(sweep)}
    assert whole_question(sweep.database, by_case["p"])["context"]["error"] == "ValueError: no such index"
    answer(ask, by_case["p"].id, "approve", feedback="use the other")
    answer(ask, by_case["q"].id, "modify", set={"x": 5}, feedback="five", bound=bound)
    answer(ask, by_case["r"].id, "reject", feedback="leave it")
    sweep.run()

    assert sweep.counts == {"succeeded": 2, "failed": 1}
    first, second, third = sweep.cells()
    assert first.state["y"] == [1, "node 'a': ValueError: no such index", "use the other"]
    assert second.state["y"] == [5, "ValueError: no such index", "five"]
    assert "no such index" in third.error
    assert "leave it" in third.error


def planned(approval: Any = None) -> Workflow:
    """Return plan -> left and right in parallel -> write, which fails until a person gives feedback."""
    wf = Workflow("planned", **({} if approval is None else {"approval": approval}))

    def write(state: Any, ctx: Any) -> Any:
        if ctx.previous is None or ctx.previous.feedback is None:
            raise ValueError("no title")
        return {"text": [state["plan"], state["l"], state["r"], ctx.previous.feedback]}

    wf.node(lambda state: {"plan": 1}, name="plan")
    wf.node(lambda state: {"l": state["plan"]}, name="left")
    wf.node(lambda state: {"r": state["plan"]}, name="right")
    wf.node(write, name="write")
    wf.entry("plan")
    wf.edge("plan", "left")
    wf.edge("plan", "right")
    wf.edge(["left", "right"], "write")
    return wf


def test_several_modes_ask_each_at_its_place_and_say_which_asks(run_sweep: Make) -> None:
    modes = [{"after": "plan"}, {"after": "left"}, {"after": "right"}, "on_error"]
    sweep = run_sweep(planned(), run={"approval": modes})
    row = queries.find_sweep(sweep.database, sweep.sweep_id)
    assert status_document(sweep.database, row)["approval"] == modes
    question_modes: list[Any] = []
    while open_questions(sweep):
        pending = open_questions(sweep)
        question_modes.append(sorted((question_document(question)["mode"] for question in pending), key=str))
        for question in pending:
            answer(who(sweep), question.id, "approve", feedback="Title" if question.kind == "error" else None)
        sweep.run()
    assert question_modes == [[{"after": "plan"}], [{"after": "left"}, {"after": "right"}], ["on_error"]]
    assert sweep.cells()[0].state["text"] == [1, 1, 1, "Title"]


def test_of_two_questions_about_a_step_a_rejection_of_one_cancels(run_sweep: Make) -> None:
    sweep = run_sweep(planned(), run={"approval": [{"after": "left"}, {"after": "right"}]})
    left, right = open_questions(sweep)
    answer(who(sweep), left.id, "approve")
    sweep.run()
    assert [question.id for question in open_questions(sweep)] == [right.id]
    answer(who(sweep), right.id, "reject", feedback="no")
    sweep.run()
    assert sweep.counts == {"cancelled": 1}


def test_a_state_changed_in_one_of_two_answers_asks_the_other_about_the_new_state(run_sweep: Make) -> None:
    sweep = run_sweep(planned(), run={"approval": [{"after": "left"}, {"after": "right"}]})
    (left_question,) = (row for row in open_questions(sweep) if question_document(row)["mode"] == {"after": "left"})
    answer(who(sweep), left_question.id, "modify", set={"l": 7}, bound=sweep.prepared.bound)
    sweep.run()
    (question,) = open_questions(sweep)
    assert question_document(question)["mode"] == {"after": "right"}
    answer(who(sweep), question.id, "approve")
    sweep.run()
    assert sweep.counts == {"failed": 1}  # by write: nobody is asked on errors
    assert sweep.executions[-1].failure


def test_before_beside_after_asks_about_each_step_once(run_sweep: Make) -> None:
    sweep = run_sweep(planned(["before", {"after": "plan"}, "on_error"]))
    texts: list[Any] = []
    while open_questions(sweep):
        (question,) = open_questions(sweep)
        texts.append(question.question)
        answer(who(sweep), question.id, "approve", feedback="Title" if question.kind == "error" else None)
        sweep.run()
    assert texts == [
        "Run plan?",
        sentence("Continue with the output of step “{}”?", "plan"),
        "Run write?",
        "write failed: ValueError: no title. Try again?",
    ]
    assert sweep.counts == {"succeeded": 1}


def test_with_nobody_there_defaults_count_at_once(run_sweep: Make) -> None:
    sweep = run_sweep(questioner(options=["yes", "no"], default="no"), run={"approval": "none"})
    assert outputs(sweep) == [[2, "approve", "no", None, None, 0]]
    sweep = run_sweep(questioner(), run={"approval": "none"})
    assert sweep.cells()[0].error.startswith("node 'b': Unanswered: nobody is there to answer")


@pytest.mark.parametrize("default", ["no", None])
def test_time_that_is_up_lets_the_default_count(run_sweep: Make, default: str | None) -> None:
    sweep = run_sweep(questioner(timeout=0.01, default=default))
    execution = sweep.executions[-1].id
    if sweep.status == "paused":  # else its run has seen it by itself
        until(lambda: approvals.expire(sweep.database), "the question to expire", pause=0.02)
        (reason,) = (row.reason for row in sweep.executions)
        assert (reason is None) == (default is not None), reason
        sweep.run()
    (cell,) = sweep.cells()
    if default is None:
        assert cell.error.startswith("node 'b': Unanswered: nobody answered within 0.01 s")
        assert [run["attempts"] for run in sweep.node_runs if run["node"] == "b"] == [2]
    else:
        assert cell.state["y"] == [2, "approve", "no", None, None, 0]
    (row,) = approvals.approval_rows(sweep.database, sweep_id=sweep.sweep_id, closed=True)
    came = "its default counted" if default else "it has no default, so that its node fails"
    for ref in (row.id, execution):
        with pytest.raises(ConflictError, match=rf"expired: it was not answered in time \(.*\); {came}"):
            answer(who(sweep, "bob"), ref, "approve")


def test_of_two_who_answer_at_once_one_wins_and_the_other_is_told(run_sweep: Make) -> None:
    sweep = run_sweep(questioner(), [{"id": str(number), "input": {"x": number}} for number in range(5)])
    for row in open_questions(sweep):
        outcomes: list[Any] = []
        line = threading.Barrier(2)

        def give(by: str, id: str = row.id, line: Any = line, outcomes: Any = outcomes) -> None:
            line.wait()
            try:
                outcomes.append(answer(who(sweep, by), id, "approve").by)
            except WTBError as error:
                outcomes.append(error)

        with ThreadPoolExecutor(2) as threads:
            list(threads.map(give, ("ada", "bob")))
        (winner,) = [outcome for outcome in outcomes if isinstance(outcome, str)]
        (refused,) = [outcome for outcome in outcomes if not isinstance(outcome, str)]
        assert isinstance(refused, ConflictError)
        assert f"{winner} approved it" in str(refused)
    assert sweep.counts == {"pending": 5}
    assert kinds(sweep).count("approval.answered") == 5


def test_nodes_beside_one_that_asks_are_kept_and_answered_ones_continue(run_sweep: Make) -> None:
    """a -> {b, c, d} -> e: b asks under both variants, c asks too, d does not."""
    wf = Workflow("wide")
    ran: list[str] = []

    @wf.node
    def a(state: Any) -> Any:
        return {}

    @wf.node
    def b(state: Any, ctx: Any, *, k: int = 0) -> Any:
        ran.append(f"b{k}")
        return {"b": [ctx.ask("b?").feedback, k]}

    @wf.node
    def c(state: Any, ctx: Any) -> Any:
        ran.append("c")
        return {"c": ctx.ask("c?").feedback}

    @wf.node
    def d(state: Any, *, k: int = 0) -> Any:
        ran.append(f"d{k}")
        return {"d": k}

    @wf.node
    def e(state: Any) -> Any:
        return {"y": [state["b"], state["c"], state["d"]]}

    b.variant("one", k=1)
    d.variant("one", k=1)
    wf.entry(a)
    for node in (b, c, d):
        wf.edge(a, node)
    wf.edge([b, c, d], e)
    sweep = run_sweep(wf, vary={"b": ["default", "one"], "d": ["default", "one"]})

    assert sorted(ran) == ["b0", "b1", "c", "d0", "d1"]
    assert sweep.counts == {"waiting": 4}
    questions_by_text = {row.question: row for row in open_questions(sweep)}
    assert set(questions_by_text) == {"b?", "c?"}
    ran.clear()
    answer(who(sweep), questions_by_text["b?"].id, "approve", feedback="B")
    sweep.run()
    assert sorted(ran) == ["b0", "b1"]
    assert sweep.counts == {"waiting": 4}
    ran.clear()
    answer(who(sweep), questions_by_text["c?"].id, "approve", feedback="C")
    sweep.run()
    assert ran == ["c"]
    assert sweep.counts == {"succeeded": 4}
    assert outputs(sweep) == [[["B", k], "C", j] for k in (0, 1) for j in (0, 1)]


def test_cancelling_withdraws_what_nobody_waits_for_any_more(run_sweep: Make) -> None:
    sweep = run_sweep(questioner())
    question = the_question(sweep)
    sweeps.cancel(sweep.database, sweep.sweep_id, reason="enough", by="ada")
    assert not open_questions(sweep)
    assert "approval.withdrawn" in kinds(sweep)
    with pytest.raises(ConflictError, match="withdrawn"):
        answer(who(sweep, "bob"), question.id, "approve")


UNFIT: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("aprove", {}, "did you mean 'approve'"),
    ("approve", {}, "asks to choose; answer with one of: yes, no"),
    ("approve", {"choice": "yess"}, "has no option 'yess'; did you mean 'yes'"),
    ("modify", {"set": {"x": 1}}, "asks to choose; expected a choice with modify, one of: yes, no"),
    ("yes", {"choice": "no"}, "with the option 'yes' and with the choice 'no'; expected one of them"),
    ("reject", {"choice": "yes"}, "is chosen; reject with feedback"),
    ("yes", {"set": {"x": 1}}, "expected them with modify"),
    ("modify", {"choice": "yes"}, "expected what to change"),
)


def test_an_answer_that_does_not_fit_is_refused(run_sweep: Make) -> None:
    sweep = run_sweep(questioner(options=["yes", "no"]))
    for action, fields, problem in UNFIT:
        with pytest.raises(InputError, match=problem):
            answer_question(sweep, action, **fields)
    assert sweep.counts == {"waiting": 1}


def action_flow(resources: Any = None, **options: Any) -> Workflow:
    wf = Workflow("acting", resources=resources)

    def instructions(state: Any, ctx: Any, *, tone: str = "dry") -> str:
        return f"Say {state['x']} in a {tone} tone"

    def confirm(state: Any, response: str, ctx: Any) -> Any:
        return {"y": response.upper()}

    act = wf.node(ActionNode(instructions, confirm, name="act", **options))
    act.variant("warm", tone="warm")
    wf.entry(act)
    return wf


def test_an_action_node_asks_the_model_in_a_sweep(run_sweep: Make) -> None:
    def model() -> Any:
        return {"model": lambda prompt: (f"<{prompt}>", {"tokens_in": 7, "tokens_out": 3})}

    sweep = run_sweep(action_flow(model), vary={"act": ["default", "warm"]})
    assert outputs(sweep) == ["<SAY 1 IN A DRY TONE>", "<SAY 1 IN A WARM TONE>"]
    assert {run["tokens_in"] for run in sweep.node_runs} == {7}


def test_an_action_node_waits_for_a_person_where_the_run_says_so(run_sweep: Make) -> None:
    sweep = run_sweep(action_flow(mode="autonomous"), vary={"act": ["default", "warm"]}, run={"mode": "interactive"})
    prompts = {row.question: row.id for row in open_questions(sweep)}
    assert set(prompts) == {"Say 1 in a dry tone", "Say 1 in a warm tone"}
    for prompt, id in prompts.items():
        with pytest.raises(InputError, match=sentence("asks for a response")):
            answer(who(sweep), id, "approve")
        answer(who(sweep), id, "approve", feedback=prompt[6:11])
    sweep.run()
    assert outputs(sweep) == ["IN A ", "IN A "]


def test_an_action_node_without_a_model_says_what_is_missing(run_sweep: Make) -> None:
    sweep = run_sweep(action_flow())
    assert sentence("there is no model to answer") in sweep.cells()[0].error
