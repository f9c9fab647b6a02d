"""A node that has several tasks in one step: each distinct (task, variant) runs once, and is what is tried again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.execution.fanning import fan, number_of
from tests.support.bench import Bench
from tests.support.prose import sentence
from wtb.analysis.comparison.first_difference import partings
from wtb.core.errors import InputError
from wtb.core.tree.checkpoints import NodeTask, Position
from wtb.core.values import Value
from wtb.display.views.execution_diff import diff_document
from wtb.display.views.executions import execution_document, history_document, trace
from wtb.operations.context import Context
from wtb.operations.control.answers import answer
from wtb.operations.control.forks import add_fork
from wtb.operations.control.rollback import rollback
from wtb.operations.execution import start
from wtb.operations.inspection.cells import cell_documents
from wtb.store.control import executions, questions
from wtb.store.growth.retry import retry
from wtb.store.read import queries
from wtb.store.read.references import find_one
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.schema import checkpoints, values

Make = Callable[..., Bench]

CASES = [{"id": "one", "input": {"items": [1, 2, 3], "scrap": "gone"}}]
ALL = {"work": "all", "beside": "all", "gather": "all"}


def attempts_of(made: Bench, node: str = "work") -> dict[tuple[str, str], int]:
    return {(run["task"], run["variant"]): run["attempts"] for run in made.ran(node)}


def head_of(made: Bench, cell: int = 0) -> ExecutionRow:
    rows = list(queries.cell_rows(made.database, made.sweep_id))
    return find_one(made.database, rows[cell].execution_id)


def refusing(number: int, flag: Path) -> Callable[..., Any]:
    """Takes its item; the task of that number fails until the flag is there."""

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
    assert [Position.read(one.document()) for one in (plain, rich)] == [plain, rich]


# Counts


def test_each_distinct_task_and_variant_runs_once_and_its_node_chooses_the_variant(run_sweep: Make) -> None:
    made = run_sweep(fan(), CASES, ALL)

    assert made.status == "completed"
    assert Counter(run["node"] for run in made.node_runs) == {"plan": 1, "work": 6, "beside": 2, "gather": 8}
    assert len(set(made.identities)) == len(made.identities) == made.executed
    assert made.unshared == 8 * (1 + 3 + 1 + 1)
    assert set(attempts_of(made)) == {(f"work|{n}", v) for n in range(3) for v in ("default", "other")}
    extra = {"default": 0, "other": 1}
    for cell in made.cells():
        chosen = {node: extra[variant] for node, variant in cell.combination.items()}
        assert cell.state["found"] == [n + 100 * chosen["work"] for n in (1, 2, 3)]
        assert cell.state["sum"] == 6 + 300 * chosen["work"] + 10 * chosen["beside"] + chosen["gather"]
        assert cell.path == ("plan", "work", "work", "work", "beside", "gather")
        assert cell.node_runs == 6


def test_a_case_may_have_one_item_and_another_many(run_sweep: Make) -> None:
    cases = [{"id": f"c{count}", "input": {"items": list(range(count))}} for count in (1, 7)]

    made = run_sweep(fan(), cases)

    assert [cell.state["found"] for cell in made.cells()] == [[0], list(range(7))]
    assert len(made.ran("work")) == 8


def test_a_step_is_one_visit_of_a_node_however_many_tasks_it_has(run_sweep: Make) -> None:
    made = run_sweep(fan(), CASES)

    document = history_document(made.database, head_of(made))

    assert [(one["node"], one["visit"], one["status"]) for one in document["boundaries"]] == [
        ("plan", 0, "succeeded"),
        ("work", 0, "succeeded"),
        ("beside", 0, "succeeded"),
        ("gather", 0, "succeeded"),
    ]
    of_step = next(one for one in document["checkpoints"] if one["step"] == 2)
    assert document["rollback_targets"]["work"] == of_step["id"]
    assert [one.get("task") for one in of_step["writers"]] == ["work|0", "work|1", "work|2", None]
    assert {run["visit"] for run in made.ran("work")} == {0}
    last = max(made.rows(checkpoints), key=lambda row: row["position"]["step"])
    assert last["position"]["visits"] == {"plan": 1, "work": 1, "beside": 1, "gather": 1}


def test_tasks_draw_numbers_of_their_own_that_do_not_depend_on_the_variant(run_sweep: Make) -> None:
    def draw(state: Any, ctx: Any, *, k: int = 0) -> Any:
        return {"found": [ctx.rng.random()]}

    one, other = run_sweep(fan(draw), CASES, {"work": "all"}).cells()

    assert len(set(one.state["found"])) == 3
    assert one.state["found"] == other.state["found"]


def test_the_files_of_all_tasks_are_joined(run_sweep: Make) -> None:
    def write(state: Any, ctx: Any, *, k: int = 0) -> Any:
        (ctx.workspace / f"{number_of(ctx)}.txt").write_text(str(k))
        return {"found": [0]}

    made = run_sweep(fan(write), CASES)

    head = queries.line(made.database, head_of(made).head_id)[-1]
    assert sorted(made.workspaces.files.of_project("default").manifest(head.workspace)) == ["0.txt", "1.txt", "2.txt"]


# Trying again, and going back


def test_only_the_task_that_failed_is_tried_again(bench: Make, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    made = bench(fan(refusing(1, flag)), CASES, {"work": "all"})
    made.run()
    assert made.counts == {"failed": 2}
    assert {cell.error for cell in made.cells()} == {"node 'work': ValueError: not yet 1"}

    flag.touch()
    retry(made.database, made.sweep_id)
    made.run()

    assert made.counts == {"succeeded": 2}
    again = {(f"work|{n}", v): 1 + (n == 1) for n in range(3) for v in ("default", "other")}
    assert attempts_of(made) == again
    assert [cell.state["found"] for cell in made.cells()] == [[1, 2, 3], [101, 102, 103]]


def test_a_sweep_that_a_limit_stops_in_the_middle_of_a_step_goes_on_with_its_other_tasks(bench: Make) -> None:
    made = bench(fan(), CASES, limits={"node_runs": 3}, run={"concurrency": 1})
    made.run()
    assert (made.status, made.executed) == ("paused", 3)

    made.run(node_runs=None)

    assert made.status == "completed"
    assert set(attempts_of(made).values()) == {1}
    assert made.executed == 6


def test_a_fork_after_the_fan_out_runs_none_of_it_again_and_one_before_it_runs_all(run_sweep: Make) -> None:
    made = run_sweep(fan(), CASES)
    origin = head_of(made)

    def forked(at: str, **variants: str) -> tuple[int, Counter[str]]:
        before = {run["id"] for run in made.node_runs}
        id, _ = add_fork(
            Context(made.database, by="ada"), origin.id, bound=made.prepared.bound, at=at, variants=variants
        )
        made.run_fork(id)
        total = execution_document(made.database, find_one(made.database, id))["state"]["sum"]
        return total, Counter(run["task"] for run in made.node_runs if run["id"] not in before)

    assert forked("work", gather="other") == (7, {"gather": 1})
    assert forked("plan", work="other") == (306, {"work|0": 1, "work|1": 1, "work|2": 1, "beside": 1, "gather": 1})


def test_going_back_to_a_node_with_several_tasks_leads_to_after_all_of_them(run_sweep: Make) -> None:
    made = run_sweep(fan(), CASES)
    origin = head_of(made)

    rollback(Context(made.database), origin.id, "work", bound=made.prepared.bound)
    executions.resume(made.database, origin.id, by="ada")
    made.run()

    assert made.counts == {"succeeded": 1}
    assert {node: len(made.ran(node)) for node in ("work", "gather")} == {"work": 3, "gather": 2}


def test_what_a_task_saved_is_found_by_that_task_alone(bench: Make, tmp_path: Path) -> None:
    flag = tmp_path / "flag"

    def work(state: Any, ctx: Any, *, k: int = 0) -> Any:
        number = number_of(ctx)
        found = ctx.saved.get("number")
        if number == 1 and found is None:
            ctx.checkpoint("half", number=number)
        if number == 1 and not flag.exists():
            raise ValueError("not yet")
        return {"found": [-1 if found is None else found]}

    made = bench(fan(work), CASES)
    made.run()
    assert made.counts == {"failed": 1}
    inside = next(row for row in made.rows(checkpoints) if row["inside"] is not None)
    assert (inside["inside"]["node"], inside["inside"]["task"]) == ("work", "work|1")

    flag.touch()
    id, _ = add_fork(Context(made.database, by="ada"), head_of(made).id, bound=made.prepared.bound, at="half")
    made.run_fork(id)

    shown = execution_document(made.database, find_one(made.database, id))
    assert shown["state"]["found"] == [-1, 1, -1]


# People


def test_a_question_of_one_task_holds_the_step_and_only_that_task_starts_again(bench: Make) -> None:
    def work(state: Any, ctx: Any, *, k: int = 0) -> Any:
        said = ctx.ask("Which?").feedback if number_of(ctx) == 1 else "-"
        return {"found": [len(said)]}

    made = bench(fan(work), CASES)
    made.run()
    assert made.counts == {"waiting": 1}
    (asked,) = questions.approval_rows(made.database, sweep_id=made.sweep_id)
    assert asked.node == "work|1"
    answer(Context(made.database, by="ada"), asked.id, "approve", feedback="three")
    made.run()

    assert made.cells()[0].state["found"] == [1, 5, 1]
    assert attempts_of(made) == {("work|0", "default"): 1, ("work|1", "default"): 2, ("work|2", "default"): 1}


def test_tasks_that_ask_the_same_words_ask_a_question_each(bench: Make) -> None:
    def work(state: Any, ctx: Any, *, k: int = 0) -> Any:
        return {"found": [int(ctx.ask("How many?").feedback) + k]}

    made = bench(fan(work), CASES, {"work": "all"})
    made.run()
    asked = questions.approval_rows(made.database, sweep_id=made.sweep_id)
    assert sorted(one.node for one in asked) == ["work|0", "work|1", "work|2"]
    for one in asked:
        answer(Context(made.database, by="ada"), one.id, "approve", feedback=one.node[-1])
    made.run()

    assert [cell.state["found"] for cell in made.cells()] == [[0, 1, 2], [100, 101, 102]]


def test_a_task_that_has_failed_for_good_asks_for_itself(bench: Make, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    made = bench(fan(refusing(2, flag)), CASES, run={"approval": "on_error"})
    made.run()
    (asked,) = questions.approval_rows(made.database, sweep_id=made.sweep_id)
    assert asked.question == "work|2 failed: ValueError: not yet 2. Try again?"

    flag.touch()
    answer(Context(made.database, by="ada"), asked.id, "approve")
    made.run()

    assert made.counts == {"succeeded": 1}
    assert attempts_of(made) == {("work|0", "default"): 1, ("work|1", "default"): 1, ("work|2", "default"): 2}


def test_a_state_that_a_person_changes_with_an_answer_runs_the_step_anew_with_what_was_said(bench: Make) -> None:
    def work(state: Any, ctx: Any, *, k: int = 0) -> Any:
        number = number_of(ctx)
        if number != 1:
            return {"found": [[state["items"][number], ctx.saved]]}
        if not ctx.saved:
            ctx.checkpoint("before", seen=state["items"])
        return {"found": [[ctx.ask("Good?", context=state["items"]).feedback, ctx.saved]]}

    made = bench(fan(work), CASES)
    made.run()
    (asked,) = questions.approval_rows(made.database, sweep_id=made.sweep_id)
    more = {"feedback": "now it is", "set": {"items": [7, 8, 9]}}
    answer(Context(made.database, by="ada"), asked.id, "modify", bound=made.prepared.bound, **more)
    made.run()

    assert made.cells()[0].state["found"] == [[7, {}], ["now it is", {"seen": [1, 2, 3]}], [9, {}]]


def test_a_task_that_is_tried_again_with_a_changed_state_is_told_what_was_said_of_it(bench: Make) -> None:
    def work(state: Any, ctx: Any, *, k: int = 0) -> Any:
        if number_of(ctx) == 2 and state["items"][2] == 3:
            raise ValueError("no three")
        return {"found": [ctx.previous and ctx.previous.feedback]}

    made = bench(fan(work), CASES, run={"approval": "on_error"})
    made.run()
    (asked,) = questions.approval_rows(made.database, sweep_id=made.sweep_id)
    more = {"feedback": "four, then", "set": {"items": [1, 2, 4]}}
    answer(Context(made.database, by="ada"), asked.id, "modify", bound=made.prepared.bound, **more)
    made.run()

    assert made.cells()[0].state["found"] == [None, None, "four, then"]


# Beginning, and what is the engine's own


def test_what_cannot_begin_fails_without_a_head_and_a_retry_begins_anew(bench: Make, tmp_path: Path) -> None:
    refuse = tmp_path / "refuse"
    refuse.touch()
    made = bench(fan(), CASES, {"work": "all"}, params={"refuse": str(refuse)})
    made.run()
    assert made.status == "completed"
    assert {cell.error for cell in made.cells()} == {"RuntimeError: case one cannot begin"}
    assert [(cell.node_runs, cell.elapsed_s) for cell in made.cells()] == [(0, 0.0), (0, 0.0)]
    assert [(row.status, row.head_id) for row in made.executions] == [("failed", None)]
    assert execution_document(made.database, head_of(made))["state"] == {}

    refuse.unlink()
    assert retry(made.database, made.sweep_id) == 2
    made.run()

    assert made.counts == {"succeeded": 2}
    assert made.executed == 1 + 6 + 1 + 2


def test_a_root_of_which_only_the_engines_part_is_damaged_begins_anew(bench: Make) -> None:
    wf = fan()
    wf.breakpoints = ("plan",)
    made = bench(wf, CASES)
    made.run()
    (paused,) = made.executions
    with made.database.write() as connection:
        damaged = values.c.digest == Value.of(0).digest
        connection.execute(values.update().where(damaged).values(data=Value.of(5).data.decode()))

    executions.resume(made.database, paused.id, by="ada")
    made.run()
    (held,) = [row for row in made.executions if row.status == "paused"]
    assert held.id != paused.id
    executions.resume(made.database, held.id, by="ada")
    made.run()

    assert made.counts == {"succeeded": 1}
    assert made.cells()[0].state["~steps"] == 3


def test_what_is_dropped_is_gone_and_what_is_the_engines_own_is_kept_and_shown_to_nobody(run_sweep: Make) -> None:
    seen: list[set[str]] = []

    def look(case: Any, result: Any) -> int:
        seen.append(set(result.state))
        return 1

    made = run_sweep(fan(), CASES, {"gather": "all"}, evaluators={"t:look": look})

    kept = {"items", "planned", "found", "beside", "sum"}
    assert [set(cell.state) for cell in made.cells()] == [{*kept, "~steps"}] * 2
    assert made.cells()[0].state["~steps"] == 3
    assert seen == [kept] * 2
    choices = queries.choices(made.database, made.sweep_id)
    documents = cell_documents(made.database, made.sweep_id)
    assert len(choices) == 2
    assert [set(one["state"]) for one in documents] == [kept] * 2
    one, other = (head_of(made, number) for number in range(2))
    shown = execution_document(made.database, one)
    assert set(shown["state"]) == kept
    assert all(not key.startswith("~") for step in shown["path"] for key in step["writes"])
    found = diff_document(made.database, trace(made.database, one), trace(made.database, other))
    told = found["state"]
    assert {*told["same"], *told["changed"], *told["only_a"], *told["only_b"]} == kept
    assert partings(made.database, [(one.id, other.id)]) == ["gather"]


def test_nobody_sets_what_is_the_engines_own(run_sweep: Make) -> None:
    made = run_sweep(fan(), CASES)

    with pytest.raises(InputError, match=sentence("key {} is the engine's own", "'~steps'")):
        add_fork(
            Context(made.database, by="ada"),
            head_of(made).id,
            bound=made.prepared.bound,
            at="plan",
            set={"~steps": 9},
        )


def test_a_workflow_may_have_breakpoints_of_its_own(bench: Make) -> None:
    wf = fan()
    wf.breakpoints = ("after work if len(found) == 3",)

    made = bench(wf, CASES)
    made.run()

    assert made.status == "paused"
    assert [row.reason for row in made.executions] == ["breakpoint after work if len(found) == 3"]


def test_breakpoints_of_a_workflow_and_those_that_are_asked_for_add_up(sqlite_url: str, monkeypatch: Any) -> None:
    wf = fan()
    wf.breakpoints = ("work",)

    run = start(wf, {"items": [1]}, breakpoints=["gather"], db=sqlite_url).wait()
    assert (run.status, run.reason) == ("paused", "breakpoint before work")
    run.resume().wait()
    assert (run.status, run.reason) == ("paused", "breakpoint before gather")
