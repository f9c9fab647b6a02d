"""Provider failures are recognized by the errors of real client libraries; other errors are not."""

from __future__ import annotations

import errno
import json
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from functools import cache
from http import HTTPStatus
from typing import Any

import anthropic
import httpx
import openai
import pytest
import requests
from starlette.exceptions import HTTPException

from tests.support import model_provider as provider_of
from tests.support.model_provider import Fault, ModelProvider, limited, model_provider
from tests.support.prose import sentence
from wtb.core.errors import FinalError, NodeTimeout
from wtb.core.failures import Failure
from wtb.core.provider_errors import provider_fault, retry_after_s
from wtb.core.provider_faults import ProviderFault, is_lasting, wait_s

TOO_MANY = "Request too large for gpt-4o on tokens per min: Limit 30000, Requested 50000"
CHAT: Any = [{"role": "user", "content": "hello"}]
Call = Callable[[str], Any]


@pytest.fixture(scope="module")
def provider() -> Iterator[ModelProvider]:
    with model_provider() as running:
        yield running
        openai_client(running.url).close()
        anthropic_client(running.url).close()


@cache
def openai_client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)


@cache
def anthropic_client(url: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=url, api_key="k", max_retries=0)


def openai_chat(url: str) -> Any:
    return openai_client(url).chat.completions.create(model="m", messages=CHAT)


def openai_stream(url: str) -> Any:
    return list(openai_client(url).chat.completions.create(model="m", messages=CHAT, stream=True))


def anthropic_messages(url: str) -> Any:
    return anthropic_client(url).messages.create(model="m", max_tokens=9, messages=CHAT)


def anthropic_stream(url: str) -> Any:
    return list(anthropic_client(url).messages.create(model="m", max_tokens=9, messages=CHAT, stream=True))


def by_httpx(url: str) -> Any:
    return httpx.get(f"{url}/page").raise_for_status()


def by_requests(url: str) -> Any:
    with requests.Session() as session:
        return session.get(f"{url}/page", timeout=30).raise_for_status()


def by_urllib(url: str) -> Any:
    try:
        with urllib.request.urlopen(f"{url}/page") as response:
            return response.read()
    except urllib.error.HTTPError as error:
        error.close()
        raise


MODELS = (openai_chat, openai_stream, anthropic_messages, anthropic_stream)
HTTP = (by_httpx, by_requests, by_urllib)


def error_of(call: Callable[[], Any]) -> BaseException:
    with pytest.raises(Exception) as caught:
        call()
    return caught.value


def fault_of(provider: ModelProvider, fault: Fault, call: Call) -> ProviderFault | None:
    provider.fault = lambda number, text: fault
    return provider_fault(error_of(lambda: call(provider.url)))


def seen(fault: ProviderFault | None) -> ProviderFault:
    """Return a fault, which there must be."""
    assert fault is not None
    return fault


@pytest.mark.parametrize("call", [*MODELS, *HTTP])
@pytest.mark.parametrize(
    ("fault", "reason", "status", "seconds"),
    [
        (provider_of.LIMITED, "rate_limit", 429, None),
        (limited("7"), "rate_limit", 429, 7.0),
        (limited("0.25"), "rate_limit", 429, 0.25),
        (Fault(429, headers={"retry-after-ms": "40", "Retry-After": "1"}), "rate_limit", 429, 0.04),
        (Fault(408), "timeout", 408, None),
        (Fault(500), "server_error", 500, None),
        (Fault(502, message="<html>Bad Gateway</html>"), "server_error", 502, None),
        (provider_of.OVERLOADED, "overloaded", 529, None),
        (provider_of.RESET, "connection", None, None),
        (provider_of.CUT_BODY, "connection", None, None),
    ],
)
def test_what_a_provider_could_not_do_is_its_fault(
    provider: ModelProvider, fault: Fault, reason: str, status: int | None, seconds: float | None, call: Call
) -> None:
    provider_error = seen(fault_of(provider, fault, call))
    figures = (provider_error["reason"], provider_error["status"], provider_error["retry_after_s"])
    assert figures == (reason, status, seconds)
    assert not is_lasting(provider_error)


