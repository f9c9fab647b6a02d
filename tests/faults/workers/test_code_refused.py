"""Workers whose code is not what a sweep records, and code that is changed while a worker runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cluster import Cluster, Worker

CASES = 2

NODE = """
import os

from wtb import END, Workflow

wf = Workflow("coded")
HERE = os.path.dirname(os.path.abspath(__file__)) + "/"


@wf.node
def work(state, ctx, *, by: int = 0):
    with open(os.environ["LOG"], "a") as log:
        log.write(f"{os.environ['TESTED_WORKER']} {ctx.case.id} {ctx.variant}\\n")
    return {"made": "%s"}


work.variant("one", by=1)
wf.entry(work)
wf.edge(work, END)
"""
JUDGE = """
import os


def judge(case, result):
    with open(os.environ["LOG"], "a") as log:
        log.write(f"judge {case.id} %s\\n")
    return 1
"""
SWEEP = "sweep: coded\nworkflow: coded:wf\ncases: cases.jsonl\nvary: {work: all}\n"
CELLS = CASES * 2


def write_code(cluster: Cluster, output: str, folder: Path | None = None) -> None:
    path = (folder or cluster.project.folder) / "coded.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(NODE % output)


@pytest.fixture
def coded(cluster: Cluster) -> Cluster:
    write_code(cluster, "first")
    cluster.take_time()
    cluster.env["LOG"] = str(cluster.project.folder / "log")
    cluster.project.write({"sweep.yaml": SWEEP, "cases.jsonl": cluster.project.cases(CASES)})
    return cluster


def elsewhere(cluster: Cluster) -> Path:
    folder = cluster.project.folder.parent / "elsewhere"
    folder.mkdir()
    return folder


def who_worked(cluster: Cluster) -> set[str]:
    return {line.split()[0] for line in cluster.project.log()}


def outputs_of(cluster: Cluster, sweep: str) -> set[str]:
    """Return the outputs of the nodes of a sweep."""
    query = (
        "SELECT v.data FROM node_runs r JOIN \"values\" v ON v.digest = r.writes ->> 'made' "
        "WHERE r.sweep_id = :sweep AND r.status = 'succeeded'"
    )
    return {output for (output,) in cluster.query(query, sweep=sweep)}


def refused(cluster: Cluster, sweep: str, worker: Worker, why: str) -> None:
    """Wait until a worker has refused a sweep, and look where people do: events, status and log say why."""
    cluster.until(lambda: cluster.events("worker.refused", sweep), f"{worker.name} to refuse")
    event = cluster.events("worker.refused", sweep)[0]
    assert event["worker"] == worker.name
    assert why in event["reason"]
    status = cluster.wtb("status", "coded", check=0)
    words = " ".join((status.stdout + status.stderr).split())
    assert why in words
    assert worker.name in words
    assert why in " ".join(worker.log.split())


@pytest.mark.parametrize(
    ("output", "judge", "why"),
    [
        ("other", "first", "its code of work=default, work=one is not what the sweep records"),
        ("first", "other", "its code of the evaluators judge is not what the sweep records"),
    ],
    ids=["nodes", "evaluators"],
)
def test_a_worker_with_other_code_refuses_a_sweep_and_one_with_the_right_code_runs_it(
    coded: Cluster, output: str, judge: str, why: str
) -> None:
    folder = elsewhere(coded)
    write_code(coded, output, folder)
    (folder / "judging.py").write_text(JUDGE % judge)
    coded.project.write({"judging.py": JUDGE % "first", "sweep.yaml": SWEEP + 'evaluate: ["judging:judge"]\n'})
    wrong = coded.start_worker(concurrency=2, folder=folder, ready=False)
    coded.start_scheduler()
    coded.wait_ready()
    sweep = coded.submit()
    refused(coded, sweep, wrong, why)
    assert coded.cells().keys() <= {"pending", "running"}
    assert coded.project.log() == []

    coded.start_worker()
    coded.ends_well({"succeeded": CELLS})
    assert who_worked(coded) == {"w1", "judge"}
    assert {line.split()[2] for line in coded.project.log() if line.startswith("judge")} == {"first"}
    assert outputs_of(coded, sweep) == {'"first"'}


@pytest.mark.slow
def test_a_worker_in_a_folder_without_the_module_says_so_and_does_other_work(coded: Cluster) -> None:
    folder = elsewhere(coded)
    (folder / "only.py").write_text(NODE.replace('"coded"', '"only"') % "only")
    coded.project.write({"only.py": (folder / "only.py").read_text(), "only.yaml": SWEEP.replace("coded", "only")})
    without = coded.start_worker(concurrency=2, folder=folder, ready=False)
    coded.start_scheduler()
    coded.wait_ready()
    sweep = coded.submit()
    refused(coded, sweep, without, "coded")
    only = coded.submit("only.yaml")
    coded.wait_completed(only)
    assert coded.sweeps()[sweep] != "completed"
    assert who_worked(coded) == {"w0"}

    coded.start_worker()
    coded.ends_well({"succeeded": 2 * CELLS})
    assert outputs_of(coded, sweep) == {'"first"'}


@pytest.mark.slow
def test_a_worker_takes_code_that_was_changed_after_it_had_imported_it(coded: Cluster) -> None:
    """Of nodes, a new variant, and an evaluator alone."""
    coded.project.write({"sweep.yaml": SWEEP + 'evaluate: ["judging:judge"]\n', "judging.py": JUDGE % "old"})
    worker = coded.start_worker(concurrency=2, ready=False)
    coded.start_scheduler()
    coded.wait_ready()

    def run() -> set[str]:
        sweep = coded.submit()
        coded.wait_completed(sweep)
        return outputs_of(coded, sweep)

    def judges() -> set[str]:
        return {line.split()[2] for line in coded.project.log() if line.startswith("judge")}

    assert (run(), judges()) == ({'"first"'}, {"old"})
    write_code(coded, "second")
    assert run() == {'"second"'}
    coded.project.write({"log": "", "judging.py": JUDGE % "new"})
    assert (run(), judges()) == ({'"second"'}, {"new"})
    coded.project.write({"coded.py": (NODE % "third") + 'work.variant("two", by=2)\n'})
    assert run() == {'"third"'}
    assert coded.events("worker.refused") == []
    assert worker.lives
    coded.ends_well({"succeeded": 3 * CELLS + 3 * CASES})


@pytest.mark.slow
def test_code_that_is_changed_while_its_sweep_runs_is_not_mixed_in(coded: Cluster) -> None:
    """The rest of the sweep waits for a worker with the code that it records, and runs when that is there again."""
    coded.start_worker(ready=False)
    coded.start_scheduler()
    coded.wait_ready()
    sweep = coded.submit()
    coded.wait_completed(sweep)
    second = coded.submit()
    write_code(coded, "changed")
    third = coded.submit()
    coded.wait_completed(third)
    write_code(coded, "first")
    coded.start_worker()
    coded.ends_well({"succeeded": 3 * CELLS})
    assert outputs_of(coded, second) == {'"first"'}
    assert outputs_of(coded, third) == {'"changed"'}


WRITING = NODE.replace("    with open", "    save(CACHE, os.urandom(8).hex())\n    with open").replace(
    "\n\n@wf.node",
    """
CACHE = HERE + "cache.json"


def save(path, text):
    with open(path, "w") as file:
        file.write(text)


@wf.node""",
)


def test_workers_refuse_no_sweep_for_a_file_that_its_nodes_write(coded: Cluster) -> None:
    """Two workers write it at the same time, and start node processes all the time."""
    run = "run: {recycle: {runs: 1}}\n"
    coded.project.write({"coded.py": WRITING % "first", "cache.json": "{}", "sweep.yaml": SWEEP + run})
    coded.start_two()

    first, second = coded.submit(), coded.submit()  # code of the second is described while the first one writes
    coded.wait_completed(first, second)
    third = coded.submit()
    coded.ends_well({"succeeded": 3 * CELLS})

    assert coded.events("worker.refused") == []
    for sweep in (first, third):
        (spec,) = [spec for (spec,) in coded.query("SELECT spec FROM sweeps WHERE id = :sweep", sweep=sweep)]
        assert spec["code"]["written"] == {"file cache.json": "work"}
