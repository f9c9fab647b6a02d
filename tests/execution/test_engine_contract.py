"""One suite for every engine that the runner can drive, run over the workflows of each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

import wtb
from tests.execution.engine_subjects import SENDERS, SUBJECTS, Sender, State, Subject
from wtb.authoring.context.attempt_record import CaseView
from wtb.authoring.context.node_context import Context, current_context
from wtb.authoring.workflow import Workflow
from wtb.core.failures import Failure
from wtb.core.questions import Answer
from wtb.core.serialization.codec import decode
from wtb.core.tree.checkpoints import NodeTask, Position, visible_state
from wtb.core.values import Value
from wtb.execution.engine.executor import Surroundings
from wtb.execution.engine.protocol import Engine, Joined, Result, Root, Task, begin, engine_of, join


@pytest.fixture(params=SUBJECTS, ids=[choice.name for choice in SUBJECTS])
def subject(request: pytest.FixtureRequest) -> Subject:
    parameter: Subject = request.param
    return parameter


@pytest.fixture(params=SENDERS, ids=[choice.name for choice in SENDERS])
def sender(request: pytest.FixtureRequest) -> Sender:
    parameter: Sender = request.param
    return parameter


def encoded(state: Mapping[str, Any]) -> dict[str, Value]:
    return {name: Value.of(value) for name, value in state.items()}


def plain(values: Mapping[str, Value]) -> dict[str, Any]:
    """Return the part of a state that users see."""
    return {name: decode(value.data) for name, value in visible_state(values).items()}


class Drive:
    """Drives an engine by hand, as the runner does: begins, runs tasks, joins steps."""

    def __init__(self, workflow: Workflow, surroundings: Surroundings, **inputs: Any) -> None:
        self.engine: Engine = engine_of(workflow)
        self.surroundings = surroundings
        self.case = CaseView("case-1", ("t",), {name: value.data for name, value in encoded(inputs).items()})
        self.state: dict[str, Value] = encoded(inputs)
        self.position = Position(0, ())
        self.ran: list[list[str]] = []
        start = begin(self.engine, self.state, self.task(NodeTask.of("")).root)
        self.take(start)

    def take(self, joined: Joined | Failure) -> None:
        assert isinstance(joined, Joined), str(joined)
        assert not set(joined.dropped) & set(joined.changed), "what is gone has not changed"
        self.state = joined.after(self.state, joined.changed)
        self.position = joined.position

    def task(self, of: NodeTask, **more: Any) -> Task:
        variant = more.pop("variant", "default")
        root = Root(self.case, **{"seed": 7, **{name: more.pop(name) for name in ("repeat", "params") if name in more}})
        return Task(of.node, variant, self.state, self.position, root, number=of.number, key=of.key, **more)

    def run(self, number: int = 0, **more: Any) -> Result:
        """Run a task of the next step."""
        return self.engine.run(self.task(self.position.tasks[number], **more), self.surroundings)

    def writes(self, **more: Any) -> list[tuple[str, Mapping[str, Value]]]:
        """Run all tasks of the next step."""
        updates: list[tuple[str, Mapping[str, Value]]] = []
        for number, task in enumerate(self.position.tasks):
            node_result = self.run(number, **more)
            assert node_result.writes is not None, str(node_result.failure or node_result.question)
            updates.append((task.key, node_result.writes))
        return updates

    def joined(self, writes: list[tuple[str, Mapping[str, Value]]]) -> Joined | Failure:
        return join(self.engine, self.state, self.position, writes, self.task(NodeTask.of("")).root)

    def step(self, **more: Any) -> None:
        self.ran.append([task.node for task in self.position.tasks])
        self.take(self.joined(self.writes(**more)))

    def to_end(self, limit: int = 20) -> dict[str, Any]:
        for _ in range(limit):
            if not self.position.next:
                return plain(self.state)
            self.step()
        raise AssertionError(f"still going after {limit} steps")


Make = Callable[..., Drive]


@pytest.fixture
def drive(surroundings: Surroundings) -> Make:
    return lambda workflow, **inputs: Drive(workflow, surroundings, **inputs)


def ctx() -> Context:
    context = current_context()
    assert context is not None, "a node finds its context"
    return context


def say(word: str) -> Callable[[State], dict[str, Any]]:
    return lambda state: {"words": [word]}


def nothing(state: State) -> dict[str, Any]:
    return {}


# Beginning


def test_it_begins_at_step_0_before_the_first_node_with_the_input_in_the_state(subject: Subject, drive: Make) -> None:
    driver = drive(subject.line(say("a"), say("b")), x=1)

    assert (driver.position.step, driver.position.next) == (0, ("a",))
    assert plain(driver.state)["x"] == 1
    assert driver.position.visits.get("a", 0) == 0


def test_it_begins_the_same_each_time(subject: Subject, drive: Make) -> None:
    workflow = subject.diamond(nothing, say("b"), say("c"), nothing)

    first, other = drive(workflow, x=1), drive(workflow, x=1)

    assert (first.position, first.state) == (other.position, other.state)


def test_it_may_start_from_a_node_in_the_middle_at_a_position_that_no_engine_made(
    subject: Subject, drive: Make
) -> None:
    driver = drive(subject.line(say("a"), lambda state: {"y": state["x"] + 1}, say("c")), x=1)
    driver.position = Position(0, ("b",))

    state = driver.to_end()

    assert driver.ran == [["b"], ["c"]]
    assert (state["y"], state["words"]) == (2, ["c"])


# Ways through the graph


def test_a_line_runs_one_node_after_the_other_each_on_what_the_one_before_wrote(subject: Subject, drive: Make) -> None:
    driver = drive(subject.line(lambda state: {"y": state["x"] + 1}, lambda state: {"x": state["y"] * 10}), x=1)

    state = driver.to_end()

    assert driver.ran == [["a"], ["b"]]
    assert (state["x"], state["y"]) == (20, 2)
    assert driver.position.step == 2


def test_what_comes_next_in_one_step_is_in_the_order_of_declaration(subject: Subject, drive: Make) -> None:
    driver = drive(subject.diamond(nothing, say("b"), say("c"), say("d")))

    state = driver.to_end()

    assert driver.ran == [["a"], ["b", "c"], ["d"]]
    assert state["words"] == ["b", "c", "d"]


def test_nodes_of_one_step_do_not_see_what_the_others_write(subject: Subject, drive: Make) -> None:
    seen: list[int] = []

    def b(state: State) -> dict[str, Any]:
        seen.append(state["x"])
        return {"x": 2}

    def c(state: State) -> dict[str, Any]:
        seen.append(state["x"])
        return {"y": 3}

    state = drive(subject.diamond(nothing, b, c, nothing), x=1).to_end()

    assert seen == [1, 1]
    assert (state["x"], state["y"]) == (2, 3)


@pytest.mark.parametrize("to", ["b", "c"])
def test_a_branch_follows_the_state_after_the_node(subject: Subject, drive: Make, to: str) -> None:
    workflow = subject.branch(lambda state: {"any": to}, lambda state: str(state["any"]), say("b"), say("c"))

    driver = drive(workflow, any="neither")

    assert driver.to_end()["words"] == [to]
    assert driver.ran == [["a"], [to]]


def test_a_loop_is_left_when_the_state_says_so_and_each_pass_is_a_visit(subject: Subject, drive: Make) -> None:
    visits: list[int] = []

    def a(state: State) -> dict[str, Any]:
        visits.append(ctx().visit)
        return {"x": state["x"] + 1}

    driver = drive(subject.loop(a, lambda state: bool(state["x"] < 3)), x=0)

    assert driver.to_end()["x"] == 3
    assert visits == [0, 1, 2]
    assert driver.position.visits["a"] == 3


def test_a_reducer_adds_to_what_is_there(subject: Subject, drive: Make) -> None:
    assert drive(subject.line(say("a"), say("b")), words=["given"]).to_end()["words"] == ["given", "a", "b"]


def test_two_writes_of_a_key_without_a_reducer_cannot_be_joined(subject: Subject, drive: Make) -> None:
    driver = drive(subject.diamond(nothing, lambda state: {"x": 1}, lambda state: {"x": 2}, nothing))
    driver.step()

    failed = driver.joined(driver.writes())

    assert isinstance(failed, Failure)
    assert "x" in failed.message


def test_a_branch_that_raises_fails_the_node_or_the_step_whichever_it_belongs_to(subject: Subject, drive: Make) -> None:
    def by(state: State) -> str:
        raise KeyError("no way")

    driver = drive(subject.branch(say("a"), by, nothing, nothing))

    node_result = driver.run()
    failed = node_result.failure if node_result.writes is None else driver.joined([("a", node_result.writes)])

    assert isinstance(failed, Failure)
    assert (failed.type, failed.message) == ("KeyError", "'no way'")


def test_a_node_alone_in_its_step_can_be_joined_at_once(subject: Subject, drive: Make) -> None:
    driver = drive(subject.line(say("a"), say("b")), words=["given"])

    node_result = driver.run(join=True)

    assert node_result.writes is not None
    assert node_result.joined == driver.joined([("a", node_result.writes)])


# Positions and writes


def test_a_position_goes_through_json_and_it_continues_from_there(subject: Subject, drive: Make) -> None:
    workflow = subject.diamond(say("a"), say("b"), say("c"), say("d"))
    straight = drive(workflow).to_end()
    driver = drive(workflow)
    for _ in range(3):
        restored = Position.read(orjson.loads(orjson.dumps(driver.position.document())))
        assert restored == driver.position
        driver.position = restored
        driver.engine = engine_of(workflow)  # as in another process
        driver.step()

    assert driver.position.next == ()
    assert plain(driver.state) == straight


def test_the_same_state_gives_the_same_writes_and_the_same_step(subject: Subject, drive: Make) -> None:
    driver = drive(subject.diamond(nothing, say("b"), lambda state: {"any": [{1: (2,)}]}, nothing))
    driver.step()

    first, other = driver.writes(), driver.writes()

    assert first == other
    assert driver.joined(first) == driver.joined(other)


def test_a_step_is_joined_from_writes_that_were_stored(subject: Subject, drive: Make) -> None:
    driver = drive(subject.line(lambda state: {"x": 1, "words": ["a"]}, nothing))
    stored = [(key, {n: Value(v.digest, bytes(v.data)) for n, v in update.items()}) for key, update in driver.writes()]

    driver.engine = engine_of(subject.line(lambda state: {"x": 1, "words": ["a"]}, nothing))
    driver.take(driver.joined(stored))

    assert driver.position.next == ("b",)
    assert (plain(driver.state)["x"], plain(driver.state)["words"]) == (1, ["a"])


def test_only_what_has_changed_is_said_to_have_changed(subject: Subject, drive: Make) -> None:
    driver = drive(subject.line(lambda state: {"x": 1, "y": 2}, nothing), x=1)

    joined = driver.joined(driver.writes())

    assert isinstance(joined, Joined)
    assert set(visible_state(joined.changed)) == {"y"}


def test_a_node_that_returns_nothing_writes_nothing(subject: Subject, drive: Make) -> None:
    driver = drive(subject.line(lambda state: None, nothing), x=1)
    before = plain(driver.state)
    driver.step()

    assert plain(driver.state) == before
    assert driver.position.next == ("b",)


# A node run


def test_each_run_gets_a_copy_of_the_state_of_its_own(subject: Subject, drive: Make) -> None:
    seen: list[list[str]] = []

    def spoil(state: State) -> dict[str, Any]:
        seen.append(list(state["words"]))
        state["words"].append("spoilt")
        return {}

    driver = drive(subject.line(spoil, nothing), words=["a"])
    for _ in range(2):
        driver.run()

    assert seen == [["a"], ["a"]]
    assert plain(driver.state)["words"] == ["a"]


def test_a_node_finds_who_it_is(subject: Subject, drive: Make) -> None:
    seen: list[Any] = []

    def a(state: State) -> dict[str, Any]:
        me = ctx()
        seen.append((me.node, me.task, me.variant, me.case.id, me.attempt, me.seed, me.params["k"]))
        return {}

    drive(subject.line(a)).run(attempt=2, params={"k": 5})

    assert seen == [("a", "a", "default", "case-1", 2, 7, 5)]


def test_the_variant_of_the_task_is_what_runs(subject: Subject, drive: Make) -> None:
    workflow = subject.line(say("first"), say("b"))
    subject.add_variant(workflow, "a", "other", say("second"))
    driver = drive(workflow)

    driver.step(variant="other")

    assert plain(driver.state)["words"] == ["second"]
    assert driver.position.next == ("b",)


def test_an_async_node_is_awaited(subject: Subject, drive: Make) -> None:
    async def a(state: State) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"y": state["x"] + ctx().attempt}

    assert drive(subject.line(a), x=1).to_end()["y"] == 2


def test_random_numbers_are_the_same_for_the_same_attempt(subject: Subject, drive: Make) -> None:
    driver = drive(subject.line(lambda state: {"any": ctx().rng.random()}))

    first, same, other = (driver.run(attempt=attempt).writes for attempt in (1, 1, 2))

    assert first == same != other


def test_what_is_spent_and_said_is_recorded(subject: Subject, drive: Make) -> None:
    def a(state: State) -> dict[str, Any]:
        ctx().cost(usd=0.25, tokens_in=10, tokens_out=2)
        ctx().log("spent")
        return {}

    kinds: list[str] = []

    node_result = drive(subject.line(a)).run(on_event=lambda what, details: kinds.append(what))

    assert (node_result.record.usd, node_result.record.tokens_in, node_result.record.tokens_out) == (0.25, 10, 2)
    assert [what for what in kinds if what != "written"] == ["spent", "event"]  # modules may be compiled meanwhile


def test_what_was_spent_before_a_failure_counts(subject: Subject, drive: Make) -> None:
    def a(state: State) -> dict[str, Any]:
        ctx().cost(usd=0.25)
        raise ValueError("no")

    node_result = drive(subject.line(a)).run()

    assert node_result.failure is not None
    assert node_result.record.usd == 0.25


def test_the_files_of_a_node_are_in_its_snapshot_and_the_next_one_finds_them(subject: Subject, drive: Make) -> None:
    def a(state: State) -> dict[str, Any]:
        (ctx().workspace / "note").write_text("from a")
        return {}

    def b(state: State) -> dict[str, Any]:
        return {"any": (ctx().workspace / "note").read_text()}

    driver = drive(subject.line(a, b))
    first = driver.run()
    assert first.writes is not None
    driver.take(driver.joined([("a", first.writes)]))

    driver.step(workspace=first.workspace)

    assert plain(driver.state)["any"] == "from a"


# Failures and questions


def test_what_a_node_raises_is_a_failure_with_the_users_own_frames(subject: Subject, drive: Make) -> None:
    def a(state: State) -> dict[str, Any]:
        raise ValueError("nothing to see")

    node_result = drive(subject.line(a)).run()

    failure = node_result.failure
    assert failure is not None
    assert node_result.writes is None
    assert (failure.kind, failure.type, failure.message) == ("error", "ValueError", "nothing to see")
    assert failure.node == "a"
    assert "test_engine_contract.py" in failure.trace
    assert str(Path(wtb.__file__).parent) not in failure.trace


def test_what_cannot_be_stored_is_a_failure_that_names_node_and_key(subject: Subject, drive: Make) -> None:
    node_result = drive(subject.line(lambda state: {"any": threading.Lock()})).run()

    assert node_result.failure is not None
    assert node_result.failure.kind == "state"
    assert "'a'" in str(node_result.failure)
    assert "'any'" in node_result.failure.message


def test_a_write_that_is_no_update_is_a_failure(subject: Subject, drive: Make) -> None:
    node_result = drive(subject.line(lambda state: 5)).run()

    assert node_result.writes is None
    assert node_result.failure is not None


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_node_that_takes_too_long_is_given_up(subject: Subject, drive: Make, asynchronous: bool) -> None:
    released = threading.Event()

    def a(state: State) -> dict[str, Any]:
        released.wait(30)
        return {}

    async def late(state: State) -> dict[str, Any]:
        await asyncio.sleep(30)
        return {}

    node_result = drive(subject.line(late if asynchronous else a)).run(timeout=0.05)
    released.set()

    assert node_result.failure is not None
    assert (node_result.failure.kind, node_result.failure.node) == ("timeout", "a")
    assert not node_result.failure.final or subject.name == "langgraph", "it may be tried again"


def test_a_node_that_asks_ends_with_its_question_and_continues_with_the_answer(subject: Subject, drive: Make) -> None:
    def a(state: State) -> dict[str, Any]:
        return {"any": ctx().ask("Which?", options=["one", "two"]).choice}

    driver = drive(subject.line(a))
    outcome = driver.run()
    assert outcome.writes is None
    assert outcome.failure is None
    assert outcome.question is not None
    assert (outcome.question.text, outcome.question.node, outcome.question.options) == ("Which?", "a", ("one", "two"))

    driver.step(answers={outcome.question.key: Answer("approve", "two", by="ada")}, attempt=2)

    assert plain(driver.state)["any"] == "two"


def test_a_rejection_is_a_failure_that_trying_again_does_not_help(subject: Subject, drive: Make) -> None:
    def a(state: State) -> dict[str, Any]:
        ctx().ask("Really?")
        return {}

    driver = drive(subject.line(a))
    question = driver.run().question
    assert question is not None

    failure = driver.run(answers={question.key: Answer("reject", by="ada")}).failure

    assert failure is not None
    assert (failure.kind, failure.final) == ("rejected", True)


def test_a_failure_leaves_no_snapshot_and_no_files(subject: Subject, drive: Make, tmp_path: Path) -> None:
    def a(state: State) -> dict[str, Any]:
        (ctx().workspace / "note").write_text("x")
        raise ValueError("no")

    node_result = drive(subject.line(a)).run()

    assert (node_result.workspace, node_result.files) == (None, ())
    assert not list((tmp_path / "attempts").iterdir())


# Fanning out


def sent(state: State) -> dict[str, Any]:
    """A node that fan-out tasks run: it writes its item."""
    return {"words": [f"{ctx().task}={state['x']}"]}


def test_a_node_that_is_sent_to_several_times_has_a_task_for_each(sender: Sender, drive: Make) -> None:
    driver = drive(sender.sends(nothing, sent, nothing), items=[7, 8, 9])
    driver.step()
    assert driver.position.next == ("work",)
    assert driver.position.tasks == tuple(NodeTask(f"work|{number}", "work", number) for number in range(3))

    driver.step()

    assert plain(driver.state)["words"] == ["work|0=7", "work|1=8", "work|2=9"]
    assert driver.position.next == ("d",)
    assert driver.position.visits["work"] == 1


def test_how_often_it_is_sent_to_depends_on_the_state_after_the_node_before(sender: Sender, drive: Make) -> None:
    driver = drive(sender.sends(lambda state: {"items": [5]}, sent, nothing), items=[1, 2, 3])

    assert [word.partition("=")[2] for word in driver.to_end()["words"]] == ["5"]


def test_tasks_may_end_in_any_order_and_their_writes_keep_theirs(sender: Sender, drive: Make) -> None:
    driver = drive(sender.sends(nothing, sent, nothing), items=[7, 8, 9])
    driver.step()
    straight = driver.joined(driver.writes())

    backwards = [(driver.position.tasks[number].key, driver.run(number).writes or {}) for number in (2, 1, 0)]

    assert driver.joined(backwards[::-1]) == straight


def test_a_position_with_several_tasks_goes_through_json(sender: Sender, drive: Make) -> None:
    workflow = sender.sends(nothing, sent, nothing)
    driver = drive(workflow, items=[7, 8])
    driver.step()

    restored = Position.read(orjson.loads(orjson.dumps(driver.position.document())))
    assert (restored, restored.tasks) == (driver.position, driver.position.tasks)
    driver.position, driver.engine = restored, engine_of(workflow)

    assert [word.partition("=")[2] for word in driver.to_end()["words"]] == ["7", "8"]


def test_each_task_draws_and_asks_for_itself(sender: Sender, drive: Make) -> None:
    def ask(state: State) -> dict[str, Any]:
        return {"words": [f"{ctx().rng.random()} {ctx().ask('Which?').feedback}"]}

    driver = drive(sender.sends(nothing, ask, nothing), items=[7, 8])
    driver.step()
    questions = [driver.run(number).question for number in range(2)]
    assert [question.node for question in questions if question is not None] == ["work|0", "work|1"]
    answers = {
        question.key: Answer("approve", feedback=str(question.node)) for question in questions if question is not None
    }
    assert len(answers) == 2

    driver.step(answers=answers)

    drawn, replies = zip(*(word.split() for word in plain(driver.state)["words"]), strict=True)
    assert replies == ("work|0", "work|1")
    assert drawn[0] != drawn[1]


def test_what_was_dropped_is_gone_from_the_state_and_what_has_changed_is_new() -> None:
    joined = Joined(encoded({"x": 2}), Position(1, ()), dropped=("y",))

    assert plain(joined.after(encoded({"x": 1, "y": 1, "any": 1}), joined.changed)) == {"x": 2, "any": 1}
