"""The commands that look: list, status, show, history, log, diff, against a sweep with failures, loops and calls."""

import csv
import io
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from tests.support.prose import sentence
from wtb import END, Context, Sweep, Workflow
from wtb.cli.main import main
from wtb.store.database import Database
from wtb.store.process_identity import identity
from wtb.store.read import queries
from wtb.store.runs import leases


def make_workflow() -> Workflow:
    wf = Workflow("qa", description="Answers a question.", version="1")

    @wf.node
    def retrieve(state: dict[str, Any], ctx: Context, *, k: int = 2) -> dict[str, Any]:
        """Looks documents up."""
        ctx.log("looking", level="debug", k=k)
        return {"docs": [f"document {number}" for number in range(k)], "seen": {"a", "b"}}

    retrieve.variant("deep", k=40)

    @wf.node
    def grade(state: dict[str, Any], ctx: Context) -> dict[str, Any]:
        """Sends thin results round again."""
        return {"good": len(state["docs"]) > 2 or ctx.visit > 0}

    @wf.node
    def answer(state: dict[str, Any], ctx: Context) -> dict[str, Any]:
        """Answers."""
        ctx.call(model="m", prompt="Why?", response="Because.", usd=0.25, tokens_in=7, tokens_out=3)
        return {"answer": f"to {state['question']}"}

    @answer.variant("broken", description="Fails.")
    def _broken(state: dict[str, Any]) -> dict[str, Any]:
        raise ValueError("no answer\nto be had")

    def is_good(state: dict[str, Any]) -> bool:
        return bool(state["good"])

    wf.entry(retrieve)
    wf.edge(retrieve, grade)
    wf.edge(grade, answer, when=is_good)
    wf.edge(grade, retrieve, default=True)
    wf.edge(answer, END)
    return wf


def length(case: Any, result: Any) -> float:
    return float(len(result.state["answer"]))


