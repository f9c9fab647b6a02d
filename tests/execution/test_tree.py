"""A sweep is a tree: shared prefixes run once, and each cell gets the same result as alone."""

from __future__ import annotations

import operator
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
import sqlalchemy as sa

from tests.support.attempts import attempts
from tests.support.bench import one_node
from tests.support.flows import connect_diamond
from tests.support.prose import sentence
from wtb.authoring.nodes import Node
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END
from wtb.core.errors import FinalError
from wtb.store.database import Database
from wtb.store.read import details, queries
from wtb.store.runs import slots
from wtb.store.tables.schema import calls, checkpoints, decisions, events, limited_nodes, values

Make = Callable[..., Any]
FINISHED = {"succeeded", "failed"}
CLOCK_S = 0.001  # to which SQLite knows the time


class State(TypedDict, total=False):
    x: int
    a: str
    b: str
    c: str
    d: str
    log: Annotated[list[str], operator.add]


def with_variants(node: Node, count: int) -> Node:
    """`default` and as many more as make `count` together: v1, v2 ..."""
    for number in range(1, count):
        node.variant(f"v{number}", k=number)
    return node


def writer(name: str, reads: str = "") -> Callable[..., dict[str, Any]]:
    """A node that writes its key: what it read, its own name and its parameter."""

    def write(state: State, *, k: int = 0) -> dict[str, Any]:
        before = "".join(str(state.get(key, "")) for key in reads)
        return {name: f"{before}{name}{k}", "log": [f"{name}{k}"]}

    return write


def chain(*sizes: int, **rules: Any) -> Workflow:
    """a -> b -> c ..., each with so many variants."""
    wf = Workflow("chain", state=State)
    names = "abcd"[: len(sizes)]
    for place, (name, size) in enumerate(zip(names, sizes, strict=True)):
        reads = names[place - 1] if place else "x"
        with_variants(wf.node(writer(name, reads), name=name, **rules), size)
    wf.entry("a")
    for before, after in zip(names, [*names[1:], END], strict=True):
        wf.edge(before, after)
    return wf


def diamond() -> Workflow:
    """a -> {b, c} -> d"""
    wf = Workflow("diamond", state=State)
    for name, reads in (("a", "x"), ("b", "a"), ("c", "a"), ("d", "bc")):
        wf.node(writer(name, reads), name=name)
    connect_diamond(wf)
    return wf


alone = partial(one_node, state=State)


def inputs(count: int) -> list[dict[str, Any]]:
    return [{"id": f"case-{number}", "input": {"x": number}} for number in range(count)]


def failing(*choices: int) -> Callable[..., dict[str, Any]]:
    """A node that fails under these parameters."""

    def fail(state: State, *, k: int = 0) -> dict[str, Any]:
        if k in choices:
            raise ValueError(f"no {k}")
        return {"b": f"b{k}"}

    return fail


# Counting


def test_what_combinations_share_is_run_once_and_every_cell_has_its_own_state(run_sweep: Make) -> None:
    sweep = run_sweep(chain(3, 3, 3), inputs(4), {"a": "all", "b": "all", "c": "all"})

    assert sweep.status == "completed"
    assert sweep.counts == {"succeeded": 108}
    assert {node: len(sweep.ran(node)) for node in "abc"} == {"a": 12, "b": 36, "c": 108}
    assert (sweep.executed, len(set(sweep.identities)), sweep.unshared) == (156, 156, 324)
    for cell in sweep.cells():
        k = {node: 0 if name == "default" else int(name[1:]) for node, name in cell.combination.items()}
        assert cell.state["c"] == f"{cell.case[-1]}a{k['a']}b{k['b']}c{k['c']}"
        assert cell.state["log"] == [f"a{k['a']}", f"b{k['b']}", f"c{k['c']}"]
        assert (cell.path, cell.node_runs) == (("a", "b", "c"), 3)


def test_each_distinct_node_run_of_a_parallel_step_runs_once(run_sweep: Make) -> None:
    wf = diamond()
    with_variants(wf["b"], 2)
    with_variants(wf["c"], 3)

    sweep = run_sweep(wf, inputs(5), {"b": "all", "c": "all"})

    assert {node: len(sweep.ran(node)) for node in "abcd"} == {"a": 5, "b": 10, "c": 15, "d": 30}
    assert sweep.executed == 5 * 12
    assert sweep.unshared == 5 * 6 * 4
    assert {cell.state["d"] for cell in sweep.cells() if cell.case == "case-0"} == {
        f"0a0b{b}0a0c{c}d0" for b in range(2) for c in range(3)
    }


