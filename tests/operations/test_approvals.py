"""Questions to people: executions that wait, answers that are shared, modes, changed states, time that is up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.attempts import attempts
from tests.support.bench import Bench
from tests.support.prose import sentence
from wtb import END, InputError, Workflow
from wtb.core.errors import ConflictError, Rejected, WTBError
from wtb.display.views.questions import question_document, whole_question
from wtb.display.views.sweeps import status_document
from wtb.integrations.models.two_pass import ActionNode
from wtb.operations.context import Context
from wtb.operations.control.answers import Answered, answer
from wtb.store.control import approvals, questions, sweeps
from wtb.store.growth.retry import retry
from wtb.store.read import queries
from wtb.store.rows.control import ListedQuestion
from wtb.store.tables.schema import approvals as approvals_table

Make = Callable[..., Bench]


def questioner(**ask: Any) -> Workflow:
    """a -> b, where b asks once under either of two variants, and writes what it was told."""
    wf = Workflow("asking")

    @wf.node
    def a(state: Any) -> Any:
        return {"x": state["x"] + 1}

    @wf.node
    def b(state: Any, ctx: Any, *, k: int = 0) -> Any:
        said = ctx.ask("Go on?", context={"x": state["x"]}, **ask)
        return {"y": [state["x"], said.action, said.choice, said.feedback, said.by, k]}

    b.variant("other", k=1)
    wf.entry(a)
    wf.edge(a, b)
    wf.edge(b, END)
    return wf


def open_questions(made: Bench) -> list[ListedQuestion]:
    return questions.approval_rows(made.database, sweep_id=made.sweep_id)


def the_question(made: Bench) -> ListedQuestion:
    (found,) = open_questions(made)
    return found


def told(made: Bench, action: str, **fields: Any) -> Answered:
    return answer(who(made), the_question(made).id, action, bound=made.prepared.bound, **fields)


def who(made: Bench, by: str = "ada") -> Context:
    return Context(made.database, by=by)


def kinds(made: Bench) -> list[str]:
    return [event["kind"] for event in made.events]


def outputs(made: Bench, key: str = "y") -> list[Any]:
    return [cell.state.get(key) for cell in made.cells()]


def test_two_variants_that_ask_the_same_share_one_answer(run_sweep: Make) -> None:
    made = run_sweep(questioner(options=["yes", "no"]), vary={"b": ["default", "other"]})

    assert made.status == "paused"
    assert "1 answer" in made.row.reason
    assert made.counts == {"waiting": 2}
    assert sorted(row.status for row in made.executions) == ["forked", "waiting", "waiting"]
    found = the_question(made)
    shown = whole_question(made.database, found)
    assert shown["executions"] == 2
    assert shown["context"] == {"x": 2}
    assert shown["options"] == ["yes", "no"]
    assert "other" not in str(shown)

    given = told(made, "yes", feedback="fine")

    assert len(given.executions) == 2
    assert made.counts == {"pending": 2}
    made.run()
    assert made.status == "completed"
    assert made.counts == {"succeeded": 2}
    assert outputs(made) == [[2, "approve", "yes", "fine", "ada", 0], [2, "approve", "yes", "fine", "ada", 1]]
    assert made.executed == 3  # a once, and b under each variant: attempts that asked are none
    assert kinds(made).count("approval.asked") == kinds(made).count("approval.answered") == 1
    with made.database.read() as connection:
        tries = connection.execute(sa.select(attempts.c.status, attempts.c.failure)).all()
    assert sorted(row.failure["kind"] for row in tries if row.failure) == ["waiting", "waiting"]


def valued() -> Workflow:
    """A node that writes the value of the answer it was given."""
    wf = Workflow("valued")

    @wf.node
    def a(state: Any, ctx: Any, *, k: int = 0) -> Any:
        said = ctx.ask("Which?")
        return {"y": said.given, "said": [said.action, said.feedback, k]}

    a.variant("other", k=1)
    wf.entry(a)
    wf.edge(a, END)
    return wf


VALUE = {
    "decisions": [{"type": "edit", "args": {"to": ["ana"], "amount": 2**70, "at": 0.1}}],
    "$x": "caf\xe9\0",
    "n": None,
}


@pytest.mark.parametrize(("action", "changes"), [("approve", {}), ("modify", {"x": 3})])
def test_an_answer_carries_a_value_to_all_who_ask(run_sweep: Make, action: str, changes: Any) -> None:
    made = run_sweep(valued(), vary={"a": "all"})
    given = told(made, action, value=VALUE, feedback="so", set=changes)
    made.run()

    assert outputs(made) == [VALUE, VALUE]
    assert outputs(made, "said") == [[action, "so", 0], [action, "so", 1]]
    shown = {**VALUE, "decisions": [{"type": "edit", "args": {"to": ["ana"], "amount": str(2**70), "at": 0.1}}]}
    assert given.value == shown
    (row,) = questions.approval_rows(made.database, sweep_id=made.sweep_id, closed=True)
    assert question_document(row)["answer"]["value"] == shown
    answered = next(event for event in made.events if event["kind"] == "approval.answered")
    assert answered["data"]["value"].startswith('{"decisions":[{"type":"edit"')
    with pytest.raises(ConflictError, match=r"with the value \{.*, saying 'so'"):
        answer(who(made, "bob"), row.id, "approve")


def test_nothing_is_a_value_too_and_without_one_there_is_none(run_sweep: Make) -> None:
    made = run_sweep(valued(), [{"id": name, "input": {"x": number}} for number, name in enumerate("pq")])
    rows = {row.case: row for row in open_questions(made)}
    answer(who(made), rows["p"].id, "approve", value=None)
    answer(who(made), rows["q"].id, "approve")
    made.run()
    assert outputs(made) == [None, None]
    found = {row.case: row.answer for row in questions.approval_rows(made.database, closed=True)}
    assert (found["p"]["value"], found["q"]["value"]) == ("null", None)


def test_an_answer_that_was_stored_before_there_were_values_has_none(run_sweep: Make) -> None:
    made = run_sweep(valued())
    told(made, "approve", feedback="long ago")
    with made.database.write() as connection:
        (row,) = connection.execute(sa.select(approvals_table)).mappings()
        earlier = {name: held for name, held in row["answer"].items() if name != "value"}
        connection.execute(approvals_table.update().values(answer=earlier))
    made.run()
    assert outputs(made) == [None]
    (asked,) = questions.approval_rows(made.database, closed=True)
    assert question_document(asked)["answer"]["value"] is None


def test_a_value_that_nobody_would_be_given_is_refused(run_sweep: Make) -> None:
    made = run_sweep(valued())
    with pytest.raises(InputError, match=sentence("a value cannot be given and the question rejected")):
        told(made, "reject", value=1)
    with pytest.raises(InputError, match=r"a\[1\] cannot be stored: found builtins.object"):
        told(made, "approve", value={"a": [1, object()]})
    with pytest.raises(
        InputError, match=sentence("the value has {} bytes of JSON; expected at most {}", "1,000,002", "1,000,000")
    ):
        told(made, "approve", value="x" * 1_000_000)
    assert the_question(made).status == "open"
    told(made, "approve", value="x" * 999_998)
    made.run()
    assert outputs(made) == ["x" * 999_998]

    made = run_sweep(valued(), run={"approval": "before"})
    with pytest.raises(InputError, match=sentence("is not asked by a node, so that nothing would take a value")):
        told(made, "approve", value=1)


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
    wf.edge(a, END)
    made = run_sweep(wf)
    told(made, "approve", feedback="one")
    made.run()
    assert made.status == "paused"
    told(made, "approve", feedback="two")
    made.run()
    assert outputs(made, "names") == [["one", "two"]]
    assert made.node_runs[0]["attempts"] == 3
    assert made.executed == 1


def test_a_rejection_that_nobody_handles_cancels_and_a_retry_asks_again(run_sweep: Make) -> None:
    made = run_sweep(questioner())
    told(made, "reject", feedback="too early")
    made.run()

    assert made.status == "completed"
    assert made.counts == {"cancelled": 1}
    (cell,) = made.cells()
    assert cell.failure is not None
    assert cell.failure["kind"] == "rejected"
    assert cell.failure["message"] == "rejected by ada: too early"

    retry(made.database, made.sweep_id)
    made.run()
    assert made.counts == {"waiting": 1}
    told(made, "approve")
    made.run()
    assert made.counts == {"succeeded": 1}


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
    wf.edge(a, END)
    made = run_sweep(wf)
    told(made, "reject")
    made.run()
    assert outputs(made) == [sentence("rejected by {}", "ada")]


def test_modify_changes_the_state_and_the_node_starts_again_from_it(run_sweep: Make) -> None:
    made = run_sweep(questioner(), vary={"b": ["default", "other"]})
    told(made, "modify", set={"x": 40}, feedback="better")
    made.run()

    assert outputs(made) == [[40, "modify", None, "better", "ada", 0], [40, "modify", None, "better", "ada", 1]]
    assert all(row.edited for row in made.executions if row.status == "completed")
    assert made.status == "completed"
    assert not open_questions(made)
    assert kinds(made).count("approval.asked") == 1


def test_one_who_asks_late_what_was_answered_goes_on_at_once(bench: Make) -> None:
    """The second variant comes to its question when the first one's was answered with another state."""
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
    wf.edge(a, END)
    made = bench(wf, vary={"a": ["default", "late"]}, run={"concurrency": 2})
    run = made.start()
    while not open_questions(made):
        assert not run.wait(0.02)
    told(made, "modify", set={"x": 7})
    answered.set()
    while not run.wait(30):
        pass
    run.finish()
    if made.status == "paused":  # it ended before it saw what can go on
        made.run()
    assert outputs(made) == [7, 7]
    assert kinds(made).count("approval.asked") == 1


