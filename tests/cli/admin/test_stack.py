"""`wtb up`, `wtb down`, `wtb status --stack` and Flower, as a user meets them: real servers, real processes."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import timeit
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from tests.support.invariants import lives
from tests.support.project import Outcome, Project, Running
from tests.support.prose import sentence
from wtb.config.stack_file import Stack, broker_url, find_stack
from wtb.execution.sandbox.launch.launching import environment
from wtb.hosting.servers.background import stack_document
from wtb.hosting.servers.postgres import connect
from wtb.hosting.servers.server import HOST, free_port
from wtb.store.database_url import DEFAULT_URL, database_url
from wtb.store.tables.schema import REVISION

SERVERS = ("postgres", "valkey")
PROGRAMS = ("worker", "scheduler", "flower")
QUICK = ("--concurrency", "1")
PATIENCE_S = 90.0  # a start with a new database, on a machine that does other things too


# A node lists everything that it can read of its ancestors and in the stack's folder, and tries to connect with it.
SPY = """
import json
import os
import re
from pathlib import Path

import psycopg

from wtb import END, Workflow

wf = Workflow("spy")
HERE = Path(__file__).parent


@wf.node
def look(state):
    *secrets, port = json.loads((HERE / "known").read_text())
    ancestors, shown, pid = [], [], os.getpid()
    while pid > 1:
        ancestors.append(pid)
        for name in ("environ", "cmdline"):
            try:
                text = Path(f"/proc/{pid}/{name}").read_text(errors="replace")
            except PermissionError:
                continue
            shown += [f"{name} of {pid}" for secret in secrets if secret in text]
        pid = int(re.search(r"PPid:\\s+(\\d+)", Path(f"/proc/{pid}/status").read_text())[1])
    shown += [name for name, value in os.environ.items() for secret in secrets if secret in value]
    readable = []
    for name in ("stack/stack.json", "postgres/password", "valkey/password", "logs/wtb.log"):
        try:
            readable.append((HERE / ".wtb" / name).read_text() and name)
        except OSError:
            pass
    connected = []
    for password in {*secrets, ""}:
        for user in ("wtb", "postgres", "root"):
            for database in ("wtb", "postgres", "template1"):
                try:
                    url = f"host=127.0.0.1 port={port} user={user} dbname={database} password='{password}'"
                    with psycopg.connect(url) as connection:
                        query = "SELECT current_user, current_setting('is_superuser')"
                        connected.append(connection.execute(query).fetchone())
                except psycopg.OperationalError:
                    pass
    found = {"ancestors": ancestors, "shown": shown, "readable": readable, "connected": connected}
    (HERE / "found").write_text(json.dumps(found))
    return {}


wf.entry(look)
wf.edge(look, END)
"""


@pytest.fixture
def folder(servers_folder: Path, request: pytest.FixtureRequest) -> Iterator[Project]:
    """An empty folder for stacks of the test's own, which nothing outlives. For root, others have to reach it."""
    project = Project(servers_folder / f"stack-{request.node.name[:40].strip(']')}")
    yield project
    project.inside("down", timeout=PATIENCE_S)
    wait_until_ended(project.folder)
    project.close()
    shutil.rmtree(project.folder)


@pytest.fixture(scope="module")
def shared(servers_folder: Path) -> Iterator[Project]:
    """A folder with a stack in the background."""
    project = Project(servers_folder / "shared-stack")
    project.wtb("up", "--detach", *QUICK, check=0, timeout=PATIENCE_S)
    yield project
    project.inside("down", check=0, timeout=PATIENCE_S)
    wait_until_ended(project.folder)
    project.close()


@dataclass(frozen=True)
class Second:
    """A stack in another folder. printed: by its `wtb up`."""

    project: Project
    printed: str
    port: int
    api_port: int


