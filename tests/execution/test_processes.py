"""Node processes: the environment of user code, its results, and containment of its faults."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
import sqlalchemy as sa

from tests.support.bench import Bench, in_memory
from tests.support.flows import PATIENCE_S, Flows, attempts_of, events_of, failures, states
from tests.support.invariants import lives
from tests.support.prose import sentence
from tests.support.waiting import until
from wtb.analysis.matrix.build import build
from wtb.authoring.code.import_paths import load
from wtb.authoring.context.attempt_record import CaseView
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END
from wtb.core.errors import WTBError
from wtb.core.serialization.codec import decode
from wtb.core.stop import Stopped
from wtb.core.tree.checkpoints import Position
from wtb.core.values import Value
from wtb.display.views.sweeps import status_document
from wtb.execution.engine.protocol import Root, Task
from wtb.execution.runtime.sweep_run import SweepRun
from wtb.execution.sandbox.attempt_output import CAP
from wtb.execution.sandbox.launch.launching import environment
from wtb.execution.sandbox.launch.process_tags import PROCESS, RUNNER
from wtb.execution.sandbox.node_process import NodeProcess, Setup
from wtb.execution.sandbox.pool import InProcesses
from wtb.execution.sandbox.process_pool import Pool
from wtb.handles.local_sweep import Sweep
from wtb.operations.context import Context
from wtb.operations.running.local import follow
from wtb.store.files.store import FileStore
from wtb.store.files.workspaces import Workspaces
from wtb.store.read import queries
from wtb.store.tables.schema import checkpoints

# What user code finds

ENVIRONMENT = """
@wf.node
def a(state):
    return {"pid": os.getpid(), "found": dict(os.environ)}
"""


@pytest.mark.nodes("started")
def test_a_node_runs_in_another_process_and_finds_the_environment_but_for_wtbs_own(
    flows: Flows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WTB_DATABASE_URL", "postgresql://somebody:secret@host/db")
    monkeypatch.setenv("WTB_ANYTHING", "1")
    monkeypatch.setenv("OPENAI_API_KEY", "the user's own")
    (state,) = states(flows.run(ENVIRONMENT))
    assert state["pid"] != os.getpid()
    assert state["found"]["OPENAI_API_KEY"] == "the user's own"
    assert [name for name in state["found"] if name.startswith("WTB_")] == [RUNNER, PROCESS]
    assert "secret" not in str(state["found"])


@pytest.mark.nodes("started")
def test_run_env_narrows_it_to_what_it_names(flows: Flows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANTED", "yes")
    monkeypatch.setenv("UNWANTED", "no")
    monkeypatch.setenv("WTB_SCHEDULER_INTERVAL_S", "7")  # one of WTB's own that is no credential
    names = ["PATH", "WANTED", "WTB_SCHEDULER_INTERVAL_S"]
    (state,) = states(flows.run(ENVIRONMENT, run={"env": names}))
    added_by_python = {"LC_CTYPE"}
    assert state["found"].keys() - added_by_python == {*names, RUNNER, PROCESS}


def test_the_working_directory_of_a_node_is_its_workspace(flows: Flows) -> None:
    text = """
@wf.node
def a(state, ctx):
    Path("made").mkdir()
    Path("made/here.txt").write_text("by a")
    return {"a": [os.getcwd() == str(ctx.workspace), str(Path.cwd())]}


@wf.node
def b(state, ctx):
    text = Path("made/here.txt").read_text()
    return {"b": [os.getcwd() == str(ctx.workspace), str(Path.cwd()), text]}
"""
    bench = flows.run(text, cases=2, end='wf.entry("a")\nwf.edge("a", "b")\nwf.edge("b", END)\n')
    end_states = states(bench)
    assert all(state["a"][0] and state["b"][0] for state in end_states)
    directories = [state[node][1] for state in end_states for node in "ab"]
    assert len(set(directories)) == 4
    assert not any(Path(directory).exists() for directory in directories)
    assert [state["b"][2] for state in end_states] == ["by a", "by a"]


def test_an_evaluator_and_a_branch_run_in_node_processes_too(flows: Flows) -> None:
    text = """
@wf.node
def a(state):
    return {"a": os.getpid()}


def score(case, result):
    return os.getpid() == result.state["a"]