@pytest.mark.parametrize("call", MODELS)
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (provider_of.UNAUTHORIZED, "credentials"),
        (provider_of.FORBIDDEN, "credentials"),
        (provider_of.NO_MODEL, "model"),
        (provider_of.NO_QUOTA, "quota"),
        (Fault(400, "invalid_request_error", "Your credit balance is too low to access the API"), "quota"),
    ],
)
def test_what_waiting_does_not_change_is_told_apart(
    provider: ModelProvider, fault: Fault, reason: str, call: Call
) -> None:
    provider_error = seen(fault_of(provider, fault, call))
    assert provider_error["reason"] == reason
    assert provider_error["provider"] in ("openai", "anthropic")
    assert is_lasting(provider_error)


@pytest.mark.parametrize("call", MODELS)
@pytest.mark.parametrize(
    "fault",
    [
        provider_of.TOO_LONG,
        provider_of.FILTERED,
        Fault(400, "invalid_request_error", "temperature: must be at most 1"),
        Fault(413, "request_too_large", "Request too large"),
        Fault(429, "rate_limit_exceeded", TOO_MANY),
        Fault(403, "forbidden", "Your chosen model requires moderation and your input was flagged"),
        Fault(404, "not_found_error", "No such file: file-1"),
        Fault(500, "internal", "the input exceeds the context window of the model"),
    ],
)
def test_what_a_provider_says_about_the_request_is_a_result(provider: ModelProvider, fault: Fault, call: Call) -> None:
    assert fault_of(provider, fault, call) is None


@pytest.mark.parametrize("call", HTTP)
@pytest.mark.parametrize("status", [400, 401, 403, 404, 410])
def test_a_page_that_is_not_there_is_a_result(provider: ModelProvider, status: int, call: Call) -> None:
    assert fault_of(provider, Fault(status), call) is None


@pytest.mark.parametrize("call", [openai_chat, anthropic_messages])
def test_json_that_was_cut_is_a_fault_of_the_provider(provider: ModelProvider, call: Call) -> None:
    provider_error = seen(fault_of(provider, provider_of.CUT_JSON, call))
    assert provider_error["provider"] in ("openai", "anthropic")
    assert provider_error["reason"] == "invalid_response"
    assert provider_fault(error_of(lambda: json.loads("{"))) is None  # the node's own


def test_an_error_within_a_stream_is_a_fault_although_its_status_is_200(provider: ModelProvider) -> None:
    in_stream = Fault(529, "overloaded_error", "Overloaded", instead="in_stream")
    for call in (openai_stream, anthropic_stream):
        provider_error = seen(fault_of(provider, in_stream, call))
        assert provider_error["reason"] == "overloaded"


def test_a_refused_connection_is_a_fault_whoever_makes_it(unused_port: int) -> None:
    for call in (*MODELS, *HTTP):
        provider_error = seen(provider_fault(error_of(lambda call=call: call(f"http://127.0.0.1:{unused_port}"))))  # type: ignore[misc]
        assert provider_error["reason"] == "connection"
    provider_error = seen(provider_fault(error_of(lambda: socket.create_connection(("127.0.0.1", unused_port)))))
    assert provider_error["provider"] == "network"


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


class RateLimitError(Exception):
    """An error of an unknown client."""

    status_code = 429


class Coded(Exception):
    """An error of the user's own, with a number that is no HTTP status."""

    def __init__(self, code: object) -> None:
        super().__init__("no such order")
        self.code = code


class Named(ConnectionError):
    """An error of the user's own with a name like those of clients."""


def of_library(module: str, name: str, **attributes: Any) -> Exception:
    """Return an error like that of a library that is not installed."""
    base = type("APIError", (Exception,), {"__module__": f"{module}.errors"})
    error: Exception = type(name, (base,), {"__module__": f"{module}.errors"})("failed")
    vars(error).update(attributes)
    return error


def raised_while(first: BaseException, second: BaseException, *, because: bool = False) -> BaseException:
    """Return the second error, raised while the first one is handled."""

    def raising() -> None:
        try:
            raise first
        except BaseException as handled:
            if because:
                raise second from handled
            raise second  # noqa: B904

    return error_of(raising)


