"""Executions rolled back, redone and forked: their heads, cells, files and tools."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.bench import Bench, finish
from tests.support.prose import sentence
from tests.support.waiting import until
from wtb import Workflow
from wtb.analysis.matrix.build import build
from wtb.core.errors import ConflictError, InputError
from wtb.display.views.executions import state, trace
from wtb.operations.context import Context
from wtb.operations.control.forks import add_fork
from wtb.operations.control.rollback import RolledBack, rollback, undo_rollback
from wtb.store.control import executions as steering
from wtb.store.read.details import find_one
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.schema import checkpoints, executions, invocations, node_runs, rollbacks

Make = Callable[..., Bench]


class Abc:
    """a -> b -> c, each of which appends its name to `way`. ran: the nodes in the order in which they really ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.effects: list[str] = []
        self.wf = Workflow("abc")
        for name in "abc":
            self.wf.node(self._node(name), name=name)
        self.wf["b"].variant("loud", suffix="!")
        self.wf.tool(self._post, name="post", reverse=self._unpost)
        self.wf.tool(self._log, name="log")
        self.wf.entry("a")
        self.wf.edge("a", "b")
        self.wf.edge("b", "c")

    def _node(self, name: str) -> Callable[..., dict[str, Any]]:
        def node(state: dict[str, Any], ctx: Any, *, suffix: str = "") -> dict[str, Any]:
            self.ran.append(name)
            if state.get("tools"):
                ctx.tools.post(text=name)
                ctx.tools.log(text=name)
            if state.get("files"):
                before = (ctx.workspace / "notes").read_text() if (ctx.workspace / "notes").exists() else ""
                (ctx.workspace / "notes").write_text(before + name)
            return {"way": [*state.get("way", []), name + suffix], "x": state.get("x", 0)}

        return node

    def _post(self, *, text: str) -> int:
        self.effects.append(f"post {text}")
        return len(self.effects)

    def _unpost(self, number: int, *, text: str) -> None:
        self.effects.append(f"unpost {text}")

    def _log(self, *, text: str) -> None:
        self.effects.append(f"log {text}")


def count(case: Any, result: Any) -> int:
    return len(result.state["way"]) + int(result.state["x"])


@pytest.fixture
def abc() -> Abc:
    return Abc()


@pytest.fixture
def make(bench: Make, abc: Abc) -> Make:
    """Run a sweep of abc, b in both variants, one case, to its end."""

    def run(vary: Mapping[str, Any] | None = None, **input: Any) -> Bench:
        cases = [{"id": "one", "input": {"x": 0, **input}}]
        sweep = bench(
            abc.wf, cases, vary or {"b": ["default", "loud"]}, evaluators={"t:count": count}, run={"concurrency": 1}
        )
        sweep.run()
        assert sweep.status == "completed"
        abc.ran.clear()
        return sweep

    return run


def execution_row(bench: Bench, id: str) -> ExecutionRow:
    return next(row for row in bench.executions if row.id == id)


def posting(make: Make) -> tuple[Bench, ExecutionRow]:
    """Run one execution whose nodes call the tools, and return it with its bench."""
    bench = make({"b": ["loud"]}, tools=True)
    (row,) = bench.executions
    return bench, row


def forked(bench: Bench) -> dict[str, ExecutionRow]:
    """root, and the executions of the variants of b by their name."""
    rows = bench.executions
    named = {row.combinations[0]: row for row in rows if row.origin == "fork"}
    return {"root": next(row for row in rows if row.origin == "root"), "default": named[0], "loud": named[1]}


def until_written(bench: Bench, node: str) -> list[ExecutionRow]:
    """Wait until the output of a node is committed, and return the executions."""
    until(
        lambda: any(writer[0] == node for row in bench.rows(checkpoints) for writer in row["writers"]),
        f"an output of node {node!r} in the database",
    )
    return bench.executions


def anna(bench: Bench) -> Context:
    return Context(bench.database, by="anna")


def back(bench: Bench, row: ExecutionRow, to: str) -> RolledBack:
    return rollback(anna(bench), row.id, to, bound=bench.prepared.bound, reason="a try")


def run_again(bench: Bench, row: ExecutionRow) -> None:
    steering.resume(bench.database, row.id, by="anna")
    bench.run()


