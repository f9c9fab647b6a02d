"""Ctrl-C, kill -9, resume and retry: nothing committed runs again, and every cell gets one outcome."""

from __future__ import annotations

import os
import signal
import socket
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.support.invariants import events_by_kind
from tests.support.prose import sentence

if TYPE_CHECKING:
    from tests.support.project import Outcome, Project

# Each node run appends a line when it starts. b waits for the file `gate`, where there is a file `gated`;
# with `held`, only for that case.
STEPS = """
import os
import time

from wtb import END, Workflow, evaluator

wf = Workflow("steps")
HERE = os.path.dirname(__file__) + "/"


def start(ctx, state, seconds=0.0):
    with open(HERE + "log", "a") as log:
        log.write(f"{ctx.node}={ctx.variant} of {ctx.case.id} after {state.get('b')}\\n")
    time.sleep(seconds)


@wf.node
def a(state, ctx):
    start(ctx, state, ctx.params.get("seconds", 0.0))
    return {"a": 1}


@wf.node
def b(state, ctx, *, by: int = 0):
    start(ctx, state, ctx.params.get("seconds", 0.0))
    held = ctx.case.id in ctx.params.get("held", ctx.case.id)
    while held and os.path.exists(HERE + "gated") and not os.path.exists(HERE + "gate"):
        time.sleep(0.01)
    return {"b": by}


b.variant("one", by=1)


@wf.node
def c(state, ctx, *, to: int = 0):
    start(ctx, state, ctx.params.get("seconds", 0.0))
    return {"c": state["b"] + to}


c.variant("ten", to=10)

wf.entry(a)
wf.edge(a, b)
wf.edge(b, c)
wf.edge(c, END)


@evaluator(better="higher")
def value(case, result):
    return result.state["c"]
"""
SWEEP = """
sweep: steps
workflow: steps:wf
cases: cases.jsonl
vary: {b: all, c: all}
evaluate: ["steps:value"]
run: {concurrency: 2}
"""
A_CASE = 1 + 2 + 4  # node runs


@pytest.fixture
def steps(empty_project: Project) -> Project:
    empty_project.write({"steps.py": STEPS, "cases.jsonl": empty_project.cases(4), "sweep.yaml": SWEEP})
    return empty_project


@pytest.fixture
def gated(steps: Project) -> Project:
    """Node b waits until the file `gate` is there."""
    steps.write({"gated": ""})
    return steps


def both_slots_at_b(project: Project) -> None:
    """Wait until two node runs of b wait for the gate, of one case or of two, and the database knows it."""
    project.until(lambda: sum(line.startswith("b=") for line in project.log()) == 2, "both slots to be in node b")
    project.until(
        lambda: project.query("SELECT count(*) FROM node_runs") == [(len(project.log()),)], "the database to know"
    )


def outcomes_are_consistent(project: Project, cases: int) -> None:
    """Every cell has succeeded once, and the events say the same as the tables."""
    assert project.query("SELECT status, count(*) FROM cells GROUP BY status") == [("succeeded", 4 * cases)]
    assert project.query("SELECT status FROM sweeps") == [("completed",)]
    assert project.query("SELECT status, count(*) FROM node_runs GROUP BY status") == [("succeeded", A_CASE * cases)]
    assert project.query("SELECT count(*) FROM executions WHERE status NOT IN ('completed', 'forked')") == [(0,)]
    assert project.query("SELECT count(*) FROM scores") == [(4 * cases,)]
    kinds = events_by_kind(project)
    assert kinds["cell.succeeded"] == 4 * cases
    assert kinds["node_run.succeeded"] == A_CASE * cases
    assert kinds["execution.completed"] == 4 * cases
    assert kinds["sweep.submitted"] == kinds["sweep.completed"] == 1
    assert kinds["checkpoint.created"] == A_CASE * cases


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_the_first_signal_lets_running_nodes_finish_and_resume_completes(
    gated: Project, number: signal.Signals
) -> None:
    with gated.start("run", "sweep.yaml", "--format", "json") as running:
        both_slots_at_b(gated)
        started = gated.log()
        running.signal(number)
        gated.until(lambda: "stopping: running nodes have 10 s" in running.stderr, "the command to say that it stops")
        assert running.process.poll() is None
        gated.write({"gate": ""})
        done = running.wait(check=130)
    assert done.json["sweep"]["status"] == "paused"
    assert sentence("paused ({}); continue with: wtb resume {}", "interrupted", done.json["sweep"]["id"]) in done.output
    assert "left behind" not in done.stderr
    assert gated.log() == started
    assert done.json["node_runs"]["executed"] == done.json["node_runs"]["attempts"] == len(started)

    resumed = gated.inside("resume", "steps", "--format", "json", check=0)
    assert resumed.json["node_runs"]["executed"] == resumed.json["node_runs"]["attempts"] == 4 * A_CASE
    assert len(gated.log()) == len(set(gated.log())) == 4 * A_CASE
    outcomes_are_consistent(gated, 4)