def test_before_asks_before_each_step_once_for_all_cells(run_sweep: Make) -> None:
    wf = questioner()
    made = run_sweep(wf, vary={"b": ["default", "other"]}, run={"approval": "before"})
    first = the_question(made)
    assert (first.kind, first.question) == ("before", "Run a?")
    assert whole_question(made.database, first)["context"] == {"x": 1}
    told(made, "modify", set={"x": 10})
    made.run()
    second = the_question(made)
    assert second.question == "Run b?"
    assert second.executions == 1
    told(made, "approve")
    made.run()
    assert the_question(made).kind == "ask"
    told(made, "approve")
    made.run()
    assert made.counts == {"succeeded": 2}
    assert outputs(made)[0][0] == 11


def test_a_rejected_step_cancels_its_cells(run_sweep: Make) -> None:
    made = run_sweep(questioner(), run={"approval": "before"})
    told(made, "reject", feedback="no")
    made.run()
    assert made.counts == {"cancelled": 1}
    assert made.executed == 0
    cancelled = next(event for event in made.events if event["kind"] == "cell.cancelled")
    assert cancelled["data"]["by"] == "ada"
    assert "no" in cancelled["data"]["reason"]


def test_after_asks_to_go_on_with_what_a_node_made(run_sweep: Make) -> None:
    wf = questioner(default="yes")
    wf.approval = {"after": "a"}
    made = run_sweep(wf)
    found = the_question(made)
    assert (found.kind, found.node) == ("after", "a")
    assert whole_question(made.database, found)["context"] == {"x": 2}
    told(made, "approve")
    made.run()
    assert the_question(made).kind == "ask"  # and not of a, a second time