@pytest.fixture(scope="module")
def second(servers_folder: Path) -> Iterator[Second]:
    """Beside the shared one, with a port and a password of Flower that were asked for."""
    project, port, api_port = Project(servers_folder / "second-stack"), free_port(), free_port()
    options = ("--detach", *QUICK, "--flower-port", str(port), "--serve-port", str(api_port))
    up = project.wtb("up", *options, env={"WTB_FLOWER_AUTH": "me:my own"}, check=0, timeout=PATIENCE_S)
    yield Second(project, up.output, port, api_port)
    project.inside("down", timeout=PATIENCE_S)
    wait_until_ended(project.folder)
    project.close()


def processes_of(folder: Path) -> list[int]:
    """Processes of a stack: they work in its folder, or in its database's."""
    pids = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            works_there = Path(process.cwd()).is_relative_to(folder) or str(folder) in " ".join(process.cmdline())
            if process.pid != os.getpid() and works_there:
                pids.append(process.pid)
    return pids


def open_to_others(folder: Path) -> list[str]:
    """Return the paths in a folder to which users other than the owner have any permission."""
    paths = []
    for path in (folder, *folder.rglob("*")):
        with suppress(FileNotFoundError):  # the server has removed it
            if path.lstat().st_mode & 0o077 and not path.is_symlink():
                paths.append(str(path.relative_to(folder.parent)))
    return paths


def servers_of(stack: Stack) -> list[psutil.Process]:
    """Return every process of a stack, including its servers and supervisors."""
    own = psutil.Process(stack.pid)
    return [own, *own.children(recursive=True)]


def wait_until_ended(folder: Path) -> None:
    Project.until(lambda: not processes_of(folder), f"all processes in {folder} to end")


def stack_of(project: Project) -> Stack:
    stack = find_stack(project.folder)
    assert stack is not None
    return stack


def is_ready(project: Project) -> bool:
    stack = find_stack(project.folder)
    return stack is not None and stack.ready


def status(project: Project) -> dict[str, Any]:
    return stack_document(find_stack(project.folder))


def part(project: Project, name: str) -> Any:
    (process,) = [part for part in status(project)["parts"] if part["name"] == name]
    return process


def start(project: Project, *options: str) -> Running:
    """`wtb up` in the foreground, once it is ready."""
    running = project.start("up", *QUICK, *options)
    Project.until(lambda: is_ready(project) or running.process.poll() is not None, "the stack to be ready", PATIENCE_S)
    assert running.process.poll() is None, running.stderr
    return running


def ask(project: Project, path: str, *, auth: tuple[str, str] | None = None, method: str = "GET") -> int:
    flower = stack_of(project).flower
    assert flower is not None
    address = urlsplit(flower.url).netloc

    def answer() -> int | None:
        with suppress(ConnectionError):  # it is being started again
            return answer_of(address, path, auth and ":".join(auth), method)
        return None

    return int(Project.until(answer, f"Flower's answer to {path}"))


def answer_of(address: str, path: str, auth: str | None, method: str = "GET") -> int:
    headers = {} if auth is None else {"Authorization": "Basic " + base64.b64encode(auth.encode()).decode()}
    with closing(http.client.HTTPConnection(address, timeout=30)) as connection:
        connection.request(method, path, headers=headers)
        with connection.getresponse() as answer:
            answer.read()
            return answer.status


