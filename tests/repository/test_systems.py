"""macOS and Windows: WTB starts without the modules that Python lacks there, and reports its limits."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.project import run_program
from wtb.cli.commands import ENTRIES

ROOT = Path(__file__).parents[2]
REFUSED = "error: WTB runs nodes and keeps their files on Linux and macOS only; on Windows use WSL 2"
COMMANDS = {"init": ["init", "."], "help": ["--help"], "version": ["--version"], "plan": ["plan", "sweep.yaml"]}
COMMANDS |= {"doctor": ["doctor"], "run": ["run", "sweep.yaml", "--case", "m01", "--quiet"], "list": ["list"]}
HOSTING = {name: [name] for name in ("up", "worker", "scheduler")}


class Outcome(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def is_refused(self) -> bool:
        return self.code == 2 and self.err.startswith(REFUSED) and self.err.count("\n") == 1


def wtb(system: str, folder: Path, commands: dict[str, list[str]]) -> dict[str, Outcome]:
    """Run commands in a folder, without the modules that Python lacks on a system."""
    command = [sys.executable, "-m", "tests.support.other_systems", system, json.dumps([*commands.values()])]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = run_program(command, cwd=folder, env=env, code=0)
    return {name: Outcome(*outcome) for name, outcome in zip(commands, json.loads(done.stdout), strict=True)}


@pytest.fixture(scope="module")
def mac(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    return wtb("Darwin", tmp_path_factory.mktemp("mac"), COMMANDS)


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    return wtb("Windows", tmp_path_factory.mktemp("windows"), COMMANDS | HOSTING)


def test_both_have_help_plans_and_results(mac: dict[str, Outcome], windows: dict[str, Outcome]) -> None:
    for outcomes in (mac, windows):
        for name in ("init", "help", "version", "plan", "list"):
            assert outcomes[name].code == 0, outcomes[name].err
        assert "Usage:" in outcomes["help"].out
        assert "Sharing saves" in outcomes["plan"].out


def test_doctor_says_what_holds(mac: dict[str, Outcome], windows: dict[str, Outcome]) -> None:
    assert (mac["doctor"].code, windows["doctor"].code) == (0, 1)
    assert "ok       system           macOS: sweeps run" in mac["doctor"].out
    assert "problem  system           Windows: plans and results;" in windows["doctor"].out


def test_a_mac_runs_sweeps(mac: dict[str, Outcome]) -> None:
    assert (mac["run"].code, "Cells: 9 of 9 succeeded" in mac["run"].out) == (0, True), mac["run"].err


@pytest.mark.parametrize("command", ["run", *HOSTING])
def test_windows_is_refused_what_runs_nodes(windows: dict[str, Outcome], command: str) -> None:
    assert windows[command].is_refused, windows[command].err


def test_every_module_of_commands_can_be_imported_on_windows() -> None:
    modules = ", ".join(sorted({f"wtb.{command.module}" for command in ENTRIES.values()}))
    code = f"from tests.support.other_systems import become; become('Windows'); import wtb, wtb.testing, {modules}"
    assert run_program([sys.executable, "-c", code], cwd=ROOT, code=0).stderr == ""