class Console:
    """Calls commands in this process, on one database."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], url: str) -> None:
        self.monkeypatch, self.capfd, self.url = monkeypatch, capfd, url

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """(exit code, stdout, stderr)"""
        self.monkeypatch.setenv("WTB_DATABASE_URL", self.url)
        self.monkeypatch.setenv("COLUMNS", "80")
        self.monkeypatch.setattr(sys, "argv", ["wtb", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = self.capfd.readouterr()
        code = ended.value.code
        return (code if isinstance(code, int) else 0), out, err

    def text(self, *arguments: str) -> str:
        code, out, err = self(*arguments)
        assert code == 0, err
        assert all(cell_len(line) <= 80 for line in out.splitlines()), out
        return out

    def json(self, *arguments: str) -> Any:
        code, out, err = self(*arguments, "--format", "json")
        assert code == 0, err
        return json.loads(out)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """(database URL, id of a sweep that has ended)"""
    url = f"sqlite:///{tmp_path_factory.mktemp('looking') / 'wtb.db'}"
    handle = Sweep(
        name="nightly",
        project="search",
        workflow=make_workflow(),
        cases=[{"id": f"q{number}", "input": {"question": f"what is {number}"}} for number in range(2)],
        vary={"retrieve": "all", "answer": "all"},
        baseline={"retrieve": "default"},
        evaluate=[length],
    ).run(url)
    yield url, handle.id
    handle.database.close()


@pytest.fixture
def wtb(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], swept: tuple[str, str]) -> Console:
    return Console(monkeypatch, capfd, swept[0])


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], sqlite_url: str) -> Console:
    """On a database that is not there."""
    return Console(monkeypatch, capfd, sqlite_url)


def execution(wtb: Console, retrieve: str, answer: str, case: str = "q0") -> str:
    cells = wtb.json("show", "nightly", "--cells", "--case", case)["cells"]
    return next(c["execution"] for c in cells if c["combination"] == {"retrieve": retrieve, "answer": answer})


def test_a_sweep_is_listed_with_its_counts(wtb: Console, swept: tuple[str, str]) -> None:
    (sweep,) = wtb.json("list")["sweeps"]
    assert (sweep["id"], sweep["name"], sweep["status"]) == (swept[1], "nightly", "completed")
    assert (sweep["workflow"], sweep["project"]) == ("qa", "search")
    assert (sweep["cells"]["total"], sweep["cells"]["succeeded"], sweep["cells"]["failed"]) == (8, 4, 4)
    table = wtb.text("list")
    assert swept[1] in table
    assert "completed" in table


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        (["--workflow", "qa", "--status", "completed", "--project", "search"], 1),
        (["--workflow", "other"], 0),
        (["--status", "running"], 0),
        (["--project", "other"], 0),
        (["--since", "2d"], 1),
        (["--since", "2999-01-01"], 0),
        (["--since", f"{date.today() - timedelta(days=1)}", "--limit", "1"], 1),
    ],
)
def test_the_list_is_filtered(wtb: Console, filters: list[str], count: int) -> None:
    assert len(wtb.json("list", *filters)["sweeps"]) == count
    code, out, err = wtb("list", *filters)
    assert code == 0
    assert bool(out) == bool(count)
    assert (sentence("no sweep matches") in err) == (not count)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["list", "--status", "compleated"], sentence("did you mean '{}'?", "completed")),
        (["list", "--since", "yesterday"], "expected 30m, 12h, 2d"),
        (["status", "nightlly"], sentence("did you mean '{}'?", "nightly")),
        (["show", "nightlly"], sentence("did you mean '{}'?", "nightly")),
        (["show", "nightly", "--case", "q9"], sentence("the sweep has no case {}", "'q9'")),
        (["show", "nightly", "--status", "broken"], sentence("is not a status of a {}", "cell")),
        (["show", "nightly", "--calls"], sentence("calls are of one execution")),
        (["history", "zzz"], sentence("there is no execution {}", "'zzz'")),
        (["diff", "zzz", "zzz"], sentence("there is no execution or checkpoint {}", "'zzz'")),
        (["log", "nightly", "--severity", "eror"], sentence("did you mean '{}'?", "error")),
        (["log", "nightly", "--summary", "--follow"], sentence("--summary is given with --follow")),
        (["delete", "nightlly"], sentence("did you mean '{}'?", "nightly")),
    ],
)
def test_wrong_input_is_refused_with_a_near_match(wtb: Console, arguments: list[str], words: str) -> None:
    code, out, err = wtb(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert words in err


def test_the_beginning_of_several_ids_is_refused(wtb: Console) -> None:
    code, _, err = wtb("history", execution(wtb, "deep", "default")[:8])
    assert code == 2
    assert sentence("the beginning of several {}s' ids", "execution") in err


@pytest.mark.parametrize(
    "command", [["status", "x"], ["show", "x"], ["log", "x"], ["history", "x"], ["diff", "x", "y"]]
)
def test_without_a_database_there_is_nothing_to_look_at(nothing: Console, tmp_path: Path, command: list[str]) -> None:
    code, out, err = nothing(*command)
    assert (code, out) == (2, "")
    assert sentence("there is no database at") in err
    assert list(tmp_path.iterdir()) == []


def test_the_list_is_empty_without_a_database_and_makes_none(nothing: Console, tmp_path: Path) -> None:
    assert nothing.json("list") == {"sweeps": []}
    code, out, err = nothing("list")
    assert (code, out) == (0, "")
    assert "wtb init" in err
    assert list(tmp_path.iterdir()) == []


def test_a_status_that_is_none_is_refused_without_a_database(nothing: Console) -> None:
    code, out, err = nothing("list", "--status", "compleated")
    assert (code, out) == (2, "")
    assert sentence("did you mean '{}'?", "completed") in err


def test_a_database_out_of_reach_is_exit_code_4(wtb: Console) -> None:
    wtb.url = "postgresql://nobody@127.0.0.1:1/none"
    code, out, err = wtb("list")
    assert (code, out) == (4, "")
    assert "127.0.0.1" in err


def test_status_says_how_far_and_what_to_do(wtb: Console, swept: tuple[str, str]) -> None:
    document = wtb.json("status", swept[1][:9])
    assert document["sweep"]["status"] == "completed"
    assert document["cells"]["failed"] == 4
    assert document["cost"]["usd"] == pytest.approx(1.0)
    assert document["next"]["command"] == f"wtb retry {swept[1]}"
    text = wtb.text("status", "nightly")
    assert "8: 4 succeeded, 4 failed" in text
    assert sentence("continue with: {}", f"wtb retry {swept[1]}") in text


@pytest.mark.parametrize(
    ("changed", "state"), [({}, "alive"), ({"pid": 2**22 + 1}, "dead"), ({"host": "elsewhere"}, "unknown")]
)
def test_status_knows_whether_the_owner_lives(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    sqlite_url: str,
    changed: dict[str, Any],
    state: str,
) -> None:
    database, sweep_id = submitted(sqlite_url)
    runner = replace(identity(), **changed)
    leases.register(database, runner)
    leases.move_sweep(database, sweep_id, "running")
    leases.claim(database, sweep_id, runner.id, 1, 30.0)
    wtb = Console(monkeypatch, capfd, sqlite_url)
    (owner,) = wtb.json("status", sweep_id)["owners"]
    assert owner["state"] == state
    text = wtb.text("status", sweep_id)
    assert f"process {runner.pid} on {runner.host}: {state}" in " ".join(text.split())
    assert (f"wtb resume {sweep_id}" in text) == (state != "alive")


def submitted(url: str) -> tuple[Database, str]:
    """A sweep that waits for somebody to run it."""
    from wtb.store.files.locations import workspaces_of

    database = Database(url)
    database.prepare()
    return database, waiting().prepare().submit(database, workspaces_of(database))


def waiting() -> Sweep:
    cases = [{"id": "q", "input": {"question": "?"}}]
    return Sweep(name="waiting", workflow=make_workflow(), cases=cases, vary={"retrieve": "all"})


def test_a_sweep_is_shown_with_what_was_asked(wtb: Console) -> None:
    definition = wtb.json("show", "nightly")["definition"]
    assert definition["vary"] == {"retrieve": ["default", "deep"], "answer": ["default", "broken"]}
    assert (definition["combinations"], definition["cases"], definition["repeats"]) == (4, 2, 1)
    text = wtb.text("show", "nightly")
    assert "4 combinations x 2 cases x 1 repeat" in text
    assert "baseline   retrieve=default answer=default" in text


def test_cells_are_shown_with_states_scores_and_errors(wtb: Console) -> None:
    cells = wtb.json("show", "nightly", "--cells")["cells"]
    assert len(cells) == 8
    assert all(
        set(cell)
        == {"combination", "case", "repeat", "tags", "expected", "status", "state", "scores", "execution", "error"}
        | {"latency_s", "cost_usd", "tokens_in", "tokens_out"}
        for cell in cells
    )
    good = next(cell for cell in cells if cell["status"] == "succeeded")
    assert good["state"]["answer"] == "to what is 0"
    assert good["scores"] == {"length": 12.0}
    assert sorted(good["state"]["seen"]) == ["a", "b"]
    bad = [cell for cell in cells if cell["status"] == "failed"]
    assert len(bad) == 4
    assert all("ValueError: no answer" in cell["error"] for cell in bad)


def test_cells_are_written_as_csv(wtb: Console, tmp_path: Path) -> None:
    code, out, _ = wtb("show", "nightly", "--cells", "--format", "csv", "--key", "seen", "--key", "answer")
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(out, newline="")))
    cells = wtb.json("show", "nightly", "--cells")["cells"]
    assert [row["case"] for row in rows] == [cell["case"] for cell in cells]
    assert [(row["retrieve"], row["answer"]) for row in rows] == [tuple(cell["combination"].values()) for cell in cells]
    good = next(row for row in rows if row["status"] == "succeeded")
    assert (good["length"], good["state.answer"]) == ("12.0", "to what is 0")
    assert sorted(json.loads(good["seen"])) == ["a", "b"], "a set"
    bad = next(row for row in rows if row["status"] == "failed")
    assert (bad["length"], bad["state.answer"]) == ("", "")
    assert "no answer\nto be had" in bad["error"]
    wtb("show", "nightly", "--cells", "--failed", "--format", "csv", "--output", str(tmp_path / "failed.csv"))
    with (tmp_path / "failed.csv").open(newline="") as file:
        assert [row["status"] for row in csv.DictReader(file)] == ["failed"] * 4


@pytest.mark.parametrize("options", [[], ["--outputs", "--calls"], ["--cells", "--calls"]])
def test_csv_is_of_cells_and_outputs_alone(wtb: Console, options: list[str]) -> None:
    code, out, err = wtb("show", "nightly", *options, "--format", "csv")
    assert (code, out) == (2, "")
    assert sentence("expected --format csv with --cells or --outputs") in err


@pytest.mark.parametrize(
    ("filters", "count"),
    [(["--failed"], 4), (["--status", "succeeded"], 4), (["--case", "q1"], 4), (["--limit", "3"], 3)],
)
def test_cells_are_filtered(wtb: Console, filters: list[str], count: int) -> None:
    assert len(wtb.json("show", "nightly", "--cells", *filters)["cells"]) == count
    text = wtb.text("show", "nightly", "--cells", *filters)
    assert sum(line.startswith(("q0", "q1")) for line in text.splitlines()) == count


def test_a_failed_execution_shows_its_path_and_the_users_frames(wtb: Console) -> None:
    id = execution(wtb, "default", "broken")
    document = wtb.json("show", id)
    assert [f"{run['node']}.{run['visit']}" for run in document["path"]] == [
        "retrieve.0",
        "grade.0",
        "retrieve.1",
        "grade.1",
        "answer.0",
    ]
    assert document["path"][-1]["status"] == "failed"
    assert "raise ValueError" in document["path"][-1]["tried"][0]["trace"]
    assert document["state"]["docs"] == ["document 0", "document 1"]
    text = wtb.text("show", id)
    assert "answer=broken, attempt 1 failed" in text
    assert "raise ValueError" in text


def test_an_execution_shows_its_calls_when_asked(wtb: Console) -> None:
    id = execution(wtb, "deep", "default")
    assert "Because." not in wtb.text("show", id)
    text = wtb.text("show", id, "--calls")
    assert "answer called m, 7 tokens in, 3 out, $0.25" in text
    assert "response: Because." in text
    (call,) = wtb.json("show", id, "--calls")["path"][-1]["calls"]
    assert (call["prompt"], call["usd"]) == ("Why?", 0.25)


def test_history_is_the_line_of_checkpoints_with_boundaries_by_visit(wtb: Console) -> None:
    id = execution(wtb, "default", "default")
    history = wtb.json("history", id)
    line = history["checkpoints"]
    assert [checkpoint["step"] for checkpoint in line] == list(range(6))
    assert all(after["parent"] == before["id"] for before, after in pairwise(line))
    assert line[2]["decisions"][0]["to"] == "retrieve"
    assert [(boundary["node"], boundary["visit"], boundary["status"]) for boundary in history["boundaries"]] == [
        ("retrieve", 0, "succeeded"),
        ("grade", 0, "succeeded"),
        ("retrieve", 1, "succeeded"),
        ("grade", 1, "succeeded"),
        ("answer", 0, "succeeded"),
    ]
    text = wtb.text("history", id)
    assert "grade → answer: is_good is true" in text
    assert line[3]["id"] in text


def test_a_boundary_that_did_not_end_has_no_exit(wtb: Console) -> None:
    last = wtb.json("history", execution(wtb, "default", "broken"))["boundaries"][-1]
    assert (last["node"], last["status"], last["exit"]) == ("answer", "failed", None)


def test_diff_names_the_first_divergent_node(wtb: Console) -> None:
    a, b = execution(wtb, "default", "default"), execution(wtb, "default", "broken")
    difference = wtb.json("diff", a, b)
    assert difference["shared_steps"] == 4
    assert difference["divergence"] == {
        "step": 5,
        "why": "variant",
        "a": ["answer=default"],
        "b": ["answer=broken (failed)"],
    }
    assert difference["state"]["only_a"] == {"answer": "to what is 0"}
    assert "at step 5 another variant: answer=default | answer=broken" in " ".join(wtb.text("diff", a, b).split())


def test_diff_of_forks_shows_states_and_paths(wtb: Console) -> None:
    difference = wtb.json("diff", execution(wtb, "default", "default"), execution(wtb, "deep", "default"))
    assert difference["divergence"]["a"] == ["retrieve=default"]
    assert len(difference["state"]["changed"]["docs"]["b"]) == 40
    assert "question" in difference["state"]["same"]
    assert len(difference["a"]["path"]) == 5
    assert len(difference["b"]["path"]) == 3


def test_diff_of_cases_parts_at_the_input(wtb: Console) -> None:
    difference = wtb.json("diff", execution(wtb, "deep", "default", "q0"), execution(wtb, "deep", "default", "q1"))
    assert difference["common_checkpoint"] is None
    assert difference["divergence"]["why"] == "input"


def test_diff_takes_checkpoints_and_finds_no_difference_in_the_same(wtb: Console) -> None:
    id = execution(wtb, "deep", "default")
    line = wtb.json("history", id)["checkpoints"]
    assert wtb.json("diff", line[1]["id"], line[1]["id"])["divergence"] is None
    assert wtb.json("diff", line[1]["id"], id)["divergence"]["why"] == "end"
    wtb.text("diff", line[1]["id"], id)


def test_the_log_is_in_words_and_in_json_lines(wtb: Console) -> None:
    text = wtb.text("log", "nightly")
    assert sentence("sweep {} submitted: ", "nightly") + sentence("{} of {} combinations", "8 cells", 4) in text
    assert "q0: cell retrieve=deep answer=default succeeded" in text
    code, out, _ = wtb("log", "nightly", "--format", "json")
    assert code == 0
    rows = [json.loads(line) for line in out.splitlines()]
    assert rows[0]["kind"] == "sweep.submitted"
    assert rows[-1]["kind"] == "sweep.completed"
    assert {"id", "at", "severity", "kind", "sweep", "execution", "data"} == set(rows[0])


def test_the_log_is_filtered(wtb: Console) -> None:
    def kinds(*arguments: str) -> set[str]:
        _, out, _ = wtb("log", "nightly", "--format", "json", *arguments)
        return {json.loads(line)["kind"] for line in out.splitlines()}

    assert kinds("--kind", "cell") == {"cell.succeeded", "cell.failed"}
    assert "node.log" not in kinds("--severity", "info")
    assert "execution.failed" in kinds("--severity", "error")
    assert kinds("--execution", execution(wtb, "default", "broken"), "--kind", "cell") == {"cell.failed"}
    counted = wtb.json("log", "nightly", "--summary", "--kind", "cell")["events"]
    assert counted == [
        {"kind": "cell.failed", "severity": "error", "count": 4},
        {"kind": "cell.succeeded", "severity": "info", "count": 4},
    ]
    assert re.search(r"cell.failed +error +4", wtb.text("log", "nightly", "--summary"))


def test_following_sees_all_until_the_sweep_ends(sqlite_url: str, tmp_path: Path) -> None:
    """Given a sweep that nobody runs yet, a follower sees each of its events, and ends when it ends."""
    from wtb.execution.runtime.sweep_run import SweepRun
    from wtb.operations.context import Context
    from wtb.operations.running.local import follow
    from wtb.store.files.locations import workspaces_of

    database, sweep_id = submitted(sqlite_url)
    prepared = waiting().prepare()
    run = SweepRun(database, queries.find_sweep(database, sweep_id), prepared.bound, workspaces=workspaces_of(database))
    command = [sys.executable, "-m", "wtb", "log", sweep_id, "--follow", "--interval", "0.05", "--format", "json"]
    environment = os.environ | {"WTB_DATABASE_URL": sqlite_url}
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as follower:
        killer = threading.Timer(60, follower.kill)
        killer.start()
        assert follower.stdout is not None
        rows = [json.loads(follower.stdout.readline())]  # it follows before anything runs
        follow(Context(database), run, 10.0)
        rows += [json.loads(line) for line in follower.stdout]
        killer.cancel()
    assert follower.returncode == 0
    assert [row["id"] for row in rows] == [row["id"] for row in queries.event_rows(database, sweep_id)]
    assert (rows[0]["kind"], rows[-1]["kind"]) == ("sweep.submitted", "sweep.completed")


def test_output_goes_to_a_file(wtb: Console, tmp_path: Path) -> None:
    for arguments in (["list"], ["show", "nightly", "--cells"], ["log", "nightly"]):
        target = tmp_path / "made" / f"{arguments[0]}.json"
        code, out, err = wtb(*arguments, "--format", "json", "--output", str(target))
        assert (code, out) == (0, "")
        assert str(target) in err
        assert target.stat().st_size > 100


def test_an_execution_that_has_not_begun_can_be_looked_at(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], sqlite_url: str
) -> None:
    database, sweep_id = submitted(sqlite_url)
    wtb = Console(monkeypatch, capfd, sqlite_url)
    id = wtb.json("show", sweep_id, "--cells")["cells"][0]["execution"]
    assert wtb.json("show", id)["state"] == {}
    assert sentence("it has not begun yet") in wtb.text("history", id)
    assert sentence("neither has any state") in wtb.text("diff", id, id)
    assert "choices  retrieve=(2 variants)" in wtb.text("show", id)
    database.close()