class TestASecondStack:  # before parts of the first are killed
    def test_has_the_port_and_the_password_of_flower_that_were_asked_for(self, second: Second) -> None:
        flower = stack_of(second.project).flower
        assert flower is not None
        assert (flower.url, flower.user, flower.password) == (f"http://{HOST}:{second.port}", "me", "my own")
        assert ask(second.project, "/workers", auth=("me", "my own")) == 200

    def test_answers_over_http_whoever_has_a_token(self, second: Second) -> None:
        url = f"http://127.0.0.1:{second.api_port}/api/v1"
        assert sentence("API: {}; `wtb admin token create NAME` makes a token for both", url) in second.printed
        assert part(second.project, "serve")["status"] == "up"
        token = second.project.text("admin", "token", "create", "ann").strip()
        address = f"127.0.0.1:{second.api_port}"
        with closing(http.client.HTTPConnection(address, timeout=30)) as connection:
            connection.request("GET", "/api/v1/sweeps", headers={"Authorization": f"Bearer {token}"})
            with connection.getresponse() as answer:
                assert answer.status == 200
                assert json.loads(answer.read())["sweeps"] == []
        assert answer_of(address, "/api/v1/sweeps", "wtb:guessed") == 401

    @pytest.mark.slow
    def test_lives_beside_the_first_and_ends_without_it(self, shared: Project, second: Second) -> None:
        project, other = second.project, shared
        stacks = stack_of(project), stack_of(other)
        assert len({stack.database_url for stack in stacks}) == len({stack.broker_url for stack in stacks}) == 2
        for stack in stacks:
            with connect(stack.database_url) as connection:
                query = "SELECT count(DISTINCT worker) FROM runners WHERE worker IS NOT NULL AND ended_at IS NULL"
                assert connection.execute(query).fetchone() == (1,)
        assert project.inside("down", check=0, timeout=PATIENCE_S).output == sentence("the stack is down")
        assert find_stack(project.folder) is None
        wait_until_ended(project.folder)
        assert status(other)["up"]
        assert project.text("status", "--stack") == sentence("no stack is up in this folder; `wtb up` starts one\n")
        assert not status(project)["up"]


def test_a_spare_takes_the_place_of_a_killed_worker(empty_project: Project) -> None:
    running = start(empty_project, "--no-flower", "--spare")
    query = "SELECT pid FROM runners WHERE worker IS NOT NULL ORDER BY created_at DESC LIMIT 1"
    stack = stack_of(empty_project)

    def working_pid() -> int:
        with connect(stack.database_url) as connection:
            ((pid,),) = connection.execute(query).fetchall()
        return int(pid)

    first = working_pid()
    (other,) = {part(empty_project, name)["pid"] for name in ("worker", "spare")} - {first}
    os.kill(first, signal.SIGKILL)
    Project.until(lambda: working_pid() == other, "the other one to work", PATIENCE_S)

    def stands_by() -> bool:
        parts = [part for part in status(empty_project)["parts"] if part["name"] in ("worker", "spare")]
        return sum(part["restarts"] for part in parts) == 1 and all(part["pid"] for part in parts)

    Project.until(stands_by, "the killed one to be started again", PATIENCE_S)
    assert working_pid() == other
    running.signal(signal.SIGTERM)
    running.wait(check=0, timeout=PATIENCE_S)