wf.entry("a")
wf.branch("a", {"same": END}, by=lambda state: "same" if os.getpid() == state["a"] else "other")
"""
    flows.write(text, end="")
    (cell,) = flows.run(evaluate=[f"{flows.name}:score"]).cells()
    assert (cell.status, cell.scores) == ("succeeded", {"score": 1.0})


def test_resources_are_made_once_in_each_process(flows: Flows) -> None:
    text = """
def factory():
    say("made", os.getpid())
    return {"pid": os.getpid(), "uses": 0}


wf.resources = factory


@wf.node
def a(state, ctx):
    ctx.resources["uses"] += 1
    return {"pid": os.getpid(), "made_in": ctx.resources["pid"], "uses": ctx.resources["uses"]}
"""
    end_states = states(flows.run(text, cases=6))
    assert sorted(state["uses"] for state in end_states) == [1, 2, 3, 4, 5, 6]
    assert {state["pid"] for state in end_states} == {state["made_in"] for state in end_states}
    assert flows.lines_of("made") == [str(end_states[0]["pid"])]

    shared = states(flows.run(cases=20, run={"concurrency": 4}))
    pids = flows.lines_of("made")[1:]
    assert len(pids) == len(set(pids)) <= 4
    assert {str(state["pid"]) for state in shared} <= set(pids)
    assert all(state["pid"] == state["made_in"] for state in shared)


def test_resources_that_cannot_be_made_fail_the_sweep_with_the_users_own_words(flows: Flows) -> None:
    text = """
def factory():
    raise ConnectionError("no model server")


wf.resources = factory


@wf.node
def a(state): ...
"""
    bench = flows.bench(text)
    with pytest.raises(WTBError, match=r"resources cannot be made: ConnectionError: no model server(.|\n)*in factory"):
        bench.run()
    assert bench.status == "failed"


# What user code prints


def test_what_each_attempt_prints_is_kept_with_it(flows: Flows) -> None:
    text = """
@wf.node(retries=1, backoff=0.0)
def a(state, ctx):
    print("attempt", ctx.attempt)
    print("warning", ctx.attempt, file=sys.stderr)
    subprocess.run(["echo", "by a program"], check=True)
    if ctx.attempt == 1:
        raise ValueError("again")
"""
    bench = flows.run(text)
    assert [(row["stdout"], row["stderr"]) for row in attempts_of(bench)] == [
        ("attempt 1\nby a program\n", "warning 1\n"),
        ("attempt 2\nby a program\n", "warning 2\n"),
    ]


def test_an_attempt_that_prints_nothing_keeps_nothing_of_others(flows: Flows) -> None:
    text = """
print("at import")


@wf.node
def a(state, ctx):
    if ctx.case.id == "c0":
        print("only here", end="")
"""
    bench = flows.run(text, cases=3)
    assert Counter(row["stdout"] for row in attempts_of(bench)) == {"only here": 1, None: 2}


class ChannelFirst:
    """A poll that sees an answer but not the output that was printed while it looked at the streams in turn."""

    def __init__(self, poll: Any, names: Mapping[int, str]) -> None:
        self._poll, self._names = poll, names

    def poll(self, timeout: float | None) -> list[tuple[int, int]]:
        ready = self._poll.poll(timeout)
        channel_events = [pair for pair in ready if self._names[pair[0]] == "channel"]
        return channel_events or ready

    def __getattr__(self, name: str) -> Any:
        return getattr(self._poll, name)


def test_what_is_printed_while_the_runner_looks_is_kept_with_its_attempt(
    flows: Flows, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = NodeProcess.__init__

    def looking(self: NodeProcess, setup: Setup) -> None:
        plain(self, setup)
        self._poll = ChannelFirst(self._poll, self._names)

    monkeypatch.setattr(NodeProcess, "__init__", looking)
    text = """
@wf.node
def a(state, ctx):
    print("only here", ctx.case.id)
"""
    bench = flows.run(text, cases=20)
    assert sorted(row["stdout"] for row in attempts_of(bench)) == sorted(
        f"only here c{number}\n" for number in range(20)
    )


def test_of_a_long_output_the_beginning_and_the_end_are_kept(flows: Flows) -> None:
    text = """