def test_combinations_whose_varied_node_is_never_reached_do_not_fork(run_sweep: Make) -> None:
    wf = Workflow("detour", state=State)
    wf.node(writer("a", "x"), name="a")
    with_variants(wf.node(writer("b"), name="b"), 3)
    wf.entry("a")
    wf.branch("a", {"far": "b", "near": END}, by=lambda state: "far" if state["x"] else "near")

    sweep = run_sweep(wf, inputs(2), {"b": "all"})

    near = [cell for cell in sweep.cells() if cell.case == "case-0"]
    assert len(near) == 3
    assert all(cell.path == ("a",) for cell in near)
    roots = {row.case_number: row.status for row in sweep.executions if row.origin == "root"}
    assert roots == {0: "completed", 1: "forked"}
    assert sweep.executed == 1 + (1 + 3)


def test_without_sharing_every_cell_has_a_root_of_its_own(run_sweep: Make) -> None:
    spec = (inputs(2), {"a": "all", "b": "all"})

    alone = run_sweep(chain(2, 2), *spec, run={"share": False})
    shared = run_sweep(chain(2, 2), *spec)

    assert alone.executed == alone.unshared == shared.unshared == 8 * 2
    assert {row.origin for row in alone.executions} == {"root"}
    outcomes = [[(cell.combination, cell.state, cell.path) for cell in sweep.cells()] for sweep in (alone, shared)]
    assert outcomes[0] == outcomes[1]


def test_each_repeat_is_an_independent_sample_with_a_root_of_its_own(run_sweep: Make) -> None:
    def roll(state: Any, ctx: Any, *, k: int = 0) -> dict[str, Any]:
        return {"rolled": ctx.rng.random(), "k": k}

    wf = one_node(roll)
    wf["roll"].variant("other", k=1)

    sweep = run_sweep(wf, [{"id": "one", "input": {}}], {"roll": "all"}, repeats=3)

    rolled = {(cell.repeat, cell.state["k"]): cell.state["rolled"] for cell in sweep.cells()}
    assert len([row for row in sweep.executions if row.origin == "root"]) == 3
    assert len({rolled[repeat, 0] for repeat in range(3)}) == 3
    assert all(rolled[repeat, 0] == rolled[repeat, 1] for repeat in range(3))  # variants see the same luck


def test_every_pass_of_a_loop_is_a_node_run(run_sweep: Make) -> None:
    class Counting(TypedDict, total=False):
        n: int
        seen: Annotated[list[int], operator.add]

    wf = Workflow("loop", state=Counting)

    @wf.node
    def step(state: Counting, ctx: Any, *, by: int = 1) -> dict[str, Any]:
        return {"n": state["n"] + by, "seen": [ctx.visit]}

    step.variant("two", by=2)
    wf.entry(step)
    wf.edge(step, step, when=lambda state: state["n"] < 4)
    wf.edge(step, END, default=True)

    sweep = run_sweep(wf, [{"id": "one", "input": {"n": 0}}], {"step": "all"})

    assert [cell.path for cell in sweep.cells()] == [("step",) * 4, ("step",) * 2]
    assert [cell.state["seen"] for cell in sweep.cells()] == [[0, 1, 2, 3], [0, 1]]
    assert sweep.executed == sweep.unshared == 4 + 2
    assert sorted(run["visit"] for run in sweep.node_runs) == [0, 0, 1, 1, 2, 3]


# Failures


def test_a_failed_node_run_fails_only_the_cells_that_use_it(run_sweep: Make) -> None:
    wf = chain(2, 1, 3)
    with_variants(wf["b"], 1)
    wf["b"].variant("bad", failing(7), k=7)

    sweep = run_sweep(wf, inputs(1), {"a": "all", "b": "all", "c": "all"})

    assert sweep.status == "completed"
    assert sweep.counts == {"succeeded": 6, "failed": 6}
    for cell in sweep.cells():
        assert (cell.status == "failed") == (cell.combination["b"] == "bad")
    bad = [cell for cell in sweep.cells() if cell.status == "failed"]
    assert {cell.error for cell in bad} == {"node 'b': ValueError: no 7"}
    assert {cell.path for cell in bad} == {("a",)}
    assert sum(run["status"] == "failed" for run in sweep.node_runs) == 2  # once after each variant of a