def test_on_error_a_failed_node_run_asks_and_knows_the_feedback(run_sweep: Make) -> None:
    wf = Workflow("failing")

    @wf.node
    def a(state: Any, ctx: Any) -> Any:
        if ctx.previous is None or ctx.previous.feedback is None:
            raise ValueError("no such index")
        return {"y": [state["x"], ctx.previous.error, ctx.previous.feedback]}

    wf.entry(a)
    wf.edge(a, END)
    made = run_sweep(wf, [{"id": name, "input": {"x": 1}} for name in ("p", "q", "r")], run={"approval": "on_error"})
    assert made.counts == {"waiting": 3}
    ask, bound = who(made), made.prepared.bound
    by_case = {row.case: row for row in open_questions(made)}
    assert whole_question(made.database, by_case["p"])["context"]["error"] == "ValueError: no such index"
    answer(ask, by_case["p"].id, "approve", feedback="use the other")
    answer(ask, by_case["q"].id, "modify", set={"x": 5}, feedback="five", bound=bound)
    answer(ask, by_case["r"].id, "reject", feedback="leave it")
    made.run()

    assert made.counts == {"succeeded": 2, "failed": 1}
    first, second, third = made.cells()
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
    wf.edge("write", END)
    return wf


def test_several_modes_ask_each_at_its_place_and_say_which_asks(run_sweep: Make) -> None:
    modes = [{"after": "plan"}, {"after": "left"}, {"after": "right"}, "on_error"]
    made = run_sweep(planned(), run={"approval": modes})
    row = queries.find_sweep(made.database, made.sweep_id)
    assert status_document(made.database, row)["approval"] == modes
    asked: list[Any] = []
    while open_questions(made):
        found = open_questions(made)
        asked.append(sorted((question_document(one)["mode"] for one in found), key=str))
        for one in found:
            answer(who(made), one.id, "approve", feedback="Title" if one.kind == "error" else None)
        made.run()
    assert asked == [[{"after": "plan"}], [{"after": "left"}, {"after": "right"}], ["on_error"]]
    assert made.cells()[0].state["text"] == [1, 1, 1, "Title"]