@wf.node
def a(state):
    sys.stdout.write("<first>" + "x" * 3_000_000 + "<last>")
"""
    (row,) = attempts_of(flows.run(text))
    assert row["stdout"].startswith("<first>xxx")
    assert row["stdout"].endswith("xxx<last>")
    left_out = 3_000_000 + len("<first><last>") - 2 * CAP
    assert f"\n... {left_out:,} bytes left out ...\n" in row["stdout"]
    assert len(row["stdout"]) == 2 * CAP + len(f"\n... {left_out:,} bytes left out ...\n")


@pytest.mark.nodes("started")
def test_what_is_no_text_does_not_break_what_is(flows: Flows) -> None:
    text = """
@wf.node
def a(state):
    os.write(1, b"a\\0b\\xff\\n")
    print("\\ud800")
"""
    (row,) = attempts_of(flows.run(text))
    assert row["stdout"] == "a\ufffdb\ufffd\n\\ud800\n"


# Deadlines


def test_a_sync_node_is_ended_at_its_deadline_with_all_it_started(flows: Flows) -> None:
    text = """
@wf.node(timeout=0.5, retries=1, backoff=0.0)
def a(state, ctx):
    if ctx.attempt == 2:
        return {"pid": os.getpid()}
    program = subprocess.Popen(["sleep", "600"], start_new_session=True)
    say("hung", f"{os.getpid()} {program.pid}")
    print("hanging")
    until(lambda: False)
"""
    bench = flows.run(text)
    (state,) = states(bench)
    pids = [int(pid) for pid in flows.lines_of("hung")[0].split()]
    assert state["pid"] not in pids
    assert not any(map(lives, pids))
    ((kind, message),) = failures(bench)
    assert kind == "timeout"
    assert sentence("still running at its deadline of {} s; its process was ended", "0.5") in message
    assert attempts_of(bench)[0]["stdout"] == "hanging\n"
    assert bench.executions[0].kills == 0


def test_an_async_node_is_cancelled_at_its_deadline_and_its_process_lives_on(flows: Flows) -> None:
    text = """
@wf.node(timeout=0.2, retries=1, backoff=0.0)
async def a(state, ctx):
    say("ran", os.getpid())
    try:
        if ctx.attempt == 1:
            await asyncio.sleep(600)
    finally:
        say("cleaned", ctx.attempt)
    return {"pid": os.getpid()}
"""
    bench = flows.run(text)
    (state,) = states(bench)
    assert flows.lines_of("ran") == [str(state["pid"])] * 2
    assert flows.lines_of("cleaned") == ["1", "2"]
    ((kind, message),) = failures(bench)
    assert (kind, message) == ("timeout", sentence("cancelled at its deadline of {} s", "0.2"))


def test_an_async_node_that_blocks_is_ended_a_moment_after_its_deadline(flows: Flows) -> None:
    text = """
@wf.node(timeout=0.1)
async def a(state, ctx):
    say("ran", os.getpid())
    until(lambda: False)
"""
    bench = flows.run(text)
    ((kind, _),) = failures(bench)
    assert kind == "timeout"
    (pid,) = map(int, flows.lines_of("ran"))
    assert not lives(pid)


# Killed processes

KILLED = """
@wf.node
def a(state, ctx):
    ctx.cost(usd=0.5, tokens_in=3)
    ctx.log("about to die")
    ctx.call(model="m", prompt="p", usd=0.25)
    ctx.leave(suggestion="stay alive")
    print("last words")
    if ctx.attempt <= {deaths}:
        os.kill(os.getpid(), signal.SIGKILL)
    return {{"previous": [ctx.previous.error, list(ctx.previous.suggestions)]}}
