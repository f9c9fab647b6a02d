"""Fault 34: sparse, endless and odd files in a workspace. Snapshots keep holes, have bounds and keep deadlines."""

from __future__ import annotations

import os
import signal
import time

import psutil
import pytest

from tests.support.invariants import invariants_hold, nothing_is_left
from tests.support.project import Project
from wtb.execution.sandbox.launch.process_tags import PROCESS, tagged
from wtb.store.files.shared_store import OUTBOX

FLOW = """
import os
import signal
import socket
import subprocess
import sys
import threading
import time

from wtb import END, Workflow

wf = Workflow("huge")
MB = 1 << 20


@wf.node(timeout=TIMEOUT)
def work(state, ctx):
    return {"holes": False}


def sparse(path, size):
    with open(path, "wb") as file:
        file.truncate(size)


@work.variant("holes")
def holes(state, ctx):
    path = ctx.workspace / "holes"
    sparse(path, 64 * MB)
    with open(path, "r+b") as file:
        file.seek(32 * MB + 5)
        file.write(b"x" * MB)
    return {"holes": True}


@work.variant("tebibyte")
def tebibyte(state, ctx):
    sparse(ctx.workspace / "big", 1 << 40)


@work.variant("slow")
def slow(state, ctx):
    sparse(ctx.workspace / "slow", 9 << 30)  # takes longer to read than there is time


@work.variant("checkpoint")
def checkpoint(state, ctx):
    sparse(ctx.workspace / "slow", 9 << 30)
    ctx.checkpoint("mine")


@work.variant("full")
def full(state, ctx):
    (ctx.workspace / "full").write_bytes(os.urandom(MB) * 40)


@work.variant("endless")
def endless(state, ctx):
    path = ctx.workspace / "endless"
    path.write_bytes(os.urandom(MB) * 20)
    code = "import sys\\nwith open(sys.argv[1], 'ab', 0) as file:\\n    while True: file.write(b'x')"
    subprocess.Popen([sys.executable, "-c", code, path])
    while path.stat().st_size == 20 * MB:
        time.sleep(0.005)


@work.variant("many")
def many(state, ctx):
    for number in range(300):
        (ctx.workspace / str(number)).mkdir()


@work.variant("fifo")
def fifo(state, ctx):
    os.mkfifo(ctx.workspace / "pipe")


@work.variant("bound")
def bound(state, ctx):
    os.chdir(ctx.workspace)
    socket.socket(socket.AF_UNIX).bind("socket")


wf.entry(work)


@wf.node(timeout=60)
def after(state, ctx):
    if state["holes"]:
        path = ctx.workspace / "holes"
        with open(path, "rb") as file:
            file.seek(32 * MB + 5)
            assert file.read(MB) == b"x" * MB
        assert path.stat().st_size == 64 * MB
        assert path.stat().st_blocks * 512 < 5 * MB, "its holes are back"


wf.edge(work, after)
wf.edge(after, END)
"""
SWEEP = "sweep: huge\nworkflow: huge:wf\ncases: cases.jsonl\nvary: {{work: {variants}}}\nrun: {{{run}}}\n"
WORDS = {
    "tebibyte": ("StateError", "'big' of 1099.5 GB", "run.workspace.size"),
    "slow": ("NodeTimeout", "deadline", "'slow'"),
    "checkpoint": ("NodeTimeout", "deadline"),
    "full": ("StateError", "'full' of 41.9 MB", "run.workspace.stored"),
    "endless": ("StateError", "'endless' is still being written to"),
    "many": ("StateError", "more than 200 files and directories", "run.workspace.entries"),
    "fifo": ("StateError", "'pipe' is not a regular file"),
    "bound": ("StateError", "'socket' is not a regular file"),
}
BOUNDS = "workspace: {stored: 30MB, entries: 200}"


def write_huge(project: Project, variants: str, run: str, timeout: float | None = 4.0) -> None:
    project.write(
        {
            "huge.py": FLOW.replace("TIMEOUT", repr(timeout)),
            "sweep.yaml": SWEEP.format(variants=variants, run=run),
            "cases.jsonl": project.cases(1),
        }
    )


def failures(project: Project) -> dict[str, str]:
    """Variant -> what its failure says."""
    return {variant: f"{failure['type']}: {failure['message']}" for variant, _, failure in project.failures()}


def stored_bytes(project: Project) -> int:
    """Bytes that stored files take, of what is unfinished, too."""
    files = project.folder / ".wtb" / "files"
    return sum(path.stat().st_blocks * 512 for path in files.rglob("*") if path.is_file())


def unfinished(project: Project) -> list[str]:
    return [path.name for path in (project.folder / ".wtb" / "files").rglob(".new-*")]


def outboxes(project: Project) -> set[str]:
    """The ids of node processes that are at handing files over."""
    return {path.parent.parent.name for path in (project.folder / ".wtb" / "sessions").rglob(f"{OUTBOX}/.new-*")}


@pytest.mark.parametrize("pool", ["process", pytest.param("thread", marks=pytest.mark.slow)])
def test_files_that_are_too_large_or_no_files_fail_their_attempt_in_time_and_leave_nothing(
    empty_project: Project, pool: str
) -> None:
    project = empty_project
    # On threads nobody ends what a node starts, nor has it a working directory of its own.
    variants = [name for name in WORDS if pool == "process" or name not in ("endless", "bound")]
    write_huge(project, f"[default, holes, {', '.join(variants)}]", f"pool: {pool}, concurrency: 2, {BOUNDS}")
    start = time.monotonic()
    project.wtb("run", "sweep.yaml", "--quiet", check=1)
    assert time.monotonic() - start < 50
    messages = failures(project)
    assert messages.keys() == set(variants)
    for variant in variants:
        assert all(word in messages[variant] for word in WORDS[variant]), (variant, messages[variant])
    invariants_hold(project, {"succeeded": 2, "failed": len(variants)})
    assert unfinished(project) == []
    assert stored_bytes(project) < 5 << 20, "holes are kept as holes, and what was refused is gone"


def test_what_a_killed_node_process_had_not_finished_adding_is_removed(empty_project: Project) -> None:
    project = empty_project
    write_huge(project, "[default, slow]", "concurrency: 2, set_aside_after: 1", None)
    with project.start("run", "sweep.yaml", "--quiet") as running:
        project.until(lambda: outboxes(project), "a snapshot to be under way")
        (process,) = outboxes(project)
        kill_node_process(process)
        running.wait(check=1)
    assert project.query("SELECT status, count(*) FROM cells GROUP BY status ORDER BY status") == [
        ("set_aside", 1),
        ("succeeded", 1),
    ]
    assert unfinished(project) == []
    nothing_is_left(project)


def test_what_a_killed_runner_had_not_finished_adding_is_removed_by_the_next_run(empty_project: Project) -> None:
    project = empty_project
    write_huge(project, "[slow]", "pool: thread", None)
    with project.start("run", "sweep.yaml", "--quiet") as running:
        project.until(lambda: unfinished(project), "a snapshot to be under way")
        running.process.kill()
        running.wait(check=-9)
    assert unfinished(project)
    other = "sweep: other\nworkflow: huge:wf\ncases: cases.jsonl\nvary: {work: [default]}\n"
    project.write({"other.yaml": other})
    project.inside("run", "other.yaml", "--quiet", check=0)
    assert unfinished(project) == []


def kill_node_process(id: str) -> None:
    """Kill the process that has this id; not its keeper, which has it too."""
    pids = tagged(PROCESS)[id]
    (node,) = (pid for pid in pids if psutil.Process(pid).ppid() in pids)
    os.kill(node, signal.SIGKILL)