def test_of_two_questions_about_a_step_a_rejection_of_one_cancels(run_sweep: Make) -> None:
    made = run_sweep(planned(), run={"approval": [{"after": "left"}, {"after": "right"}]})
    left, right = open_questions(made)
    answer(who(made), left.id, "approve")
    made.run()
    assert [one.id for one in open_questions(made)] == [right.id]
    answer(who(made), right.id, "reject", feedback="no")
    made.run()
    assert made.counts == {"cancelled": 1}


def test_a_state_changed_in_one_of_two_answers_asks_the_other_about_the_new_state(run_sweep: Make) -> None:
    made = run_sweep(planned(), run={"approval": [{"after": "left"}, {"after": "right"}]})
    (left,) = (one for one in open_questions(made) if question_document(one)["mode"] == {"after": "left"})
    answer(who(made), left.id, "modify", set={"l": 7}, bound=made.prepared.bound)
    made.run()
    (again,) = open_questions(made)
    assert question_document(again)["mode"] == {"after": "right"}
    answer(who(made), again.id, "approve")
    made.run()
    assert made.counts == {"failed": 1}  # by write: nobody is asked on errors
    assert made.executions[-1].failure


def test_before_beside_after_asks_about_each_step_once(run_sweep: Make) -> None:
    made = run_sweep(planned(["before", {"after": "plan"}, "on_error"]))
    asked: list[Any] = []
    while open_questions(made):
        (one,) = open_questions(made)
        asked.append(one.question)
        answer(who(made), one.id, "approve", feedback="Title" if one.kind == "error" else None)
        made.run()
    assert asked == [
        "Run plan?",
        sentence("Continue with the output of step “{}”?", "plan"),
        "Run write?",
        "write failed: ValueError: no title. Try again?",
    ]
    assert made.counts == {"succeeded": 1}


def test_with_nobody_there_defaults_count_at_once(run_sweep: Make) -> None:
    made = run_sweep(questioner(options=["yes", "no"], default="no"), run={"approval": "none"})
    assert outputs(made) == [[2, "approve", "no", None, None, 0]]
    made = run_sweep(questioner(), run={"approval": "none"})
    assert made.cells()[0].error.startswith("node 'b': Unanswered: nobody is there to answer")


@pytest.mark.parametrize("default", ["no", None])
def test_time_that_is_up_lets_the_default_count(run_sweep: Make, default: str | None) -> None:
    made = run_sweep(questioner(timeout=0.01, default=default))
    execution = made.executions[-1].id
    if made.status == "paused":  # else its run has seen it by itself
        while not approvals.expire(made.database):
            time.sleep(0.02)
        (reason,) = (row.reason for row in made.executions)
        assert (reason is None) == (default is not None), reason
        made.run()
    (cell,) = made.cells()
    if default is None:
        assert cell.error.startswith("node 'b': Unanswered: nobody answered within 0.01 s")
        assert [run["attempts"] for run in made.node_runs if run["node"] == "b"] == [2]
    else:
        assert cell.state["y"] == [2, "approve", "no", None, None, 0]
    (row,) = questions.approval_rows(made.database, sweep_id=made.sweep_id, closed=True)
    came = "its default counted" if default else "it has no default, so that its node fails"
    for ref in (row.id, execution):
        with pytest.raises(ConflictError, match=rf"expired: it was not answered in time \(.*\); {came}"):
            answer(who(made, "bob"), ref, "approve")


