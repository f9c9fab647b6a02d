"""`wtb serve`: what is asked over HTTP is what commands show, and nobody else gets it."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.responses import PlainTextResponse

from tests.support.documents import check
from tests.support.project import FLOW, SWEEP, Project, Running
from tests.support.prose import sentence
from wtb.hosting.api.guard import Doors, Guard, Limits
from wtb.hosting.api.identities import Identities
from wtb.hosting.api.routes import PREFIX, ROUTES, WITHOUT_ROUTE
from wtb.operations.context import Context
from wtb.operations.registry import OPERATIONS, Effect
from wtb.store.database import Database

TOKEN = "a-token-of-the-tests-own"
SPY = "from pathlib import Path\n\nPath(__file__).with_name('was-imported').touch()\n"


@dataclass(frozen=True)
class Answer:
    """The response to a request."""

    status: int
    type: str
    body: bytes
    tag: str = ""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Served:
    """A server with a finished sweep, and one that waits at a breakpoint; the code of both is a spy by now."""

    project: Project
    running: Running
    port: int
    sweep: str
    execution: str
    waiting: str

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send a request, with the token and the server's name unless others are given."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json", **headers}
        try:
            text = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, text, sent)
            response = connection.getresponse()
            return Answer(
                response.status, response.headers.get_content_type(), response.read(), response.headers["ETag"] or ""
            )
        finally:
            connection.close()

    def get(self, path: str) -> Answer:
        return self.ask("GET", PREFIX + path)

    def tag(self, path: str) -> str:
        return self.get(path).tag


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    project = Project(tmp_path_factory.mktemp("served"))
    project.write({"flow.py": FLOW, "sweep.yaml": SWEEP, "cases.jsonl": Project.cases(2)})
    project.inside("run", "sweep.yaml", check=0)
    project.inside("run", "sweep.yaml", "--limit", "1", "--break", "B", check=1)
    waiting, sweep = (row["id"] for row in project.inside("list", "--format", "json", check=0).json["sweeps"])
    cells = project.inside("show", sweep, "--cells", "--format", "json", check=0).json["cells"]
    project.write({"flow.py": SPY})
    with project.start("serve", "--port", "0", "--allow", "Bench.example", env={"WTB_SERVER_TOKEN": TOKEN}) as running:
        line = project.until(lambda: "/api/v1" in running.stderr and running.stderr, "the server listens")
        port = int(line.partition(PREFIX)[0].rpartition(":")[2])
        served = Served(project, running, port, sweep, cells[0]["execution"], waiting)
        project.until(lambda: _listens(served), "the server answers")
        yield served
        running.signal(signal.SIGTERM)
        assert "Traceback" not in running.wait().stderr
    project.close()


def _listens(served: Served) -> bool:
    try:
        return served.get("/health").status == 200
    except OSError:
        return False


# Paths, the commands that show the same, and the schemas of both.
SAME = [
    ("/sweeps", "list", "sweeps"),
    ("/sweeps/{sweep}", "show {sweep}", "summary"),
    ("/sweeps/{sweep}/status", "status {sweep}", "status"),
    ("/sweeps/{sweep}/cells", "show {sweep} --cells", "cells"),
    ("/sweeps/{sweep}/cells?statuses=failed&limit=3", "show {sweep} --cells --status failed --limit 3", "cells"),
    ("/sweeps/{sweep}/event-counts", "log {sweep} --summary", "event-counts"),
    ("/sweeps/{sweep}/matrix", "matrix {sweep}", "matrix"),
    ("/sweeps/{sweep}/series", "series {sweep}", "series"),
    ("/sweeps/{sweep}/costs?by=node", "costs {sweep} --by node", "costs"),
    ("/sweeps/{sweep}/tree?limit=5", "tree {sweep} --limit 5", "tree"),
    ("/sweeps/{sweep}/compare/{sweep}", "compare {sweep} {sweep}", "comparison"),
    ("/executions/{execution}", "show {execution}", "execution"),
    ("/executions/{execution}/status", "status {execution}", "execution-status"),
    ("/executions/{execution}/history", "history {execution}", "history"),
    ("/executions/{execution}/diff/{execution}", "diff {execution} {execution}", "diff"),
    ("/approvals", "approvals", "questions"),
    ("/baselines", "baseline list", "baselines"),
    ("/schedules", "schedule list", "schedules"),
    ("/sessions", "admin session list", "sessions"),
    ("/sessions/default", "admin session show default", "session"),
    ("/budgets", "admin budget list", "budgets"),
    ("/costs", "costs", "costs"),
    ("/workflows", "workflow list --published", "published"),
]


@pytest.mark.parametrize(("path", "command", "document"), SAME)
def test_a_path_gives_the_document_of_its_command(served: Served, path: str, command: str, document: str) -> None:
    names = {"sweep": served.sweep, "execution": served.execution}
    args = command.format(**names).split()
    expected = served.project.inside(*args, "--format", "json").json
    answer = served.get(path.format(**names))
    assert (answer.status, answer.type) == (200, "application/json")
    check(document, answer.json)
    assert answer.json == expected


def test_the_log_is_sent_as_lines(served: Served) -> None:
    answer = served.get(f"/sweeps/{served.sweep}/log?severity=info&kinds=sweep")
    command = ("log", served.sweep, "--severity", "info", "--kind", "sweep", "--format", "json")
    assert answer.type == "application/x-ndjson"
    assert answer.body.decode() == served.project.inside(*command, check=0).stdout


def test_a_change_for_a_version_that_is_past_is_refused(served: Served) -> None:
    def change(cells: int, **headers: str) -> Answer:
        body = {"limits": {"node_runs": cells}}
        return served.ask("POST", f"{PREFIX}/sessions/default/change", body, **headers)

    first = served.tag("/sessions/default")
    assert served.ask("GET", f"{PREFIX}/sessions/default", **{"If-None-Match": first}).status == 304
    assert change(1_000_000, **{"If-Match": first}).status == 200
    second = served.tag("/sessions/default")
    assert second != first
    refused = change(2_000_000, **{"If-Match": first})
    assert (refused.status, refused.type) == (412, "application/problem+json")
    assert "1000000" in refused.json["detail"]
    assert change(3_000_000, **{"If-Match": f'"other", {second}'}).status == 200
    assert change(1_000_000, **{"If-Match": "*"}).status == 200
    assert served.tag("/sessions/default") == second, "it has become what it was"
    assert change(4_000_000, **{"If-Match": second}).status == 200
    assert change(5_000_000).status == 200


@pytest.mark.parametrize("path", ["/sweeps/{waiting}", "/executions/{held}"])
def test_breakpoints_are_changed_for_the_version_that_was_read(served: Served, path: str) -> None:
    execution = served.get(f"/sweeps/{served.waiting}/cells").json["cells"][0]["execution"]
    where = path.format(waiting=served.waiting, held=execution) + "/breakpoints"
    first = served.get(where)
    assert first.json == {"sweep": served.waiting, "breakpoints": ["before B"]}
    add, remove = {"add": ["after B"]}, {"remove": ["after B"]}
    assert served.ask("POST", PREFIX + where, add, **{"If-Match": first.tag}).json["breakpoints"] == [
        "before B",
        "after B",
    ]
    refused = served.ask("POST", PREFIX + where, {"clear": True}, **{"If-Match": first.tag})
    assert refused.status == 412
    assert "after B" in refused.json["detail"]
    assert served.ask("POST", PREFIX + where, remove, **{"If-Match": served.tag(where)}).json == first.json


def test_one_version_is_changed_once_however_its_thing_is_named(served: Served) -> None:
    execution = served.get(f"/sweeps/{served.waiting}/cells").json["cells"][0]["execution"]
    where = (f"/sweeps/{served.waiting}/breakpoints", f"/executions/{execution}/breakpoints")
    served.ask("POST", PREFIX + where[0], {"add": ["before C"]})
    tag = served.tag(where[0])
    assert served.tag(where[1]) == tag
    before = claims(served)
    for path in where:  # it is what it once was when the second one comes
        assert served.ask("POST", PREFIX + path, {"remove": ["before C"]}, **{"If-Match": tag}).status == 200
        assert served.ask("POST", PREFIX + path, {"add": ["before C"]}).status == 200
    assert claims(served) == before + 1
    served.ask("POST", PREFIX + where[0], {"remove": ["before C"]})


def claims(served: Served) -> int:
    ((count,),) = served.project.query("SELECT count(*) FROM idempotency_keys")
    return int(count)


def test_a_rollback_is_done_from_the_head_that_was_read(served: Served) -> None:
    execution = served.get(f"/sweeps/{served.waiting}/cells").json["cells"][0]["execution"]
    path = f"/executions/{execution}"
    first = served.get(f"{path}/history")
    assert served.ask("GET", f"{PREFIX}{path}/history", **{"If-None-Match": first.tag}).status == 304
    back = {"to": first.json["checkpoints"][0]["id"]}
    moved = served.ask("POST", f"{PREFIX}{path}/rollback", back, **{"If-Match": first.tag})
    assert moved.status == 200
    refused = served.ask("POST", f"{PREFIX}{path}/rollback", back, **{"If-Match": first.tag})
    assert refused.status == 412
    assert moved.json["head"] in refused.json["detail"]
    undo_headers = {"If-Match": served.tag(f"{path}/history")}
    assert served.ask("POST", f"{PREFIX}{path}/undo-rollback", {}, **undo_headers).status == 200


def test_a_session_has_a_memory_quota_over_http(served: Served) -> None:
    body = {"name": "hungry", "quota": {"memory": 4_000_000_000}}
    response = served.ask("POST", f"{PREFIX}/sessions", body)
    assert response.status in (200, 201), response.json
    assert served.get("/sessions/hungry").json["session"]["quota"]["memory"] == 4_000_000_000
    changed = served.ask("POST", f"{PREFIX}/sessions/hungry/change", {"limits": {"memory": 5}})
    assert (changed.status, changed.json["memory"]) == (200, 5)
    for wrong in (0, -1, "4GB", 0.5):
        refused = served.ask("POST", f"{PREFIX}/sessions/hungry/change", {"limits": {"memory": wrong}})
        assert refused.status in (400, 422), refused.json
        assert "memory" in refused.json["detail"]
    assert served.get("/sessions/hungry").json["session"]["quota"]["memory"] == 5


def test_of_two_changes_for_one_version_at_once_one_is_carried_out(served: Served) -> None:
    tag = served.tag("/sessions/default")
    bodies = [{"limits": {"node_runs": 7_000_000 + number}} for number in range(8)]

    def change(body: Any) -> int:
        return served.ask("POST", f"{PREFIX}/sessions/default/change", body, **{"If-Match": tag}).status

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(change, bodies)) == [200] + [412] * 7


def test_what_takes_long_continues_and_is_asked_for(served: Served) -> None:
    path = f"/sweeps/{served.sweep}/compare/{served.sweep}"
    accepted = served.get(f"{path}?wait=0")
    assert accepted.status == 202
    where = f"/operations/{accepted.json['id']}"
    operation = served.get(f"{where}?wait=60").json
    assert (operation["status"], operation["operation"], operation["result"]) == (
        "done",
        "sweeps.compare",
        f"{PREFIX}{where}/result",
    )
    assert served.get(f"{where}/result").json == served.get(path).json
    assert served.get("/operations/nothing").status == 404
    assert served.get(f"{path}?wait=61").status == 400


def test_no_code_of_users_is_imported(served: Served) -> None:
    for route in ROUTES:
        path = route.path.replace("{name}", "nothing")
        for name in ("ref", "before", "after", "a", "b"):
            path = path.replace(f"{{{name}}}", served.execution if "executions" in path else served.sweep)
        if route.method == "GET":
            assert served.get(path).status in (200, 400, 404, *([409] if route.preview else [])), path
    assert not (served.project.folder / "was-imported").exists()


def test_every_operation_has_a_route_or_a_reason() -> None:
    routed = {route.name for route in ROUTES}
    assert routed & WITHOUT_ROUTE.keys() == set()
    assert routed | WITHOUT_ROUTE.keys() == OPERATIONS.keys()
    for route in ROUTES:
        reads = route.preview or route.operation.effect is Effect.reads
        # A sweep, cases and outputs are too long for an address.
        is_query = route.path not in ("/plans", "/sweeps/{ref}/extend/plan", "/case-files", "/evaluators/preview")
        assert (route.method == "GET") == (reads and is_query), route.path
        assert route.left_out <= route.operation.arguments.keys(), route.path


def test_what_waits_is_cancelled_and_the_log_says_by_whom(served: Served) -> None:
    path = f"{PREFIX}/sweeps/{served.waiting}/cancel"
    done = served.ask("POST", path, {"reason": "no more need"})
    assert done.status == 200
    assert done.json["already"] is None
    assert done.json["cells"] > 0
    assert served.get(f"/sweeps/{served.waiting}/status").json["sweep"]["status"] == "cancelled"
    assert "no more need" in served.get(f"/sweeps/{served.waiting}/log?kinds=sweep.cancelled").body.decode()
    repeat = served.ask("POST", path, {})
    assert (repeat.status, repeat.json["cells"]) == (200, 0) or repeat.status == 409


# Who is refused


@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", TOKEN, "Bearer \xff"]
)
def test_nobody_gets_anything_without_the_token(served: Served, authorization: str) -> None:
    for path in ("/sweeps", "/openapi.json", "/nowhere"):
        answer = served.ask("GET", PREFIX + path, Authorization=authorization)
        assert (answer.status, answer.type) == (401, "application/problem+json")
        assert served.sweep.encode() not in answer.body
    assert served.ask("GET", f"{PREFIX}/health", Authorization=authorization).status == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "", "[::2]:80", "localhost.", "@"])
def test_a_name_that_is_not_the_servers_is_refused(served: Served, host: str) -> None:
    assert served.ask("GET", f"{PREFIX}/sweeps", Host=host).status == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "[::1]:80", "bench.EXAMPLE:443"])
def test_names_of_loopback_and_those_allowed_are_the_servers(served: Served, host: str) -> None:
    assert served.ask("GET", f"{PREFIX}/sweeps", Host=host).status == 200


def test_a_body_beyond_the_limit_is_refused(served: Served) -> None:
    answer = served.ask("POST", f"{PREFIX}/sweeps/{served.sweep}/pause", b'"' + b"a" * 1_000_000 + b'"')
    assert answer.status == 413
    assert "1,000,000 bytes" in answer.json["detail"]


def test_a_body_that_does_not_come_is_refused() -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {TOKEN}".encode())]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers}
    limits = Limits(body_s=0.01)
    identities = Identities(Context(Database("sqlite://")), TOKEN)
    guard = Guard(PlainTextResponse("read"), identities=identities, hosts=["localhost"], doors=Doors(), limits=limits)
    asyncio.run(guard(scope, receive, send))
    assert sent[0]["status"] == 408


# What is wrong with a request


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("GET", "/nowhere", None, 404, "openapi.json lists"),
        ("DELETE", "/sweeps", None, 405, sentence("not by this method")),
        ("GET", "/sweeps/nothing", None, 404, sentence("there is no sweep {}", "'nothing'")),
        ("GET", "/executions/nothing/history", None, 404, sentence("there is no execution {}", "'nothing'")),
        ("GET", "/baselines/nothing", None, 404, sentence("there is no baseline {}", "'nothing'")),
        ("GET", "/schedules/nothing", None, 404, sentence("there is no schedule {}", "'nothing'")),
        ("GET", "/sessions/nothing", None, 404, "nothing"),
        ("GET", "/approvals?ref=nothing", None, 404, sentence("there is no question {}", "'nothing'")),
        ("GET", "/sweeps?limit=0", None, 400, "limit is 0; expected a whole number of at least 1"),
        ("GET", "/sweeps?limit=many", None, 400, "limit: "),
        ("GET", "/sweeps?status=odd", None, 400, sentence("{} is not a status", "'odd'")),
        ("POST", "/sweeps/first/breakpoints", {"add": "B"}, 400, "add: "),
        ("POST", "/sweeps/first/breakpoints", {"add": ["nowhere"]}, 400, "nowhere"),
        ("POST", "/sweeps/first/breakpoints", b"{", 400, ""),
        ("POST", "/sweeps/first/retry", {"limits": {"usdd": 1}}, 400, sentence("did you mean '{}'", "usd")),
        ("POST", "/sweeps/first/retry", {"limits": {"usd": "much"}}, 400, "limits"),
    ],
)
def test_what_is_wrong_is_told(served: Served, method: str, path: str, body: Any, status: int, words: str) -> None:
    answer = served.ask(method, PREFIX + path.replace("first", served.sweep), body)
    assert (answer.status, answer.type) == (status, "application/problem+json")
    assert answer.json["status"] == status
    assert words in answer.json["detail"]


def test_what_a_sweep_does_not_allow_is_a_conflict(served: Served) -> None:
    answer = served.ask("POST", f"{PREFIX}/sweeps/{served.sweep}/pause")
    assert (answer.status, answer.json["title"]) == (409, "Conflict")
    assert sentence("there is nothing to pause") in answer.json["detail"]


TEXTS = st.text(st.characters(min_codepoint=33, max_codepoint=255, exclude_characters="#\x7f"), max_size=30).filter(
    lambda text: all(not 0x7F <= ord(char) <= 0xA0 for char in text)
)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(route=st.sampled_from(ROUTES), texts=st.lists(TEXTS, min_size=3, max_size=3), body=st.binary(max_size=50))
def test_no_request_is_a_fault(served: Served, route: Any, texts: list[str], body: bytes) -> None:
    """Odd names in every path, odd queries and odd bodies; what there is stays as it is."""
    from urllib.parse import quote

    names = iter(quote(text, safe="") or "%00" for text in texts)
    path = "/".join(next(names) if part.startswith("{") else part for part in route.path.split("/"))
    query = f"?limit={quote(texts[2])}&since={quote(texts[1])}&{quote(texts[0])}"
    answer = served.ask(route.method, PREFIX + path + query, body if route.method == "POST" else None)
    assert answer.status in (200, 400, 404, 409, 422), answer.body


# Starting it


@pytest.mark.parametrize(
    ("args", "env", "words"),
    [
        ((), {}, sentence("there is no database")),
        ((), {"WTB_SERVER_TOKEN": "short"}, sentence("{} is shorter than {} characters", "WTB_SERVER_TOKEN", 16)),
        (("--port", "65536"), {}, "less than or equal to 65535"),
    ],
)
def test_what_cannot_be_served_is_refused(
    empty_project: Project, args: tuple[str, ...], env: dict[str, str], words: str
) -> None:
    refused = empty_project.inside("serve", *args, check=2, env=env)
    assert words in refused.output


def test_a_port_that_is_taken_is_named(served: Served) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = str(listener.getsockname()[1])
        refused = served.project.wtb("serve", "--port", port, check=2)
    assert sentence("cannot listen on {}:{}", "127.0.0.1", port) in refused.output


def test_the_token_is_no_part_of_what_the_system_shows(served: Served) -> None:
    assert TOKEN.encode() not in Path(f"/proc/{served.running.pid}/environ").read_bytes()
    assert TOKEN not in served.running.stderr