def head_state(bench: Bench, row: ExecutionRow) -> dict[str, Any]:
    return dict(state(bench.database, trace(bench.database, find_one(bench.database, row.id)).head))


def invoked(bench: Bench) -> list[tuple[str, str]]:
    query = sa.select(invocations.c.tool, invocations.c.arguments, invocations.c.status)
    query = query.join(node_runs, node_runs.c.id == invocations.c.node_run_id).order_by(
        invocations.c.at, invocations.c.number
    )
    with bench.database.read() as connection:
        return [(f"{tool} {arguments[9:10]}", status) for tool, arguments, status in connection.execute(query)]


def test_given_one_of_two_that_forked_then_only_its_cell_is_done_again(make: Make, abc: Abc) -> None:
    bench = make()
    before = build(bench.database, bench.row)["rows"]
    row = forked(bench)["default"]
    outcome = back(bench, row, "a")
    assert (outcome.nodes, outcome.superseded, outcome.was) == (("c", "b"), (), "completed")
    moved = execution_row(bench, row.id)
    assert (moved.status, moved.passed_id, moved.token) == ("paused", moved.head_id, row.token + 1)
    assert "anna" in moved.reason
    assert "a try" in moved.reason
    assert head_state(bench, row)["way"] == ["a"]
    assert bench.counts == {"pending": 1, "succeeded": 1}
    assert bench.status == "paused"
    run_again(bench, row)
    assert abc.ran == ["b", "c"]
    assert bench.status == "completed"
    after = build(bench.database, bench.row)["rows"]
    assert [row["metrics"]["count"]["mean"] for row in after] == [row["metrics"]["count"]["mean"] for row in before]
    event = next(event for event in bench.events if event["kind"] == "execution.rolled_back")
    assert event["data"]["nodes"] == ["c", "b"]
    assert event["data"]["by"] == "anna"


def test_given_the_one_that_forked_then_all_cells_come_back_and_what_forked_is_superseded(make: Make, abc: Abc) -> None:
    bench = make()
    rows = forked(bench)
    outcome = back(bench, rows["root"], "a")
    assert sorted(outcome.superseded) == sorted([rows["default"].id, rows["loud"].id])
    assert bench.counts == {"pending": 2}
    assert not build(bench.database, bench.row)["rows"][0]["metrics"]["count"]["n"]
    run_again(bench, rows["root"])
    assert sorted(abc.ran) == ["b", "b", "c", "c"]
    assert bench.counts == {"succeeded": 2}
    with pytest.raises(ConflictError, match=sentence("superseded by a rollback")):
        back(bench, rows["loud"], "a")


def test_given_a_target_that_is_not_there_then_it_says_what_is(make: Make) -> None:
    bench = make()
    with pytest.raises(InputError, match=r"no checkpoint 'bb' on its line; did you mean 'b'.*'a', 'b', 'c'"):
        back(bench, forked(bench)["loud"], "bb")
    with pytest.raises(InputError, match=sentence("no checkpoint {} on its line", "'c'")):  # the root forked before c
        back(bench, forked(bench)["root"], "c")


def test_given_a_rollback_when_it_is_redone_then_the_head_is_where_it_was(make: Make, abc: Abc) -> None:
    bench = make()
    row = forked(bench)["loud"]
    back(bench, row, "a")
    back(bench, row, trace(bench.database, row).line[0].id)  # and to the input
    assert head_state(bench, row) == {"x": 0}
    undo_rollback(anna(bench), row.id, bound=bench.prepared.bound)
    assert head_state(bench, row)["way"] == ["a"]
    undo_rollback(anna(bench), row.id, bound=bench.prepared.bound)
    assert head_state(bench, row)["way"] == ["a", "b!", "c"]
    with pytest.raises(ConflictError, match=sentence("no rollback to undo")):
        undo_rollback(anna(bench), row.id, bound=bench.prepared.bound)
    run_again(bench, row)
    assert abc.ran == []  # it stood at its end, and was scored again
    assert bench.counts == {"succeeded": 2}


def test_given_something_ran_since_then_a_rollback_cannot_be_redone_but_the_left_line_is_reached(make: Make) -> None:
    bench = make()
    row = forked(bench)["loud"]
    old_head = row.head_id
    back(bench, row, "b")
    run_again(bench, row)
    back(bench, row, "c")
    run_again(bench, row)
    with pytest.raises(ConflictError, match=r"it is completed, not paused.*--to "):
        undo_rollback(anna(bench), row.id, bound=bench.prepared.bound)
    outcome = back(bench, row, old_head)
    assert outcome.to.id == old_head


