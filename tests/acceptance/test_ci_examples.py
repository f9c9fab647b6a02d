"""The jobs of `examples/ci`, run on good code and on code that got worse."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from tests.support.project import Project
from tests.support.prose import sentence

EXAMPLES = Path(__file__).parents[2] / "examples" / "ci"
INSTALLS = "pip install "

# Stands in for GitHub's command that comments on pull requests, and records its arguments.
GH = '#!/bin/sh\necho "$@" > gh.log\n'


class Desk(Project):
    """A copy of the examples, as the root of a repository."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        shutil.copytree(EXAMPLES, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", ".wtb"))
        self.write({"bin/gh": GH})
        (folder / "bin" / "gh").chmod(0o755)

    def yaml(self, name: str) -> Any:
        return yaml.safe_load((self.folder / name).read_text("utf-8"))

    def worsen(self) -> None:
        """Change the code so that its best combination gets worse."""
        code = self.folder / "bot.py"
        code.write_text(code.read_text("utf-8").replace("letters: int = 4", "letters: int = 12"), "utf-8")

    def lines(self, script: list[str]) -> int:
        """Run the lines of a script until one of them fails, without those that install WTB."""
        for line in script:
            if not line.startswith(INSTALLS) and (code := self.line(line)):
                return code
        return 0

    def line(self, line: str) -> int:
        """Run `wtb` in this process, which is quicker, and any other command in a shell."""
        if line.startswith("wtb "):
            done = self.inside(*shlex.split(line)[1:])
            print(f"$ {line}\n{done.stdout}{done.stderr}")
            return done.code
        plugins = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "wtb.integrations.pytest_plugin"}
        path = f"{self.folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        summary = str(self.folder / "summary.md")
        environment = self.environment({"PATH": path, "GITHUB_STEP_SUMMARY": summary, **plugins})
        return subprocess.run(["bash", "-ec", line], cwd=self.folder, env=environment, check=False).returncode

    def job(self, name: str) -> int:
        """Run a job of the GitHub workflow, after a failed step only its `always()` steps. Returns its exit code."""
        failed = 0
        for step in self.yaml("github-actions.yaml")["jobs"][name]["steps"]:
            if "run" in step and (not failed or step.get("if") == "always()"):
                failed = self.lines(step["run"].splitlines()) or failed
        return failed


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    project = Desk(tmp_path / "desk")
    yield project
    project.close()


@pytest.mark.slow
def test_github_holds_a_pull_request_against_main_and_reports_either_way(desk: Desk) -> None:
    assert desk.job("main") == 0
    assert desk.job("pull-request") == 0
    desk.worsen()
    for file in ("report.html", "junit.xml", "comment.md", "summary.md"):
        (desk.folder / file).unlink()
    assert desk.job("pull-request") == 1
    jobs = desk.yaml("github-actions.yaml")["jobs"]
    upload = next(step for step in jobs["pull-request"]["steps"] if "upload" in step.get("uses", ""))
    assert [name for name in upload["with"]["path"].split() if not (desk.folder / name).is_file()] == []
    assert "--body-file comment.md" in (desk.folder / "gh.log").read_text("utf-8")
    assert sentence("{} of {} combinations", "right fell in 2", 4) in (desk.folder / "summary.md").read_text("utf-8")


@pytest.mark.slow
def test_gitlab_shows_gates_and_combinations_as_tests(desk: Desk) -> None:
    job = desk.yaml("gitlab-ci.yml")["quality"]
    assert desk.lines(job["script"]) == 0
    assert desk.lines(job["after_script"]) == 0
    desk.worsen()
    assert desk.lines(job["script"]) == 1
    assert [name for name in job["artifacts"]["paths"] if not (desk.folder / name).is_file()] == []
    cases = ElementTree.parse(desk.folder / job["artifacts"]["reports"]["junit"]).iter("testcase")
    failed = [case.get("name") for case in cases if case.find("failure") is not None]
    assert failed == ["gate: right.mean >= 0.9", "test_the_help_desk_is_good_enough"]


def test_gitlab_s_nightly_is_held_against_the_last_good_one(desk: Desk) -> None:
    job = desk.yaml("gitlab-ci.yml")["nightly"]
    assert desk.lines(["wtb run quality.sweep.yaml --quiet", "wtb baseline set nightly quality"]) == 0
    assert desk.lines(job["script"]) == 0
    desk.worsen()
    assert desk.lines(job["script"]) == 1


@pytest.mark.slow
def test_cron_carries_out_the_schedule_and_says_what_is_worse(desk: Desk) -> None:
    script = (desk.folder / "nightly.sh").read_text("utf-8").splitlines()
    (once,) = (line.removeprefix("#     ") for line in script if "wtb schedule add" in line)
    assert desk.line(once) == 0
    assert desk.line("./nightly.sh") == 0
    desk.worsen()
    assert desk.line("wtb schedule run-now nightly") == 1
    assert desk.line("./nightly.sh") == 1


def test_a_part_of_the_sweep_runs_before_a_push(desk: Desk) -> None:
    ((hook,),) = (repo["hooks"] for repo in desk.yaml("pre-commit-config.yaml")["repos"])
    assert desk.line(hook["entry"]) == 0
    desk.worsen()
    assert desk.line(hook["entry"]) == 1
