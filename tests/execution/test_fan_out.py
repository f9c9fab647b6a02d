"""A node with several tasks in one step: each distinct (task, variant) runs once, and is retried by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.execution.fanning import fan, number_of
from tests.support.bench import Bench
from tests.support.prose import sentence
from wtb.analysis.comparison.pairing import partings
from wtb.core.errors import InputError
from wtb.core.tree.checkpoints import NodeTask, Position
from wtb.core.values import Value
from wtb.display.views.executions import execution_document, history_document, trace
from wtb.display.views.lineage import diff_document
from wtb.handles.start import start
from wtb.operations.context import Context
from wtb.operations.control.answers import answer
from wtb.operations.control.forks import add_fork
from wtb.operations.control.rollback import rollback
from wtb.operations.inspection.cells import cell_documents
from wtb.store.control import approvals, executions
from wtb.store.control.forks import retry
from wtb.store.read import queries
from wtb.store.read.details import find_one
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.schema import checkpoints, values

Make = Callable[..., Bench]

CASES = [{"id": "one", "input": {"items": [1, 2, 3], "scrap": "gone"}}]
ALL = {"work": "all", "beside": "all", "gather": "all"}


def attempts_of(sweep: Bench, node: str = "work") -> dict[tuple[str, str], int]:
    return {(run["task"], run["variant"]): run["attempts"] for run in sweep.ran(node)}


def head_of(sweep: Bench, cell: int = 0) -> ExecutionRow:
    rows = list(queries.cell_rows(sweep.database, sweep.sweep_id))
    return find_one(sweep.database, rows[cell].execution_id)


def reply(sweep: Bench, action: str = "approve", **more: Any) -> Any:
    """Answer the only open question, and continue. Returns the question."""
    (question,) = approvals.approval_rows(sweep.database, sweep_id=sweep.sweep_id)
    answer(Context(sweep.database, by="ada"), question.id, action, bound=sweep.prepared.bound, **more)
    sweep.run()
    return question


def fork(sweep: Bench, at: str, **more: Any) -> str:
    """Fork the first cell."""
    context = Context(sweep.database, by="ada")
    return add_fork(context, head_of(sweep).id, bound=sweep.prepared.bound, at=at, **more)[0]


def refusing(number: int, flag: Path) -> Callable[..., Any]:
    """Build a node whose task of this number fails until the flag exists."""

    def work(state: Any, ctx: Any, *, k: int = 0) -> Any:
        if number_of(ctx) == number and not flag.exists():
            raise ValueError(f"not yet {number}")
        return {"found": [state["items"][number_of(ctx)] + k]}

    return work


# Positions


def test_tasks_are_in_the_order_of_the_next_nodes_and_those_of_a_node_by_number() -> None:
    position = Position(1, ("b", "a"), fan_out={"a": 2})

    assert position.tasks == (NodeTask("b", "b"), NodeTask("a|0", "a", 0), NodeTask("a|1", "a", 1))


def test_a_position_is_stored_without_what_it_does_not_have_and_read_back_whole() -> None:
    plain, rich = Position(1, ("a",), {"j": ("b",)}, {"b": 1}), Position(1, ("a",), fan_out={"a": 2}, engine=[1])

    assert plain.document().keys() == {"step", "next", "arrived", "visits"}
    assert [Position.read(position.document()) for position in (plain, rich)] == [plain, rich]


# Counts


def test_each_distinct_task_and_variant_runs_once_and_its_node_chooses_the_variant(run_sweep: Make) -> None:
    sweep = run_sweep(fan(), CASES, ALL)

    assert sweep.status == "completed"
    assert Counter(run["node"] for run in sweep.node_runs) == {"plan": 1, "work": 6, "beside": 2, "gather": 8}
    assert len(set(sweep.identities)) == len(sweep.identities) == sweep.executed
    assert sweep.unshared == 8 * (1 + 3 + 1 + 1)
    assert set(attempts_of(sweep)) == {(f"work|{n}", v) for n in range(3) for v in ("default", "other")}
    extra = {"default": 0, "other": 1}
    for cell in sweep.cells():
        offsets = {node: extra[variant] for node, variant in cell.combination.items()}
        assert cell.state["found"] == [n + 100 * offsets["work"] for n in (1, 2, 3)]
        assert cell.state["sum"] == 6 + 300 * offsets["work"] + 10 * offsets["beside"] + offsets["gather"]
        assert cell.path == ("plan", "work", "work", "work", "beside", "gather")
        assert cell.node_runs == 6


def test_a_case_may_have_one_item_and_another_many(run_sweep: Make) -> None:
    cases = [{"id": f"c{count}", "input": {"items": list(range(count))}} for count in (1, 7)]

    sweep = run_sweep(fan(), cases)

    assert [cell.state["found"] for cell in sweep.cells()] == [[0], list(range(7))]
    assert len(sweep.ran("work")) == 8


def test_a_step_is_one_visit_of_a_node_however_many_tasks_it_has(run_sweep: Make) -> None:
    sweep = run_sweep(fan(), CASES)

    document = history_document(sweep.database, head_of(sweep))

    assert [(boundary["node"], boundary["visit"], boundary["status"]) for boundary in document["boundaries"]] == [
        ("plan", 0, "succeeded"),
        ("work", 0, "succeeded"),
        ("beside", 0, "succeeded"),
        ("gather", 0, "succeeded"),
    ]
    of_step = next(checkpoint for checkpoint in document["checkpoints"] if checkpoint["step"] == 2)
    assert document["rollback_targets"]["work"] == of_step["id"]
    assert [writer.get("task") for writer in of_step["writers"]] == ["work|0", "work|1", "work|2", None]
    assert {run["visit"] for run in sweep.ran("work")} == {0}
    last = max(sweep.rows(checkpoints), key=lambda row: row["position"]["step"])
    assert last["position"]["visits"] == {"plan": 1, "work": 1, "beside": 1, "gather": 1}


def test_tasks_draw_numbers_of_their_own_that_do_not_depend_on_the_variant(run_sweep: Make) -> None:
    def draw(state: Any, ctx: Any, *, k: int = 0) -> Any:
        return {"found": [ctx.rng.random()]}

    first, other = run_sweep(fan(draw), CASES, {"work": "all"}).cells()

    assert len(set(first.state["found"])) == 3
    assert first.state["found"] == other.state["found"]


def test_the_files_of_all_tasks_are_joined(run_sweep: Make) -> None:
    def write(state: Any, ctx: Any, *, k: int = 0) -> Any:
        (ctx.workspace / f"{number_of(ctx)}.txt").write_text(str(k))
        return {"found": [0]}

    sweep = run_sweep(fan(write), CASES)

    head = queries.line(sweep.database, head_of(sweep).head_id)[-1]
    assert sorted(sweep.workspaces.files.of_project("default").manifest(head.workspace)) == ["0.txt", "1.txt", "2.txt"]


# Trying again, and going back


def test_only_the_task_that_failed_is_tried_again(bench: Make, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    sweep = bench(fan(refusing(1, flag)), CASES, {"work": "all"})
    sweep.run()
    assert sweep.counts == {"failed": 2}
    assert {cell.error for cell in sweep.cells()} == {"node 'work': ValueError: not yet 1"}

    flag.touch()
    retry(sweep.database, sweep.sweep_id)
    sweep.run()

    assert sweep.counts == {"succeeded": 2}
    attempts = {(f"work|{n}", v): 1 + (n == 1) for n in range(3) for v in ("default", "other")}
    assert attempts_of(sweep) == attempts
    assert [cell.state["found"] for cell in sweep.cells()] == [[1, 2, 3], [101, 102, 103]]


def test_a_sweep_that_a_limit_stops_in_the_middle_of_a_step_continues_with_its_other_tasks(bench: Make) -> None:
    sweep = bench(fan(), CASES, limits={"node_runs": 3}, run={"concurrency": 1})
    sweep.run()
    assert (sweep.status, sweep.executed) == ("paused", 3)

    sweep.run(node_runs=None)

    assert sweep.status == "completed"
    assert set(attempts_of(sweep).values()) == {1}
    assert sweep.executed == 6


def test_a_fork_after_the_fan_out_runs_none_of_it_again_and_one_before_it_runs_all(run_sweep: Make) -> None:
    sweep = run_sweep(fan(), CASES)

    def forked(at: str, **variants: str) -> tuple[int, Counter[str]]:
        before = {run["id"] for run in sweep.node_runs}
        id = fork(sweep, at, variants=variants)
        sweep.run_fork(id)
        total = execution_document(sweep.database, find_one(sweep.database, id))["state"]["sum"]
        return total, Counter(run["task"] for run in sweep.node_runs if run["id"] not in before)

    assert forked("work", gather="other") == (7, {"gather": 1})
    assert forked("plan", work="other") == (306, {"work|0": 1, "work|1": 1, "work|2": 1, "beside": 1, "gather": 1})


def test_going_back_to_a_node_with_several_tasks_leads_to_after_all_of_them(run_sweep: Make) -> None:
    sweep = run_sweep(fan(), CASES)
    origin = head_of(sweep)

    rollback(Context(sweep.database), origin.id, "work", bound=sweep.prepared.bound)
    executions.resume(sweep.database, origin.id, by="ada")
    sweep.run()

    assert sweep.counts == {"succeeded": 1}
    assert {node: len(sweep.ran(node)) for node in ("work", "gather")} == {"work": 3, "gather": 2}


def test_what_a_task_saved_is_found_by_that_task_alone(bench: Make, tmp_path: Path) -> None:
    flag = tmp_path / "flag"

    def work(state: Any, ctx: Any, *, k: int = 0) -> Any:
        number = number_of(ctx)
        saved_number = ctx.saved.get("number")
        if number == 1 and saved_number is None:
            ctx.checkpoint("half", number=number)
        if number == 1 and not flag.exists():
            raise ValueError("not yet")
        return {"found": [-1 if saved_number is None else saved_number]}

    sweep = bench(fan(work), CASES)
    sweep.run()
    assert sweep.counts == {"failed": 1}
    inside = next(row for row in sweep.rows(checkpoints) if row["inside"] is not None)
    assert (inside["inside"]["node"], inside["inside"]["task"]) == ("work", "work|1")

    flag.touch()
    id = fork(sweep, "half")
    sweep.run_fork(id)

    document = execution_document(sweep.database, find_one(sweep.database, id))
    assert document["state"]["found"] == [-1, 1, -1]


# People


def test_a_question_of_one_task_holds_the_step_and_only_that_task_starts_again(bench: Make) -> None:
    def work(state: Any, ctx: Any, *, k: int = 0) -> Any:
        reply = ctx.ask("Which?").feedback if number_of(ctx) == 1 else "-"
        return {"found": [len(reply)]}

    sweep = bench(fan(work), CASES)
    sweep.run()
    assert sweep.counts == {"waiting": 1}
    assert reply(sweep, feedback="three").node == "work|1"
    assert sweep.cells()[0].state["found"] == [1, 5, 1]
    assert attempts_of(sweep) == {("work|0", "default"): 1, ("work|1", "default"): 2, ("work|2", "default"): 1}


def test_tasks_that_ask_the_same_words_ask_a_question_each(bench: Make) -> None:
    def work(state: Any, ctx: Any, *, k: int = 0) -> Any:
        return {"found": [int(ctx.ask("How many?").feedback) + k]}

    sweep = bench(fan(work), CASES, {"work": "all"})
    sweep.run()
    open_questions = approvals.approval_rows(sweep.database, sweep_id=sweep.sweep_id)
    assert sorted(approval.node for approval in open_questions) == ["work|0", "work|1", "work|2"]
    for approval in open_questions:
        answer(Context(sweep.database, by="ada"), approval.id, "approve", feedback=approval.node[-1])
    sweep.run()

    assert [cell.state["found"] for cell in sweep.cells()] == [[0, 1, 2], [100, 101, 102]]


def test_a_task_that_has_failed_for_good_asks_for_itself(bench: Make, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    sweep = bench(fan(refusing(2, flag)), CASES, run={"approval": "on_error"})
    sweep.run()
    flag.touch()
    assert reply(sweep).question == "work|2 failed: ValueError: not yet 2. Try again?"
    assert sweep.counts == {"succeeded": 1}
    assert attempts_of(sweep) == {("work|0", "default"): 1, ("work|1", "default"): 1, ("work|2", "default"): 2}


def test_a_state_that_a_person_changes_with_an_answer_runs_the_step_anew_with_what_was_said(bench: Make) -> None:
    def work(state: Any, ctx: Any, *, k: int = 0) -> Any:
        number = number_of(ctx)
        if number != 1:
            return {"found": [[state["items"][number], ctx.saved]]}
        if not ctx.saved:
            ctx.checkpoint("before", seen=state["items"])
        return {"found": [[ctx.ask("Good?", context=state["items"]).feedback, ctx.saved]]}

    sweep = bench(fan(work), CASES)
    sweep.run()
    reply(sweep, "modify", feedback="now it is", set={"items": [7, 8, 9]})

    assert sweep.cells()[0].state["found"] == [[7, {}], ["now it is", {"seen": [1, 2, 3]}], [9, {}]]


def test_a_task_that_is_tried_again_with_a_changed_state_is_told_what_was_said_of_it(bench: Make) -> None:
    def work(state: Any, ctx: Any, *, k: int = 0) -> Any:
        if number_of(ctx) == 2 and state["items"][2] == 3:
            raise ValueError("no three")
        return {"found": [ctx.previous and ctx.previous.feedback]}

    sweep = bench(fan(work), CASES, run={"approval": "on_error"})
    sweep.run()
    reply(sweep, "modify", feedback="four, then", set={"items": [1, 2, 4]})

    assert sweep.cells()[0].state["found"] == [None, None, "four, then"]


# Beginning, and what is the engine's own


def test_what_cannot_begin_fails_without_a_head_and_a_retry_begins_anew(bench: Make, tmp_path: Path) -> None:
    refuse = tmp_path / "refuse"
    refuse.touch()
    sweep = bench(fan(), CASES, {"work": "all"}, params={"refuse": str(refuse)})
    sweep.run()
    assert sweep.status == "completed"
    assert {cell.error for cell in sweep.cells()} == {"RuntimeError: case one cannot begin"}
    assert [(cell.node_runs, cell.elapsed_s) for cell in sweep.cells()] == [(0, 0.0), (0, 0.0)]
    assert [(row.status, row.head_id) for row in sweep.executions] == [("failed", None)]
    assert execution_document(sweep.database, head_of(sweep))["state"] == {}

    refuse.unlink()
    assert retry(sweep.database, sweep.sweep_id) == 2
    sweep.run()

    assert sweep.counts == {"succeeded": 2}
    assert sweep.executed == 1 + 6 + 1 + 2


def test_a_root_of_which_only_the_engines_part_is_damaged_begins_anew(bench: Make) -> None:
    wf = fan()
    wf.breakpoints = ("plan",)
    sweep = bench(wf, CASES)
    sweep.run()
    (paused,) = sweep.executions
    with sweep.database.write() as connection:
        damaged = values.c.digest == Value.of(0).digest
        connection.execute(values.update().where(damaged).values(data=Value.of(5).data.decode()))

    executions.resume(sweep.database, paused.id, by="ada")
    sweep.run()
    (new_execution,) = [row for row in sweep.executions if row.status == "paused"]
    assert new_execution.id != paused.id
    executions.resume(sweep.database, new_execution.id, by="ada")
    sweep.run()

    assert sweep.counts == {"succeeded": 1}
    assert sweep.cells()[0].state["~steps"] == 3


def test_what_is_dropped_is_gone_and_what_is_the_engines_own_is_kept_and_shown_to_nobody(run_sweep: Make) -> None:
    seen: list[set[str]] = []

    def look(case: Any, result: Any) -> int:
        seen.append(set(result.state))
        return 1

    sweep = run_sweep(fan(), CASES, {"gather": "all"}, evaluators={"t:look": look})

    keys = {"items", "planned", "found", "beside", "sum"}
    assert [set(cell.state) for cell in sweep.cells()] == [{*keys, "~steps"}] * 2
    assert sweep.cells()[0].state["~steps"] == 3
    assert seen == [keys] * 2
    choices = queries.choices(sweep.database, sweep.sweep_id)
    documents = cell_documents(sweep.database, sweep.sweep_id)
    assert len(choices) == 2
    assert [set(document["state"]) for document in documents] == [keys] * 2
    first, other = (head_of(sweep, number) for number in range(2))
    details = execution_document(sweep.database, first)
    assert set(details["state"]) == keys
    assert all(not key.startswith("~") for step in details["path"] for key in step["writes"])
    difference = diff_document(sweep.database, trace(sweep.database, first), trace(sweep.database, other))
    state_difference = difference["state"]
    assert {
        *state_difference["same"],
        *state_difference["changed"],
        *state_difference["only_a"],
        *state_difference["only_b"],
    } == keys
    assert partings(sweep.database, [(first.id, other.id)]) == ["gather"]


def test_nobody_sets_what_is_the_engines_own(run_sweep: Make) -> None:
    sweep = run_sweep(fan(), CASES)

    with pytest.raises(InputError, match=sentence("key {} is the engine's own", "'~steps'")):
        fork(sweep, "plan", set={"~steps": 9})


def test_a_workflow_may_have_breakpoints_of_its_own(bench: Make) -> None:
    wf = fan()
    wf.breakpoints = ("after work if len(found) == 3",)

    sweep = bench(wf, CASES)
    sweep.run()

    assert sweep.status == "paused"
    assert [row.reason for row in sweep.executions] == ["breakpoint after work if len(found) == 3"]


def test_breakpoints_of_a_workflow_and_those_that_are_asked_for_add_up(sqlite_url: str, monkeypatch: Any) -> None:
    wf = fan()
    wf.breakpoints = ("work",)

    run = start(wf, {"items": [1]}, breakpoints=["gather"], db=sqlite_url).wait()
    assert (run.status, run.reason) == ("paused", "breakpoint before work")
    run.resume().wait()
    assert (run.status, run.reason) == ("paused", "breakpoint before gather")
