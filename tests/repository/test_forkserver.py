"""The server from which tests fork their processes."""

from __future__ import annotations

import array
import json
import os
import select
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.support import forkserver
from tests.support.project import Project
from tests.support.waiting import PATIENCE_S


def test_the_server_outlives_whoever_asked_it(tmp_path: Path) -> None:
    """Given a process that is killed before it reads which pid its fork has, then others are still served."""
    address = forkserver._server("commands", {})
    request = {"args": ["wtb", "run", "--help"], "cwd": str(tmp_path), "env": {}, "nodes": None}
    with open(os.devnull, "r+b") as nothing:
        files = [nothing.fileno()] * 3
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as killed:
            killed.connect("\0" + address)
            passed = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))
            killed.sendmsg([json.dumps(request).encode()], [passed])
            answered = select.poll()
            answered.register(killed, select.POLLIN)
            assert answered.poll(1000 * PATIENCE_S), "it was not forked"
        for _ in range(3):
            assert forkserver._ask(address, request, files).wait(60) == 0


def test_a_script_is_given_arguments_and_pipes() -> None:
    with forkserver.Script("import sys; print(sys.argv, sys.stdin.readline())", 1, "two") as script:
        script.stdin.write("given\n")
        assert script.communicate(60) == "['-c', '1', 'two'] given\n\n"
        assert script.wait() == 0


@pytest.mark.parametrize(("fault", "code"), [("submit.written", -signal.SIGKILL), ("submit.committed", 0)])
def test_a_fault_is_armed_in_the_process_that_asks_for_it_alone(fault: str, code: int) -> None:
    passing = "from wtb.core.fault_points import point; point('submit.written')"
    with forkserver.Script(passing, env={"WTB_FAULT": fault}) as armed, forkserver.Script(passing) as other:
        assert (armed.wait(60), other.wait(60)) == (code, 0)


def test_servers_that_another_process_has_started_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forkserver, "_addresses", {})
    forkserver.share_servers([(["plain", None, None], "there")])
    assert forkserver._server("plain", {}) == "there"


LOOKS = """
from pathlib import Path

from wtb import END, Workflow

wf = Workflow("flow")

@wf.node
def look(state):
    return {"line": Path("/proc/self/cmdline").read_text()}

wf.entry(look)
wf.edge(look, END)
"""


@pytest.mark.parametrize(
    "is_forked", [True, pytest.param(False, marks=pytest.mark.nodes("started"))], ids=["forked", "started"]
)
@pytest.mark.parametrize("own", [False, True], ids=["in a command", "in this process"])
def test_node_processes_are_forks_but_where_a_test_asks_for_others(
    empty_project: Project, is_forked: bool, own: bool
) -> None:
    empty_project.write({"flow.py": LOOKS})
    run = empty_project.inside if own else empty_project.wtb
    output = run("start", "flow:wf", "--format", "json", check=0).stdout
    assert ("forkserver.py" in output) == is_forked, output
    assert ("reaper.py" in output) != is_forked, output


HOLDS = """
import os
import time

from wtb import END, Workflow

wf = Workflow("flow")

@wf.node
def held(state):
    open({began!r}, "w").close()
    while not os.path.exists({gate!r}):
        time.sleep(0.01)

wf.entry(held)
wf.edge(held, END)
"""


def test_a_stand_in_has_the_streams_and_the_exit_code_of_its_command(empty_project: Project) -> None:
    forkserver.write_stand_in(empty_project.folder)
    command = [empty_project.folder / "wtb", "start", "none:wf", "--input", "-"]
    done = subprocess.run(command, cwd=empty_project.folder, input="{}", text=True, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "none" in done.stderr


def test_a_stand_in_hands_signals_on(empty_project: Project) -> None:
    forkserver.write_stand_in(empty_project.folder)
    began, gate = (empty_project.folder / name for name in ("began", "gate"))
    empty_project.write({"flow.py": HOLDS.format(began=str(began), gate=str(gate))})
    command = [empty_project.folder / "wtb", "start", "flow:wf"]
    with subprocess.Popen(command, cwd=empty_project.folder, stderr=subprocess.PIPE) as process:
        empty_project.until(began.exists, "the node to begin")
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        assert any(b"stopping" in line for line in process.stderr)
        gate.touch()
        assert process.wait(PATIENCE_S) == 130
