"""Behind the proxy of deploy/: TLS, cookies of TLS alone, streams, and no secret in a log."""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from tests.hosting.api.serving import TOKEN, Server, messages_of
from tests.support.project import FLOW, SWEEP, Project
from wtb.cli.admin.server import _check_network
from wtb.core.errors import InputError
from wtb.hosting.api.routes import PREFIX
from wtb.operations.identity import digest_of

CADDYFILE = Path(__file__).parents[3] / "deploy" / "Caddyfile"
CADDY = Path(sys.executable).with_name("caddy")
# What a machine of the tests cannot have: a certificate of the internet's, port 80, a place among those it trusts.
OF_THE_TESTS = "admin off\n\tlocal_certs\n\tskip_install_trust\n\tauto_https disable_redirects\n\tstorage file_system "


@dataclass
class Proxied:
    """A server, the proxy before it, and what both write to their logs."""

    server: Server
    port: int
    log: Path
    trusted: ssl.SSLContext

    @property
    def origin(self) -> str:
        return f"https://localhost:{self.port}"

    @property
    def connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("localhost", self.port, timeout=20, context=self.trusted)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[http.client.HTTPResponse, Any]:
        with closing(self.connection) as connection:
            sent = {name.replace("_", "-"): header for name, header in headers.items()}
            text = None if body is None else json.dumps(body)
            connection.request(method, PREFIX + path, text, {"Content-Type": "application/json", **sent})
            response = connection.getresponse()
            content = response.read()
            return response, json.loads(content) if content else None


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    assert CADDY.exists(), "there is no Caddy: `make install` installs one"
    folder = tmp_path_factory.mktemp("front")
    project = Project(folder / "project")
    project.write({"flow.py": FLOW, "sweep.yaml": SWEEP, "cases.jsonl": Project.cases(1)})
    project.inside("run", "sweep.yaml", "--break", "B", check=1)
    server = Server(project)
    server.start(options=["--proxy", "127.0.0.1"])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file, store, log = folder / "Caddyfile", folder / "caddy", folder / "caddy.log"
    file.write_text(CADDYFILE.read_text("utf-8").replace("admin off", f"{OF_THE_TESTS}{store}"), "utf-8")
    env = {
        "WTB_HOST": f"localhost:{port}",
        "WTB_UPSTREAM": f"127.0.0.1:{server.port}",
        **{name: str(folder) for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")},
    }
    with log.open("wb") as written:
        process = subprocess.Popen([CADDY, "run", "--config", file], env=env, stdout=written, stderr=written)
    root = store / "pki" / "authorities" / "local" / "root.crt"
    trusted = ssl.create_default_context()

    def answers() -> bool:
        assert process.poll() is None, log.read_text("utf-8")
        if not root.exists():
            return False
        with suppress(OSError, http.client.HTTPException):
            trusted.load_verify_locations(root)
            return client.ask("GET", "/health")[0].status == 200
        return False

    client = Proxied(server, port, log, trusted)
    try:
        project.until(answers, "the proxy answers")
        yield client
    finally:
        process.kill()
        process.wait()
        server.kill()
        project.close()


def test_behind_tls_cookies_are_for_tls_alone_and_a_page_of_the_proxys_name_may_ask(proxied: Proxied) -> None:
    response, signed = proxied.ask("POST", "/sign-in", {"token": TOKEN}, Origin=proxied.origin)
    assert response.status == 200, signed
    header = response.headers["Set-Cookie"]
    assert re.fullmatch(r"__Host-wtb=\S+; Path=/; Max-Age=\d+; HttpOnly; SameSite=Strict; Secure", header)
    assert response.headers["Strict-Transport-Security"]
    cookie = header.partition(";")[0]
    steered, problem = proxied.ask(
        "POST", "/sweeps/nothing/pause", {}, Cookie=cookie, Origin=proxied.origin, X_CSRF_Token=signed["csrf"]
    )
    assert (steered.status, "there is no" in problem["detail"]) == (404, True)
    wrong, _ = proxied.ask("GET", "/sweeps", Cookie=cookie, Origin=proxied.origin.replace("https", "http"))
    assert wrong.status == 403


def test_where_a_request_came_from_is_the_proxys_word_and_not_the_clients(proxied: Proxied) -> None:
    forged = {"X_Forwarded_For": "6.6.6.6", "X_Forwarded_Proto": "http", "Forwarded": "for=6.6.6.6"}
    assert proxied.ask("POST", "/sign-in", {"token": TOKEN}, **forged)[0].status == 200
    (row, *_) = proxied.server.project.inside("admin", "audit", "list", "--format", "json", check=0).json["audit"]
    assert (row["operation"], row["address"]) == ("sign-in", "127.0.0.1")
    direct = http.client.HTTPConnection("127.0.0.1", proxied.server.port, timeout=20)
    with closing(direct):
        body = json.dumps({"token": TOKEN})
        direct.request(
            "POST", f"{PREFIX}/sign-in", body, {"Content-Type": "application/json", "X-Forwarded-For": "9.9.9.9"}
        )
        assert direct.getresponse().status == 200, "from the address of the proxy"
    (row, *_) = proxied.server.project.inside("admin", "audit", "list", "--format", "json", check=0).json["audit"]
    assert row["address"] == "9.9.9.9"


def test_without_a_named_proxy_nobodys_word_is_taken(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.inside("admin", "session", "create", "s", check=0)
    server = Server(project)
    server.start()
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)) as connection:
        forged = {"X-Forwarded-For": "6.6.6.6", "X-Forwarded-Proto": "https", "Content-Type": "application/json"}
        connection.request("POST", f"{PREFIX}/sign-in", json.dumps({"token": TOKEN}), forged)
        response = connection.getresponse()
        assert response.status == 200
        assert response.headers["Set-Cookie"].startswith(f"wtb-{server.port}=")
    (row, *_) = project.inside("admin", "audit", "list", "--format", "json", check=0).json["audit"]
    assert (row["operation"], row["address"]) == ("sign-in", "127.0.0.1")
    server.kill()
    project.close()


