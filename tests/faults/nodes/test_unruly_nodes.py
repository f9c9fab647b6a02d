"""Faults 19 to 21: nodes that ignore signals, fork daemons or bombs, and eat memory. Only their own cells fail."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import psutil
import pytest

from tests.support.attempts import ATTEMPTS
from tests.support.invariants import invariants_hold, lives, nothing_is_left, processes_left
from tests.support.project import Project
from tests.support.prose import sentence

# What a node does is chosen by its variant; each notes the processes that it makes.
FLOW = """
import os
import signal
import sys
import time

from wtb import END, Workflow

wf = Workflow("unruly")
HERE = os.path.dirname(os.path.abspath(__file__)) + "/"


def note(word):
    with open(HERE + "log", "a") as log:
        log.write(f"{word} {os.getpid()}\\n")


@wf.node
def work(state, ctx):
    return {"y": state["x"]}


@work.variant("deaf")
def deaf(state, ctx):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    note("deaf")
    end = time.monotonic() + 600
    while time.monotonic() < end:
        try:
            time.sleep(1)
        except BaseException:
            pass
    return {"y": -1}


@work.variant("daemon")
def daemon(state, ctx):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            note("daemon")
            os.closerange(0, 3)
            os.execve("/bin/sleep", ["sleep", "600"], {})  # without the tag in its environment
        os._exit(0)
    while "daemon" not in open(HERE + "log").read():
        time.sleep(0.005)
    return {"y": state["x"]}


@work.variant("orphan")
def orphan(state, ctx):
    keeper, before = os.getppid(), open(HERE + "log").read().count("orphan")
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            note("orphan")
            os.chdir("/")
            os.closerange(0, 256)
            os.execve("/bin/sleep", ["sleep", "600"], {})  # nothing of ours in its environment
        os._exit(0)
    while open(HERE + "log").read().count("orphan") == before:
        time.sleep(0.005)
    if ctx.params.get("runner_too"):
        note("waiting")
        while not os.path.exists(HERE + "gate"):
            time.sleep(0.005)
    os.kill(keeper, signal.SIGKILL)
    time.sleep(600)


@work.variant("twin")
def twin(state, ctx):
    os.fork()  # both go on as if they were the node
    return {"y": state["x"]}


@work.variant("bomb")
def bomb(state, ctx):
    note("bomb")
    for _ in range(200):  # bounded, whatever becomes of the limit
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
    time.sleep(20)
    return {"y": -1}


@work.variant("hog")
def hog(state, ctx):
    note("hog")
    eaten = bytearray(4 << 30)
    return {"y": len(eaten)}


@work.variant("spread_hog")
def spread_hog(state, ctx):
    note("spread_hog")
    eaten = []
    while True:
        eaten.append(bytearray(16 << 20))


@work.variant("open_files")
def open_files(state, ctx):
    kept = [open("/dev/null") for _ in range(10_000)]
    return {"y": len(kept)}


@work.variant("big_file")
def big_file(state, ctx):
    (ctx.workspace / "big").write_bytes(bytes(64 << 20))
    return {"y": -1}


@work.variant("leave")
def leave(state, ctx):
    os._exit(0)


@work.variant("interrupt")
def interrupt(state, ctx):
    raise KeyboardInterrupt