"""


def test_what_was_told_before_a_kill_counts(flows: Flows) -> None:
    bench = flows.run(KILLED.format(deaths=1))
    (state,) = states(bench)
    error, suggestions = state["previous"]
    assert sentence("killed by {} (signal {})", "SIGKILL", 9) in error
    assert suggestions == ["stay alive"]
    killed, succeeded = attempts_of(bench)
    for row in (killed, succeeded):
        assert (row["usd"], row["tokens_in"], row["stdout"]) == (0.75, 3, "last words\n")
    assert killed["failure"]["kind"] == "killed"
    assert [details["message"] for details in events_of(bench, "node.log")] == ["about to die"] * 2
    assert queries.spent(bench.database, bench.sweep_id) == (1, 1.5)
    assert bench.executions[0].kills == 1


@pytest.mark.parametrize("limit", [1, 3])
def test_a_cell_that_kills_its_process_too_often_is_set_aside(flows: Flows, limit: int) -> None:
    bench = flows.run(KILLED.format(deaths=99), run={"set_aside_after": limit})
    assert bench.status == "completed"
    assert bench.counts == {"set_aside": 1}
    assert [kind for kind, _ in failures(bench)] == ["killed"] * limit


def test_an_ordinary_failure_after_a_kill_still_uses_up_the_retries(flows: Flows) -> None:
    text = """
@wf.node(retries=1, backoff=0.0)
def a(state, ctx):
    if ctx.attempt == 1:
        os._exit(1)
    raise ValueError("no")
"""
    bench = flows.run(text)
    assert [kind for kind, _ in failures(bench)] == ["killed", "error", "error"]
    assert bench.counts == {"failed": 1}


def test_an_evaluator_that_ends_its_process_fails_its_score_and_nothing_else(flows: Flows) -> None:
    flows.write("@wf.node\ndef a(state): ...\n\n\ndef score(case, result):\n    os._exit(3)\n")
    bench = flows.run(cases=2, evaluate=[f"{flows.name}:score"])
    assert bench.counts == {"succeeded": 2}
    assert all("exit code 3" in cell.scores["score"] for cell in bench.cells())


# What does not fit into a message


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("ctx.cost(usd=float('nan'))", None),
        ("ctx.log('big', number=2**70)", None),
        ("ctx.log('\\ud800')", None),
        ("raise ValueError('\\ud800')", "ValueError"),
    ],
    ids=["not a number", "a large number", "half a character", "half a character in an error"],
)
def test_odd_words_of_a_node_neither_end_its_process_nor_the_sweep(flows: Flows, body: str, error: str | None) -> None:
    bench = flows.run(f"@wf.node\ndef a(state, ctx):\n    {body}\n")
    assert bench.status == "completed"
    assert "killed" not in [kind for kind, _ in failures(bench)]
    if error is not None:
        assert error in bench.cells()[0].error


# Limits of a process


@pytest.mark.nodes("started")
@pytest.mark.parametrize(
    ("rlimits", "body", "error"),
    [
        ({"files": 64}, "return {'n': len([open(__file__) for _ in range(100)])}", "Too many open files"),
        ({"file_size": "1MB"}, "Path('big').write_bytes(b'x' * 2_000_000)", "File too large"),
        ({"memory": "1GB"}, "return {'n': len(bytearray(2_000_000_000))}", "MemoryError"),
    ],
    ids=["files", "file_size", "memory"],
)
def test_a_limit_fails_the_attempt_that_goes_beyond_it(
    flows: Flows, rlimits: dict[str, Any], body: str, error: str
) -> None:
    bench = flows.run(f"@wf.node\ndef a(state):\n    {body}\n", cases=2, run={"rlimits": rlimits})
    assert bench.counts == {"failed": 2}
    assert all(error in cell.error for cell in bench.cells())
    assert all(kind == "error" for kind, _ in failures(bench))


def test_too_many_processes_end_the_attempt(flows: Flows) -> None:
    text = """
@wf.node
def a(state, ctx):
    programs = [subprocess.Popen(["sleep", "600"]) for _ in range(30)]
    say("started", " ".join(str(program.pid) for program in programs))
    until(lambda: False)
"""
    bench = flows.run(text, run={"rlimits": {"processes": 20}, "set_aside_after": 1})
    assert bench.counts == {"set_aside": 1}
    ((kind, message),) = failures(bench)
    assert kind == "killed"
    assert sentence("more than run.rlimits.processes allows") in message
    assert not any(lives(int(pid)) for line in flows.lines_of("started") for pid in line.split())


@pytest.mark.nodes("started")
def test_a_limit_does_not_hold_for_the_runner(flows: Flows) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = """
@wf.node
def a(state):
    import resource

    return {"n": resource.getrlimit(resource.RLIMIT_NOFILE)[0]}