def test_of_two_who_answer_at_once_one_wins_and_the_other_is_told(run_sweep: Make) -> None:
    made = run_sweep(questioner(), [{"id": str(number), "input": {"x": number}} for number in range(5)])
    for row in open_questions(made):
        outcomes: list[Any] = []
        line = threading.Barrier(2)

        def give(by: str, id: str = row.id, line: Any = line, outcomes: Any = outcomes) -> None:
            line.wait()
            try:
                outcomes.append(answer(who(made, by), id, "approve").by)
            except WTBError as error:
                outcomes.append(error)

        threads = [threading.Thread(target=give, args=(by,)) for by in ("ada", "bob")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (winner,) = [one for one in outcomes if isinstance(one, str)]
        (refused,) = [one for one in outcomes if not isinstance(one, str)]
        assert isinstance(refused, ConflictError)
        assert f"{winner} approved it" in str(refused)
    assert made.counts == {"pending": 5}
    assert kinds(made).count("approval.answered") == 5


def test_nodes_beside_one_that_asks_are_kept_and_answered_ones_go_on(run_sweep: Make) -> None:
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
    wf.edge(e, END)
    made = run_sweep(wf, vary={"b": ["default", "one"], "d": ["default", "one"]})

    assert sorted(ran) == ["b0", "b1", "c", "d0", "d1"]
    assert made.counts == {"waiting": 4}
    asked = {row.question: row for row in open_questions(made)}
    assert set(asked) == {"b?", "c?"}
    ran.clear()
    answer(who(made), asked["b?"].id, "approve", feedback="B")
    made.run()
    assert sorted(ran) == ["b0", "b1"]
    assert made.counts == {"waiting": 4}
    ran.clear()
    answer(who(made), asked["c?"].id, "approve", feedback="C")
    made.run()
    assert ran == ["c"]
    assert made.counts == {"succeeded": 4}
    assert outputs(made) == [[["B", k], "C", j] for k in (0, 1) for j in (0, 1)]


def test_cancelling_withdraws_what_nobody_waits_for_any_more(run_sweep: Make) -> None:
    made = run_sweep(questioner())
    found = the_question(made)
    sweeps.cancel(made.database, made.sweep_id, reason="enough", by="ada")
    assert not open_questions(made)
    assert "approval.withdrawn" in kinds(made)
    with pytest.raises(ConflictError, match="withdrawn"):
        answer(who(made, "bob"), found.id, "approve")


UNFIT: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("aprove", {}, "did you mean 'approve'"),
    ("approve", {}, "asks to choose; answer with one of: yes, no"),
    ("approve", {"choice": "yess"}, "has no option 'yess'; did you mean 'yes'"),
    ("modify", {"set": {"x": 1}}, "asks to choose; expected a choice with modify, one of: yes, no"),
    ("yes", {"choice": "no"}, "with the option 'yes' and with the choice 'no'; expected one of them"),
    ("reject", {"choice": "yes"}, "cannot be chosen and rejected"),
    ("yes", {"set": {"x": 1}}, "expected them with modify"),
    ("modify", {"choice": "yes"}, "expected what to change"),
)


def test_an_answer_that_does_not_fit_is_refused(run_sweep: Make) -> None:
    made = run_sweep(questioner(options=["yes", "no"]))
    for action, fields, problem in UNFIT:
        with pytest.raises(InputError, match=problem):
            told(made, action, **fields)
    assert made.counts == {"waiting": 1}


def action_flow(resources: Any = None, **options: Any) -> Workflow:
    wf = Workflow("acting", resources=resources)

    def instructions(state: Any, ctx: Any, *, tone: str = "dry") -> str:
        return f"Say {state['x']} in a {tone} tone"

    def confirm(state: Any, response: str, ctx: Any) -> Any:
        return {"y": response.upper()}

    act = wf.node(ActionNode(instructions, confirm, name="act", **options))
    act.variant("warm", tone="warm")
    wf.entry(act)
    wf.edge(act, END)
    return wf


def test_an_action_node_asks_the_model_in_a_sweep(run_sweep: Make) -> None:
    def model() -> Any:
        return {"model": lambda prompt: (f"<{prompt}>", {"tokens_in": 7, "tokens_out": 3})}

    made = run_sweep(action_flow(model), vary={"act": ["default", "warm"]})
    assert outputs(made) == ["<SAY 1 IN A DRY TONE>", "<SAY 1 IN A WARM TONE>"]
    assert {run["tokens_in"] for run in made.node_runs} == {7}


def test_an_action_node_waits_for_a_person_where_the_run_says_so(run_sweep: Make) -> None:
    made = run_sweep(action_flow(mode="autonomous"), vary={"act": ["default", "warm"]}, run={"mode": "interactive"})
    prompts = {row.question: row.id for row in open_questions(made)}
    assert set(prompts) == {"Say 1 in a dry tone", "Say 1 in a warm tone"}
    for prompt, id in prompts.items():
        with pytest.raises(InputError, match=sentence("asks for a response")):
            answer(who(made), id, "approve")
        answer(who(made), id, "approve", feedback=prompt[6:11])
    made.run()
    assert outputs(made) == ["IN A ", "IN A "]


def test_an_action_node_without_a_model_says_what_is_missing(run_sweep: Make) -> None:
    made = run_sweep(action_flow())
    assert sentence("there is no model to answer") in made.cells()[0].error