def test_given_tools_then_they_are_undone_last_first_and_made_again(make: Make, abc: Abc) -> None:
    bench, row = posting(make)
    assert abc.effects == ["post a", "log a", "post b", "log b", "post c", "log c"]
    abc.effects.clear()
    outcome = back(bench, row, "a")
    assert abc.effects == ["unpost c", "unpost b"]
    assert [call["arguments"] for call in outcome.calls["undone"]] == [{"text": "c"}, {"text": "b"}]
    assert [call["tool"] for call in outcome.calls["irreversible"]] == ["log", "log"]
    assert invoked(bench) == [
        ("post a", "done"), ("log a", "done"), ("post b", "undone"), ("log b", "done"), ("post c", "undone"),
        ("log c", "done"),
    ]  # fmt: skip
    abc.effects.clear()
    undo_rollback(anna(bench), row.id, bound=bench.prepared.bound)
    assert abc.effects == ["post b", "post c"]
    abc.effects.clear()
    back(bench, row, "b")
    assert abc.effects == ["unpost c"]


def test_given_tools_of_a_trunk_that_others_stand_on_then_they_are_kept_and_named(make: Make, abc: Abc) -> None:
    bench = make(tools=True)
    row = forked(bench)["loud"]
    abc.effects.clear()
    outcome = back(bench, row, trace(bench.database, row).line[0].id)
    assert abc.effects == ["unpost c", "unpost b"]
    assert [call["arguments"]["text"] for call in outcome.calls["shared"]] == ["a", "a"]


def test_given_a_reverse_that_fails_then_the_others_run_and_it_is_named(make: Make, abc: Abc) -> None:
    bench, row = posting(make)

    def fails(number: int, *, text: str) -> None:
        if text == "c":
            raise OSError("gone")
        abc.effects.append(f"unpost {text}")

    bench.prepared.bound.workflow.tools["post"].reverse = fails
    outcome = back(bench, row, "a")
    assert abc.effects[-1] == "unpost b"
    assert [(call["tool"], call["error"]) for call in outcome.calls["failed"]] == [("post", "OSError: gone")]
    assert execution_row(bench, row.id).status == "paused"


def test_given_an_interruption_among_the_reverses_then_the_next_rollback_repeats_none_that_ended(
    make: Make, abc: Abc
) -> None:
    bench, row = posting(make)
    undone: list[str] = []

    def interrupted(number: int, *, text: str) -> None:
        if text == "b" and "b" not in undone:
            undone.append(text)
            raise KeyboardInterrupt
        undone.append(text)

    bench.prepared.bound.workflow.tools["post"].reverse = interrupted
    with pytest.raises(KeyboardInterrupt):
        back(bench, row, "a")
    assert execution_row(bench, row.id).status == "paused"
    assert bench.counts == {"pending": 1}
    finish = f"finish it first: wtb rollback {row.id} --to "
    assert finish.removeprefix("finish it first: ") in execution_row(bench, row.id).reason
    with pytest.raises(ConflictError, match=f"cannot be resumed.*{finish}"):
        steering.resume(bench.database, row.id, by="anna")
    assert steering.resume_all(bench.database, bench.sweep_id, by="anna") == 0
    with pytest.raises(ConflictError, match=finish):
        undo_rollback(anna(bench), row.id, bound=bench.prepared.bound)
    with pytest.raises(ConflictError, match=finish):
        back(bench, row, "b")
    outcome = back(bench, row, "a")
    assert outcome.was == "completed"
    assert undone == ["c", "b", "b"]  # the one that was under way is the only one that ran twice
    assert [call.get("again") for call in outcome.calls["undone"]] == [True]
    run_again(bench, row)
    assert bench.counts == {"succeeded": 1}


def test_given_a_rollback_that_is_under_way_then_a_second_one_is_refused(make: Make, abc: Abc) -> None:
    bench, row = posting(make)
    refused: list[str] = []

    def second(number: int, *, text: str) -> None:
        abc.effects.append(f"unpost {text}")
        with pytest.raises(ConflictError) as caught:
            back(bench, row, "a")
        refused.append(str(caught.value))

    bench.prepared.bound.workflow.tools["post"].reverse = second
    back(bench, row, "a")
    assert abc.effects[-2:] == ["unpost c", "unpost b"]
    assert sentence("{} {} just now (process", "by", "anna: a try") in refused[0]
    assert execution_row(bench, row.id).asked is None