def test_nodes_that_continue_are_ended_after_the_grace(gated: Project) -> None:
    gated.write({"sweep.yaml": SWEEP.replace("concurrency: 2", "concurrency: 2, grace: 300ms")})
    with gated.start("run", "sweep.yaml", "--format", "json") as running:
        both_slots_at_b(gated)
        ran = gated.node_processes()
        running.signal(signal.SIGINT)
        done = running.wait(check=130, timeout=30)
    assert len(ran) >= 2
    assert not gated.node_processes()
    assert sentence("running nodes have {} s to finish", "0.3") in done.output
    assert "left behind" not in done.output
    # Nobody's fault: neither a failed attempt nor a step towards being set aside.
    assert done.json["cells"]["failed"] == done.json["cells"]["set_aside"] == 0
    assert gated.query("SELECT max(kills) FROM executions") == [(0,)]
    assert gated.query("SELECT * FROM attempts WHERE status = 'failed'") == []
    query = "SELECT count(*) FROM node_runs WHERE status <> 'succeeded' AND begun_at IS NOT NULL"
    assert gated.query(query) == [(2,)]  # no more is known of their first attempts


def test_on_threads_nodes_that_continue_are_left_behind_after_the_grace(gated: Project) -> None:
    gated.write({"sweep.yaml": SWEEP.replace("concurrency: 2", "concurrency: 2, pool: thread, grace: 300ms")})
    with gated.start("run", "sweep.yaml") as running:
        both_slots_at_b(gated)
        running.signal(signal.SIGINT)
        done = running.wait(check=130, timeout=30)
    assert sentence("running nodes have {} s to finish", "0.3") in done.output
    assert sentence("{} node(s) did not stop in time and were left behind", 2) in done.output


@pytest.mark.parametrize("pool", ["process", "thread"])
def test_the_second_signal_stops_at_once_and_what_was_in_flight_runs_again(gated: Project, pool: str) -> None:
    gated.write({"sweep.yaml": SWEEP.replace("concurrency: 2", f"concurrency: 2, pool: {pool}, grace: 10m")})
    with gated.start("run", "sweep.yaml", "--format", "json") as running:
        both_slots_at_b(gated)
        running.signal(signal.SIGINT)
        gated.until(lambda: "Ctrl-C again to stop at once" in running.stderr, "the command to say that it stops")
        running.signal(signal.SIGINT)
        done = running.wait(check=130)  # long before the grace that the first one gives is over
    assert sentence("continue with: wtb resume {}", done.json["sweep"]["id"]) in done.output
    left_behind = "2 node(s) did not stop in time and were left behind" in done.output
    assert left_behind == (pool == "thread")
    assert not gated.node_processes()
    in_flight = [line for line in gated.log() if line.startswith("b=")]

    gated.write({"gate": ""})
    resumed = gated.inside("resume", "steps", "--format", "json", check=0)
    assert resumed.json["node_runs"]["executed"] == 4 * A_CASE
    assert resumed.json["node_runs"]["attempts"] == 4 * A_CASE + 2
    assert Counter(gated.log()) == Counter({*gated.log()}) + Counter(in_flight)
    outcomes_are_consistent(gated, 4)


