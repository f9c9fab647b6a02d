"""What every engine does that the runner can drive: one suite, run over the workflows of each of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

import wtb
from tests.execution.engine_subjects import SENDERS, SUBJECTS, Sender, State, Subject
from wtb.authoring.code.calling import Caller
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
from wtb.store.files.store import FileStore
from wtb.store.files.workspaces import Workspaces


@pytest.fixture(params=SUBJECTS, ids=[one.name for one in SUBJECTS])
def subject(request: pytest.FixtureRequest) -> Subject:
    made: Subject = request.param
    return made


@pytest.fixture(params=SENDERS, ids=[one.name for one in SENDERS])
def sender(request: pytest.FixtureRequest) -> Sender:
    made: Sender = request.param
    return made


@pytest.fixture
def surroundings(tmp_path: Path) -> Iterator[Surroundings]:
    caller = Caller()
    yield Surroundings(caller, None, Workspaces(FileStore(tmp_path / "files"), tmp_path / "attempts"))
    caller.close()


def encoded(state: Mapping[str, Any]) -> dict[str, Value]:
    return {name: Value.of(value) for name, value in state.items()}


def plain(values: Mapping[str, Value]) -> dict[str, Any]:
    """What people see of a state."""
    return {name: decode(value.data) for name, value in visible_state(values).items()}


class Drive:
    """Drives an engine by hand, as the runner does: begins, runs tasks, joins steps."""

    def __init__(self, workflow: Workflow, surroundings: Surroundings, **given: Any) -> None:
        self.engine: Engine = engine_of(workflow)
        self.surroundings = surroundings
        self.case = CaseView("case-1", ("t",), {name: value.data for name, value in encoded(given).items()})
        self.state: dict[str, Value] = encoded(given)
        self.position = Position(0, ())
        self.ran: list[list[str]] = []
        begun = begin(self.engine, self.state, self.task(NodeTask.of("")).root)
        self.take(begun)

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
        found: list[tuple[str, Mapping[str, Value]]] = []
        for number, task in enumerate(self.position.tasks):
            result = self.run(number, **more)
            assert result.writes is not None, str(result.failure or result.question)
            found.append((task.key, result.writes))
        return found

    def joined(self, writes: list[tuple[str, Mapping[str, Value]]]) -> Joined | Failure:
        return join(self.engine, self.state, self.position, writes, self.task(NodeTask.of("")).root)

    def step(self, **more: Any) -> None:
        self.ran.append([task.node for task in self.position.tasks])
        self.take(self.joined(self.writes(**more)))

    def to_end(self, most: int = 20) -> dict[str, Any]:
        for _ in range(most):
            if not self.position.next:
                return plain(self.state)
            self.step()
        raise AssertionError(f"still going after {most} steps")


Make = Callable[..., Drive]


@pytest.fixture
def drive(surroundings: Surroundings) -> Make:
    return lambda workflow, **given: Drive(workflow, surroundings, **given)


def ctx() -> Context:
    found = current_context()
    assert found is not None, "a node finds its context"
    return found


def say(word: str) -> Callable[[State], dict[str, Any]]:
    return lambda state: {"words": [word]}


def nothing(state: State) -> dict[str, Any]:
    return {}


# Beginning


def test_it_begins_at_step_0_before_the_first_node_with_the_input_in_the_state(subject: Subject, drive: Make) -> None:
    made = drive(subject.line(say("a"), say("b")), x=1)

    assert (made.position.step, made.position.next) == (0, ("a",))
    assert plain(made.state)["x"] == 1
    assert made.position.visits.get("a", 0) == 0


def test_it_begins_the_same_each_time(subject: Subject, drive: Make) -> None:
    workflow = subject.diamond(nothing, say("b"), say("c"), nothing)

    one, other = drive(workflow, x=1), drive(workflow, x=1)

    assert (one.position, one.state) == (other.position, other.state)


def test_it_may_start_from_a_node_in_the_middle_at_a_position_that_no_engine_made(
    subject: Subject, drive: Make
) -> None:
    made = drive(subject.line(say("a"), lambda state: {"y": state["x"] + 1}, say("c")), x=1)
    made.position = Position(0, ("b",))

    state = made.to_end()

    assert made.ran == [["b"], ["c"]]
    assert (state["y"], state["words"]) == (2, ["c"])


# Ways through the graph


def test_a_line_runs_one_node_after_the_other_each_on_what_the_one_before_wrote(subject: Subject, drive: Make) -> None:
    made = drive(subject.line(lambda state: {"y": state["x"] + 1}, lambda state: {"x": state["y"] * 10}), x=1)

    state = made.to_end()

    assert made.ran == [["a"], ["b"]]
    assert (state["x"], state["y"]) == (20, 2)
    assert made.position.step == 2


def test_what_comes_next_in_one_step_is_in_the_order_of_declaration(subject: Subject, drive: Make) -> None:
    made = drive(subject.diamond(nothing, say("b"), say("c"), say("d")))

    state = made.to_end()

    assert made.ran == [["a"], ["b", "c"], ["d"]]
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

    made = drive(workflow, any="neither")

    assert made.to_end()["words"] == [to]
    assert made.ran == [["a"], [to]]


def test_a_loop_is_left_when_the_state_says_so_and_each_pass_is_a_visit(subject: Subject, drive: Make) -> None:
    visits: list[int] = []

    def a(state: State) -> dict[str, Any]:
        visits.append(ctx().visit)
        return {"x": state["x"] + 1}

    made = drive(subject.loop(a, lambda state: bool(state["x"] < 3)), x=0)

    assert made.to_end()["x"] == 3
    assert visits == [0, 1, 2]
    assert made.position.visits["a"] == 3


def test_a_reducer_adds_to_what_is_there(subject: Subject, drive: Make) -> None:
    assert drive(subject.line(say("a"), say("b")), words=["given"]).to_end()["words"] == ["given", "a", "b"]


def test_two_writes_of_a_key_without_a_reducer_cannot_be_joined(subject: Subject, drive: Make) -> None:
    made = drive(subject.diamond(nothing, lambda state: {"x": 1}, lambda state: {"x": 2}, nothing))
    made.step()

    failed = made.joined(made.writes())

    assert isinstance(failed, Failure)
    assert "x" in failed.message


def test_a_branch_that_raises_fails_the_node_or_the_step_whichever_it_belongs_to(subject: Subject, drive: Make) -> None:
    def by(state: State) -> str:
        raise KeyError("no way")

    made = drive(subject.branch(say("a"), by, nothing, nothing))

    result = made.run()
    failed = result.failure if result.writes is None else made.joined([("a", result.writes)])

    assert isinstance(failed, Failure)
    assert (failed.type, failed.message) == ("KeyError", "'no way'")


def test_a_node_alone_in_its_step_can_be_joined_at_once(subject: Subject, drive: Make) -> None:
    made = drive(subject.line(say("a"), say("b")), words=["given"])

    result = made.run(join=True)

    assert result.writes is not None
    assert result.joined == made.joined([("a", result.writes)])


# Positions and writes


def test_a_position_goes_through_json_and_it_goes_on_from_there(subject: Subject, drive: Make) -> None:
    workflow = subject.diamond(say("a"), say("b"), say("c"), say("d"))
    straight = drive(workflow).to_end()
    made = drive(workflow)
    for _ in range(3):
        again = Position.read(orjson.loads(orjson.dumps(made.position.document())))
        assert again == made.position
        made.position = again
        made.engine = engine_of(workflow)  # as in another process
        made.step()

    assert made.position.next == ()
    assert plain(made.state) == straight


def test_the_same_state_gives_the_same_writes_and_the_same_step(subject: Subject, drive: Make) -> None:
    made = drive(subject.diamond(nothing, say("b"), lambda state: {"any": [{1: (2,)}]}, nothing))
    made.step()

    one, other = made.writes(), made.writes()

    assert one == other
    assert made.joined(one) == made.joined(other)


def test_a_step_is_joined_from_writes_that_were_stored(subject: Subject, drive: Make) -> None:
    made = drive(subject.line(lambda state: {"x": 1, "words": ["a"]}, nothing))
    stored = [(key, {n: Value(v.digest, bytes(v.data)) for n, v in update.items()}) for key, update in made.writes()]

    made.engine = engine_of(subject.line(lambda state: {"x": 1, "words": ["a"]}, nothing))
    made.take(made.joined(stored))

    assert made.position.next == ("b",)
    assert (plain(made.state)["x"], plain(made.state)["words"]) == (1, ["a"])


def test_only_what_has_changed_is_said_to_have_changed(subject: Subject, drive: Make) -> None:
    made = drive(subject.line(lambda state: {"x": 1, "y": 2}, nothing), x=1)

    joined = made.joined(made.writes())

    assert isinstance(joined, Joined)
    assert set(visible_state(joined.changed)) == {"y"}


def test_a_node_that_returns_nothing_writes_nothing(subject: Subject, drive: Make) -> None:
    made = drive(subject.line(lambda state: None, nothing), x=1)
    before = plain(made.state)
    made.step()

    assert plain(made.state) == before
    assert made.position.next == ("b",)


# A node run


def test_each_run_gets_a_copy_of_the_state_of_its_own(subject: Subject, drive: Make) -> None:
    seen: list[list[str]] = []

    def spoil(state: State) -> dict[str, Any]:
        seen.append(list(state["words"]))
        state["words"].append("spoilt")
        return {}

    made = drive(subject.line(spoil, nothing), words=["a"])
    for _ in range(2):
        made.run()

    assert seen == [["a"], ["a"]]
    assert plain(made.state)["words"] == ["a"]


def test_a_node_finds_who_it_is(subject: Subject, drive: Make) -> None:
    found: list[Any] = []

    def a(state: State) -> dict[str, Any]:
        here = ctx()
        found.append((here.node, here.task, here.variant, here.case.id, here.attempt, here.seed, here.params["k"]))
        return {}

    drive(subject.line(a)).run(attempt=2, params={"k": 5})

    assert found == [("a", "a", "default", "case-1", 2, 7, 5)]


def test_the_variant_of_the_task_is_what_runs(subject: Subject, drive: Make) -> None:
    workflow = subject.line(say("first"), say("b"))
    subject.add_variant(workflow, "a", "other", say("second"))
    made = drive(workflow)

    made.step(variant="other")

    assert plain(made.state)["words"] == ["second"]
    assert made.position.next == ("b",)


def test_an_async_node_is_awaited(subject: Subject, drive: Make) -> None:
    async def a(state: State) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"y": state["x"] + ctx().attempt}

    assert drive(subject.line(a), x=1).to_end()["y"] == 2


def test_random_numbers_are_the_same_for_the_same_attempt(subject: Subject, drive: Make) -> None:
    made = drive(subject.line(lambda state: {"any": ctx().rng.random()}))

    one, same, other = (made.run(attempt=attempt).writes for attempt in (1, 1, 2))

    assert one == same != other


def test_what_is_spent_and_said_is_recorded(subject: Subject, drive: Make) -> None:
    def a(state: State) -> dict[str, Any]:
        ctx().cost(usd=0.25, tokens_in=10, tokens_out=2)
        ctx().log("spent")
        return {}

    heard: list[str] = []

    result = drive(subject.line(a)).run(on_event=lambda what, said: heard.append(what))

    assert (result.record.usd, result.record.tokens_in, result.record.tokens_out) == (0.25, 10, 2)
    assert [what for what in heard if what != "written"] == ["spent", "event"]  # modules may be compiled meanwhile


def test_what_was_spent_before_a_failure_counts(subject: Subject, drive: Make) -> None:
    def a(state: State) -> dict[str, Any]:
        ctx().cost(usd=0.25)
        raise ValueError("no")

    result = drive(subject.line(a)).run()

    assert result.failure is not None
    assert result.record.usd == 0.25


def test_the_files_of_a_node_are_in_its_snapshot_and_the_next_one_finds_them(subject: Subject, drive: Make) -> None:
    def a(state: State) -> dict[str, Any]:
        (ctx().workspace / "note").write_text("from a")
        return {}

    def b(state: State) -> dict[str, Any]:
        return {"any": (ctx().workspace / "note").read_text()}

    made = drive(subject.line(a, b))
    first = made.run()
    assert first.writes is not None
    made.take(made.joined([("a", first.writes)]))

    made.step(workspace=first.workspace)

    assert plain(made.state)["any"] == "from a"


# Failures and questions


def test_what_a_node_raises_is_a_failure_with_the_users_own_frames(subject: Subject, drive: Make) -> None:
    def a(state: State) -> dict[str, Any]:
        raise ValueError("nothing to see")

    result = drive(subject.line(a)).run()

    failure = result.failure
    assert failure is not None
    assert result.writes is None
    assert (failure.kind, failure.type, failure.message) == ("error", "ValueError", "nothing to see")
    assert failure.node == "a"
    assert "test_engine_contract.py" in failure.trace
    assert str(Path(wtb.__file__).parent) not in failure.trace


def test_what_cannot_be_stored_is_a_failure_that_names_node_and_key(subject: Subject, drive: Make) -> None:
    result = drive(subject.line(lambda state: {"any": threading.Lock()})).run()

    assert result.failure is not None
    assert result.failure.kind == "state"
    assert "'a'" in str(result.failure)
    assert "'any'" in result.failure.message


def test_a_write_that_is_no_update_is_a_failure(subject: Subject, drive: Make) -> None:
    result = drive(subject.line(lambda state: 5)).run()

    assert result.writes is None
    assert result.failure is not None


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_node_that_takes_too_long_is_given_up(subject: Subject, drive: Make, asynchronous: bool) -> None:
    released = threading.Event()

    def a(state: State) -> dict[str, Any]:
        released.wait(30)
        return {}

    async def late(state: State) -> dict[str, Any]:
        await asyncio.sleep(30)
        return {}

    result = drive(subject.line(late if asynchronous else a)).run(timeout=0.05)
    released.set()

    assert result.failure is not None
    assert (result.failure.kind, result.failure.node) == ("timeout", "a")


def test_a_node_that_asks_ends_with_its_question_and_goes_on_with_the_answer(subject: Subject, drive: Make) -> None:
    def a(state: State) -> dict[str, Any]:
        return {"any": ctx().ask("Which?", options=["one", "two"]).choice}

    made = drive(subject.line(a))
    asked = made.run()
    assert asked.writes is None
    assert asked.failure is None
    assert asked.question is not None
    assert (asked.question.text, asked.question.node, asked.question.options) == ("Which?", "a", ("one", "two"))

    made.step(answers={asked.question.key: Answer("approve", "two", by="ada")}, attempt=2)

    assert plain(made.state)["any"] == "two"


def test_a_rejection_is_a_failure_that_trying_again_does_not_help(subject: Subject, drive: Make) -> None:
    def a(state: State) -> dict[str, Any]:
        ctx().ask("Really?")
        return {}

    made = drive(subject.line(a))
    asked = made.run().question
    assert asked is not None

    failure = made.run(answers={asked.key: Answer("reject", by="ada")}).failure

    assert failure is not None
    assert (failure.kind, failure.final) == ("rejected", True)


def test_a_failure_leaves_no_snapshot(subject: Subject, drive: Make) -> None:
    def a(state: State) -> dict[str, Any]:
        (ctx().workspace / "note").write_text("x")
        raise ValueError("no")

    result = drive(subject.line(a)).run()

    assert (result.workspace, result.files) == (None, ())


# Fanning out


def sent(state: State) -> dict[str, Any]:
    """A node that is sent to: it tells its item."""
    return {"words": [f"{ctx().task}={state['x']}"]}


def test_a_node_that_is_sent_to_several_times_has_a_task_for_each(sender: Sender, drive: Make) -> None:
    made = drive(sender.sends(nothing, sent, nothing), items=[7, 8, 9])
    made.step()
    assert made.position.next == ("work",)
    assert made.position.tasks == tuple(NodeTask(f"work|{number}", "work", number) for number in range(3))

    made.step()

    assert plain(made.state)["words"] == ["work|0=7", "work|1=8", "work|2=9"]
    assert made.position.next == ("d",)
    assert made.position.visits["work"] == 1


def test_how_often_it_is_sent_to_depends_on_the_state_after_the_node_before(sender: Sender, drive: Make) -> None:
    made = drive(sender.sends(lambda state: {"items": [5]}, sent, nothing), items=[1, 2, 3])

    assert [one.partition("=")[2] for one in made.to_end()["words"]] == ["5"]


def test_tasks_may_end_in_any_order_and_their_writes_keep_theirs(sender: Sender, drive: Make) -> None:
    made = drive(sender.sends(nothing, sent, nothing), items=[7, 8, 9])
    made.step()
    straight = made.joined(made.writes())

    backwards = [(made.position.tasks[number].key, made.run(number).writes or {}) for number in (2, 1, 0)]

    assert made.joined(backwards[::-1]) == straight


def test_a_position_with_several_tasks_goes_through_json(sender: Sender, drive: Make) -> None:
    workflow = sender.sends(nothing, sent, nothing)
    made = drive(workflow, items=[7, 8])
    made.step()

    again = Position.read(orjson.loads(orjson.dumps(made.position.document())))
    assert (again, again.tasks) == (made.position, made.position.tasks)
    made.position, made.engine = again, engine_of(workflow)

    assert [one.partition("=")[2] for one in made.to_end()["words"]] == ["7", "8"]


def test_each_task_draws_and_asks_for_itself(sender: Sender, drive: Make) -> None:
    def ask(state: State) -> dict[str, Any]:
        return {"words": [f"{ctx().rng.random()} {ctx().ask('Which?').feedback}"]}

    made = drive(sender.sends(nothing, ask, nothing), items=[7, 8])
    made.step()
    questions = [made.run(number).question for number in range(2)]
    assert [one.node for one in questions if one is not None] == ["work|0", "work|1"]
    answers = {one.key: Answer("approve", feedback=str(one.node)) for one in questions if one is not None}
    assert len(answers) == 2

    made.step(answers=answers)

    drawn, said = zip(*(one.split() for one in plain(made.state)["words"]), strict=True)
    assert said == ("work|0", "work|1")
    assert drawn[0] != drawn[1]


def test_what_was_dropped_is_gone_from_the_state_and_what_has_changed_is_new() -> None:
    joined = Joined(encoded({"x": 2}), Position(1, ()), dropped=("y",))

    assert plain(joined.after(encoded({"x": 1, "y": 1, "any": 1}), joined.changed)) == {"x": 2, "any": 1}