def test_a_failure_in_a_parallel_step_spares_the_groups_that_do_not_use_it(run_sweep: Make) -> None:
    wf = diamond()
    wf["b"].variant("bad", failing(7), k=7)
    with_variants(wf["c"], 3)

    sweep = run_sweep(wf, inputs(1), {"b": "all", "c": "all"})

    assert sweep.counts == {"succeeded": 3, "failed": 3}
    assert {cell.combination["b"] for cell in sweep.cells() if cell.status == "failed"} == {"bad"}
    assert len(sweep.ran("c")) == 3
    assert sweep.executed == 1 + (1 + 3) + 3
    # The failed cells took part in the step's other node run, which was accepted.
    assert sweep.unshared == 6 * 1 + (3 + 6) + 3


def test_a_retry_knows_what_the_attempt_before_it_left(run_sweep: Make) -> None:
    previous: list[Any] = []

    def b(state: State, ctx: Any) -> dict[str, Any]:
        previous.append(ctx.previous)
        if ctx.attempt < 3:
            ctx.leave(output={"draft": ctx.attempt}, suggestion="be brief")
            ctx.cost(usd=0.5)
            raise ValueError(f"attempt {ctx.attempt}")
        ctx.cost(usd=0.25)
        return {"b": f"attempt {ctx.attempt}"}

    sweep = run_sweep(alone(b, retries=2, backoff=0.0))

    (cell,) = sweep.cells()
    assert cell.state["b"] == "attempt 3"
    first, second, third = previous
    assert first is None
    assert (second.attempt, second.limit, second.error) == (1, 3, "node 'b': ValueError: attempt 1")
    assert (third.attempt, third.output, third.suggestions) == (2, {"draft": 2}, ("be brief",))
    (run,) = sweep.node_runs
    assert (run["attempts"], run["usd"]) == (3, 0.25)  # a row counts what was accepted
    assert queries.spent(sweep.database, sweep.sweep_id) == (1, 1.25)  # money counts what was spent


def test_the_last_failed_attempt_fails_the_cell_and_the_event_log_says_so(run_sweep: Make) -> None:
    sweep = run_sweep(alone(failing(0), name="b", retries=2, backoff=0.0))

    assert sweep.counts == {"failed": 1}
    (run,) = sweep.node_runs
    assert (run["status"], run["attempts"]) == ("failed", 3)
    attempt_rows = queries.attempt_rows(sweep.database, [run["id"]])
    assert [(row.number, row.status) for row in attempt_rows] == [(1, "failed"), (2, "failed"), (3, "failed")]
    loud = [(row["kind"], row["severity"]) for row in sweep.events if row["severity"] != "info"]
    warnings = ["attempt.failed"] * 2 + ["node_run.failed"]
    assert loud == [(kind, "warning") for kind in warnings] + [("execution.failed", "error"), ("cell.failed", "error")]


def test_attempts_of_any_number_of_node_runs_are_read_at_once(run_sweep: Make) -> None:
    sweep = run_sweep(alone(writer("b", "x"), name="b"))

    (run,) = sweep.node_runs
    other_ids = [f"other-{number}" for number in range(300_000)]  # a statement has a bound to its parameters
    assert [row.number for row in queries.attempt_rows(sweep.database, [*other_ids, run["id"]])] == [1]


@pytest.mark.parametrize("how", ["declared", "raised"])
def test_a_final_error_is_not_tried_again(how: str, run_sweep: Make) -> None:
    def b(state: State) -> None:
        raise KeyError("gone") if how == "declared" else FinalError("gone")

    sweep = run_sweep(alone(b, retries=5, backoff=0.0, final=[LookupError] if how == "declared" else []))

    (run,) = sweep.node_runs
    assert (run["status"], run["attempts"]) == ("failed", 1)


def test_a_node_that_may_be_skipped_continues_without_its_writes(run_sweep: Make) -> None:
    wf = chain(1, 1, 1)
    flawed = Workflow("skipping", state=State)
    flawed.node(writer("a", "x"), name="a")
    flawed.node(failing(0), name="b", on_error="skip", retries=1, backoff=0.0)
    flawed.node(writer("c", "a"), name="c")
    flawed.entry("a")
    flawed.edges = wf.edges

    sweep = run_sweep(flawed)

    (cell,) = sweep.cells()
    assert cell.status == "succeeded"
    assert "b" not in cell.state
    assert cell.path == ("a", "b", "c")
    assert cell.node_runs == sweep.executed == 2
    (skipped,) = sweep.ran("b")
    assert (skipped["status"], skipped["attempts"]) == ("skipped", 2)