@pytest.mark.parametrize("proxy", ["*", "caddy", "10.0.0.2:80", ""])
def test_only_addresses_name_a_proxy(proxy: str) -> None:
    with pytest.raises(InputError, match="is no address"):
        _check_network(proxy)
    _check_network("10.89.77.0/24")


def test_streams_come_through_as_they_are_written(proxied: Proxied) -> None:
    with closing(proxied.connection) as connection:
        connection.request("GET", f"{PREFIX}/sweeps/first/events", headers={"Authorization": f"Bearer {TOKEN}"})
        with connection.getresponse() as response:
            assert next(messages_of(response))[1]["events"]
    url = f"wss://localhost:{proxied.port}{PREFIX}/sweeps/first/events"
    with connect(url, ssl=proxied.trusted, additional_headers={"Authorization": f"Bearer {TOKEN}"}) as stream:
        assert json.loads(stream.recv(timeout=20))["events"]


def test_pages_of_elsewhere_are_told_nothing(proxied: Proxied) -> None:
    """CORS is closed: no answer lets a page of another site read it, whatever it asks for first."""
    headers = {"Origin": "https://evil.example", "Access_Control_Request_Method": "POST"}
    for method, path in (("OPTIONS", "/sweeps/first/pause"), ("GET", "/sweeps"), ("OPTIONS", "/sign-in")):
        response, _ = proxied.ask(method, path, Authorization=f"Bearer {TOKEN}", **headers)
        assert not [name for name in response.headers if name.lower().startswith("access-control-")]
    with closing(proxied.connection) as connection:
        connection.request("GET", "/")
        page = connection.getresponse()
        page.read()
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]


def test_no_secret_of_a_request_is_in_a_log_or_in_the_database(proxied: Proxied) -> None:
    server = proxied.server
    token = server.project.inside("admin", "token", "create", "secretive", check=0).stdout.strip()
    _, signed = proxied.ask("POST", "/sign-in", {"token": token})
    response, _ = proxied.ask("POST", "/sign-in", {"token": token})
    cookie = response.headers["Set-Cookie"].partition(";")[0]
    wrong = "a-token-that-is-wrong-0123456789"
    for headers in ({"Authorization": f"Bearer {token}"}, {"Authorization": f"Bearer {wrong}"}, {"Cookie": cookie}):
        proxied.ask("GET", f"/sweeps?token={wrong}", **headers)
    proxied.ask("POST", "/sign-in", {"code": wrong})
    proxied.ask("POST", "/sweeps/first/pause", {"reason": 5}, Cookie=cookie, X_CSRF_Token=signed["csrf"])
    assert server.running is not None
    logs = server.running.stderr + proxied.log.read_text("utf-8")
    stored = "".join(repr(server.project.query(f"SELECT * FROM {table}")) for table in ("audit", "sign_ins", "tokens"))
    for secret in (TOKEN, token, wrong, cookie.partition("=")[2], signed["csrf"]):
        assert secret not in logs
        assert secret not in stored
    assert digest_of(token) in stored
    assert len(server.running.stderr.splitlines()) == 2, "how it began, and no request"
