"""Quick node runs of one checkpoint travel in one message to a node process, and run as if alone."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
import sqlalchemy as sa

from tests.support.attempts import attempts
from tests.support.bench import Bench
from tests.support.flows import PATIENCE_S, Flows, attempts_of, failures, states
from tests.support.waiting import until
from wtb.authoring.context.attempt_record import CaseView, Record
from wtb.core.failures import Failure
from wtb.core.stop import Stopped
from wtb.core.tree.checkpoints import Position
from wtb.core.values import Value
from wtb.execution.attempt import Attempt
from wtb.execution.engine.protocol import Result, Root, Settings, Task
from wtb.execution.execution import NodeRun
from wtb.execution.journal import Lost
from wtb.execution.node_run import GroupedNodeRun, PreparedAttempt, RunningNode
from wtb.execution.sandbox import messages, pool
from wtb.execution.sandbox.attempt_output import Output
from wtb.execution.sandbox.framing import Inbox, packed
from wtb.execution.sandbox.node_process import NodeProcess
from wtb.execution.sandbox.pool import QUICK_S, RUNS_UNTIL_QUICK, TOGETHER_S, QuickNodes
from wtb.store.tables.schema import node_runs

VARIANTS = 4
VARIED = f"""
for number in range(1, {VARIANTS}):
    a.variant(f"v{{number}}", number=number)
"""


def forking(body: str, options: str = "") -> str:
    """Build a node with numbered variants, so that node runs start from one checkpoint."""
    lines = body.strip().replace("\n", "\n    ")
    return f"@wf.node({options})\ndef a(state, ctx, *, number=0):\n    {lines}\n\n{VARIED}"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Treat all nodes as quick, however slow the machine. Return the number of node runs in each message."""
    counts: list[int] = []
    post = NodeProcess.post

    def counted(process: NodeProcess, kind: str, head: Any) -> None:
        if kind in ("run", "runs"):
            counts.append(len(head[2]) if kind == "runs" else 1)
        post(process, kind, head)

    monkeypatch.setattr(NodeProcess, "post", counted)
    monkeypatch.setattr(QuickNodes, "knows", lambda *_: True)
    monkeypatch.setattr(pool, "TOGETHER_S", 2 * PATIENCE_S)
    return counts