def test_two_writes_of_one_key_in_one_step_fail_the_cells_and_name_both_nodes(run_sweep: Make) -> None:
    wf = diamond()
    wf["b"].variant("clash", writer("a"))
    wf["c"].variant("clash", writer("a"))

    sweep = run_sweep(wf, inputs(1), {"b": "all", "c": "all"})

    failed = [cell for cell in sweep.cells() if cell.status == "failed"]
    assert [cell.combination for cell in failed] == [{"b": "clash", "c": "clash"}]
    assert sentence("nodes {} and {} both wrote key {}", "'b'", "'c'", "'a'") in failed[0].error


def test_a_branch_that_cannot_be_followed_fails_the_cell_and_names_the_node(run_sweep: Make) -> None:
    wf = Workflow("lost", state=State)
    with_variants(wf.node(writer("a"), name="a"), 2)
    wf.entry("a")
    wf.branch("a", {"a0": END}, by=lambda state: state["a"])

    sweep = run_sweep(wf, inputs(1), {"a": "all"})

    good, bad = sweep.cells()
    assert (good.status, bad.status) == ("succeeded", "failed")
    assert bad.error.startswith("RoutingError: the branch after node 'a' returned 'a1'")
    assert sweep.executed == 2  # the node runs themselves were accepted


def test_a_failing_evaluator_fails_its_score_and_nothing_else(run_sweep: Make) -> None:
    def length(case: Any, result: Any) -> float:
        return float(len(result.path))

    def broken(case: Any, result: Any) -> float:
        raise LookupError("no such thing")

    sweep = run_sweep(chain(1, 1), evaluators={"length": length, "broken": broken})

    (cell,) = sweep.cells()
    assert cell.status == "succeeded"
    assert cell.scores["length"] == 2.0
    assert cell.scores["broken"].startswith("LookupError: no such thing")


# Limits


def test_a_node_with_a_limit_runs_so_many_at_a_time(run_sweep: Make) -> None:
    now, peak, lock = 0, 0, threading.Lock()
    two_at_once = threading.Event()

    def a(state: State) -> None:
        nonlocal now, peak
        with lock:
            now += 1
            peak = max(peak, now)
            if now == 2:
                two_at_once.set()
        two_at_once.wait(10)
        with lock:
            now -= 1

    sweep = run_sweep(alone(a, limit=2), inputs(12), run={"concurrency": 6})

    assert sweep.counts == {"succeeded": 12}
    assert peak == 2