wf.entry(work)
wf.edge(work, END)
"""


def sweep_of(project: Project, *variants: str, run: str = "concurrency: 2") -> None:
    project.write({"log": "", "unruly.py": FLOW, "cases.jsonl": project.cases(1)})
    spec = "sweep: unruly\nworkflow: unruly:wf\ncases: cases.jsonl\n"
    project.write({"sweep.yaml": f"{spec}vary: {{work: [default, {', '.join(variants)}]}}\nrun: {{{run}}}\n"})


def failures(project: Project) -> dict[str, tuple[str, str]]:
    """Variant -> (status, failure) of cells that did not succeed."""
    return {variant: (status, str(failure)) for variant, status, failure in project.failures()}


def pids(project: Project, word: str) -> list[int]:
    return [int(line.split()[1]) for line in project.log() if line.startswith(f"{word} ")]


def test_a_node_that_ignores_sigterm_is_ended_when_the_grace_of_its_runner_is_over(empty_project: Project) -> None:
    project = empty_project
    sweep_of(project, "deaf", run="concurrency: 2, grace: 200ms")
    with project.start("run", "sweep.yaml", "--quiet") as running:
        project.until(lambda: pids(project, "deaf"), "the node to be deaf")
        start = time.monotonic()
        running.signal(signal.SIGTERM)
        running.wait(check=130, timeout=20)
        assert time.monotonic() - start < 8
    assert not [pid for pid in pids(project, "deaf") if lives(pid)]
    assert project.query("SELECT status FROM sweeps") == [("paused",)]
    assert project.query("SELECT count(*) FROM cells WHERE status = 'failed'") == [(0,)]
    nothing_is_left(project)


def test_a_daemon_does_not_outlive_the_sweep_and_a_fork_of_a_node_does_not_answer_for_it(project: Project) -> None:
    sweep_of(project, "daemon", "twin")
    project.wtb("run", "sweep.yaml", "--quiet", check=0)
    (daemon,) = pids(project, "daemon")
    assert not lives(daemon)
    invariants_hold(project, {"succeeded": 3})
    assert project.query(f"SELECT count(*) FROM {ATTEMPTS}") == [(3,)]


def test_what_a_node_started_with_an_empty_environment_ends_although_it_killed_its_keeper(project: Project) -> None:
    sweep_of(project, "orphan", run="concurrency: 2, set_aside_after: 2")
    project.wtb("run", "sweep.yaml", "--quiet", check=1)
    ((status, failure),) = failures(project).values()
    assert status == "set_aside"
    assert sentence("together with its reaper") in failure
    orphans = pids(project, "orphan")
    assert len(orphans) == 2
    assert not [pid for pid in orphans if lives(pid)]
    invariants_hold(project, {"succeeded": 1, "set_aside": 1})


def test_what_is_left_of_a_node_without_keeper_and_runner_is_ended_by_the_next_run(empty_project: Project) -> None:
    project = empty_project
    sweep_of(project, "orphan", run="concurrency: 2, set_aside_after: 1")
    with (project.folder / "sweep.yaml").open("a") as file:
        file.write("params: {runner_too: true}\n")
    with project.start("run", "sweep.yaml", "--quiet") as running:
        project.until(lambda: pids(project, "waiting"), "the node to wait")
        (orphan,), (node,) = pids(project, "orphan"), pids(project, "waiting")
        keeper = psutil.Process(node).ppid()
        running.signal(signal.SIGSTOP)  # so that it does not see its keeper die
        os.kill(keeper, signal.SIGKILL)
        running.signal(signal.SIGKILL)
        running.wait(check=-signal.SIGKILL)
    assert lives(orphan)
    bystander = subprocess.Popen(["/bin/sleep", "600"], env={}, start_new_session=True)
    try:
        project.write({"gate": ""})
        project.inside("resume", "unruly")
        assert not lives(orphan)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_nodes_over_their_limits_fail_alone_and_say_why(empty_project: Project) -> None:
    project = empty_project
    limits = "memory: 600MB, files: 64, file_size: 8MB, processes: 20"
    variants = ("hog", "spread_hog", "open_files", "big_file", "leave", "interrupt", "bomb")
    sweep_of(project, *variants, run=f"concurrency: 2, set_aside_after: 2, rlimits: {{{limits}}}")
    done = project.wtb("run", "sweep.yaml", "--quiet")
    reports = failures(project)
    assert reports.keys() == {*variants}, done.stderr
    assert done.code == 1
    for variant in ("hog", "spread_hog"):
        assert "MemoryError" in reports[variant][1] or "killed" in reports[variant][1], variant
    assert "Too many open files" in reports["open_files"][1]
    assert "File too large" in reports["big_file"][1]
    assert "exit code 0" in reports["leave"][1]
    assert reports["bomb"][0] == "set_aside"
    assert sentence("more than run.rlimits.processes allows") in reports["bomb"][1]
    assert len(pids(project, "bomb")) == 2
    assert not any(map(lives, pids(project, "bomb")))
    aside = sum(status == "set_aside" for status, _ in reports.values())
    outcomes = {"succeeded": 1, "failed": len(variants) - aside, "set_aside": aside}
    invariants_hold(project, {name: count for name, count in outcomes.items() if count})


@pytest.mark.parametrize("variant", ["bomb", pytest.param("deaf", marks=pytest.mark.slow), "daemon"])
def test_what_unruly_nodes_started_dies_with_a_killed_runner(empty_project: Project, variant: str) -> None:
    project = empty_project
    sweep_of(project, variant, "deaf" if variant == "daemon" else "twin", run="concurrency: 2")
    with project.start("run", "sweep.yaml", "--quiet") as running:
        project.until(lambda: pids(project, variant) and (variant != "daemon" or pids(project, "deaf")), "nodes")
        running.signal(signal.SIGKILL)
        running.wait(check=-signal.SIGKILL)
    processes = [*pids(project, variant), *pids(project, "deaf")]
    project.until(lambda: not any(map(lives, processes)), "the keepers to end them", 10)
    project.until(lambda: not processes_left(project), "all that carries the tag to end", 10)
