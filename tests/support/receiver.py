"""A receiver of OTLP over HTTP on loopback, for tests: it takes what is sent, and answers as it is told to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from tests.support.model_server import ModelHandler, serving


@dataclass
class Receiver:
    """Takes what is sent, and answers as it is told to."""

    status: int = 200
    answer: bytes = b"{}"
    bodies: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    url: str = ""
    free: Event = field(default_factory=Event)

    def hold(self) -> None:
        """Take what is sent from now on, and do not answer."""
        self.free.clear()

    def resume(self) -> None:
        """Answer again."""
        self.free.set()

    @property
    def spans(self) -> list[dict[str, Any]]:
        resources = [resource for body in self.bodies for resource in body["resourceSpans"]]
        return [span for resource in resources for scope in resource["scopeSpans"] for span in scope["spans"]]


@contextmanager
def receiving(**how: Any) -> Iterator[Receiver]:
    receiver = Receiver(**how)
    receiver.resume()

    class Handler(ModelHandler):
        protocol_version = "HTTP/1.0"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.bodies.append(json.loads(body) if "json" in self.headers["Content-Type"] else body)
            receiver.headers.append(dict(self.headers))
            receiver.free.wait()
            self.send_response(receiver.status)
            self.send_header("Content-Length", str(len(receiver.answer)))
            self.send_header("Location", receiver.url)
            self.end_headers()
            self.wfile.write(receiver.answer)

    with serving(Handler) as receiver.url:
        try:
            yield receiver
        finally:
            receiver.resume()


def attributes(span: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a span by their names."""
    return {attribute["key"]: next(iter(attribute["value"].values())) for attribute in span["attributes"]}