def test_a_node_with_a_rate_starts_so_many_a_second(run_sweep: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns are a fiftieth of a second apart, and no node run starts before its turn, however late it may be."""
    turns: list[float] = []
    take_turn = slots._turn

    def noted_turn(connection: sa.Connection, place: slots.Place, spacing_s: float) -> float:
        wait_s = take_turn(connection, place, spacing_s)
        turns.append(connection.scalars(sa.select(limited_nodes.c.next_at)).one() - spacing_s)
        return wait_s

    monkeypatch.setattr(slots, "_turn", noted_turn)

    sweep = run_sweep(alone(writer("a"), name="a", rate=50), inputs(6), run={"concurrency": 6})

    with sweep.database.read() as connection:
        started = sorted(connection.scalars(sa.select(attempts.c.started_at)))
    assert len(turns) == len(started) == 6
    assert all(later - earlier >= 1 / 50 - CLOCK_S for earlier, later in pairwise(turns))
    assert all(start >= turn - CLOCK_S for start, turn in zip(started, turns, strict=True))


@pytest.mark.parametrize("cap", [1, 9])
def test_a_limit_of_node_runs_pauses_the_sweep_exactly_there_and_it_continues_where_it_stood(
    cap: int, bench: Make
) -> None:
    sweep = bench(chain(2, 2, 2), inputs(2), {"a": "all", "b": "all", "c": "all"}, limits={"node_runs": cap})

    ended = sweep.run()

    assert (ended.status, ended.limit) == ("paused", "node_runs")
    assert f"node_runs = {cap}" in ended.reason
    assert len(sweep.node_runs) == sweep.executed == cap
    assert sweep.row.reason == ended.reason
    assert not [row for row in sweep.executions if row.status == "running"]
    assert sweep.counts.get("running", 0) == 0
    before = {run["id"] for run in sweep.node_runs}

    assert sweep.run(node_runs=None).status == "completed"

    assert sweep.counts == {"succeeded": 16}
    assert sweep.executed == 2 * (2 + 4 + 8)
    assert before <= {run["id"] for run in sweep.node_runs}
    assert len(set(sweep.identities)) == len(sweep.identities)
    assert all(run["attempts"] == 1 for run in sweep.node_runs)


def test_a_limit_stops_exactly_there_in_a_parallel_step_too(bench: Make) -> None:
    wf = diamond()
    with_variants(wf["b"], 3)
    with_variants(wf["c"], 3)
    sweep = bench(wf, inputs(2), {"b": "all", "c": "all"}, limits={"node_runs": 5})

    assert sweep.run().status == "paused"

    assert sweep.executed == 5
    assert sweep.run(node_runs=None).status == "completed"
    assert sweep.counts == {"succeeded": 18}
    assert sweep.executed == 2 * (1 + 6 + 9)
    assert all(run["attempts"] == 1 for run in sweep.node_runs)


# Files


def file_writer(name: str, text: str = "") -> Callable[..., dict[str, Any]]:
    def write(state: State, ctx: Any, *, k: int = 0) -> dict[str, Any]:
        seen = sorted(path.name for path in ctx.workspace.iterdir())
        (ctx.workspace / name).write_text(text or f"{name}{k}")
        return {"log": [f"{ctx.node}{k} saw {' '.join(seen)}"]}

    return write


def files_of(cell: Any, sweep: Any) -> dict[str, str]:
    """Return the files at a cell's head."""
    with sweep.database.read() as connection:
        query = sa.select(checkpoints.c.workspace, checkpoints.c.writers).where(
            checkpoints.c.sweep_id == sweep.sweep_id
        )
        by_log = {tuple(map(tuple, writers)): digest for digest, writers in connection.execute(query)}
    last = [key for key in by_log if key and key[0][0] == cell.path[-1] and key[0][1] == cell.combination["b"]]
    files = sweep.workspaces.files.of_project("default")
    manifest, store = files.manifest(by_log[last[0]]), files.root
    return {name: (store / file.digest[:2] / file.digest[2:]).read_text("utf-8") for name, file in manifest.items()}


def test_files_flow_to_the_next_nodes_and_fork_apart(run_sweep: Make) -> None:
    wf = Workflow("files", state=State)
    wf.node(file_writer("a.txt"), name="a")
    with_variants(wf.node(file_writer("b.txt"), name="b"), 2)
    wf.entry("a")
    wf.edge("a", "b")

    sweep = run_sweep(wf, inputs(1), {"b": "all"})

    first, second = sweep.cells()
    assert first.state["log"] == ["a0 saw ", "b0 saw a.txt"]
    assert second.state["log"] == ["a0 saw ", "b1 saw a.txt"]
    assert files_of(first, sweep) == {"a.txt": "a.txt0", "b.txt": "b.txt0"}
    assert files_of(second, sweep) == {"a.txt": "a.txt0", "b.txt": "b.txt1"}
    assert not list(sweep.workspaces.root.iterdir())  # nothing of the attempts stays behind


def file_diamond(b: str, c: str) -> Workflow:
    wf = diamond()
    workflow = Workflow("files", state=State)
    for name, fn in (
        ("a", file_writer("a.txt")),
        ("b", file_writer(b, text="b's own")),
        ("c", file_writer(c, text="c's own")),
        ("d", file_writer("d.txt")),
    ):
        workflow.node(fn, name=name)
    workflow.entries, workflow.edges = wf.entries, wf.edges
    return workflow


def test_files_of_a_parallel_step_are_joined(run_sweep: Make) -> None:
    sweep = run_sweep(file_diamond("b.txt", "c.txt"))

    (cell,) = sweep.cells()
    assert cell.state["log"][-1] == "d0 saw a.txt b.txt c.txt"


def test_one_file_changed_differently_by_two_nodes_is_an_error_that_names_both(run_sweep: Make) -> None:
    sweep = run_sweep(file_diamond("a.txt", "a.txt"))

    (cell,) = sweep.cells()
    assert cell.status == "failed"
    assert sentence("nodes {} and {} changed the file {} differently", "'b'", "'c'", "'a.txt'") in cell.error


def test_a_failed_attempt_leaves_no_files_to_the_next(run_sweep: Make) -> None:
    def a(state: State, ctx: Any) -> dict[str, Any]:
        seen = [path.name for path in ctx.workspace.iterdir()]
        (ctx.workspace / "draft").write_text("x")
        if ctx.attempt == 1:
            raise ValueError("again")
        return {"log": seen}

    (cell,) = run_sweep(alone(a, retries=1, backoff=0.0)).cells()

    assert cell.state["log"] == []


def test_the_files_of_a_case_are_in_its_workspace(run_sweep: Make, tmp_path: Path) -> None:
    (tmp_path / "given.txt").write_text("given")

    def a(state: State, ctx: Any) -> dict[str, Any]:
        return {"a": (ctx.workspace / "in.txt").read_text()}

    case = {"id": "one", "input": {"x": 1}, "files": {"in.txt": str(tmp_path / "given.txt")}}

    (cell,) = run_sweep(alone(a), [case]).cells()

    assert cell.state["a"] == "given"


# Retrying failed cells


def test_a_retry_continues_from_the_last_good_checkpoint_and_tries_a_shared_failure_once(bench: Make) -> None:
    from wtb.store.control.forks import retry

    broken = True
    wf = diamond()

    def moody(state: State, *, k: int = 0) -> dict[str, Any]:
        if broken:
            raise ValueError("not yet")
        return {"b": "b7"}

    wf["b"].variant("moody", moody, k=7)
    with_variants(wf["c"], 3)
    sweep = bench(wf, inputs(1), {"b": "all", "c": "all"})
    sweep.run()
    assert sweep.counts == {"succeeded": 3, "failed": 3}
    accepted = {run["id"] for run in sweep.node_runs if run["status"] == "succeeded"}

    broken = False
    assert retry(sweep.database, sweep.sweep_id) == 3
    assert sweep.run().status == "completed"

    assert sweep.counts == {"succeeded": 6}
    assert accepted <= {run["id"] for run in sweep.node_runs}
    assert len(sweep.ran("a")) == 1
    assert len(sweep.ran("c")) == 3
    (moody_run,) = [run for run in sweep.ran("b") if run["variant"] == "moody"]
    assert (moody_run["status"], moody_run["attempts"]) == ("succeeded", 2)
    assert sweep.executed == 12
    assert sweep.unshared == 6 * 4


# Events


def test_every_change_has_its_event_in_order(run_sweep: Make) -> None:
    wf = chain(1, 2)
    wf["b"].variant("bad", failing(7), k=7)

    sweep = run_sweep(wf, inputs(2), {"b": "all"})

    kinds = Counter(row["kind"] for row in sweep.events)
    assert kinds == {
        "variant.applied": 4,
        "sweep.submitted": 1,
        "sweep.running": 1,
        "execution.started": 2,
        "node_run.started": 8,
        "node_run.succeeded": 6,
        "node_run.failed": 2,
        "checkpoint.created": 6,
        "execution.forked": 2,
        "execution.completed": 4,
        "execution.failed": 2,
        "cell.succeeded": 4,
        "cell.failed": 2,
        "sweep.completed": 1,
    }
    seen = [row["kind"] for row in sweep.events]
    assert (seen[:2], seen[-1]) == (["sweep.submitted", "sweep.running"], "sweep.completed")
    for execution in {row["execution_id"] for row in sweep.events if row["execution_id"]}:
        own = [row["kind"] for row in sweep.events if row["execution_id"] == execution]
        starts = [place for place, kind in enumerate(own) if kind == "node_run.started"]
        ends = [place for place, kind in enumerate(own) if kind in ("node_run.succeeded", "node_run.failed")]
        assert len(starts) == len(ends)
        assert all(start < end for start, end in zip(starts, ends, strict=True))


def test_what_a_node_says_is_kept_with_its_node_run(run_sweep: Make) -> None:
    def a(state: State, ctx: Any) -> None:
        ctx.log("halfway", level="warning", part=2)
        ctx.progress(1, 2, "half")
        ctx.metric("loss", 0.5)
        ctx.call(model="m", prompt="p", response={"r": 1}, usd=0.25, tokens_in=3, tokens_out=4)

    sweep = run_sweep(alone(a))

    data_by_kind = {row["kind"]: row["data"] for row in sweep.events if row["kind"].startswith("node.")}
    assert data_by_kind["node.log"]["message"] == "halfway"
    assert data_by_kind["node.progress"]["total"] == 2
    about = {"node": "a", "variant": "default", "node_run": sweep.ran("a")[0]["id"]}
    assert data_by_kind["node.metric"] == {**about, "name": "loss", "value": 0.5}
    with sweep.database.read() as connection:
        (call,) = connection.execute(sa.select(calls)).mappings()
    assert (call["model"], call["usd"], call["tokens_in"]) == ("m", 0.25, 3)
    (cell,) = sweep.cells()
    (run,) = sweep.node_runs
    assert (run["usd"], run["tokens_in"], run["tokens_out"]) == (0.25, 3, 4)
    assert cell.status == "succeeded"


def test_a_decision_is_kept_with_the_checkpoint_that_it_led_to(run_sweep: Make) -> None:
    def good(state: State) -> bool:
        return True

    wf = Workflow("decide", state=State)
    wf.node(writer("a"), name="a")
    wf.node(writer("b"), name="b")
    wf.entry("a")
    wf.edge("a", "b", when=good)
    wf.edge("a", END, default=True)

    sweep = run_sweep(wf)

    with sweep.database.read() as connection:
        (row,) = connection.execute(sa.select(decisions)).mappings()
    assert (row["node"], row["to"], row["why"]) == ("a", "b", "good is true")


def test_a_follower_that_reads_in_small_pages_misses_no_event(run_sweep: Make) -> None:
    sweep = run_sweep(chain(2, 2), inputs(3), {"a": "all", "b": "all"})

    assert sweep.follow() == [row["id"] for row in sweep.events]
    counted = details.event_counts(sweep.database, sweep.sweep_id)
    assert len(sweep.follow()) == len(set(sweep.follow())) == sum(row.number for row in counted)


def test_a_follower_misses_no_event_when_transactions_commit_out_of_order(
    prepared_postgres_url: str, memory_bench: Make
) -> None:
    database = Database(prepared_postgres_url)

    def say(connection: sa.Connection, word: str) -> None:
        row = {"session_id": "default", "sweep_id": "s", "kind": word, "severity": "info", "at": 0.0, "data": {}}
        connection.execute(events.insert(), [row])

    def follow(after: tuple[int, int]) -> tuple[list[str], tuple[int, int]]:
        rows = queries.event_rows(database, "s", after=after)
        last = (rows[-1]["transaction"], rows[-1]["id"]) if rows else after
        return [row["kind"] for row in rows], last

    with database.engine.connect() as slow, database.engine.connect() as quick:
        with slow.begin():
            say(slow, "early")
            with quick.begin():
                say(quick, "late")  # begins second, commits first
            seen, after = follow((-1, 0))
            assert seen == []  # showing "late" now would lose "early" for ever
        seen, after = follow(after)
        assert seen == ["early", "late"]
        assert follow(after)[0] == []
    database.close()


# What is stored


def test_each_value_is_stored_once_by_its_hash(run_sweep: Make) -> None:
    wf = Workflow("same")
    big = "x" * 10_000

    @wf.node
    def a(state: Any, *, k: int = 0) -> dict[str, Any]:
        return {"big": big}

    with_variants(a, 3)

    @wf.node
    def b(state: Any) -> dict[str, Any]:
        return {"again": state["big"]}

    wf.entry(a)
    wf.edge(a, b)

    sweep = run_sweep(wf, [{"id": str(n), "input": {"n": n}} for n in range(3)], {"a": "all"})

    with sweep.database.read() as connection:
        sizes = sorted(len(content) for content in connection.scalars(sa.select(values.c.data)))
    assert [size for size in sizes if size > 1000] == [sizes[-1]]
    assert len(sizes) == 4  # three numbers and the big one


def test_two_sweeps_share_one_database(run_sweep: Make) -> None:
    first = run_sweep(chain(2, 2), inputs(1), {"a": "all"})
    second = run_sweep(chain(2, 2), inputs(1), {"b": "all"})

    assert (first.executed, second.executed) == (4, 3)
    assert {row.id for row in queries.list_sweeps(first.database)} == {first.sweep_id, second.sweep_id}