AWS_LIMIT = {"Error": {"Code": "ThrottlingException"}, "ResponseMetadata": {"HTTPStatusCode": 400, "HTTPHeaders": {}}}
_DENIED = {"Error": {"Code": "AccessDeniedException"}, "ResponseMetadata": {"HTTPStatusCode": 403}}
AWS_DENIED: Any = {"response": _DENIED, "operation_name": "Converse"}
UNAVAILABLE = HTTPStatus.SERVICE_UNAVAILABLE
GRPC_UNAVAILABLE = type("Code", (), {"name": "UNAVAILABLE"})
GOOGLE_BODY = {"error": {"details": [{"@type": "…RetryInfo", "retryDelay": "17s"}]}}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RateLimitError(), ("network", "rate_limit", None)),
        (of_library("google.genai", "ClientError", code=429, details=GOOGLE_BODY), ("google", "rate_limit", 17.0)),
        (of_library("google.api_core", "Unavailable", code=UNAVAILABLE), ("google", "overloaded", None)),
        (of_library("botocore", "ClientError", response=AWS_LIMIT), ("network", "rate_limit", None)),
        (of_library("botocore", "ClientError", **AWS_DENIED), ("bedrock", "credentials", None)),
        (of_library("grpc", "RpcError", code=lambda: HTTPStatus.NOT_FOUND), None),
        (of_library("grpc", "RpcError", code=lambda: GRPC_UNAVAILABLE), ("network", "overloaded", None)),
        (of_library("aiohttp", "ServerTimeoutError"), ("network", "timeout", None)),
        (of_library("httpx", "UnsupportedProtocol"), None),
        (raised_while(RateLimitError(), RuntimeError("no answer"), because=True), ("network", "rate_limit", None)),
        (raised_while(RateLimitError(), RuntimeError("no answer")), ("network", "rate_limit", None)),
        (raised_while(RateLimitError(), FinalError("give up"), because=True), ("network", "rate_limit", None)),
        (ExceptionGroup("both", [RateLimitError(), RateLimitError()]), ("network", "rate_limit", None)),
        (OSError(errno.EHOSTUNREACH, "no route"), ("network", "connection", None)),
    ],
)
def test_errors_of_other_libraries_and_wrapped_ones(
    error: BaseException, expected: tuple[str, str, float | None] | None
) -> None:
    fault = provider_fault(error)
    assert (fault and (fault["provider"], fault["reason"], fault["retry_after_s"])) == expected


class Hostile(Exception):
    @property
    def status_code(self) -> int:
        raise RuntimeError("nobody reads this")

    def __str__(self) -> str:
        raise RuntimeError("nor this")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("429 in a text"),
        Coded(500),
        Coded("rate_limit_exceeded"),
        AttributeError(sentence("no attribute {}", "'code'")),
        TimeoutError("the node's own deadline"),
        BrokenPipeError(errno.EPIPE, "its own child"),
        FileNotFoundError(errno.ENOENT, "no such file"),
        HTTPException(500),
        type("Refused", (Exception,), {"status_code": 404})(),
        type("Odd", (Exception,), {"status_code": True})(),
        subprocess.CalledProcessError(137, "tool"),
        Hostile(),
        raised_while(RateLimitError(), KeyError("a fault in the handler")),
        raised_while(RateLimitError(), type("BadRequest", (Exception,), {"status_code": 400})()),
        ExceptionGroup("one is the node's own", [RateLimitError(), ValueError("wrong")]),
    ],
)
def test_what_is_no_failure_of_a_provider(error: BaseException) -> None:
    assert provider_fault(error) is None
    assert Failure.of(error).kind == "error"


def test_the_deadline_of_a_node_stays_a_timeout() -> None:
    late = raised_while(RateLimitError(), NodeTimeout("too late"))
    assert Failure.of(late).kind == "timeout"
    assert Failure.of(late).provider is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"RETRY-AFTER-MS": "1500"}, 1.5),
        ({"Retry-After": "-1"}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "1e30"}, None),
        ({"Retry-After": "Sat, 28 Nov 2026 10:00:20 GMT", "Date": "Sat, 28 Nov 2026 10:00:00 GMT"}, 20.0),
        ({}, None),
    ],
)
def test_the_time_that_a_server_states(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers) == seconds


def test_waits_grow_and_are_never_shorter_than_stated() -> None:
    silent: ProviderFault = {"provider": "p", "reason": "rate_limit", "status": 429, "retry_after_s": None}
    stated: ProviderFault = {**silent, "retry_after_s": 30.0}
    waits = [wait_s(silent, tries) for tries in range(1, 20)]
    assert all(2.0 ** min(number, 6) * 0.9 <= wait for number, wait in enumerate(waits[:5]))
    assert max(waits) <= 75
    assert all(30.0 <= wait_s(stated, tries) <= 75 for tries in range(1, 20))
    at_once: ProviderFault = {**silent, "retry_after_s": 0.0}
    assert wait_s(at_once, 1) < 1
    assert wait_s(at_once, 6) > 10  # a server that always states 0 is not called without a pause
    assert len({wait_s(silent, 3) for _ in range(20)}) > 1