@pytest.mark.parametrize("is_known", [True, False], ids=["dead_here", "silent_elsewhere"])
def test_given_a_rollback_whose_process_is_gone_then_another_one_takes_it_over(
    is_known: bool, make: Make, abc: Abc
) -> None:
    bench, row = posting(make)

    def dies(number: int, *, text: str) -> None:
        with bench.database.write() as connection:  # as if the process that began it were another one
            requests = connection.scalar(sa.select(executions.c.asked))
            dead_holder = {"process_started_at": 1.0} if is_known else {"host": "elsewhere"}
            rollback = {**requests["rollback"], "holder": {**requests["rollback"]["holder"], **dead_holder}}
            until = requests["rollback"]["until"] if is_known else 1.0
            changed = {**requests, "rollback": {**rollback, "until": until}}
            connection.execute(executions.update().values(asked=changed))
        bench.prepared.bound.workflow.tools["post"].reverse = abc._unpost
        back(bench, row, "a")

    bench.prepared.bound.workflow.tools["post"].reverse = dies
    with pytest.raises(ConflictError, match=sentence("continued by another process")):
        back(bench, row, "a")
    assert abc.effects[-2:] == ["unpost c", "unpost b"]
    assert execution_row(bench, row.id).asked is None
    assert execution_row(bench, row.id).status == "paused"


def test_given_a_second_rollback_then_it_tells_of_the_calls_of_its_own_line_only(make: Make, abc: Abc) -> None:
    bench, row = posting(make)
    first = back(bench, row, "a")
    assert [call["arguments"]["text"] for call in first.calls["irreversible"]] == ["c", "b"]
    run_again(bench, row)
    second = back(bench, row, trace(bench.database, row).line[0].id)
    assert [call["arguments"]["text"] for call in second.calls["irreversible"]] == ["c", "b", "a"]
    assert [call["arguments"]["text"] for call in second.calls["undone"]] == ["c", "b", "a"]


def test_given_a_fork_that_asks_then_its_sweep_does_not_wait_for_the_answer(bench: Make) -> None:
    wf = Workflow("asks")

    @wf.node
    def ask(state: dict[str, Any], ctx: Any) -> dict[str, Any]:
        return {"said": ctx.ask("really?").choice if state["asks"] else "nothing"}

    wf.entry(ask)
    sweep = bench(wf, [{"id": "one", "input": {"asks": False}}])
    sweep.run()
    (row,) = sweep.executions
    bound = sweep.prepared.bound
    root = trace(sweep.database, row).line[0].id
    aside, _ = add_fork(anna(sweep), row.id, bound=bound, at=root, set={"asks": True})
    sweep.run_fork(aside)
    assert execution_row(sweep, aside).status == "waiting"
    assert steering.open_questions(sweep.database, sweep.sweep_id) == 0
    steering.cancel(sweep.database, aside, reason="by anna", by="anna")
    assert sweep.status == "completed"


def test_given_files_then_those_of_the_checkpoint_are_there_again(make: Make, abc: Abc) -> None:
    bench = make({"b": ["loud"]}, files=True)
    (row,) = bench.executions
    ends = trace(bench.database, row).head
    back(bench, row, "b")
    run_again(bench, row)
    checkpoint = trace(bench.database, execution_row(bench, row.id)).head
    assert checkpoint is not None
    assert ends is not None
    assert checkpoint.workspace == ends.workspace  # "abc" again, not "abcc"


def test_given_an_execution_that_runs_then_it_is_taken_away_at_once(bench: Make) -> None:
    start, go = threading.Event(), threading.Event()
    wf = Workflow("held")

    @wf.node
    def first(state: dict[str, Any]) -> dict[str, Any]:
        return {"a": 1}

    @wf.node
    def second(state: dict[str, Any]) -> dict[str, Any]:
        start.set()
        assert go.wait(60)
        return {"b": 1}

    wf.entry(first)
    wf.edge(first, second)
    sweep = bench(wf)
    run = sweep.start()
    assert start.wait(60)
    (row,) = until_written(sweep, "first")
    outcome = back(sweep, row, "first")
    assert (outcome.was, execution_row(sweep, row.id).status) == ("running", "paused")
    start.clear()
    go.set()
    finish(run)
    assert execution_row(sweep, row.id).status == "paused"  # what the old runner wrote was refused
    run_again(sweep, row)
    assert sweep.counts == {"succeeded": 1}
    assert sorted(run["status"] for run in sweep.ran("second")) == ["failed", "succeeded"]


