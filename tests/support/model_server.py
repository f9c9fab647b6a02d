"""The common base of servers that stand in for model providers, over the real protocol."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from typing import Any


class ModelHandler(BaseHTTPRequestHandler):
    """Keeps connections, answers in JSON and says nothing in the terminal."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *of: Any) -> None:
        """Say nothing."""

    def send(self, status: int, document: Any) -> None:
        """Answer with a document."""
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