@pytest.mark.parametrize("durability", [pytest.param("sync", marks=pytest.mark.slow), "20ms"])
def test_after_kill_9_resume_continues_at_once_from_what_was_committed(
    gated: Project, database_url: str, durability: str
) -> None:
    gated.url = database_url
    slots, cases = 4, 6
    run = f"params: {{seconds: 0.02, held: c5}}\nrun: {{concurrency: {slots}, durability: {durability}}}\n"
    gated.write({"sweep.yaml": SWEEP.replace("run: {concurrency: 2}\n", run), "cases.jsonl": gated.cases(cases)})
    with gated.start("run", "sweep.yaml") as running:
        gated.until(lambda: _count(gated, "cells", "succeeded") >= 6, "six cells to be committed")
        running.signal(signal.SIGKILL)
        running.wait(check=-signal.SIGKILL)
    gated.until(lambda: not gated.node_processes(), "the node processes to follow their runner")
    committed = _count(gated, "node_runs", "succeeded")
    outcomes = gated.query("SELECT case_number, combination, finished_at FROM cells WHERE status = 'succeeded'")
    assert 6 <= len(outcomes) <= 4 * (cases - 1)  # c5 is held, so it was killed on its way
    before = Counter(gated.log())
    assert max(before.values()) == 1

    gated.write({"gate": ""})
    resumed = gated.inside("resume", "steps", "--format", "json", check=0)
    assert resumed.json["cells"]["succeeded"] == 4 * cases
    assert resumed.json["node_runs"]["executed"] == A_CASE * cases
    outcomes_are_consistent(gated, cases)
    after = Counter(gated.log())
    assert len(after) == A_CASE * cases
    # Committed node runs did not run again, and kept their outcome.
    assert after.total() == A_CASE * cases + len(before) - committed
    if durability == "sync":
        assert len(before) - committed <= slots
    # An attempt whose start was committed may have been killed before it said so itself.
    assert resumed.json["node_runs"]["attempts"] <= after.total() + slots
    now = gated.query("SELECT case_number, combination, finished_at FROM cells WHERE status = 'succeeded'")
    assert set(outcomes) <= set(now)
    assert gated.query("SELECT kind FROM events WHERE kind LIKE 'sweep.%' ORDER BY id") == [
        ("sweep.submitted",), ("sweep.running",), ("sweep.paused",), ("sweep.running",), ("sweep.completed",)
    ]  # fmt: skip


def _count(project: Project, table: str, status: str) -> int:
    rows = project.query(f"SELECT count(*) FROM {table} WHERE status = :status", status=status)
    return int(rows[0][0]) if rows else 0


def test_a_process_that_died_but_was_not_reaped_owns_nothing(gated: Project) -> None:
    with gated.start("run", "sweep.yaml", own=True) as running:
        both_slots_at_b(gated)
        os.kill(running.pid, signal.SIGKILL)
        os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOWAIT)  # dead, and a zombie from now on
        gated.write({"gate": ""})
        gated.inside("resume", "steps", check=0)
    outcomes_are_consistent(gated, 4)


@pytest.mark.parametrize("command", [["resume"], ["resume", "--allow-code-change"], ["retry"]], ids=" ".join)
def test_a_sweep_with_a_live_owner_is_refused_naming_it(gated: Project, command: list[str]) -> None:
    with gated.start("run", "sweep.yaml", "--format", "json") as running:
        both_slots_at_b(gated)
        gated.write({"steps.py": STEPS.replace('{"c": state["b"] + to}', '{"c": state["b"] + to + 0}')})
        events = gated.query("SELECT count(*) FROM events")
        recorded = gated.query("SELECT fingerprints FROM sweeps")
        refused = gated.inside(command[0], "steps", *command[1:])
        assert (refused.code, refused.stdout) == (2, "")
        assert (
            sentence("process {} on {} is running {}; stop that process first", running.pid, socket.gethostname(), "it")
            in refused.output
        )
        assert gated.query("SELECT count(*) FROM events") == events
        assert gated.query("SELECT fingerprints FROM sweeps") == recorded
        gated.write({"gate": ""})
        running.wait(check=0)
    assert len(gated.log()) == len(set(gated.log())) == 4 * A_CASE


