"""With `durability: sync`, user code starts only after everything that it depends on is committed."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest

from tests.support.flows import connect_diamond
from wtb import Context
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END
from wtb.core.values import Value
from wtb.execution.engine.protocol import Task
from wtb.store.database import Database
from wtb.store.runs.batch import Batch
from wtb.store.runs.flush import flush
from wtb.store.tables.schema import checkpoints, executions

Make = Callable[..., Any]
CASES = [{"id": str(x), "input": {"x": x, "log": []}} for x in range(3)]


class State(TypedDict, total=False):
    x: int
    log: Annotated[list[str], operator.add]


def diamond() -> Workflow:
    """a, then b and c in one step, then d; a, b and d have two variants, and b fails once under one of them."""
    wf = Workflow("diamond", state=State)

    def named(name: str, fails: bool = False) -> None:
        def work(state: State, ctx: Context, *, k: int = 0) -> dict[str, Any]:
            if fails and k and ctx.attempt == 1:
                raise ValueError("the first attempt")
            return {"log": [f"{name}{k}"]}

        wf.node(work, name=name, retries=1, backoff=0.0)
        if name != "c":
            wf.nodes[name].variant("other", k=1)

    for name in "abcd":
        named(name, fails=name == "b")
    connect_diamond(wf)
    return wf


def chain() -> Workflow:
    """Three nodes, one after the other."""
    wf = Workflow("chain", state=State)
    for name in "abc":
        wf.node(lambda state: {"log": ["done"]}, name=name)
    wf.entry("a")
    for source, target in (("a", "b"), ("b", "c"), ("c", END)):
        wf.edge(source, target)
    return wf


class Committed:
    """The records that must be in the database when an attempt or an evaluator starts."""

    def __init__(self) -> None:
        self.sweep: Any = None
        self.attempts: Counter[tuple[str, int]] = Counter()
        self.evaluated = 0
        self.missing: list[str] = []

    def check_attempt(self, task: Task) -> None:
        rows = {row["id"]: row for row in self.sweep.rows(checkpoints)}
        runs = self.sweep.node_runs
        (head,) = [row["head_id"] for row in self.sweep.rows(executions) if row["id"] == task.execution]
        mine = {"checkpoint_id": head, "node": task.node, "variant": task.variant, "status": "running"}
        if not any(mine | {"attempts": task.attempt} == {key: run[key] for key in (*mine, "attempts")} for run in runs):
            self.missing.append(f"the start of attempt {task.attempt} of {task.node} {task.variant}")
        if rows.get(head, {"position": {}})["position"].get("step") != task.position.step:
            self.missing.append(f"the checkpoint before {task.node} {task.variant}")
        ended = {(run["checkpoint_id"], run["node"]) for run in runs if run["status"] == "succeeded"}
        while head in rows and (parent := rows[head]["parent_id"]) is not None:
            for writer in rows[head]["writers"]:
                if (parent, writer[0]) not in ended:
                    self.missing.append(f"the end of {writer[0]} before {task.node} {task.variant}")
            head = parent
        self.attempts[task.node, task.attempt] += 1

    def check_evaluator(self, case: Any, result: Any) -> bool:
        log = Value.of(result.state["log"]).digest
        if not any(row["state"].get("log") == log for row in self.sweep.rows(checkpoints)):
            self.missing.append(f"the checkpoint that ends with {result.state['log']}")
        self.evaluated += 1
        return True


def test_given_sync_then_user_code_begins_once_all_that_it_depends_on_is_committed(
    bench: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = Committed()
    begin = Task.report_start

    def report_start(task: Task) -> None:
        begin(task)
        committed.check_attempt(task)

    monkeypatch.setattr(Task, "report_start", report_start)
    committed.sweep = bench(
        diamond(),
        CASES,
        {"a": "all", "b": "all", "d": "all"},
        evaluators={"kept": committed.check_evaluator},
        run={"durability": "sync", "concurrency": 8, "pool": "thread"},
    )

    assert committed.sweep.run().status == "completed"

    assert committed.missing == []
    # Two starts of a, each followed by two of b, one of them twice, and one of c, and by two of d under each b.
    runs = {("a", 1): 2, ("b", 1): 4, ("b", 2): 2, ("c", 1): 2, ("d", 1): 8}
    assert committed.attempts == {key: len(CASES) * count for key, count in runs.items()}
    assert committed.evaluated == len(CASES) * 8


def test_given_sync_then_the_end_of_a_step_shares_its_commit_with_the_start_of_the_next_one(
    bench: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits: list[int] = []

    def counted(database: Database, batch: Batch, *rest: Any) -> set[str]:
        commits.append(batch.size)
        return flush(database, batch, *rest)

    monkeypatch.setattr("wtb.execution.runtime.sweep_context.flush", counted)
    monkeypatch.setattr("wtb.execution.journal.GROUP_S", 3600.0)
    sweep = bench(chain(), [CASES[0]], run={"durability": "sync", "concurrency": 1, "pool": "thread"})

    assert sweep.run().status == "completed"

    assert len(commits) == 4  # as each of three nodes begins, and at the end