"""
    (state,) = states(flows.run(text, run={"rlimits": {"files": 64}}))
    assert state["n"] == 64
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


def test_a_process_is_replaced_after_so_many_node_runs(flows: Flows) -> None:
    bench = flows.run(ENVIRONMENT, cases=9, run={"recycle": {"runs": 3}})
    assert list(Counter(state["pid"] for state in states(bench)).values()) == [3, 3, 3]


def test_a_process_that_has_grown_is_replaced(flows: Flows) -> None:
    text = """
KEPT = []


@wf.node
def a(state):
    KEPT.append(b"x" * 60_000_000)
    return {"pid": os.getpid(), "kept": len(KEPT)}
"""
    end_states = states(flows.run(text, cases=6, run={"recycle": {"memory": "100MB"}}))
    assert sorted(state["kept"] for state in end_states) == [1, 1, 2, 2, 3, 3]  # measured from its first answer on


# Changed code


@pytest.mark.nodes("started")
def test_code_that_changes_on_disk_while_the_sweep_runs_is_refused(flows: Flows) -> None:
    text = """
@wf.node
def a(state):
    source = Path(__file__).read_text()
    Path(__file__).write_text(source.replace("return {", "return {'more': 1, "))
    return {"n": 1}
"""
    bench = flows.bench(text, cases=3, run={"recycle": {"runs": 1}})
    run = SweepRun(bench.database, bench.row, bench.prepared.bound, workspaces=bench.workspaces)
    with pytest.raises(WTBError, match=sentence("the code of {} was changed while the sweep was running", "a=default")):
        follow(Context(bench.database), run, grace=1.0)
    assert bench.status == "paused"
    assert sentence("was changed while the sweep was running") in bench.row.reason
    assert bench.counts["succeeded"] == 1
    assert "running" not in bench.counts


def changed(flows: Flows, change: Callable[[Workflow], None]) -> Bench:
    """Run a sweep of a workflow that this process has changed since the import."""
    flows.write("@wf.node\ndef a(state):\n    return {'a': 1}\n\n\n@wf.node\ndef b(state):\n    return {'b': 1}\n")
    path = flows.code / f"{flows.name}.py"
    path.write_text(path.read_text() + 'wf.edge("a", "b")\nwf.edge("b", END)\n')
    workflow = load(f"{flows.name}:wf")
    change(workflow)
    return flows.bench(workflow=workflow)


def add_a_variant(wf: Workflow) -> None:
    wf["a"].variant("late", lambda state: None)


def add_a_node(wf: Workflow) -> None:
    wf.node(lambda state: None, name="late")
    wf.edge("b", "late")
    wf.edge("late", END)


def add_an_edge(wf: Workflow) -> None:
    wf.edge("b", "a", when=lambda state: False)


def take_an_edge(wf: Workflow) -> None:
    wf.edges[:] = [edge for edge in wf.edges if edge.target != "b"]
    wf.edge("b", "a", when=lambda state: False)
    wf.entries[:] = ["a", "b"]


@pytest.mark.parametrize("change", [add_a_variant, add_a_node, add_an_edge, take_an_edge], ids=lambda c: c.__name__)
def test_a_workflow_that_was_changed_after_its_import_is_refused_with_words(
    flows: Flows, change: Callable[[Workflow], None]
) -> None:
    bench = changed(flows, change)
    with pytest.raises(WTBError, match=r"changed after its import.*run: \{pool: thread\}") as refused:
        bench.run()
    assert "Traceback" not in str(refused.value)
    assert bench.status == "failed"


# What nodes leave running


def test_a_node_that_forks_and_returns_in_both_processes_does_no_harm(flows: Flows) -> None:
    text = """
@wf.node
def a(state):
    Path("kept").write_text("by the node")
    child = os.fork()
    if child:
        os.waitpid(child, 0)  # until it has done all it can
    return {"child": child, "pid": os.getpid()}
"""
    bench = flows.run(text, cases=4)
    end_states = states(bench)
    assert all(state["child"] for state in end_states)
    assert len({state["pid"] for state in end_states}) == 1
    assert len(attempts_of(bench)) == 4
    with bench.database.read() as connection:
        heads = list(connection.scalars(sa.select(checkpoints.c.workspace).where(checkpoints.c.parent_id.is_not(None))))
    assert all(head is not None for head in heads)
    assert {name for head in heads for name in bench.workspaces.of_project("default").files.manifest(head)} == {"kept"}


def test_a_thread_that_tells_something_after_its_node_has_ended_does_no_harm(flows: Flows) -> None:
    text = """