def test_given_a_fork_then_it_runs_beside_its_origin_and_changes_no_figure(make: Make, abc: Abc) -> None:
    bench = make()
    rows = forked(bench)
    before = build(bench.database, bench.row)
    fork_id, _ = add_fork(
        anna(bench), rows["loud"].id, bound=bench.prepared.bound, at="a", set={"x": 100}, variants={"b": "default"}
    )
    bench.run_fork(fork_id)
    row = execution_row(bench, fork_id)
    assert (row.status, row.origin, row.parent_id, row.edited) == (
        "completed", "manual", rows["loud"].id, True,
    )  # fmt: skip
    assert abc.ran == ["b", "c"]
    assert head_state(bench, row) == {"x": 100, "way": ["a", "b", "c"]}
    after = build(bench.database, bench.row)
    assert {**after, "warnings": []} == {**before, "warnings": []}
    ended = next(e for e in bench.events if e["kind"] == "execution.completed" and e["execution_id"] == fork_id)
    assert ended["data"]["scores"] == {"count": 103}


def test_given_an_execution_whose_cells_differ_then_a_fork_asks_for_the_variant(make: Make, abc: Abc) -> None:
    bench = make()
    root = forked(bench)["root"].id
    bound = bench.prepared.bound
    with pytest.raises(
        InputError, match=sentence("choose {} for node {}: pick one of them as its variant", "'default', 'loud'", "'b'")
    ):
        add_fork(anna(bench), root, bound=bound)
    with pytest.raises(
        InputError, match=sentence("has no variant {}", "'lout'") + sentence("; did you mean '{}'", "loud")
    ):
        add_fork(anna(bench), root, bound=bound, variants={"b": "lout"})
    with pytest.raises(InputError, match=sentence("node {} does not run after", "'a'")):
        add_fork(anna(bench), root, bound=bound, variants={"a": "default", "b": "loud"})
    fork_id, _ = add_fork(anna(bench), root, bound=bound, variants={"b": "loud"})
    bench.run_fork(fork_id)
    assert head_state(bench, execution_row(bench, fork_id))["way"] == ["a", "b!", "c"]


def test_given_forks_of_a_line_that_is_left_then_the_open_ones_are_superseded(make: Make) -> None:
    bench = make()
    row, bound = forked(bench)["loud"], bench.prepared.bound
    early, _ = add_fork(anna(bench), row.id, bound=bound, at="a", paused=True)
    late, _ = add_fork(anna(bench), row.id, bound=bound, at="b", paused=True)
    ended, _ = add_fork(anna(bench), row.id, bound=bound, at="b")
    bench.run_fork(ended)
    assert back(bench, row, "a").superseded == (late,)
    assert [execution_row(bench, id).status for id in (early, late, ended)] == ["paused", "cancelled", "completed"]


def test_given_a_fork_then_it_is_rolled_back_by_itself(make: Make, abc: Abc) -> None:
    bench = make()
    row, bound = forked(bench)["loud"], bench.prepared.bound
    fork_id, _ = add_fork(anna(bench), row.id, bound=bound, at="a")
    bench.run_fork(fork_id)
    back(bench, execution_row(bench, fork_id), "b")
    assert bench.status == "completed"
    assert bench.counts == {"succeeded": 2}
    steering.resume(bench.database, fork_id, by="anna")
    bench.run_fork(fork_id)
    assert execution_row(bench, fork_id).status == "completed"
    assert len(bench.rows(rollbacks)) == 1


def test_given_a_cancelled_sweep_then_nothing_of_it_is_rolled_back(make: Make) -> None:
    bench = make()
    bench.database.execute(sa.text("UPDATE sweeps SET status = 'cancelled'"))
    with pytest.raises(ConflictError, match=sentence("is cancelled")):
        back(bench, forked(bench)["loud"], "a")
    assert len(bench.rows(executions)) == 3