@pytest.fixture
def soon(sent: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no node run start long after its message."""
    monkeypatch.setattr(pool, "TOGETHER_S", TOGETHER_S)


def by_variant(bench: Bench) -> dict[str, list[dict[str, Any]]]:
    """Return the attempts of each variant of a node."""
    rows_by_variant: dict[str, list[dict[str, Any]]] = {}
    query = sa.select(node_runs.c.variant, attempts).join(attempts, attempts.c.node_run_id == node_runs.c.id)
    with bench.database.read() as connection:
        for row in connection.execute(query.order_by(attempts.c.number)).mappings():
            rows_by_variant.setdefault(row["variant"], []).append(dict(row))
    return rows_by_variant


# What travels


def test_node_runs_of_a_fork_travel_in_one_message(flows: Flows, sent: list[int]) -> None:
    end_states = states(flows.run(forking("return {'number': number}"), cases=2))
    assert sorted(state["number"] for state in end_states) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert sent == [VARIANTS, VARIANTS]


def test_so_do_those_of_a_step_with_several_nodes(flows: Flows, sent: list[int]) -> None:
    text = """
@wf.node
def a(state):
    return {"a": state["n"]}


@wf.node
def b(state, *, add=0):
    return {"b": state["n"] + add}


b.variant("more", add=1)
"""
    bench = flows.run(text, vary={"b": "all"}, end='wf.entry("a", "b")\nwf.edge("a", END)\nwf.edge("b", END)\n')
    assert sorted(state["b"] for state in states(bench)) == [0, 1]
    assert sent == [3]
    assert len(attempts_of(bench)) == 3


def test_a_process_makes_no_more_of_them_than_it_may_make_at_all(flows: Flows, sent: list[int]) -> None:
    bench = flows.run(forking("return {'pid': os.getpid()}"), run={"recycle": {"runs": 3}})
    assert sent == [3, 1]
    assert sorted(Counter(state["pid"] for state in states(bench)).values()) == [1, 3]


def test_a_node_is_known_to_be_quick_by_its_last_runs() -> None:
    quick_nodes = QuickNodes()
    task = Task("a", "default", {}, Position(0, ("a",)), Root(CaseView("c")))
    quick = Result(0.0, QUICK_S, Record(), writes={})
    for other_run in (
        Result(0.0, QUICK_S * 1.01, Record(), writes={}),
        Result(0.0, 0.0, Record(), failure=Failure("error", "ValueError", "no")),
    ):
        for _ in range(RUNS_UNTIL_QUICK):
            assert not quick_nodes.knows("a", "default")
            quick_nodes.note(task, quick)
        assert quick_nodes.knows("a", "default")
        assert not quick_nodes.knows("a", "other")
        quick_nodes.note(task, other_run)


def test_what_node_runs_have_in_common_travels_once_and_is_read_as_it_was() -> None:
    large = Value.of("x" * 100_000)
    root = Root(CaseView("c", ("tag",), {"n": b"1"}), 2, {"p": 1}, 3)
    tasks = [
        Task(
            "a",
            f"v{number}",
            {"large": large},
            Position(0, ("a",)),
            root,
            settings=Settings(mode="auto"),
            trace=str(number),
        )
        for number in range(VARIANTS)
    ]
    frame_bytes = packed("runs", messages.tasks(tasks, 12.5))
    assert frame_bytes.count(large.data) == 1
    (frame,) = Inbox().feed(frame_bytes)
    assert messages.as_tasks(frame, {"p": 1}) == (12.5, tasks)


@pytest.mark.usefixtures("soon")
def test_nodes_of_a_step_that_wait_for_each_other_run_at_the_same_time(flows: Flows, sent: list[int]) -> None:
    text = """
@wf.node(timeout=30)
def a(state):
    say("begun", "a")
    until(lambda: (HERE / "begun").read_text().count("\\n") == 2)


@wf.node(timeout=30)
def b(state):
    say("begun", "b")
    until(lambda: (HERE / "begun").read_text().count("\\n") == 2)
"""
    end = 'wf.entry("a", "b")\nwf.edge("a", END)\nwf.edge("b", END)\n'
    states(flows.run(text, end=end, run={"concurrency": 2}))
    assert sent == [2, 1]


# What each has to itself


def test_each_has_a_copy_of_the_state_and_a_workspace_of_its_own(flows: Flows, sent: list[int]) -> None:
    body = """
state["list"].append(number)
left = os.listdir()
Path("mine.txt").write_text(str(number))
return {"list": state["list"], "left": left, "pid": os.getpid()}
"""
    first = "@wf.node\ndef first(state):\n    return {'list': ['first']}\n\n\n"
    end = 'wf.entry("first")\nwf.edge("first", "a")\nwf.edge("a", END)\n'
    end_states = states(flows.run(first + forking(body), end=end))
    assert sent == [1, VARIANTS]
    assert sorted(state["list"] for state in end_states) == [["first", number] for number in range(VARIANTS)]
    assert [state["left"] for state in end_states] == [[]] * VARIANTS
    assert len({state["pid"] for state in end_states}) == 1


def test_each_keeps_what_it_printed_itself_and_by_programs(flows: Flows, sent: list[int]) -> None:
    body = """
print("out", number)
os.write(2, f"err {number}\\n".encode())
subprocess.run(["echo", f"program {number}"], check=True)
if number == 1:
    print("x" * 300_000)
if number == 2:
    time.sleep(0.001)
"""
    rows_by_variant = by_variant(flows.run(forking(body)))
    assert sent[0] == VARIANTS
    for number in range(VARIANTS):
        (row,) = rows_by_variant["default" if number == 0 else f"v{number}"]
        assert row["stdout"].startswith(f"out {number}\nprogram {number}\n")
        assert row["stdout"].count("program") == 1
        assert ("left out" in row["stdout"]) is (number == 1)
        assert row["stderr"] == f"err {number}\n"


def test_a_mark_ends_an_output_wherever_it_is_cut() -> None:
    stream = b"one<-=<-=->two<-=->" + b"<-" + b"three"
    for first in range(len(stream)):
        for second in range(first, len(stream)):
            output = Output(mark=b"<-=->")
            for piece in (stream[:first], stream[first:second], stream[second:]):
                output.add(piece)
            assert [output.take() for _ in range(4)] == ["one<-=", "two", "<-three", None]


# What becomes of the others


@pytest.mark.parametrize("ends", ["os.kill(os.getpid(), signal.SIGKILL)", "os._exit(0)", "os.close(3); os._exit(1)"])
def test_one_that_ends_its_process_costs_the_others_nothing(flows: Flows, sent: list[int], ends: str) -> None:
    bench = flows.run(forking(f"if number == 2:\n    {ends}\nreturn {{'number': number}}"), run={"set_aside_after": 1})
    assert sent[0] == VARIANTS
    assert Counter(cell.status for cell in bench.cells()) == {"succeeded": 3, "set_aside": 1}
    assert {variant: len(rows) for variant, rows in by_variant(bench).items()} == dict.fromkeys(
        ("default", "v1", "v2", "v3"), 1
    )


def test_one_that_fails_is_tried_again_by_itself(flows: Flows, sent: list[int]) -> None:
    body = "if number == 1 and ctx.attempt == 1:\n    raise ValueError('once')\nreturn {'number': number}"
    bench = flows.run(forking(body, "retries=1, backoff=0.0"))
    assert sent == [VARIANTS, 1]
    assert {variant: len(rows) for variant, rows in by_variant(bench).items()} == {
        "default": 1, "v1": 2, "v2": 1, "v3": 1,
    }  # fmt: skip
    assert len(states(bench)) == VARIANTS


def test_each_has_a_deadline_of_its_own(flows: Flows, sent: list[int]) -> None:
    body = "if number == 2:\n    until(lambda: False)\nreturn {'number': number}"
    bench = flows.run(forking(body, "timeout=0.3"))
    assert Counter(cell.status for cell in bench.cells()) == {"succeeded": 3, "failed": 1}
    ((kind, message),) = failures(bench)
    assert kind == "timeout"
    assert "deadline of 0.3 s" in message
    assert len(attempts_of(bench)) == VARIANTS


@pytest.mark.usefixtures("soon")
def test_those_behind_a_slow_one_run_elsewhere_meanwhile(flows: Flows, sent: list[int]) -> None:
    body = """
try:
    (HERE / "first").mkdir()
except FileExistsError:
    say("others", number)
    return {"pid": os.getpid()}
until(lambda: (HERE / "others").exists() and len((HERE / "others").read_text().splitlines()) == 3)
return {"pid": os.getpid()}
"""
    bench = flows.run(forking(body, f"timeout={PATIENCE_S}"), run={"concurrency": 2})
    end_states = states(bench)
    assert sent == [VARIANTS, 1, 1, 1]
    assert sorted(Counter(state["pid"] for state in end_states).values()) == [1, 3]
    assert len(attempts_of(bench)) == VARIANTS


def test_a_process_that_user_code_has_changed_makes_none_after_that(flows: Flows, sent: list[int]) -> None:
    body = "if number == 1:\n    sys.stdout = open(os.devnull, 'w')\nprint(number)\nreturn {'pid': os.getpid()}"
    bench = flows.run(forking(body))
    changed = by_variant(bench)["v1"]
    assert [row["stdout"] for row in changed] == [None]
    outputs = {variant: [row["stdout"] for row in rows] for variant, rows in by_variant(bench).items()}
    assert outputs == {"default": ["0\n"], "v1": [None], "v2": ["2\n"], "v3": ["3\n"]}


# Those that are ended from outside


class Together:
    """Node processes without a sweep, in which attempts have started together."""

    def __init__(self, flows: Flows, text: str) -> None:
        self.processes = flows.processes(flows.write(text))
        self.outcomes: dict[str, Result | Exception | None] = {}
        root = Root(CaseView("c"))
        self.tasks = [
            Task("a", "default", {"n": Value.of(number)}, Position(0, ("a",)), root, execution=f"e{number}")
            for number in range(3)
        ]
        self.thread = threading.Thread(target=self.processes.run_together, args=(self.tasks, self._take))
        self.thread.start()

    def _take(self, number: int, outcome: Result | Exception | None) -> None:
        self.outcomes[f"e{number}"] = outcome


HOLDING = """
@wf.node
def a(state):
    say("began", state["n"])
    until(lambda: state["n"] != 0)
"""


@pytest.fixture
def group(flows: Flows) -> Iterator[Together]:
    together = Together(flows, HOLDING)
    until(lambda: flows.lines_of("began") == ["0"], "the first to have begun")
    yield together
    together.processes.close()


def test_one_that_is_taken_away_is_ended_and_the_others_continue(flows: Flows, group: Together) -> None:
    until(lambda: len(group.outcomes) == 2, "those behind it to be given back")
    group.processes.end_attempt("e0", 0)
    group.thread.join(PATIENCE_S)
    assert isinstance(group.outcomes.pop("e0"), Lost)
    assert group.outcomes == {"e1": None, "e2": None}
    outcome = group.processes.run(group.tasks[1])
    assert outcome.failure is None
    assert flows.lines_of("began") == ["0", "1"]


def test_a_pool_that_is_closed_stops_them(flows: Flows, group: Together) -> None:
    group.processes.close()
    group.thread.join(PATIENCE_S)
    assert isinstance(group.outcomes.pop("e0"), Stopped)
    assert group.outcomes == {"e1": None, "e2": None}
    assert flows.lines_of("began") == ["0"]


class Ending(RunningNode):
    """A node run of a group whose end takes a while."""

    def __init__(self) -> None:
        self.ends = 0

    def begin(self) -> PreparedAttempt:
        return PreparedAttempt(cast(Attempt, None), cast(Task, None))

    def run(self, first: PreparedAttempt | None = None) -> NodeRun:
        assert first is not None
        self.ends += 1
        time.sleep(0.2)
        return NodeRun("r", "a", "a", "default", cast(Result, first.result))


def test_a_slot_that_waits_for_a_node_run_of_a_group_does_not_end_it_once_more() -> None:
    running = GroupedNodeRun(ending := Ending())
    with ThreadPoolExecutor(4) as slots:
        waiting = [slots.submit(running.run) for _ in range(4)]
        running.take(Result(0.0, 0.0, Record()))
    assert ending.ends == 1
    assert {id(future.result()) for future in waiting} == {id(running.outcome)}