@wf.node
def a(state, ctx):
    if ctx.case.id == "c0":
        def late():
            until((HERE / "go").exists)
            ctx.log("too late")
            ctx.cost(usd=100.0)
            say("told", "yes")
        threading.Thread(target=late).start()
    else:
        say("go", "now")
        until((HERE / "told").exists)
        ctx.cost(usd=1.0)
    return {"pid": os.getpid()}
"""
    bench = flows.run(text, cases=2, seed=3)  # under it, c0 begins before c1
    first, second = states(bench)
    assert first["pid"] == second["pid"]
    # As with threads: a node run that has ended is told nothing more, and nor is another in its place.
    assert {run["usd"] for run in bench.node_runs} == {0.0, 1.0}
    assert events_of(bench, "node.log") == []


def test_threads_of_a_node_may_tell_things_while_it_lasts(flows: Flows) -> None:
    text = """
@wf.node
def a(state, ctx):
    threads = [threading.Thread(target=lambda: [ctx.cost(usd=0.25) for _ in range(100)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""
    (run,) = flows.run(text).node_runs
    assert run["usd"] == 100.0


def test_daemons_of_nodes_end_with_the_run(flows: Flows) -> None:
    text = """
@wf.node
def a(state):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        say("daemon", os.getpid())
        time.sleep(600)
        os._exit(0)
    until(lambda: (HERE / "daemon").exists() and (HERE / "daemon").read_text().endswith("\\n"))
"""
    flows.run(text)
    (pid,) = map(int, flows.lines_of("daemon"))
    assert not lives(pid)


def test_a_process_that_a_node_forks_may_connect(flows: Flows) -> None:
    text = """
import socket


@wf.node
def a(state):
    with socket.create_server(("127.0.0.1", 0)) as server:
        child = os.fork()
        if child == 0:
            socket.create_connection(server.getsockname()).close()
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""
    (run,) = flows.run(text).node_runs
    assert run["status"] == "succeeded"


# Without processes


def test_a_sweep_in_a_function_runs_on_threads(flows: Flows) -> None:
    workflow = Workflow("here")

    @workflow.node
    def a(state: Any) -> dict[str, Any]:
        return {"pid": os.getpid()}

    workflow.entry(a)
    workflow.edge(a, END)
    sweep = Sweep(workflow=workflow, cases=[{"input": {}}], vary={"a": "all"})
    database = in_memory()
    (cell,) = sweep.run(db=database, files=flows.files).cells()
    database.close()
    assert cell["state"] == {"pid": os.getpid()}


SCRIPT = """
{first}
import os
from wtb import END, Sweep, Workflow

wf = Workflow("mine")

@wf.node
def a(state):
    return {{"pid": os.getpid()}}

wf.entry(a)
wf.edge(a, END)

def score(case, result):
    return os.getpid() == result.state["pid"]

result = Sweep(workflow=wf, cases=[{{"input": {{}}}}], vary={{"a": "all"}}, evaluate=[score, "cost"], run={run}).run()
(cell,) = result.cells()
print(result.status, cell["state"]["pid"] == os.getpid(), sorted(cell["scores"]))
"""


def script(folder: Path, run: Mapping[str, Any], first: str = "") -> subprocess.CompletedProcess[str]:
    (folder / "mine.py").write_text(SCRIPT.format(first=first, run=dict(run)), "utf-8")
    child_environment = {name: setting for name, setting in os.environ.items() if not name.startswith("WTB_")}
    return subprocess.run(
        [sys.executable, "mine.py"],
        cwd=folder,
        env=child_environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_sweep_in_a_script_runs_on_threads(tmp_path: Path) -> None:
    done = script(tmp_path, {}, first="import multiprocessing  # which names it __mp_main__ too")
    assert (done.returncode, done.stdout) == (0, "completed True ['cost', 'score']\n"), done.stderr


def test_processes_are_refused_to_a_script_and_it_is_told_what_to_do(tmp_path: Path) -> None:
    done = script(tmp_path, {"pool": "process"})
    assert done.returncode == 1
    assert sentence("it was made in a script, a notebook or a function") + sentence(
        "; move it to a module, or use the thread pool"
    ) in (done.stderr)


def test_a_sweep_of_what_a_module_has_runs_in_processes(flows: Flows) -> None:
    flows.write(ENVIRONMENT)
    sweep = Sweep(workflow=load(f"{flows.name}:wf"), cases=[{"input": {}}], vary={"a": "all"})
    database = in_memory()
    (cell,) = sweep.run(db=database, files=flows.files).cells()
    database.close()
    assert cell["state"]["pid"] != os.getpid()


# The pool by itself

POOLED = """
@wf.node
def a(state, ctx):
    say("began", os.getpid())
    if ctx.params.get("wait"):
        until((HERE / "go").exists)
    return {"pid": os.getpid()}
"""


class Pooled:
    """The node processes of a workflow, without a sweep."""

    def __init__(self, flows: Flows, limit: int, **params: Any) -> None:
        self.flows = flows
        self.name = flows.write(POOLED)
        self.code = flows.processes(self.name, None, limit, **params)

    @property
    def leftovers(self) -> list[Path]:
        """The directories of processes."""
        root = self.flows.files / "sessions"
        return list(root.iterdir()) if root.exists() else []

    def run(self, case: str = "one") -> dict[str, Any]:
        node_result = self.code.run(Task("a", "default", {"n": Value.of(1)}, Position(0, ("a",)), Root(CaseView(case))))
        assert node_result.failure is None, str(node_result.failure)
        return {name: decode(value.data) for name, value in (node_result.writes or {}).items()}

    def side_by_side(self, count: int) -> tuple[list[threading.Thread], list[Any]]:
        outcomes: list[Any] = []

        def run_once() -> None:
            try:
                outcomes.append(self.run()["pid"])
            except Stopped as error:
                outcomes.append(error)

        threads = [threading.Thread(target=run_once) for _ in range(count)]
        for thread in threads:
            thread.start()
        return threads, outcomes


@pytest.fixture
def pooled(flows: Flows) -> Iterator[Callable[..., Pooled]]:
    pools: list[Pooled] = []

    def make(*args: Any, **keys: Any) -> Pooled:
        pools.append(Pooled(flows, *args, **keys))
        return pools[-1]

    yield make
    for pool in pools:
        pool.code.close()
        assert pool.leftovers == []


def test_a_pool_starts_no_more_processes_than_it_may(flows: Flows, pooled: Callable[..., Pooled]) -> None:
    pool = pooled(2, wait=True)
    threads, outcomes = pool.side_by_side(6)
    until(lambda: len(flows.lines_of("began")) == 2, "two nodes to have begun")
    (flows.code / "go").touch()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 6
    assert set(map(str, outcomes)) == set(flows.lines_of("began")[:2])


def test_a_process_that_died_while_nobody_used_it_is_replaced_without_a_failure(
    pooled: Callable[..., Pooled],
) -> None:
    pool = pooled(1)
    first = pool.run()["pid"]
    keeper = psutil.Process(first).ppid()
    os.kill(first, signal.SIGKILL)
    until(lambda: not lives(keeper), "its keeper to have seen the end of it")
    assert pool.run()["pid"] != first


def test_a_pool_that_is_closed_ends_what_is_running_and_says_that_it_was_stopped(
    flows: Flows, pooled: Callable[..., Pooled]
) -> None:
    pool = pooled(2, wait=True)
    threads, outcomes = pool.side_by_side(3)
    until(lambda: len(flows.lines_of("began")) == 2, "two nodes to have begun")
    pids = [int(pid) for pid in flows.lines_of("began")]
    keepers = [psutil.Process(pid).ppid() for pid in pids]
    pool.code.close()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert [type(outcome) for outcome in outcomes] == [Stopped] * 3
    assert not any(map(lives, [*pids, *keepers]))
    assert pool.leftovers == []
    with pytest.raises(Stopped):
        pool.run()


@pytest.mark.nodes("started")
def test_a_process_that_cannot_start_says_why(flows: Flows, pooled: Callable[..., Pooled]) -> None:
    pool = pooled(1)
    path = flows.code / f"{flows.name}.py"
    path.write_text("import sys\nprint('no GPU', file=sys.stderr)\nimport ctypes\nctypes.CDLL(None)._exit(5)\n")
    with pytest.raises(WTBError, match=r"a node process could not start: (.*)exit code 5\nno GPU"):
        pool.code.prepare()
    path.write_text("raise RuntimeError('half a module')\n")
    second_pool = flows.processes(pool.name)
    with pytest.raises(WTBError, match="cannot be imported: RuntimeError: half a module"):
        second_pool.prepare()
    second_pool.close()


@pytest.mark.nodes("started")
def test_a_folder_that_is_gone_is_an_error_and_no_traceback(tmp_path: Path) -> None:
    setup = Setup(
        {}, environment(None, "test"), {}, tmp_path / "gone", Workspaces(FileStore(tmp_path / "files"), tmp_path)
    )
    lost = Pool(lambda: NodeProcess(setup), 1, 1)
    with pytest.raises(WTBError, match=r"a node process cannot start: .*No such file or directory"), lost.lend():
        pass
    lost.close()


EQUAL = """
def asking(state, ctx):
    prices = "genai_prices.data" in sys.modules
    ctx.call(model="gpt-4o", prompt="p", response="r", tokens_in=10, tokens_out=1)
    return {"prices": prices}


node = wf.node(asking, name="a")
node.variant("b", asking)
node.variant("c", asking)
"""


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_of_equal_variants_that_ask_for_prices_none_is_slower_and_none_is_always_first(flows: Flows, seed: int) -> None:
    keys: dict[str, Any] = {"baseline": {"a": "default"}, "evaluate": ["latency"], "seed": seed}
    bench = flows.run(EQUAL, 40, run={"concurrency": 4}, **keys)
    assert all(state["prices"] for state in states(bench))  # no node has loaded them
    document = build(bench.database, bench.row)
    latencies = [row["metrics"]["latency"] for row in document["rows"] if row["combination"] != document["baseline"]]
    assert document["metrics"]["latency"]["compare"] == "median"
    assert all(
        latency["p_adjusted"] >= 0.001 for latency in latencies
    )  # by chance it is less once in a thousand sweeps
    starts: dict[int, list[tuple[str, str]]] = {}
    for row in bench.executions:
        if row.origin == "fork":
            starts.setdefault(row.case_number, []).append((row.id, row.combinations[0]))
    firsts = Counter(min(forked)[1] for forked in starts.values())
    assert set(firsts) == {0, 1, 2}
    assert min(firsts.values()) >= 5
    order = [row.case_number for row in sorted(bench.executions, key=lambda row: str(row.id)) if row.origin == "root"]
    assert order != sorted(order)  # and neither is a case
    second = flows.bench(EQUAL, 40, run={"concurrency": 4}, **keys)
    roots = [row.case_number for row in sorted(second.executions, key=lambda row: str(row.id))]
    assert roots == order  # the order is that of the seed


WAITING = """
@wf.node
def a(state):
    say("begun", state["n"])
    until((HERE / "go").exists)
    return {"done": True}
"""


def test_only_attempts_that_began_are_counted_where_a_sweep_was_interrupted(flows: Flows) -> None:
    bench = flows.bench(WAITING, 4, run={"concurrency": 4})
    run = SweepRun(bench.database, bench.row, bench.prepared.bound, workspaces=bench.workspaces)
    assert isinstance(run.code, InProcesses)
    run.code.pool._max_processes = 1  # three slots wait for a process
    run.start()
    until(lambda: flows.lines_of("begun") and len(bench.node_runs) == 4, "one node runs, and three are about to")
    run.stop.request("interrupted")
    run.code.close()
    while not run.wait(1):
        pass
    run.finish()
    assert len(attempts_of(bench)) == len(flows.lines_of("begun")) == 1
    (flows.code / "go").touch()
    bench.run()
    assert len(flows.lines_of("begun")) == 5
    assert len(attempts_of(bench)) == 5
    document = build(bench.database, bench.row)
    assert document["node_runs"] == {
        "executed": 4,
        "unshared": 4,
        "attempts": 5,
        "by_node": {"a": {"executed": 4, "unshared": 4, "attempts": 5, "lag_s": {"default": None}}},
    }
    assert status_document(bench.database, bench.row)["node_runs"]["attempts"] == 5
