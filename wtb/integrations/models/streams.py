"""Streamed answers: passed on event by event, and put together for the record."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wtb.integrations.models.responses import Reply, ToolCall, Usage, join_parts, plain, reply, usage

if TYPE_CHECKING:
    from pydantic import JsonValue

Done = Callable[[Reply, BaseException | None], None]


@dataclass
class _Tool:
    """A tool that a model wants called, as far as it has come."""

    name: str | None = None
    arguments: str = ""


class Gathered:
    """What the events of a stream add up to. Takes those of chat completions, completions, responses and messages."""

    def __init__(self) -> None:
        self._model: str | None = None
        self._text: list[str] = []
        self._tools: dict[Any, _Tool] = {}
        self._usage: dict[str, JsonValue] | None = None
        self._whole: Reply | None = None

    def take(self, event: Any) -> None:
        """Never raises: a stream of another shape passes, and its usage stays unknown."""
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
        found = None if self._usage is None else usage(self._usage)
        tools: list[ToolCall] = [{"name": one.name, "arguments": one.arguments} for one in self._tools.values()]
        return Reply(self._model, join_parts("".join(self._text), tools), found)

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
                self._usage = {**(self._usage or {}), **{key: n for key, n in last.items() if n is not None}}

    def _add_to_tool(self, index: Any, name: str | None, arguments: str | None) -> None:
        if name is None and arguments is None:
            return
        tool = self._tools.setdefault(index, _Tool())
        tool.name = name or tool.name
        tool.arguments += arguments or ""


class Watched:
    """A stream as the client made it, whose events are gathered as they pass. `done` is called once, at its end.

    That is where it is exhausted, closed, left or failed.
    """

    def __init__(self, stream: Any, done: Done) -> None:
        self._stream = stream
        self._gathered = Gathered()
        self._done: Done | None = done

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def finish(self, error: BaseException | None = None) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(self._gathered.reply(), error)

    @contextmanager
    def _to_its_end(self) -> Iterator[None]:
        """For whoever reads all of it: whatever ends that is the end of the stream."""
        try:
            yield
        except BaseException as error:
            self.finish(None if isinstance(error, GeneratorExit) else error)  # the reader left
            raise
        self.finish()

    def __iter__(self) -> Iterator[Any]:
        with self._to_its_end():
            for event in self._stream:
                self._gathered.take(event)
                yield event

    def __next__(self) -> Any:
        try:
            event = next(self._stream)
        except BaseException as error:
            self.finish(None if isinstance(error, StopIteration) else error)
            raise
        self._gathered.take(event)
        return event

    async def __aiter__(self) -> AsyncIterator[Any]:
        with self._to_its_end():
            async for event in self._stream:
                self._gathered.take(event)
                yield event

    async def __anext__(self) -> Any:
        try:
            event = await anext(self._stream)
        except BaseException as error:
            self.finish(None if isinstance(error, StopAsyncIteration) else error)
            raise
        self._gathered.take(event)
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


class WatchedManager:
    """What `messages.stream(...)` and its like give: the stream is there inside of a `with` block.

    The helpers of these streams read from a raw stream that they hold; that one is watched.
    """

    def __init__(self, manager: Any, done: Done) -> None:
        self._manager = manager
        self._done = done
        self._watched: Watched | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)

    def _watch(self, stream: Any) -> Any:
        raw = getattr(stream, "_raw_stream", None)
        self._watched = Watched(stream if raw is None else raw, self._done)
        if raw is None:
            return self._watched
        stream._raw_stream = self._watched
        return stream

    def _failed(self, error: BaseException) -> None:
        self._done(Reply(None, None, Usage(0, 0)), error)

    def __enter__(self) -> Any:
        try:
            return self._watch(self._manager.__enter__())
        except BaseException as error:
            self._failed(error)
            raise

    def __exit__(self, *of: Any) -> Any:
        if self._watched is not None:
            self._watched.finish(of[1])
        return self._manager.__exit__(*of)

    async def __aenter__(self) -> Any:
        try:
            return self._watch(await self._manager.__aenter__())
        except BaseException as error:
            self._failed(error)
            raise

    async def __aexit__(self, *of: Any) -> Any:
        if self._watched is not None:
            self._watched.finish(of[1])
        return await self._manager.__aexit__(*of)
