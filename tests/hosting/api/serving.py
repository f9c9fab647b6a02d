"""A server of the tests, and how it is asked."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from tests.support.project import FLOW, SWEEP, Project, Running
from wtb.hosting.api.connections import server_config
from wtb.hosting.api.routes import PREFIX

TOKEN = "a-token-of-the-tests-own"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


class Server:
    """`wtb serve`, which may be killed and started again at the same address."""

    def __init__(self, project: Project) -> None:
        self.project = project
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.running: Running | None = None

    def start(self, env: Mapping[str, str] | None = None, options: Sequence[str] = ()) -> None:
        environment = {"WTB_SERVER_TOKEN": TOKEN, **(env or {})}
        self.running = self.project.start("serve", "--port", str(self.port), *options, env=environment)
        self.project.until(self._answers, "the server answers")

    def _answers(self) -> bool:
        with suppress(OSError, http.client.HTTPException), self.open("/health") as response:
            return response.status == 200
        return False

    def kill(self) -> None:
        assert self.running is not None
        self.running.signal(signal.SIGKILL)
        self.running.wait()

    @contextmanager
    def open(self, path: str, headers: dict[str, str] = HEADERS) -> Iterator[http.client.HTTPResponse]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)) as connection:
            connection.request("GET", PREFIX + path, headers=headers)
            with connection.getresponse() as response:
                yield response


@contextmanager
def serving_a_sweep(folder: Path, *options: str, check: int = 0) -> Iterator[Server]:
    """Yield a server of a project with one sweep of one case. options, check: of `wtb run`, and how it exits."""
    project = Project(folder)
    project.write({"flow.py": FLOW, "sweep.yaml": SWEEP, "cases.jsonl": Project.cases(1)})
    project.inside("run", "sweep.yaml", *options, check=check)
    server = Server(project)
    server.start()
    yield server
    server.kill()
    project.close()


def messages_of(response: http.client.HTTPResponse) -> Iterator[tuple[str, Any]]:
    """Yield server-sent events as ids and what they carry, by the rules of the standard."""
    id, payload = "", ""
    for line in response:
        name, _, field = line.decode().rstrip("\n").partition(": ")
        if name == "id":
            id = field
        elif name == "data":
            payload = field
        elif not line.strip() and payload:
            yield id, json.loads(payload)
            payload = ""


@contextmanager
def answering(app: FastAPI) -> Iterator[str]:
    """Have an application be asked over loopback, from a thread of this process. Yields the address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(server_config(app))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