class TestAStackInTheBackground:
    def test_is_ready_when_the_command_returns(self, shared: Project) -> None:
        document = shared.json("status", "--stack")
        assert document["up"]
        assert [(part["name"], part["status"]) for part in document["parts"]] == [
            (name, "up") for name in (*SERVERS, *PROGRAMS)
        ]
        assert all(part["memory"] > 2**20 and part["since"] for part in document["parts"])

    def test_its_status_fits_80_columns_and_shows_no_password(self, shared: Project) -> None:
        text = shared.inside("status", "--stack", check=0, env={"COLUMNS": "80"}).stdout
        assert max(map(len, text.splitlines())) <= 80
        stack = stack_of(shared)
        assert stack.flower is not None
        passwords = [urlsplit(url).password for url in (stack.database_url, stack.broker_url)]
        for password in [*passwords, stack.flower.password]:
            assert password
            assert password not in text
        assert stack.flower.url.removeprefix("http://") in text
        assert status(shared)["flower"]["password"] == stack.flower.password

    def test_what_it_notes_is_closed_to_others(self, shared: Project) -> None:
        home = shared.folder / ".wtb"
        assert (home / "stack" / "stack.json").stat().st_mode & 0o777 == 0o600
        assert (home / "logs").stat().st_mode & 0o777 == 0o700

    def test_commands_in_its_folder_use_it(self, shared: Project) -> None:
        assert shared.text("admin", "db", "version") == f"{REVISION}\n"
        assert not shared.file.exists()

    def test_the_environment_wins_over_it(self, shared: Project, sqlite_url: str) -> None:
        outcome = shared.inside("admin", "db", "version", env={"WTB_DATABASE_URL": sqlite_url})
        assert outcome.code == 2
        assert sqlite_url.removeprefix("sqlite:///") in outcome.output

    def test_urls_are_found_in_its_folder_alone(
        self, shared: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("WTB_DATABASE_URL", "WTB_BROKER_URL"):
            monkeypatch.delenv(name, raising=False)
        stack = stack_of(shared)
        monkeypatch.chdir(shared.folder)
        assert (database_url(), broker_url()) == (stack.database_url, stack.broker_url)
        assert (database_url("sqlite://"), broker_url("redis://other")) == ("sqlite://", "redis://other")
        monkeypatch.setenv("WTB_BROKER_URL", "redis://elsewhere")
        assert broker_url() == "redis://elsewhere"
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("WTB_BROKER_URL")
        assert (database_url(), broker_url()) == (DEFAULT_URL, None)

    def test_finding_it_takes_less_than_a_millisecond(self, shared: Project, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(shared.folder)
        assert min(timeit.repeat(find_stack, number=10, repeat=20)) / 10 < 0.001

    def test_a_second_one_in_the_folder_is_refused(self, shared: Project) -> None:
        for options in ([], ["--detach"]):
            refused = shared.wtb("up", *options, check=2)
            assert sentence("a stack is up in this folder already (process {})", stack_of(shared).pid) in refused.output
            assert "`wtb down`" in refused.output
        assert status(shared)["up"]

    def test_has_a_log_for_each_part(self, shared: Project) -> None:
        logs = shared.folder / ".wtb" / "logs"
        assert {path.name for path in logs.glob("*.log")} == {f"{name}.log" for name in (*SERVERS, *PROGRAMS, "wtb")}
        assert "ready after" in (logs / "wtb.log").read_text()

    def test_listens_on_the_loopback_only(self, shared: Project) -> None:
        open_ends = [end for process in servers_of(stack_of(shared)) for end in process.net_connections("inet")]
        listening = [end.laddr for end in open_ends if end.status == psutil.CONN_LISTEN]
        assert len(set(listening)) == 3
        assert {address.ip for address in listening} == {HOST}

    @pytest.mark.parametrize("name", [*PROGRAMS, *SERVERS])
    def test_what_is_killed_is_started_again(self, shared: Project, name: str) -> None:
        before, count = (part(shared, name)[key] for key in ("pid", "restarts"))
        os.kill(before, signal.SIGKILL)

        def is_up_again() -> bool:
            document = status(shared)
            (now,) = [part for part in document["parts"] if part["name"] == name]
            return bool(document["up"] and now["pid"] not in (None, before))

        Project.until(is_up_again, f"{name} to be up again", PATIENCE_S)
        restarted = part(shared, name)
        assert restarted["restarts"] == count + 1
        assert restarted["restarted_at"] >= restarted["since"]
        assert restarted["restart_reason"] == sentence("was killed by {}", "SIGKILL")
        text = shared.wtb("status", "--stack", check=0).stdout
        assert re.search(rf"(?m)^{name} was started again at .*: it was killed by SIGKILL$", text)
        log = (shared.folder / ".wtb" / "logs" / "wtb.log").read_text()
        assert re.search(rf"{name} was killed by SIGKILL; it is started again in \d+ s\n", log)
        assert f"{name} was started again\n" in log
        assert shared.text("admin", "db", "version") == f"{REVISION}\n"

    def test_its_files_are_for_their_owner_only(self, shared: Project) -> None:
        assert open_to_others(shared.folder / ".wtb") == []

    def test_a_node_finds_nothing_that_connects_as_a_superuser(self, shared: Project) -> None:
        stack = stack_of(shared)
        secrets = [urlsplit(url).password for url in (stack.database_url, stack.broker_url)]
        port = urlsplit(stack.database_url).port
        sweep = "sweep: spy\nworkflow: spy:wf\ncases: [{id: c, input: {}}]\nvary: {look: all}\n"
        shared.write({"spy.py": SPY, "spy.yaml": sweep, "known": json.dumps([*secrets, port])})
        shared.wtb("submit", "spy.yaml", "--wait", check=0, timeout=PATIENCE_S)
        report = json.loads((shared.folder / "found").read_text())
        assert stack.pid in report["ancestors"]
        assert report["shown"] == []
        assert report["readable"] == []
        assert {"wtb"} == {user for user, _ in report["connected"]}, "it was told the password"
        assert {is_superuser for _, is_superuser in report["connected"]} == {"off"}


class TestFlower:
    @pytest.mark.parametrize("path", ["/", "/workers", "/api/workers", "/tasks"])
    def test_is_behind_a_password(self, shared: Project, path: str) -> None:
        flower = stack_of(shared).flower
        assert flower is not None
        assert ask(shared, path) == 401
        assert ask(shared, path, auth=(flower.user, "wrong")) == 401
        assert ask(shared, path, auth=(flower.user, flower.password)) in (200, 302)

    def test_lets_nobody_change_anything(self, shared: Project) -> None:
        flower = stack_of(shared).flower
        assert flower is not None
        auth = (flower.user, flower.password)
        worker = part(shared, "worker")["pid"]
        for path in (
            "worker/shutdown/any",
            "worker/pool/shrink/any",
            "task/revoke/any",
            "task/send-task/wtb.scheduler",
        ):
            assert ask(shared, f"/api/{path}", auth=auth, method="POST") in (403, 405), path
        assert part(shared, "worker")["pid"] == worker

    def test_does_not_open_to_others_without_a_password_of_your_own(self, shared: Project) -> None:
        assert "WTB_FLOWER_AUTH=USER:PASSWORD" in shared.refusal("admin", "flower", "--address", "0.0.0.0")

    @pytest.mark.parametrize("auth", ["nobody", "user:", ":password", "a:b,c:d"])
    def test_refuses_a_user_and_password_that_are_none(self, shared: Project, auth: str) -> None:
        assert "expected USER:PASSWORD" in shared.refusal("admin", "flower", env={"WTB_FLOWER_AUTH": auth})

    def test_needs_a_broker(self, empty_project: Project) -> None:
        refused = empty_project.inside("admin", "flower", check=2)
        assert sentence("set WTB_BROKER_URL, or run `wtb up` in this folder") in refused.output

    def test_heeds_neither_its_own_file_nor_its_own_variables_about_who_may_look(self, shared: Project) -> None:
        port = free_port()
        (shared.folder / "flowerconfig.py").write_text("basic_auth = None\nread_only = False\n")
        theirs = {"FLOWER_BASIC_AUTH": "they:open", "FLOWER_ADDRESS": "0.0.0.0", "FLOWER_READ_ONLY": "false"}
        with shared.start(
            "admin", "flower", "--port", str(port), env={**theirs, "WTB_FLOWER_AUTH": "we:may look"}
        ) as flower:

            def answer(auth: str) -> int | None:
                with suppress(OSError):
                    return answer_of(f"{HOST}:{port}", "/api/workers", auth)
                return None

            Project.until(lambda: answer("we:may look"), "Flower")
            assert (answer("we:may look"), answer("they:open")) == (200, 401)
            ends = psutil.Process(flower.pid).net_connections("inet")
            assert [end.laddr.ip for end in ends if end.status == psutil.CONN_LISTEN] == [HOST]
            flower.signal(signal.SIGTERM)
            flower.wait(check=0)


def test_ctrl_c_stops_all_of_it_and_says_who_says_what(folder: Project) -> None:
    with start(folder) as running:
        stack = stack_of(folder)
        processes = servers_of(stack)
        assert len(processes) > 10
        running.signal(signal.SIGINT)
        ended = running.wait(check=0)
    assert not [process for process in processes if process.is_running() and lives(process.pid)]
    who = {line.partition("|")[0].strip() for line in ended.stderr.splitlines()}
    assert who == {*SERVERS, *PROGRAMS, "wtb"}
    lines = [line.partition("| ")[2] for line in ended.stderr.splitlines() if line.startswith("wtb ")]
    assert re.fullmatch(r"ready after \d+\.\d s; next, in this folder: wtb submit sweep.yaml", lines[0])
    assert stack.flower is not None
    assert lines[1] == sentence("Flower: {}, user {}, password {}", stack.flower.url, "wtb", stack.flower.password)
    assert lines[2] == sentence("stop: Ctrl-C here, or `wtb down`")
    assert lines[-1] == sentence("all of it is stopped")
    assert find_stack(folder.folder) is None
    assert not (folder.folder / ".wtb" / "stack" / "stack.json").exists()
    assert "database system is shut down" in ended.stderr


def test_killing_it_leaves_no_process_and_it_comes_up_again_with_its_data(folder: Project) -> None:
    with start(folder, "--no-flower") as running:
        first = stack_of(folder)
        assert {part.name for part in first.parts} == {*SERVERS, "worker", "scheduler"}
        processes = servers_of(first)
        with connect(first.database_url) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        running.signal(signal.SIGKILL)
        running.wait(check=-signal.SIGKILL)
    Project.until(
        lambda: not [process for process in processes if process.is_running() and lives(process.pid)],
        "all of it to end",
    )
    assert find_stack(folder.folder) is None
    assert folder.inside("down", check=0).output == sentence("no stack is up in this folder: nothing to stop")
    with start(folder, "--no-flower") as running:
        with connect(stack_of(folder).database_url) as connection:
            assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)
        folder.inside("down", check=0)
        running.wait(check=0)


def test_a_taken_port_of_flower_is_refused_before_anything_starts(folder: Project) -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        refused = folder.wtb("up", "--flower-port", str(port), check=2)
    assert sentence("port {} of {} is taken", port, HOST) in refused.output
    assert not (folder.folder / ".wtb" / "postgres").exists()


def test_a_stop_while_it_starts_is_heeded(folder: Project) -> None:
    with folder.start("up", *QUICK) as running:
        Project.until(lambda: (folder.folder / ".wtb" / "valkey" / "password").exists(), "the first server")
        running.signal(signal.SIGTERM)
        ended = running.wait(check=0, timeout=PATIENCE_S)
    assert "ready after" not in ended.output
    wait_until_ended(folder.folder)


@pytest.mark.parametrize("options", [[], pytest.param(["--detach"], marks=pytest.mark.slow)], ids=["here", "detached"])
def test_a_worker_that_cannot_start_is_an_error_that_says_so(folder: Project, options: list[str]) -> None:
    folder.write({"shadows/celery.py": "raise SystemExit('this is no Celery')"})
    shadows = {"PYTHONPATH": str(folder.folder / "shadows")}
    failed = folder.wtb("up", "--no-flower", *options, check=1, env=shadows, timeout=PATIENCE_S)
    assert re.search(r"(worker|scheduler) ended with exit code 1, 2 times, before it was ready", failed.output)
    assert ("this is no Celery" in failed.output) is not bool(options)
    wait_until_ended(folder.folder)


@pytest.mark.slow
def test_modules_of_a_user_may_have_the_names_of_what_it_runs(folder: Project) -> None:
    """Only node processes import from the folder, and there a user's own modules come first."""
    own = {f"{name}.py": f"NAME = {name!r}\n" for name in ("flower", "celery", "redis", "queue")}
    code = (
        "import queue, redis\nfrom wtb import END, Workflow\nwf = Workflow('own')\n"
        "@wf.node\ndef names(state):\n    return {'names': [queue.NAME, redis.NAME]}\n"
        "wf.entry(names)\nwf.edge(names, END)\n"
    )
    spec = "workflow: own:wf\ncases: [{id: c0, input: {}}]\nevaluate: [{exact_match: {field: names}}]\n"
    folder.write({**own, "own.py": code, "own.yaml": spec})
    folder.wtb("up", *QUICK, "--detach", check=0, timeout=PATIENCE_S)
    try:
        outcome = folder.wtb("submit", "own.yaml", "--wait", check=None, timeout=PATIENCE_S)
        assert outcome.code == 0, outcome.output
        status = folder.wtb("status", "--stack", "--format", "json", check=0).json
        assert {part["status"] for part in status["parts"]} == {"up"}
    finally:
        folder.wtb("down", check=0, timeout=PATIENCE_S)


def test_down_without_a_stack_says_so(empty_project: Project) -> None:
    done = empty_project.inside("down", check=0)
    assert done.output == sentence("no stack is up in this folder: nothing to stop")


def test_a_note_of_a_process_that_is_another_one_now_counts_for_nothing(empty_project: Project) -> None:
    home = empty_project.folder / ".wtb"
    (home / "stack").mkdir(parents=True)
    (home / "stack" / "stack.json").write_text(json.dumps({"pid": os.getpid(), "mark": "1 another boot"}))
    assert find_stack(empty_project.folder) is None


def test_a_note_that_cannot_be_read_says_what_to_do(empty_project: Project) -> None:
    home = empty_project.folder / ".wtb"
    (home / "stack").mkdir(parents=True)
    (home / "stack" / "stack.json").write_text("{")
    refused = empty_project.inside("list", check=2)
    assert ".wtb/stack/stack.json cannot be read" in refused.output
    assert "remove it" in refused.output


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Project]:
    """A folder that nobody can write to, root included."""
    project = Project(tmp_path / "read-only")
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
    mount = [*sudo, "mount", "-t", "tmpfs", "-o", "ro,size=1m", "wtb-read-only", str(project.folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(f"a read-only place needs a mount (root, or sudo without a password): {done.stderr.strip()}")
    # The output of commands is stored elsewhere.
    yield project
    subprocess.run([*sudo, "umount", "--lazy", str(project.folder)], check=True)


@pytest.mark.parametrize("options", [(), ("--detach",)])
def test_a_place_that_is_read_only_is_refused(read_only: Project, options: tuple[str, ...]) -> None:
    refused: Outcome = read_only.wtb("up", *options, check=4)
    assert sentence("cannot write to") in refused.output
    assert "Read-only file system" in refused.output
    assert sentence("in a folder that is yours to write to") in refused.output


@pytest.mark.parametrize("missing", ["celery", "flower"])
def test_without_the_packages_it_says_which_to_install(
    empty_project: Project, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    from wtb.hosting.servers import up

    find_spec = up.importlib.util.find_spec
    monkeypatch.setattr(up.importlib.util, "find_spec", lambda name: None if name == missing else find_spec(name))
    refused = empty_project.inside("up", check=2)
    assert f"not installed: {missing}" in refused.output
    assert 'pip install "workflow-test-bench[stack]"' in refused.output


def test_without_the_server_it_says_how_to_install_it(empty_project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from wtb.hosting.servers import up

    find_spec = up.importlib.util.find_spec
    monkeypatch.setattr(up.importlib.util, "find_spec", lambda name: None if name == "uvicorn" else find_spec(name))
    assert 'pip install "workflow-test-bench[server]"' in empty_project.refusal("up", "--serve")


def test_node_processes_do_not_learn_of_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = {"WTB_DATABASE_URL": "a", "WTB_BROKER_URL": "b", "WTB_FLOWER_AUTH": "c", "FLOWER_BASIC_AUTH": "d"}
    for name, text in secret.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setenv("FLOWERS", "the user's own")
    variables = environment(None, "runner")
    assert variables.keys().isdisjoint(secret)
    assert variables["FLOWERS"] == "the user's own"


def test_status_wants_a_sweep_or_the_stack(empty_project: Project) -> None:
    for arguments in ([], ["some", "--stack"]):
        refused = empty_project.inside("status", *arguments, check=2)
        assert sentence("no sweep is named; name one (`wtb list` shows them), or give --stack") in refused.output


@pytest.mark.slow
def test_a_later_start_takes_less_than_ten_seconds_of_cpu(folder: Project) -> None:
    # CPU and not the clock, which counts what else the machine does: on an idle core it takes no longer.
    for _ in range(2):
        folder.wtb("up", "--detach", *QUICK, check=0, timeout=PATIENCE_S)
        family = servers_of(stack_of(folder))
        used = sum(sum(process.cpu_times()[:4]) for process in family)
        folder.inside("down", check=0, timeout=PATIENCE_S)
    assert 0.5 < used < 10
