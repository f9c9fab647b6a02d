"""Recorded model clients, over HTTP: the real packages of OpenAI and Anthropic against a server that speaks both."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.model_server import ModelHandler, serving
from tests.support.prose import sentence
from wtb import END, Workflow
from wtb.authoring.code.calling import Caller
from wtb.authoring.context.attempt_record import CaseView
from wtb.authoring.context.usage import price
from wtb.core.errors import InputError
from wtb.core.serialization.codec import decode
from wtb.core.tree.checkpoints import Position
from wtb.execution.engine.native import NativeEngine
from wtb.execution.engine.protocol import Result, Root, Task
from wtb.integrations.models import complete, record_calls

# Models grow old; what is tested here does not.
pytestmark = pytest.mark.filterwarnings("ignore:The model .* is deprecated:DeprecationWarning")

SECRET = "sk-very-secret"
CHAT = {"role": "user", "content": "2 + 2?"}
MODEL, CLAUDE = "gpt-4o-mini", "claude-sonnet-4-5"
TOOL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}


def chat(body: dict[str, Any]) -> dict[str, Any]:
    message = {"role": "assistant", "content": "four"}
    if body.get("tools"):
        message = {"role": "assistant", "content": None, "tool_calls": [TOOL]}
    usage = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
    usage["prompt_tokens_details"] = {"cached_tokens": 400}
    completion = {"id": "1", "object": "chat.completion", "created": 0, "model": body["model"] + "-2024-07-18"}
    return completion | {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}


def chat_chunks(body: dict[str, Any]) -> Iterator[tuple[str | None, Any]]:
    shared = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": body["model"]}
    for text in ("fo", "ur"):
        choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
        yield None, shared | {"choices": [choice], "usage": None}
    yield None, shared | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": None}
    if (body.get("stream_options") or {}).get("include_usage"):
        usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
        yield None, shared | {"choices": [], "usage": usage}
    yield None, "[DONE]"


def response(body: dict[str, Any]) -> dict[str, Any]:
    text = {"type": "output_text", "text": "four", "annotations": []}
    message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [text]}
    usage = {"input_tokens": 20, "output_tokens": 3, "total_tokens": 23}
    usage |= {"input_tokens_details": {"cached_tokens": 5}, "output_tokens_details": {"reasoning_tokens": 1}}
    whole = {"id": "r", "object": "response", "created_at": 0, "model": body["model"], "status": "completed"}
    whole |= {"output": [message], "usage": usage, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return whole


def message(body: dict[str, Any]) -> dict[str, Any]:
    usage = {"input_tokens": 30, "output_tokens": 4, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 50}
    content = [{"type": "text", "text": "four"}]
    ended = {"stop_reason": "end_turn", "stop_sequence": None, "usage": usage}
    return {"id": "m", "type": "message", "role": "assistant", "model": body["model"], "content": content, **ended}


def message_events(body: dict[str, Any]) -> Iterator[tuple[str | None, Any]]:
    start = {**message(body), "content": [], "stop_reason": None}
    start["usage"] = {"input_tokens": 30, "output_tokens": 1}
    deltas = [{"index": 0, "delta": {"type": "text_delta", "text": text}} for text in ("fo", "ur")]
    for kind, event in (
        ("message_start", {"message": start}),
        ("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}),
        *(("content_block_delta", delta) for delta in deltas),
        ("content_block_stop", {"index": 0}),
        ("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}}),
        ("message_stop", {}),
    ):
        yield kind, {"type": kind, **event}


def response_events(body: dict[str, Any]) -> Iterator[tuple[str | None, Any]]:
    opening = {**response(body), "status": "in_progress", "output": [], "usage": None}
    yield "response.created", {"type": "response.created", "sequence_number": 0, "response": opening}
    yield "response.completed", {"type": "response.completed", "sequence_number": 1, "response": response(body)}


ANSWERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "/v1/chat/completions": chat,
    "/v1/responses": response,
    "/v1/messages": message,
    "/v1/completions": lambda body: {**chat(body), "choices": [{"index": 0, "text": "four", "finish_reason": "stop"}]},
    "/v1/embeddings": lambda body: {
        "object": "list",
        "model": body["model"],
        "data": [{"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}],
        "usage": {"prompt_tokens": 7, "total_tokens": 7},
    },
}
STREAMS: dict[str, Callable[[dict[str, Any]], Iterator[tuple[str | None, Any]]]] = {
    "/v1/chat/completions": chat_chunks,
    "/v1/responses": response_events,
    "/v1/messages": message_events,
}


ODD_USAGE: dict[str, Any] = {
    "more-cached": {"prompt_tokens": 100, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 500}},
    "bool": {"prompt_tokens": True, "completion_tokens": 10},
    "huge": {"prompt_tokens": 100, "completion_tokens": 10**15},
    "negative": {"prompt_tokens": -1, "completion_tokens": 10},
    "zero": {"prompt_tokens": 0, "completion_tokens": 0},
    "list": [1, 2],
    "none": None,
}


class Answering(ModelHandler):
    """Speaks enough of both protocols.

    A model called `broken-429` or `broken-500` answers so, `old` rejects `stream_options`, and `odd-KEY` reports the
    usage of that key.
    """

    def do_GET(self) -> None:
        self.send(200, {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "us"}]})

    def do_POST(self) -> None:
        body = self.read_json()
        if body["model"].startswith("broken-"):
            error = {"type": "error", "error": {"type": "busy", "message": "come back later"}}
            self.send(int(body["model"].removeprefix("broken-")), error)
        elif body["model"] == "old" and body.get("stream_options"):
            self.send(400, {"error": {"message": "Unrecognized request argument supplied: stream_options"}})
        elif body["model"].startswith("odd-"):
            self.send(200, {**chat(body), "usage": ODD_USAGE[body["model"].removeprefix("odd-")]})
        elif body.get("stream"):
            self._stream(STREAMS[self.path](body))
        else:
            self.send(200, ANSWERS[self.path](body))

    def _stream(self, events: Iterator[tuple[str | None, Any]]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for kind, payload in events:
            text = payload if isinstance(payload, str) else json.dumps(payload)
            self.wfile.write(((f"event: {kind}\n" if kind else "") + f"data: {text}\n\n").encode())


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(Answering) as address:
        yield address


# The packages are imported where they are needed: it takes seconds, and every process of the tests reads every test.


def plain_openai(url: str) -> Any:
    import openai

    return openai.OpenAI(base_url=f"{url}/v1", api_key=SECRET, max_retries=0)


@dataclass
class Clients:
    """Recorded clients; the underlying clients are closed at the end of a test."""

    url: str
    opened: list[Any] = field(default_factory=list)

    def openai(self, **options: Any) -> Any:
        return self._recorded(plain_openai(self.url), **options)

    def anthropic(self) -> Any:
        import anthropic

        return self._recorded(anthropic.Anthropic(base_url=self.url, api_key=SECRET, max_retries=0))

    def async_openai(self) -> Any:
        import openai

        return record_calls(openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key=SECRET, max_retries=0))

    def async_anthropic(self) -> Any:
        import anthropic

        return record_calls(anthropic.AsyncAnthropic(base_url=self.url, api_key=SECRET, max_retries=0))

    def _recorded(self, client: Any, **options: Any) -> Any:
        self.opened.append(client)
        return record_calls(client, **options)


@pytest.fixture
def clients(url: str) -> Iterator[Clients]:
    new_clients = Clients(url)
    yield new_clients
    for client in new_clients.opened:
        client.close()


class LocalSurroundings:
    """The surroundings of a node that runs in this process."""

    own_process = False

    def __init__(self) -> None:
        self.caller = Caller()

    def record(self, on_event: Any = None) -> Any:
        from wtb.authoring.context.attempt_record import Record

        return Record(on_event=on_event)

    def call(self, fn: Callable[..., Any], *args: Any, timeout: float | None, **kwargs: Any) -> Any:
        return self.caller.call(fn, *args, timeout=timeout, **kwargs)

    def resources(self) -> Any:
        return None

    def workspace(self, snapshot: str | None, *, enter: bool = False) -> Any:
        return None


def ran(node: Callable[..., Any], timeout: float | None = None) -> Result:
    """Run a node once by the engine, with the state as its only argument."""
    workflow = Workflow("asks")
    workflow.node(node, name="ask")
    workflow.entry("ask")
    workflow.edge("ask", END)
    surroundings = LocalSurroundings()
    task = Task("ask", "default", {}, Position(0, ("ask",)), Root(CaseView("c")), timeout=timeout)
    node_result = NativeEngine(workflow).run(task, surroundings)
    surroundings.caller.close()
    return node_result


def only_call(node_result: Result) -> dict[str, Any]:
    (call,) = succeeded(node_result).record.calls
    return {**call, **{key: text_of(call[key]) for key in ("prompt", "response")}}


def text_of(text: str | None) -> Any:
    return None if text is None else decode(text.encode())


def warnings(node_result: Result) -> list[str]:
    return [details["message"] for kind, _, details in node_result.record.events if kind == "node.log"]


def chats(completions: Any, model: str = MODEL, **options: Any) -> Any:
    return completions.create(model=model, messages=[CHAT], **options)


def succeeded(node_result: Result) -> Result:
    assert node_result.failure is None, str(node_result.failure)
    return node_result


def tokens(node_result: Result) -> list[tuple[int, int]]:
    return [(call["tokens_in"], call["tokens_out"]) for call in node_result.record.calls]


def test_a_chat_is_kept_with_tokens_and_price_and_without_the_key(clients: Clients) -> None:
    client = clients.openai()

    def ask(state: Any) -> None:
        answer = chats(client.chat.completions, extra_headers={"Authorization": SECRET}, timeout=30)
        assert answer.choices[0].message.content == "four"

    node_result = ran(ask)
    call = only_call(node_result)
    assert call["model"] == f"{MODEL}-2024-07-18"
    assert (call["prompt"], call["response"]) == ([CHAT], "four")
    assert (call["tokens_in"], call["tokens_out"]) == (1000, 100)
    assert call["usd"] == price(MODEL, 1000, 100, cached=400) < price(MODEL, 1000, 100)
    assert call["duration_s"] > 0
    assert node_result.record.usd == call["usd"]
    assert SECRET not in str(node_result)
    assert not warnings(node_result)


def test_tools_that_the_model_wants_called_are_kept_and_secrets_of_tools_are_not(clients: Clients) -> None:
    client = clients.openai()
    remote = {"type": "mcp", "server_url": "https://example.org", "headers": {"Authorization": SECRET}}

    def ask(state: Any) -> None:
        chats(client.chat.completions, tools=[remote], temperature=0.5)

    node_result = ran(ask)
    call = only_call(node_result)
    assert call["response"] == {"text": "", "tool_calls": [{"name": "add", "arguments": '{"a": 2}'}]}
    assert call["prompt"]["messages"] == [CHAT]
    assert call["prompt"]["temperature"] == 0.5
    assert call["prompt"]["tools"][0]["headers"] == "(not recorded)"
    assert SECRET not in str(node_result)


@pytest.mark.parametrize(
    ("ask", "prompt", "response", "tokens"),
    [
        (lambda c: c.responses.create(model=MODEL, input="2 + 2?"), "2 + 2?", "four", (20, 3)),
        (lambda c: c.completions.create(model=MODEL, prompt="2 + 2 ="), "2 + 2 =", "four", (1000, 100)),
        (lambda c: c.embeddings.create(model="text-embedding-3-small", input="x"), "x", {"embeddings": 1}, (7, 0)),
        (lambda c: chats(c.chat.completions.with_raw_response), [CHAT], "four", (1000, 100)),
        (lambda c: chats(c.with_options(timeout=9).chat.completions), [CHAT], "four", (1000, 100)),
    ],
    ids=["responses", "completions", "embeddings", "raw response", "other options"],
)
def test_every_way_of_openai_is_recorded(
    clients: Clients, ask: Callable[[Any], Any], prompt: Any, response: Any, tokens: tuple[int, int]
) -> None:
    client = clients.openai()
    call = only_call(ran(lambda state: ask(client) and None))
    assert (call["prompt"], call["response"]) == (prompt, response)
    assert (call["tokens_in"], call["tokens_out"]) == tokens
    assert call["usd"] > 0 or call["model"] == "text-embedding-3-small"


def test_a_model_is_priced_as_that_of_the_provider_whose_server_is_asked() -> None:
    model = "text-embedding-3-small"
    with pytest.raises(InputError, match=sentence("no price is known")):
        price(model, 1_000_000, 0)
    assert price(model, 1_000_000, 0, url="https://api.openai.com/v1/") == 0.02
    assert price(MODEL, 1000, 100, url="http://127.0.0.1:1/v1") == price(MODEL, 1000, 100)


def test_a_stream_is_recorded_at_its_end_with_the_usage_of_its_last_chunk(clients: Clients) -> None:
    client = clients.openai()

    def ask(state: Any) -> None:
        chunks = chats(client.chat.completions, stream=True, stream_options={"include_usage": True})
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "four"

    node_result = ran(ask)
    call = only_call(node_result)
    assert (call["response"], call["tokens_in"], call["tokens_out"]) == ("four", 10, 2)
    assert call["usd"] == price(MODEL, 10, 2)
    assert not warnings(node_result)


def test_a_stream_that_is_to_have_no_usage_has_an_unknown_cost(clients: Clients) -> None:
    client = clients.openai()

    def ask(state: Any) -> None:
        for _ in range(2):
            with chats(client.chat.completions, stream=True, stream_options={"include_usage": False}) as chunks:
                for _ in chunks:
                    pass

    node_result = ran(ask)
    assert [text_of(call["response"]) for call in node_result.record.calls] == ["four", "four"]
    assert node_result.record.tokens_in == node_result.record.usd == 0
    assert node_result.record.unknown_costs == [{"cause": "usage", "what": MODEL}]


def test_a_stream_of_which_nobody_asked_the_usage_has_it_recorded_and_reads_as_before(clients: Clients) -> None:
    client = clients.openai()

    def ask(state: Any) -> None:
        chunks = list(chats(client.chat.completions, stream=True))
        assert [len(chunk.choices) for chunk in chunks] == [1, 1, 1]
        stream = chats(client.chat.completions, stream=True)
        assert next(stream).choices[0].delta.content == "fo"
        assert [len(chunk.choices) for chunk in stream] == [1, 1]
        with client.chat.completions.stream(model=MODEL, messages=[CHAT]) as helper:
            assert helper.get_final_completion().choices[0].message.content == "four"

    node_result = succeeded(ran(ask))
    assert tokens(node_result) == [(10, 2)] * 3
    assert not node_result.record.unknown_costs


def test_a_server_that_rejects_the_request_for_usage_is_asked_again_without_it(clients: Clients) -> None:
    client = clients.openai()

    def ask(state: Any) -> None:
        for _ in range(2):
            assert len(list(client.chat.completions.create(model="old", messages=[CHAT], stream=True))) == 3

    node_result = succeeded(ran(ask))
    assert [text_of(call["response"]) for call in node_result.record.calls] == ["four", "four"]
    assert node_result.record.unknown_costs == [{"cause": "usage", "what": "old"}]


def test_streams_of_raw_responses_are_counted_as_agents_of_openai_read_them(clients: Clients) -> None:
    """openai-agents enters `responses.with_streaming_response.create`, parses it, and iterates over what it gets."""
    client, later = clients.openai(), clients.async_openai()

    def ask(state: Any) -> None:
        with chats(client.chat.completions.with_streaming_response, stream=True) as response:
            assert response.status_code == 200
            assert [len(chunk.choices) for chunk in response.parse()] == [1, 1, 1]
        with client.chat.completions.with_streaming_response.create(model=MODEL, messages=[CHAT]) as response:
            assert response.json()["choices"][0]["message"]["content"] == "four"
            assert response.parse().choices[0].message.content == "four"
        raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=[CHAT], stream=True)
        assert len(list(raw.parse())) == 3

    async def ask_later(state: Any) -> None:
        manager = later.responses.with_streaming_response.create(model=MODEL, input="2 + 2?", stream=True)
        response = await manager.__aenter__()
        kinds = [event.type async for event in await response.parse()]
        await manager.__aexit__(None, None, None)
        assert kinds == ["response.created", "response.completed"]
        async with later.responses.with_streaming_response.create(model=MODEL, input="2 + 2?") as response:
            assert (await response.parse()).output_text == "four"
        await later.close()

    for node, used in ((ask, [(10, 2), (1000, 100), (10, 2)]), (ask_later, [(20, 3), (20, 3)])):
        node_result = succeeded(ran(node))
        assert tokens(node_result) == used
        assert not node_result.record.unknown_costs


def test_a_raw_response_that_nobody_reads_has_an_unknown_cost(clients: Clients) -> None:
    client = clients.openai()

    def ask(state: Any) -> None:
        with client.chat.completions.with_streaming_response.create(model=MODEL, messages=[CHAT]):
            pass

    node_result = ran(ask)
    assert len(node_result.record.calls) == 1
    assert node_result.record.unknown_costs == [{"cause": "usage", "what": MODEL}]


@pytest.mark.parametrize(
    ("kind", "tokens", "is_known"),
    [
        ("more-cached", (100, 10), True),
        ("bool", (1, 10), True),  # as the client reads it
        ("huge", (100, 0), False),
        ("negative", (0, 10), False),
        ("zero", (0, 0), False),
        ("list", (0, 0), False),
        ("none", (0, 0), False),
    ],
)
def test_no_usage_that_a_server_reports_fails_a_node(
    clients: Clients, kind: str, tokens: tuple[int, int], is_known: bool
) -> None:
    client = clients.openai(prices={f"odd-{kind}": (1.0, 1.0)})
    node_result = ran(lambda state: client.chat.completions.create(model=f"odd-{kind}", messages=[CHAT]) and None)

    call = only_call(node_result)
    assert (call["tokens_in"], call["tokens_out"]) == tokens
    reasons = [reason["cause"] for reason in node_result.record.unknown_costs]
    assert set(reasons) == (set() if is_known else {"usage"})


@pytest.mark.parametrize("prices", [{"m": (1.0,)}, {"m": (1.0, -1.0)}, {"m": ("1", "2")}, {"m": (1.0, float("nan"))}])
def test_prices_that_are_none_are_refused(clients: Clients, prices: Any) -> None:
    with pytest.raises(InputError, match=r"expected \(usd_in, usd_out\)"):
        clients.openai(prices=prices)


@pytest.mark.slow
def test_a_stream_that_is_left_is_recorded_as_far_as_it_came(clients: Clients) -> None:
    client = clients.anthropic()

    def ask(state: Any) -> None:
        for event in client.messages.create(model=CLAUDE, max_tokens=9, messages=[CHAT], stream=True):
            if event.type == "content_block_delta":
                break

    node_result = ran(ask)
    call = only_call(node_result)
    assert (call["response"], call["tokens_in"], call["tokens_out"]) == ("fo", 30, 0)
    assert node_result.record.unknown_costs == [{"cause": "usage", "what": CLAUDE}]


def test_helpers_for_streams_are_recorded_too(clients: Clients) -> None:
    openai, other = clients.openai(), clients.anthropic()

    def ask(state: Any) -> None:
        with other.messages.stream(model=CLAUDE, max_tokens=9, messages=[CHAT]) as stream:
            assert "".join(stream.text_stream) == "four"
        with openai.responses.stream(model=MODEL, input="2 + 2?") as stream:
            stream.until_done()
        usage = {"stream_options": {"include_usage": True}}
        with openai.chat.completions.stream(model=MODEL, messages=[CHAT], **usage) as stream:
            assert stream.get_final_completion().choices[0].message.content == "four"

    node_result = succeeded(ran(ask))
    recorded = [(call["model"], text_of(call["response"]), call["tokens_out"]) for call in node_result.record.calls]
    assert recorded == [(CLAUDE, "four", 4), (MODEL, "four", 3), (MODEL, "four", 2)]


def test_what_anthropic_reads_from_its_cache_and_writes_to_it_is_counted_and_priced(clients: Clients) -> None:
    client = clients.anthropic()

    def ask(state: Any) -> None:
        client.messages.create(model=CLAUDE, max_tokens=9, system="Be brief.", messages=[CHAT])

    call = only_call(ran(ask))
    assert (call["tokens_in"], call["tokens_out"]) == (180, 4)
    assert call["usd"] == price(CLAUDE, 180, 4, cached=100, written=50)
    assert call["prompt"] == {"max_tokens": 9, "system": "Be brief.", "messages": [CHAT]}


@pytest.mark.parametrize(("status", "error"), [(429, "RateLimitError"), (500, "InternalServerError")])
def test_a_call_that_fails_is_recorded_with_its_error(clients: Clients, status: int, error: str) -> None:
    import openai

    client = clients.openai()

    def ask(state: Any) -> None:
        with pytest.raises(getattr(openai, error)):
            client.chat.completions.create(model=f"broken-{status}", messages=[CHAT])

    call = only_call(ran(ask))
    assert error in call["response"]["error"]
    assert (call["tokens_in"], call["usd"]) == (0, 0.0)


def test_async_clients_are_recorded_in_async_nodes(clients: Clients) -> None:
    import anthropic

    async def ask(state: Any) -> None:
        async with clients.async_openai() as openai, clients.async_anthropic() as other:
            await openai.chat.completions.create(model=MODEL, messages=[CHAT])
            async for _ in await other.messages.create(model=CLAUDE, max_tokens=9, messages=[CHAT], stream=True):
                pass
            async with other.messages.stream(model=CLAUDE, max_tokens=9, messages=[CHAT]) as stream:
                assert await stream.get_final_text() == "four"
            await openai.models.list()
            with pytest.raises(anthropic.RateLimitError):
                await other.messages.create(model="broken-429", max_tokens=9, messages=[CHAT])

    node_result = succeeded(ran(ask, timeout=60))
    *well, failed = [text_of(call["response"]) for call in node_result.record.calls]
    assert well == ["four", "four", "four"]
    assert "RateLimitError" in failed["error"]


@pytest.mark.parametrize("timeout", [None, 60], ids=["on the runner's thread", "on a thread of its own"])
def test_threads_that_a_node_starts_have_its_context(clients: Clients, timeout: float | None) -> None:
    client = clients.openai()

    def ask(state: Any) -> None:
        def work() -> None:
            chats(client.chat.completions)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        asyncio.run(asyncio.to_thread(work))
        work()

    assert len(ran(ask, timeout).record.calls) == 3


def test_what_has_no_price_counts_nothing_and_says_so_unless_a_price_is_given(clients: Clients) -> None:
    def asks(client: Any) -> Callable[[Any], None]:
        return lambda state: client.chat.completions.create(model="our-own", messages=[CHAT]) and None

    without = ran(asks(clients.openai()))
    assert only_call(without)["usd"] == 0
    assert without.record.unknown_costs == [{"cause": "price", "what": "our-own-2024-07-18"}]
    priced = ran(asks(clients.openai(prices={"our-own": (2.0, 10.0)})))
    assert only_call(priced)["usd"] == pytest.approx(0.003)
    assert not priced.record.unknown_costs


def test_a_recorded_client_is_what_it_stands_for(clients: Clients) -> None:
    import openai

    client = clients.openai()
    assert isinstance(client, openai.OpenAI)
    assert client.models.list().data[0].id == MODEL
    assert client.api_key == SECRET
    assert record_calls(client) is client
    with pytest.raises(AttributeError):
        _ = client.chat.nothing_of_that_name
    outside = chats(client.chat.completions)  # of no node: it passes unrecorded
    assert outside.choices[0].message.content == "four"


def test_what_is_no_client_of_a_model_is_refused() -> None:
    with pytest.raises(InputError, match=sentence("{} has no calls of a model that are known", "object")):
        record_calls(object())


def test_complete_asks_any_kind_of_client_for_text(clients: Clients, url: str) -> None:
    openai, other = clients.openai(), clients.anthropic()
    plain = plain_openai(url)
    clients.opened.append(plain)
    talk = [{"role": "system", "content": "Be brief."}, CHAT]

    def ask(state: Any) -> None:
        assert complete(openai, "2 + 2?", model=MODEL) == "four"
        assert complete(other, talk, model=CLAUDE) == "four"
        assert complete(plain, talk, model=MODEL, temperature=0) == "four"
        assert complete(lambda prompt: prompt.upper(), "four") == "FOUR"
        assert complete(lambda prompt: ("4", {"tokens_in": 5, "usd": 0.5}), "2 + 2?", model=None) == "4"

    node_result = succeeded(ran(ask))
    prompts = [text_of(call["prompt"]) for call in node_result.record.calls]
    assert prompts[0] == [CHAT]
    assert prompts[1] == {"max_tokens": 4096, "messages": [CHAT], "system": "Be brief."}
    assert prompts[2] == {"messages": talk, "temperature": 0}
    assert len(prompts) == 4
    assert (node_result.record.calls[3]["tokens_in"], node_result.record.calls[3]["usd"]) == (5, 0.5)


@pytest.mark.parametrize("is_recorded", [True, False])
def test_complete_sends_options_that_a_client_has_no_parameter_for(clients: Clients, is_recorded: bool) -> None:
    import anthropic

    client = clients.anthropic()
    if not is_recorded:
        client = anthropic.Anthropic(base_url=clients.url, api_key=SECRET, max_retries=0)
        clients.opened.append(client)

    def ask(state: Any) -> None:
        assert complete(client, "2 + 2?", model=CLAUDE, temperature=0.5, max_tokens=9) == "four"

    node_result = succeeded(ran(ask))
    assert text_of(node_result.record.calls[0]["prompt"]) == {"max_tokens": 9, "messages": [CHAT], "temperature": 0.5}


@pytest.mark.parametrize(
    ("client", "explanation"),
    [
        (plain_openai, "give model="),
        (lambda url: 3, sentence("a {} cannot generate text", "int")),
        (lambda url: lambda prompt: 3, sentence("returned {}; expected text", "int")),
        (lambda url: lambda prompt: ("x", 3), sentence("a usage of type {}", "int")),
    ],
    ids=["no model", "no client", "no text", "no usage"],
)
def test_complete_refuses_what_it_cannot_ask(url: str, client: Callable[[str], Any], explanation: str) -> None:
    bare_client = client(url)
    with pytest.raises(InputError, match=explanation):
        complete(bare_client, "2 + 2?")
    if hasattr(bare_client, "close"):
        bare_client.close()


def test_complete_refuses_clients_that_have_to_be_awaited(clients: Clients) -> None:
    client = clients.async_openai()
    with pytest.raises(InputError, match="asynchronous"):
        complete(client, "2 + 2?", model=MODEL)
    asyncio.run(client.close())
