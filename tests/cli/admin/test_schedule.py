"""`wtb schedule`, as a user meets it. Fires run in child processes, so there are few of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support.prose import sentence

if TYPE_CHECKING:
    from tests.support.project import Outcome, Project

QUICK = """
workflow: flow:wf
cases: cases.jsonl
vary: {A: [v1, v2]}
evaluate: ["flow:total"]
run: {pool: thread}
"""
NIGHTLY = ("schedule", "add", "nightly", "sweep.yaml", "--cron", "0 3 * * *", "--tz", "Europe/Berlin")


def wtb(project: Project, *arguments: str, check: int | None = 0) -> Outcome:
    return project.inside(*arguments, check=check, env={"COLUMNS": "80"})


def test_a_schedule_fires_and_tells_a_regression(project: Project) -> None:
    project.write({"sweep.yaml": QUICK})
    added = wtb(project, *NIGHTLY, "--baseline", "last", "--notify", "sh -c 'cat > told.json'")
    assert added.stdout.startswith("schedule nightly: At 03:00 every day (Europe/Berlin), first 20")
    assert "wtb schedule run-due" in added.output
    assert sentence("no fire has ended yet") in wtb(project, "schedule", "check", "nightly").stdout

    first = wtb(project, "schedule", "run-now", "nightly").stdout
    assert "cannot tell" in first
    code = (project.folder / "flow.py").read_text()
    project.write({"flow.py": code.replace('"x": state["x"] + by', '"x": state["x"] + by - 5')})
    project.change("UPDATE schedules SET next_at = next_at - 86400")
    done = wtb(project, "schedule", "run-due")
    assert (done.stdout, done.stderr) == ("", "")  # what the child says goes to the terminal itself

    checked = wtb(project, "schedule", "check", "nightly", check=1).stdout
    assert checked.startswith("schedule nightly: worse at ")
    assert "total fell" in checked
    message = json.loads((project.folder / "told.json").read_text())
    assert (message["schedule"], message["verdict"]) == ("nightly", "worse")
    (listed,) = wtb(project, "schedule", "list", "--format", "json").json["schedules"]
    assert (listed["status"], listed["notify"]) == ("active", "sh -c 'cat > told.json'")
    assert [len(project.query(f"SELECT * FROM {table}")) for table in ("sweeps", "fires")] == [2, 2]

    history = wtb(project, "schedule", "history", "nightly", "--format", "json").json
    by_sweep = {fire["sweep"]: fire for fire in history["fires"]}
    fire = by_sweep[message["sweep"]]
    assert (fire["verdict"], fire["manual"], fire["notified_at"] is None) == ("worse", False, False)
    assert history["metric"] == "total"
    text = wtb(project, "schedule", "history", "nightly").stdout
    assert "by hand" in text
    assert sentence("× worse or failed") in text
    assert max(map(len, text.splitlines())) <= 80
    assert "worse at" in wtb(project, "schedule", "show", "nightly").stdout
    assert (
        sentence("expected one of: {}", "total")
        in wtb(project, "schedule", "history", "nightly", "--metric", "x", check=2).output
    )

    removed = wtb(project, "schedule", "remove", "nightly").stdout
    assert removed == sentence("schedule {}: removed, with {}; their sweeps stay", "nightly", "2 fires") + "\n"
    assert len(project.query("SELECT * FROM sweeps")) == 2


def test_a_schedule_is_paused_and_resumed_and_its_name_is_taken(project: Project) -> None:
    project.write({"sweep.yaml": QUICK})
    wtb(project, *NIGHTLY)
    assert sentence("there is a schedule {} already", "'nightly'") in wtb(project, *NIGHTLY, check=2).output
    assert wtb(project, "schedule", "pause", "nightly").stdout == "schedule nightly: paused\n"
    assert (
        wtb(project, "schedule", "pause", "nightly").stdout == sentence("schedule {}: paused already", "nightly") + "\n"
    )
    assert "paused" in wtb(project, "schedule", "list").stdout
    assert "paused" in wtb(project, "schedule", "check", "nightly").stdout
    assert wtb(project, "schedule", "resume", "nightly").stdout.startswith("schedule nightly: active, next 20")
    assert sentence("did you mean '{}'", "nightly") in wtb(project, "schedule", "show", "nihgtly", check=2).output


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--cron", "0 3 * *"), sentence("expected five fields")),
        (("--tz", "Europe/Berln"), sentence("did you mean '{}'?", "Europe/Berlin")),
        (("--baseline", "main"), sentence("there is no baseline {}", "'main'")),
        (
            ("--notify", "http://127.0.0.1/hook"),
            sentence("not a public address; allow_private allows it") + " (--notify)",
        ),
        (("--notify", "no-such-program"), sentence("there is no program {}", "'no-such-program'")),
        (("--margin", "total"), "expected METRIC=X"),
        (("--session", "nobody"), sentence("there is no session {}", "'nobody'")),
        (("--queued",), sentence("expected PostgreSQL, because --submit needs workers")),
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_is_kept(
    project: Project, options: tuple[str, ...], problem: str
) -> None:
    project.write({"sweep.yaml": QUICK})
    assert problem in wtb(project, *NIGHTLY, *options, check=2).output
    assert project.query("SELECT * FROM schedules") == []


def test_a_sweep_file_that_a_plan_would_refuse_is_refused(project: Project) -> None:
    project.write({"sweep.yaml": QUICK.replace("v2", "v9")})
    assert "v9" in wtb(project, *NIGHTLY, check=2).output
    project.write({"sweep.yaml": QUICK + "gates: ['no_worse_than: main']\n"})
    assert sentence("there is no baseline {}", "'main'") in wtb(project, *NIGHTLY, check=2).output
    (project.folder / "sweep.yaml").unlink()
    assert "sweep.yaml" in wtb(project, *NIGHTLY, check=2).output
    assert project.query("SELECT * FROM schedules") == []


def test_without_schedules_there_is_nothing_to_list_or_to_run(project: Project) -> None:
    assert "wtb schedule add" in wtb(project, "schedule", "list").output
    assert wtb(project, "schedule", "list", "--format", "json").json == {"schedules": []}
    assert sentence("there is no database") in wtb(project, "schedule", "run-due", check=2).output
