"""Streamed answers: passed on event by event, and put together for the record."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from wtb.integrations.models.responses import Reply, ToolCall, join_parts, plain, reply, usage

if TYPE_CHECKING:
    from pydantic import JsonValue

Done = Callable[[Reply, BaseException | None], None]
Watch = Callable[[Any], Any]  # records a response, or watches it if it is a stream, and returns it


@dataclass
class _Tool:
    """A tool call that a model requests, as far as it has arrived."""

    name: str | None = None
    arguments: str = ""


class Gathered:
    """Adds up the events of a stream, as chat completions, completions, responses and messages send them."""

    def __init__(self) -> None:
        self._model: str | None = None
        self._text: list[str] = []
        self._tools: dict[Any, _Tool] = {}
        self._usage: dict[str, JsonValue] | None = None
        self._whole: Reply | None = None
        self._is_broken = False

    def take(self, event: Any) -> None:
        """Add an event. Never raises: a stream of another shape passes, and its usage stays unknown."""
        try:
            self._take(event)
        except Exception:  # noqa: BLE001 - whatever a server sent and a client made of it
            self._is_broken = True

    def _take(self, event: Any) -> None:
        kind = getattr(event, "type", None)
        choices = getattr(event, "choices", None)
        if isinstance(choices, list):
            self._take_chunk(event, choices)
        elif isinstance(kind, str) and kind.startswith("response."):
            if kind in ("response.completed", "response.incomplete", "response.failed"):
                self._whole = reply(getattr(event, "response", None))
            elif kind == "response.output_text.delta":
                self._text.append(str(getattr(event, "delta", "")))
        elif isinstance(kind, str):
            self._take_message_event(kind, event)

    def reply(self) -> Reply:
        if self._whole is not None:
            return self._whole
        # If an event could not be read, counts may be missing from the sum, so nothing is reported as known.
        reply_usage = None if self._usage is None or self._is_broken else usage(self._usage)
        tools: list[ToolCall] = [{"name": tool.name, "arguments": tool.arguments} for tool in self._tools.values()]
        return Reply(self._model, join_parts("".join(self._text), tools), reply_usage)

    def _take_chunk(self, chunk: Any, choices: list[Any]) -> None:
        self._model = getattr(chunk, "model", None) or self._model
        if getattr(chunk, "usage", None) is not None:
            self._usage = plain(chunk.usage)
        for choice in choices:
            delta = getattr(choice, "delta", choice)
            text = getattr(delta, "content", None) or getattr(delta, "text", None)
            if isinstance(text, str):
                self._text.append(text)
            for call in getattr(delta, "tool_calls", None) or ():
                function = getattr(call, "function", None)
                self._add_to_tool(
                    getattr(call, "index", 0), getattr(function, "name", None), getattr(function, "arguments", None)
                )

    def _take_message_event(self, kind: str, event: Any) -> None:
        if kind == "message_start":
            message = plain(getattr(event, "message", None))
            if isinstance(message, dict):
                self._model = message.get("model")
                # What goes out is not known before the end.
                self._usage = {**(message.get("usage") or {}), "output_tokens": None}
        elif kind == "content_block_start":
            block = getattr(event, "content_block", None)
            if getattr(block, "type", None) == "tool_use":
                self._add_to_tool(getattr(event, "index", 0), getattr(block, "name", None), None)
        elif kind == "content_block_delta":
            delta = getattr(event, "delta", None)
            text = getattr(delta, "text", None)
            if isinstance(text, str):
                self._text.append(text)
            self._add_to_tool(getattr(event, "index", 0), None, getattr(delta, "partial_json", None))
        elif kind == "message_delta":
            last = plain(getattr(event, "usage", None))
            if isinstance(last, dict):
                # The last event repeats only some counts, so the others are kept from the beginning.
                self._usage = {**(self._usage or {}), **{key: n for key, n in last.items() if n is not None}}

    def _add_to_tool(self, index: Any, name: str | None, arguments: str | None) -> None:
        if name is None and arguments is None:
            return
        # Only the first part of a call has its name. The index shows to which call a later part belongs.
        tool = self._tools.setdefault(index, _Tool())
        tool.name = name or tool.name
        tool.arguments += arguments or ""


class Watched:
    """A stream as the client made it, whose events are gathered as they pass. `done` is called once, at its end.

    That is where it is exhausted, closed, left or failed.
    """

    def __init__(self, stream: Any, done: Done, *, hides_usage: bool = False) -> None:
        """Watch a stream.

        Args:
            stream: The stream of a client.
            done: Called once, at the end.
            hides_usage: Leave out the last chunk of chat completions, which only has the usage: the caller did not
                ask for it.
        """
        self._stream = stream
        self._gathered = Gathered()
        self._done: Done | None = done
        self._hides_usage = hides_usage

    def _is_hidden(self, event: Any) -> bool:
        """Add an event; return whether the caller does not get it."""
        self._gathered.take(event)
        return self._hides_usage and getattr(event, "choices", None) == [] and getattr(event, "usage", None) is not None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def finish(self, error: BaseException | None = None) -> None:
        # A stream may be exhausted, closed and left, each of which finishes it. It must be recorded once.
        done, self._done = self._done, None
        if done is not None:
            done(self._gathered.reply(), error)

    @contextmanager
    def _to_its_end(self) -> Iterator[None]:
        """Finish the stream when the loop that reads it ends, for whatever reason."""
        try:
            yield
        except BaseException as error:
            self.finish(None if isinstance(error, GeneratorExit) else error)  # the reader left
            raise
        self.finish()

    def __iter__(self) -> Iterator[Any]:
        with self._to_its_end():
            for event in self._stream:
                if not self._is_hidden(event):
                    yield event

    def __next__(self) -> Any:
        try:
            while self._is_hidden(event := next(self._stream)):
                continue
        except BaseException as error:
            self.finish(None if isinstance(error, StopIteration) else error)
            raise
        return event

    async def __aiter__(self) -> AsyncIterator[Any]:
        with self._to_its_end():
            async for event in self._stream:
                if not self._is_hidden(event):
                    yield event

    async def __anext__(self) -> Any:
        try:
            while self._is_hidden(event := await anext(self._stream)):
                continue
        except BaseException as error:
            self.finish(None if isinstance(error, StopAsyncIteration) else error)
            raise
        return event

    def close(self) -> Any:
        self.finish()
        return self._stream.close()

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *of: Any) -> Any:
        self.finish(of[1])
        return self._stream.__exit__(*of)

    async def __aenter__(self) -> Watched:
        return self

    async def __aexit__(self, *of: Any) -> Any:
        self.finish(of[1])
        return await self._stream.__aexit__(*of)


class WatchedCall(Protocol):
    """A call, as its response sees it."""

    def watch(self, content: Any) -> Any:
        """Record a response and return it; a stream is watched."""

    def watch_stream(self, stream: Any) -> Watched:
        """Watch a stream."""

    def failed(self, error: BaseException) -> None:
        """Record that the call failed."""

    def drop_addition(self, error: BaseException) -> bool:
        """Return whether the server rejected what WTB added to the request, which is then left out."""


class WatchedResponse:
    """A raw response, whose content is recorded once the caller reads it: parsed, as JSON, as text or as a stream."""

    def __init__(self, response: Any, watch: Watch) -> None:
        self._response = response
        self._watch = watch
        self._parsed: Any = None

    def finish(self, error: BaseException | None = None) -> None:
        """Record the call if nothing was read, and a stream as far as it was read."""
        if isinstance(self._parsed, Watched):
            self._parsed.finish(error)
        else:
            self._watch(None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._response, name)

    def parse(self, *args: Any, **kwargs: Any) -> Any:
        """Parse the response as the client does; a stream is watched."""
        return self._passed(self._response.parse(*args, **kwargs), self._keep)

    def _keep(self, content: Any) -> Any:
        self._parsed = self._watch(content)
        return self._parsed

    def json(self) -> Any:
        return self._passed(self._response.json(), self._watch)

    def read(self) -> Any:
        return self._passed(self._response.read(), self._watch_text)

    @property
    def text(self) -> Any:
        """Return the body; a method or a property, as the client has it."""
        text = self._response.text
        return (lambda: self._passed(text(), self._watch_text)) if callable(text) else self._watch_text(text)

    def _watch_text(self, body: Any) -> Any:
        with suppress(TypeError, ValueError):  # no JSON: its usage stays unknown
            self._watch(json.loads(body))
        return body

    def _passed(self, content: Any, watch: Watch) -> Any:
        if not inspect.isawaitable(content):
            return watch(content)

        async def awaited() -> Any:
            return watch(await content)

        return awaited()


class WatchedManager:
    """A context manager of a client, such as that of `messages.stream(...)`: what it enters is watched.

    The helpers for streams read from a raw stream that they hold; that one is watched.
    """

    def __init__(self, manager: Any, start: Callable[[], Any], call: WatchedCall, *, raw: bool) -> None:
        """Watch a context manager.

        Args:
            manager: As the client made it.
            start: Makes another one, if the server rejects what WTB added to the request.
            call: Records the call.
            raw: It enters a raw response.
        """
        self._manager = manager
        self._start = start
        self._call = call
        self._raw = raw
        self._watched: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)

    def _watch(self, entered: Any) -> Any:
        if self._raw:
            self._watched = WatchedResponse(entered, self._call.watch)
            return self._watched
        raw = getattr(entered, "_raw_stream", None)
        self._watched = self._call.watch_stream(entered if raw is None else raw)
        if raw is None:
            return self._watched
        entered._raw_stream = self._watched
        return entered

    def _can_retry(self, error: BaseException) -> bool:
        if self._call.drop_addition(error):
            self._manager = self._start()
            return True
        self._call.failed(error)
        return False

    def _finish(self, error: BaseException | None) -> None:
        if self._watched is not None:
            self._watched.finish(error)

    def __enter__(self) -> Any:
        try:
            return self._watch(self._manager.__enter__())
        except BaseException as error:
            if not self._can_retry(error):
                raise
        return self.__enter__()

    def __exit__(self, *of: Any) -> Any:
        self._finish(of[1])
        return self._manager.__exit__(*of)

    async def __aenter__(self) -> Any:
        try:
            return self._watch(await self._manager.__aenter__())
        except BaseException as error:
            if not self._can_retry(error):
                raise
        return await self.__aenter__()

    async def __aexit__(self, *of: Any) -> Any:
        self._finish(of[1])
        return await self._manager.__aexit__(*of)
