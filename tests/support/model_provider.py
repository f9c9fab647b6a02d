"""A model provider with faults: it speaks the protocols of OpenAI, Anthropic and Gemini over HTTP.

Real client libraries call it, so that tests see the errors that users see.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.support.model_server import ModelHandler, serving

MODEL = "tiny-1"


@dataclass(frozen=True)
class Fault:
    """One response that is no answer.

    Attributes:
        status: The HTTP status.
        code: The code in the body, where the protocol has one.
        message: The text in the body.
        headers: More headers, such as `Retry-After`.
        instead: A response that is none: the connection is reset, the JSON is cut, the body ends too early, or an
            error arrives within a stream.
    """

    status: int = 500
    code: str = "server_error"
    message: str = "The server had an error"
    headers: Mapping[str, str] = field(default_factory=dict)
    instead: Literal["reset", "cut_json", "cut_body", "in_stream"] | None = None


LIMITED = Fault(429, "rate_limit_exceeded", "Rate limit reached")
OVERLOADED = Fault(529, "overloaded_error", "Overloaded")
RESET, CUT_JSON, CUT_BODY = Fault(instead="reset"), Fault(instead="cut_json"), Fault(instead="cut_body")
UNAUTHORIZED = Fault(401, "invalid_api_key", "Incorrect API key provided")
FORBIDDEN = Fault(403, "permission_error", "Country not supported")
NO_MODEL = Fault(404, "model_not_found", "The model `tiny-1` does not exist or you do not have access to it")
NO_QUOTA = Fault(429, "insufficient_quota", "You exceeded your current quota, please check your plan")
TOO_LONG = Fault(400, "context_length_exceeded", "This model's maximum context length is 10 tokens")
FILTERED = Fault(400, "content_filter", "The response was filtered due to the content management policy")


def limited(seconds: str) -> Fault:
    """A 429 whose `Retry-After` is this text."""
    return Fault(429, "rate_limit_exceeded", "Rate limit reached", {"Retry-After": seconds})


def answer_to(text: str) -> str:
    """The text that the model answers, unless a test has it answer otherwise."""
    return text[::-1]


@dataclass
class ModelProvider:
    """A provider that runs.

    Attributes:
        url: Its address, without a path.
        fault: Chooses the fault of a request by its number, from 0, and its text; None is an answer.
        answer: Returns what the model answers to a text.
        requests: The texts that were sent.
    """

    url: str
    fault: Callable[[int, str], Fault | None] = lambda number, text: None
    answer: Callable[[str], str] = answer_to
    requests: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next_fault(self, text: str) -> Fault | None:
        with self.lock:
            self.requests.append(text)
            return self.fault(len(self.requests) - 1, text)


def _answer(path: str, answer: str) -> dict[str, Any]:
    if path.endswith("/messages"):
        usage = {"input_tokens": 3, "output_tokens": 2}
        content = [{"type": "text", "text": answer}]
        message = {"id": "m", "type": "message", "role": "assistant", "model": MODEL, "content": content}
        return message | {"stop_reason": "end_turn", "stop_sequence": None, "usage": usage}
    if ":generateContent" in path:
        content = {"role": "model", "parts": [{"text": answer}]}
        return {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "modelVersion": MODEL}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    choice = {"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}
    return {"id": "1", "object": "chat.completion", "created": 0, "model": MODEL, "choices": [choice], "usage": usage}


def _problem(path: str, fault: Fault) -> dict[str, Any]:
    if path.endswith("/messages"):
        return {"type": "error", "error": {"type": fault.code, "message": fault.message}}
    if ":generateContent" in path:
        status = {429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}.get(fault.status, "INTERNAL")
        delay = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17s"}
        return {"error": {"code": fault.status, "message": fault.message, "status": status, "details": [delay]}}
    return {"error": {"message": fault.message, "type": fault.code, "code": fault.code, "param": None}}


def _text(body: Mapping[str, Any]) -> str:
    if "contents" in body:
        return str(body["contents"][-1]["parts"][0]["text"])
    content = body["messages"][-1]["content"] if "messages" in body else ""
    return content if isinstance(content, str) else str(content[0]["text"])


@contextmanager
def model_provider(fault: Callable[[int, str], Fault | None] | None = None) -> Iterator[ModelProvider]:
    """Run a provider inside the block."""

    class Handler(ModelHandler):
        def do_POST(self) -> None:
            body = self.read_json()
            path, text = self.path.partition("?")[0], _text(body)
            failure = provider.next_fault(text)
            if failure is None:
                self.send(200, _answer(path, provider.answer(text)))
            elif failure.instead is None:
                self._send(failure.status, json.dumps(_problem(path, failure)).encode(), failure.headers)
            else:
                self._spoil(path, text, failure)

        def do_GET(self) -> None:
            failure = provider.next_fault(self.path)
            if failure is None:
                self._send(200, b"{}")
            elif failure.instead is None:
                self._send(failure.status, b"{}", failure.headers)
            else:
                self._spoil(self.path, self.path, failure)

        def _spoil(self, path: str, text: str, failure: Fault) -> None:
            if failure.instead == "reset":
                self._reset()
            elif failure.instead == "in_stream":
                event = f"event: error\ndata: {json.dumps(_problem(path, failure))}\n\n".encode()
                self._send(200, event, {"Content-Type": "text/event-stream"})
            else:
                cut = json.dumps(_answer(path, provider.answer(text))).encode()[:-20]
                self._send(200, cut, {"Content-Length": "10000"} if failure.instead == "cut_body" else None)
                if failure.instead == "cut_body":
                    self._reset()

        def _send(self, status: int, data: bytes, headers: Mapping[str, str] | None = None) -> None:
            self.send_response(status)
            all_headers = {"Content-Type": "application/json", "Content-Length": str(len(data)), **(headers or {})}
            for name, value in all_headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)
            self.wfile.flush()

        def _reset(self) -> None:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            for opened in (self.rfile, self.wfile, self.connection):
                opened.close()
            self.close_connection = True

        def handle(self) -> None:
            with suppress(OSError, ValueError):  # it was reset
                super().handle()

        def finish(self) -> None:
            with suppress(OSError, ValueError):
                super().finish()

    with serving(Handler) as url:
        provider = ModelProvider(url)
        if fault is not None:
            provider.fault = fault
        yield provider