class TestChangedCode:
    """One slot, paused when two of the cells of the first case are done: b is behind, c is ahead."""

    @pytest.fixture
    def paused(self, steps: Project) -> Project:
        sweep = SWEEP.replace("b: all, ", "").replace("concurrency: 2", "concurrency: 1")
        steps.write({"sweep.yaml": sweep + "limits: {node_runs: 6}\n", "cases.jsonl": steps.cases(2)})
        done = steps.inside("run", "sweep.yaml", "--format", "json", check=1)
        assert done.json["cells"]["succeeded"] == 2
        ran = "a=default b=default c=default c=ten a=default b=default"
        assert " ".join(line.split()[0] for line in steps.log()) == ran
        return steps

    def resume(self, project: Project, *args: str) -> Outcome:
        return project.inside("resume", "steps", "--limits", "node_runs=99", "--format", "json", *args)

    def test_of_a_node_yet_to_run_is_refused(self, paused: Project) -> None:
        paused.write({"steps.py": STEPS.replace('{"c": state["b"] + to}', '{"c": state["b"] + to + 100}')})
        done = self.resume(paused)
        assert (done.code, done.stdout) == (2, "")
        assert sentence("the code of {} has changed since it was submitted", "c=default, c=ten") in done.output
        assert "--allow-code-change" in done.output
        assert len(paused.log()) == 6
        assert paused.query("SELECT status FROM sweeps") == [("paused",)]

    def test_and_accepted_where_told_so_with_a_warning_in_the_matrix(self, paused: Project) -> None:
        paused.write({"steps.py": STEPS.replace('{"c": state["b"] + to}', '{"c": state["b"] + to + 100}')})
        done = self.resume(paused, "--allow-code-change")
        assert done.code == 0
        assert done.json["warnings"] == [
            sentence("mixed code: results of {} come from more than one version of it", "c=default, c=ten")
        ]
        assert [row["metrics"]["value"]["mean"] for row in done.json["rows"]] == [(0 + 100) / 2, (10 + 110) / 2]
        assert "mixed code" in paused.text("matrix", "steps")

    def test_only_of_nodes_that_all_have_passed_is_accepted(self, paused: Project) -> None:
        paused.write({"steps.py": STEPS.replace('return {"b": by}', 'return {"b": by + 100}')})
        done = self.resume(paused)
        assert done.code == 0, done.stderr
        assert done.json["warnings"] == []
        assert len(paused.log()) == len(set(paused.log())) == 8
        assert [row["metrics"]["value"]["mean"] for row in done.json["rows"]] == [0, 10]

    def test_and_nothing_is_said_where_only_the_layout_of_the_file_changed(self, paused: Project) -> None:
        paused.write({"steps.py": "# A comment.\n\n" + STEPS})
        assert self.resume(paused).code == 0


BROKEN = STEPS.replace('{"c": state["b"] + to}', '{"c": state["b"] + to + 0 // (ctx.case.id != "c1" or to != 10)}')


