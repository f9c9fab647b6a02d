"""`wtb --server URL`: what is read through a server is what is read in its database, to the last character."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.hosting.api.serving import TOKEN, Server
from tests.support.project import FLOW, SWEEP, Outcome, Project
from tests.support.prose import sentence

ASKS = """
from wtb import Workflow

wf = Workflow("asking", state=dict)


@wf.node
def review(state, ctx):
    return {"answer": ctx.ask(f"Send {state['x']}?", options=["yes", "no"]).choice}


wf.entry(review)
"""
ASKING = "sweep: asking\nworkflow: asks:wf\ncases: cases.jsonl\nvary: {review: all}\n"


@dataclass(frozen=True)
class Served:
    """A folder with a database that a server has, and a folder with nothing, where its token is all there is."""

    project: Project
    laptop: Project
    server: Server
    names: dict[str, str]

    def locally(self, *args: str) -> Outcome:
        return self.project.inside(*args)

    def through_server(self, *args: str, **env: str) -> Outcome:
        environment = {"WTB_SERVER": f"http://127.0.0.1:{self.server.port}", "WTB_TOKEN": TOKEN, **env}
        return self.laptop.inside(*args, env=environment)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    project = Project(tmp_path_factory.mktemp("served"))
    laptop = Project(tmp_path_factory.mktemp("laptop"))
    files = {"flow.py": FLOW, "sweep.yaml": SWEEP, "asks.py": ASKS, "asking.yaml": ASKING}
    project.write({**files, "cases.jsonl": Project.cases(3)})
    project.inside("run", "sweep.yaml", check=0)
    project.inside("run", "sweep.yaml", check=0)
    project.inside("run", "asking.yaml", check=1)
    asking, second, sweep = (row["id"] for row in project.inside("list", "--format", "json", check=0).json["sweeps"])
    cells = project.inside("show", sweep, "--cells", "--format", "json", check=0).json["cells"]
    question = project.inside("approvals", "--format", "json", check=0).json["approvals"][0]["id"]
    project.inside("baseline", "set", "main", sweep, check=0)
    project.inside("schedule", "add", "nightly", "sweep.yaml", "--cron", "0 3 * * *", "--local", check=0)
    project.inside("admin", "budget", "set", "--project", "search", "--usd", "10", check=0)
    project.inside("admin", "session", "create", "ann", "--usd", "5", check=0)
    project.inside("admin", "token", "create", "ann", check=0)
    server = Server(project)
    server.start()
    names = {"sweep": sweep, "again": second, "asking": asking, "question": question}
    names |= {"execution": cells[0]["execution"], "other": cells[-1]["execution"]}
    yield Served(project, laptop, server, names)
    server.kill()
    project.close()
    laptop.close()


READING = [
    *("list", "list --status completed --limit 1", "list --since 1d --workflow flow", "list --status paused"),
    *("status {sweep}", "status {execution}", "status {asking}", "watch --once", "watch {sweep} --once"),
    *("show {sweep}", "show {execution}", "show {execution} --calls", "show {sweep} --cells", "show {asking} --cells"),
    *("show {sweep} --cells --status failed", "show {sweep} --cells --case c1 --limit 2", "show {sweep} --limit 5"),
    *("log {sweep}", "log {sweep} --severity info --kind cell --kind sweep", "log {sweep} --execution {execution}"),
    *("log {sweep} --summary", "log {sweep} --follow --kind cell.s", "log {asking} --follow --severity warning"),
    *("log {sweep} --follow --execution {execution}", "history {execution}", "tree {sweep}", "tree {execution}"),
    *("tree {sweep} --case c1 --limit 3", "diff {execution} {other}", "series {sweep}", "costs", "costs {sweep}"),
    *("costs --by node,variant --since 2026-01-01", "costs {execution}"),
    *("matrix {sweep}", "matrix {sweep} --on-failure 0"),
    *("files {execution}", "files {execution} --diff {other}"),
    *("matrix {asking}", "compare {sweep} {again}", "compare main {again} --show-cells 3", "baseline list"),
    *("baseline show main", "approvals", "approvals --all", "approvals --each", "approvals {question}"),
    *(
        "approvals --limit 1",
        "approvals {asking}",
        "schedule list",
        "schedule show nightly",
        "schedule history nightly",
    ),
    *("admin session list", "admin session show ann", "admin budget list", "admin budget list {sweep}"),
    "admin token list",
]
REFUSED = [
    *("list --limit 0", "list --status gone", "list --session nobody", "status nothing", "show {sweep} --calls"),
    *("show {execution} --cells", "show {sweep} --cells --case nobody", "log {sweep} --severity loud", "log nothing"),
    *("score nothing --evaluate exact_match", "log nothing --follow", "log {sweep} --follow --severity loud"),
    *("history {sweep}", "tree {execution} --case c1", "diff {sweep} {execution}", "matrix nothing"),
    *("compare {sweep} nothing", "baseline show nothing", "costs nothing", "costs --by moon"),
    *("costs --project nobody", "schedule show nothing", "admin session show nobody", "admin budget list nobody"),
    *("files nothing", "files {execution} nothing", "files {execution} --diff nothing"),
    *("approvals nothing", "watch nothing", "report nothing", "pause {sweep}", "cancel {sweep} --yes"),
    *("breakpoint set {sweep} --add nowhere", "breakpoint set {sweep} --remove A", "schedule pause nothing"),
]
MADE_AT = re.compile(r'[-0-9]{10}T[:0-9]{8}\+00:00(?=\. T)|(?<="made_at": ")[^"]*|(?<="made_at":")[^"]*')
FORMATS = {"json": ("--format", "json"), "text": ()}


def same_but_for_time(command: str, first: Outcome, other: Outcome) -> None:
    """Two outcomes are one, but for what says when it was looked."""
    if command.startswith("watch"):
        first, other = (Outcome(each.code, _without_now(each.stdout), each.stderr) for each in (first, other))
    assert other == first


def _without_now(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if '"at"' not in line)[
        len('{"at":"2026-01-01T00:00:00.000000') :
    ]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("command", READING)
def test_what_is_read_is_the_same(served: Served, command: str, format: str) -> None:
    args = [*command.format(**served.names).split(), *FORMATS[format]]
    output = served.locally(*args)
    assert output.code in (0, 1)
    same_but_for_time(command, output, served.through_server(*args))


@pytest.mark.parametrize("format", ["html", "md", "csv", "json", "junit"])
def test_a_report_is_the_same(served: Served, format: str) -> None:
    args = ("report", served.names["sweep"], "--format", format, "--output")
    served.locally(*args, "report")
    served.through_server(*args, "report")
    local, remote = ((owner.folder / "report").read_text("utf-8") for owner in (served.project, served.laptop))
    assert MADE_AT.sub("now", remote) == MADE_AT.sub("now", local)


def test_an_archive_comes_from_a_server_and_is_read_beside_another_database(served: Served) -> None:
    execution = served.names["execution"]
    assert served.through_server("admin", "export", execution, "-o", "one.wtb").stdout == "one.wtb\n"
    assert sentence("exists already") in served.through_server("admin", "export", execution, "-o", "one.wtb").stderr
    assert served.through_server("admin", "export", "nothing").code != 0
    assert not (served.laptop.folder / "nothing.wtb").exists()
    counted = served.through_server("admin", "export", execution, "--format", "json")
    assert sentence("counts rows of the database") in counted.stderr
    shutil.copy(served.laptop.folder / "one.wtb", served.project.folder / "one.wtb")
    elsewhere = f"sqlite:///{served.laptop.folder / 'elsewhere.db'}"
    imported = served.project.inside("admin", "import", "one.wtb", "--db", elsewhere, "--format", "json", check=0).json
    history = served.project.inside("history", execution, "--format", "json", check=0).json
    assert imported["checkpoints"] == len(history["checkpoints"])


@pytest.mark.parametrize("command", REFUSED)
def test_what_is_refused_is_refused_with_the_same_words(served: Served, command: str) -> None:
    args = command.format(**served.names).split()
    output = served.locally(*args)
    assert output.code != 0
    place = re.compile(r" \(searched sqlite:.*\)")  # which a server does not tell
    assert served.through_server(*args) == replace(output, stderr=place.sub("", output.stderr))


# What is not done through a server, and how one is named


@pytest.mark.parametrize(
    "command",
    [
        *("admin gc", "run sweep.yaml", "baseline repeat main first"),
        *("schedule add nightly sweep.yaml --cron @daily", sentence("schedule run-now nightly"), "admin backup copy"),
    ],
)
def test_what_works_beside_the_database_says_so_in_a_line(served: Served, command: str) -> None:
    served.laptop.write({"flow.py": FLOW, "sweep.yaml": SWEEP, "cases.jsonl": Project.cases(1)})
    refused = served.through_server(*command.split())
    assert (refused.code, refused.stdout) == (2, "")
    assert refused.output.startswith("error: this needs the database, and http://127.0.0.1")
    assert not served.laptop.file.exists()


@pytest.mark.parametrize(
    ("command", "instead"),
    [
        (
            "admin gc",
            "; the scheduler does it every hour, by the retention policies of the system and of projects "
            "(`wtb admin project change`)",
        ),
        (
            "pilot sweep.yaml --cases 2",
            sentence("submit a part of the sweep (`--limit`), and see its cost with `wtb costs`"),
        ),
    ],
)
def test_what_to_do_instead_is_said(served: Served, command: str, instead: str) -> None:
    served.laptop.write({"flow.py": FLOW, "sweep.yaml": SWEEP, "cases.jsonl": Project.cases(1)})
    refused = served.through_server(*command.split())
    assert refused.code == 2
    assert instead in refused.output


def test_a_margin_is_refused(served: Served) -> None:
    refused = served.through_server("compare", "first", "first", "--margin", "total=1")
    assert (
        refused.output
        == "error: "
        + sentence("a server takes no argument {}; run this with the database instead", "margin")
        + " (--margin)"
    )


def test_the_option_stands_before_the_command_and_goes_before_the_environment(served: Served) -> None:
    url = f"http://127.0.0.1:{served.server.port}"
    env = {"WTB_TOKEN": TOKEN, "WTB_SERVER": "http://127.0.0.1:9"}
    output = served.laptop.inside("--server", url, "list", env=env, check=0)
    assert output == served.locally("list")
    both = served.laptop.inside("--server", url, "list", "--db", "sqlite:///x.db", env=env, check=2)
    assert both.output == "error: " + sentence("--server and --db are both given; expected one of them")
    database = f"sqlite:///{served.project.file}"
    assert served.laptop.inside("list", "--db", database, env=env, check=0) == output
    broker = served.laptop.inside("--server", url, "watch", "--broker", "redis://there", env=env, check=2)
    assert sentence("with its own broker") in broker.output


def test_a_token_is_read_from_a_file_that_others_may_not_read(served: Served, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{served.server.port}"
    env = {"WTB_SERVER": url, "XDG_CONFIG_HOME": str(tmp_path)}
    none = served.laptop.inside("list", env=env, check=2)
    assert none.output.startswith(f"error: there is no token for {url}: set WTB_TOKEN")
    file = tmp_path / "wtb" / "credentials.toml"
    file.parent.mkdir()
    file.write_text(f'["http://elsewhere"]\ntoken = "x"\n["{url}/"]\ntoken = "{TOKEN}"\n')
    file.chmod(0o640)
    refused = served.laptop.inside("list", env=env, check=2)
    assert sentence("holds tokens, and other users can read it; run chmod 600 {}", file) in refused.output
    file.chmod(0o600)
    assert served.laptop.inside("list", env=env, check=0) == served.locally("list")
    file.write_text("no = [toml")
    assert "expected TOML" in served.laptop.inside("list", env=env, check=2).output


def test_a_token_that_is_of_no_use_is_refused(served: Served) -> None:
    refused = served.through_server("list", WTB_TOKEN="wtb_nobody")
    assert refused.code == 4
    assert sentence("the token is missing or of no use") in refused.output


def test_help_and_commands_on_a_database_import_no_client() -> None:
    code = "import sys, wtb.cli.main, wtb.cli.results.show; print('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