class TestRetry:
    """The variant c=ten fails for case c1: two of sixteen cells."""

    @pytest.fixture
    def failed(self, steps: Project, database_url: str) -> Project:
        steps.url = database_url
        steps.write({"steps.py": BROKEN})
        done = steps.inside("run", "sweep.yaml", "--format", "json", check=1)
        assert (done.json["cells"]["failed"], done.json["cells"]["succeeded"]) == (2, 14)
        assert done.json["node_runs"]["executed"] == 4 * A_CASE - 2
        assert done.json["node_runs"]["attempts"] == 4 * A_CASE
        return steps

    def test_after_a_fix_only_failed_cells_run_from_their_last_good_checkpoint(self, failed: Project) -> None:
        ran = failed.log()
        failed.write({"steps.py": STEPS})
        done = failed.inside("retry", "steps", "--failed", "--format", "json", check=0)
        assert "2 cells again" in done.output
        assert sentence("the code of {}=", "c") in done.output
        retried = failed.log()[len(ran) :]
        assert sorted(retried) == ["c=ten of c1 after 0", "c=ten of c1 after 1"]
        assert (done.json["cells"]["failed"], done.json["cells"]["succeeded"]) == (0, 16)
        assert done.json["node_runs"]["executed"] == 4 * A_CASE
        assert done.json["node_runs"]["attempts"] == 4 * A_CASE + 2
        assert done.json["node_runs"]["unshared"] == 16 * 3
        counts = {"executed": 4, "unshared": 16, "attempts": 4, "lag_s": {"default": None}}
        assert done.json["node_runs"]["by_node"]["a"] == counts
        assert any(sentence("mixed code: results of {}", "c=ten") in warning for warning in done.json["warnings"])
        assert [row["metrics"]["value"]["mean"] for row in done.json["rows"]] == [0, 10, 1, 11]
        assert failed.query("SELECT status, count(*) FROM cells GROUP BY status") == [("succeeded", 16)]

    def test_what_is_still_broken_fails_again_and_nothing_else_runs(self, failed: Project) -> None:
        ran = failed.log()
        done = failed.inside("retry", "steps", "--format", "json", check=1)
        assert len(failed.log()) == len(ran) + 2
        assert (done.json["cells"]["failed"], done.json["cells"]["succeeded"]) == (2, 14)
        assert done.json["node_runs"]["executed"] == 4 * A_CASE - 2
        assert done.json["node_runs"]["attempts"] == 4 * A_CASE + 2
        assert not any("mixed code" in warning for warning in done.json["warnings"])

    def test_a_retry_that_was_killed_can_be_resumed(self, failed: Project) -> None:
        failed.write({"steps.py": STEPS.replace('"c": state', '"c": hold() or state') + HOLD, "gated": ""})
        before = len(failed.log())
        with failed.start("retry", "steps", "--failed") as running:
            failed.until(lambda: len(failed.log()) == before + 2, "both cells to run again")
            running.signal(signal.SIGKILL)
            running.wait(check=-signal.SIGKILL)
        failed.write({"gate": ""})
        done = failed.inside("resume", "steps", "--format", "json", check=0)
        assert (done.json["cells"]["failed"], done.json["cells"]["succeeded"]) == (0, 16)
        assert len(failed.log()) == before + 4

    def test_a_retry_that_was_killed_before_it_began_can_be_resumed(self, failed: Project) -> None:
        from wtb.store.control.forks import retry
        from wtb.store.database import Database

        failed.write({"steps.py": STEPS})
        database = Database(str(failed.url))
        ((sweep_id,),) = failed.query("SELECT id FROM sweeps")
        assert retry(database, sweep_id) == 2
        database.close()
        done = failed.inside("resume", "steps", "--allow-code-change", "--format", "json", check=0)
        assert (done.json["cells"]["failed"], done.json["cells"]["succeeded"]) == (0, 16)


HOLD = """

def hold():
    while os.path.exists(HERE + "gated") and not os.path.exists(HERE + "gate"):
        time.sleep(0.01)
"""


def test_a_pause_before_the_next_attempt_is_not_waited_out_nor_the_attempt_counted(steps: Project) -> None:
    code = """
import os
from wtb import END, Workflow
wf = Workflow("flaky")
HERE = os.path.dirname(__file__)
@wf.node(retries=3, backoff=60.0)
def flaky(state):
    if not os.path.exists(HERE + "/well"):
        raise ConnectionError("nobody there")
wf.entry(flaky)
wf.edge(flaky, END)
"""
    spec = "sweep: flaky\nworkflow: flaky:wf\ncases: cases.jsonl\nvary: {flaky: all}\n"
    steps.write({"flaky.py": code, "sweep.yaml": spec, "cases.jsonl": steps.cases(1)})
    with steps.start("run", "sweep.yaml", "--format", "json") as running:
        failed = "SELECT data FROM events WHERE kind = 'attempt.failed'"
        steps.until(lambda: steps.query(failed), "the first attempt to have failed")
        running.signal(signal.SIGINT)
        done = running.wait(check=130, timeout=30)
    assert done.json["node_runs"]["attempts"] == 1
    assert "left behind" not in done.stderr
    steps.write({"well": ""})
    resumed = steps.inside("resume", "flaky", "--format", "json", check=0)
    assert (resumed.json["node_runs"]["executed"], resumed.json["node_runs"]["attempts"]) == (1, 2)


def test_an_interrupted_sweep_says_so_in_its_matrix(gated: Project) -> None:
    with gated.start("run", "sweep.yaml", "--quiet") as running:
        both_slots_at_b(gated)
        running.signal(signal.SIGINT)
        gated.write({"gate": ""})
        running.wait(check=130)
    assert sentence("{} cells have no outcome yet: the sweep is {}", 16, "paused (interrupted)") in " ".join(
        gated.text("matrix", "steps").split()
    )
