"""Sweeps as tasks of the protocol's extension: the task is the sweep's row, so it outlives server and client.

Source: github.com/modelcontextprotocol/ext-tasks, specification/2026-07-28/tasks.md (SEP-2663).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import require_client_extension
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import Field

from wtb.core.values import Json

TASKS: Final = "io.modelcontextprotocol/tasks"
POLL_MS: Final = 2000
# A task that "failed" has an error of the protocol; that of a sweep is its result.
_STATUSES: Final = {"completed": "completed", "failed": "completed", "cancelled": "cancelled"}

_Request = ServerRequestContext[Any, Any]
CallTool = Callable[[_Request, str, Mapping[str, Json]], Awaitable[types.CallToolResult]]


class TaskParams(types.RequestParams):
    """The task of a request: a sweep."""

    task_id: str = Field(max_length=200)


class SweepTasks(Extension):
    """Returns a task for each submitted sweep to clients that support tasks. Its result is that of `matrix`."""

    identifier = TASKS

    def __init__(self, call: CallTool) -> None:
        """Make it.

        Args:
            call: Calls a tool with the permissions of the client.
        """
        self._call = call

    def methods(self) -> Sequence[MethodBinding]:
        """Return the methods of the extension."""
        return [
            MethodBinding("tasks/get", TaskParams, self._get),
            MethodBinding("tasks/update", TaskParams, self._update),
            MethodBinding("tasks/cancel", TaskParams, self._cancel),
        ]

    async def intercept_tool_call(
        self, params: types.CallToolRequestParams, ctx: _Request, call_next: CallNext
    ) -> HandlerResult:
        """Return a task instead of the reply if a sweep was submitted."""
        answer = await call_next(ctx)
        if params.name != "submit" or not _knows_tasks(ctx) or not isinstance(answer, types.CallToolResult):
            return answer
        if answer.is_error or answer.structured_content is None or not answer.structured_content["done"]:
            return answer
        try:
            task = await self._task(ctx, answer.structured_content["document"]["sweep"])
            # A small sweep may have ended already. The client fetches the result by `tasks/get`.
            task.pop("result", None)
        except MCPError:
            return answer
        return {**task, "resultType": "task"}

    async def _get(self, ctx: _Request, params: TaskParams) -> HandlerResult:
        _require(ctx)
        return await self._task(ctx, params.task_id)

    async def _update(self, ctx: _Request, params: TaskParams) -> HandlerResult:
        """Ignore input for a task, as the extension prescribes: sweeps never request any."""
        _require(ctx)
        await self._status(ctx, params.task_id)
        return types.EmptyResult()

    async def _cancel(self, ctx: _Request, params: TaskParams) -> HandlerResult:
        """Pause the sweep, so that nothing more is spent. Cancelling needs consent, which this method cannot carry."""
        _require(ctx)
        sweep = await self._status(ctx, params.task_id)
        if sweep["status"] in ("pending", "running"):
            _document(await self._call(ctx, "steer", {"ref": sweep["id"], "action": "pause", "reason": "tasks/cancel"}))
        return types.EmptyResult()

    async def _task(self, ctx: _Request, task_id: str) -> dict[str, Any]:
        """Describe a task, without a time to live, because sweeps stay until they are deleted."""
        sweep = await self._status(ctx, task_id)
        task = {
            "taskId": sweep["id"],
            "status": _STATUSES.get(sweep["status"], "working"),
            "statusMessage": sweep["words"],
            "createdAt": sweep["created_at"],
            "lastUpdatedAt": sweep["finished_at"] or sweep["started_at"] or sweep["created_at"],
            "ttlMs": None,
            "pollIntervalMs": POLL_MS,
        }
        if task["status"] == "completed":
            matrix = await self._call(ctx, "matrix", {"ref": sweep["id"]})
            reply = matrix.model_dump(by_alias=True, mode="json", exclude_none=True)
            task["result"] = {**reply, "isError": matrix.is_error or sweep["status"] == "failed"}
        return task

    async def _status(self, ctx: _Request, task_id: str) -> Mapping[str, Any]:
        """Return the sweep of a task. Raises MCPError if the client can see none of exactly this id."""
        reply = _document(await self._call(ctx, "status", {"ref": task_id}))
        sweep = reply["document"].get("sweep")
        if "execution" in reply["document"] or sweep is None or sweep["id"] != task_id:
            raise MCPError(types.INVALID_PARAMS, f"there is no task {task_id!r}")
        return {**sweep, "words": reply["decision"]}


def _document(answer: types.CallToolResult) -> dict[str, Any]:
    """Return the reply of a tool. Raises MCPError if it failed."""
    if answer.is_error or answer.structured_content is None:
        texts = [part.text for part in answer.content if isinstance(part, types.TextContent)]
        raise MCPError(types.INVALID_PARAMS, " ".join(texts))
    reply: dict[str, Any] = answer.structured_content
    return reply


def _knows_tasks(ctx: _Request) -> bool:
    capabilities = ctx.session.client_capabilities
    declared = capabilities.extensions if capabilities else None
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS and TASKS in (declared or {})


def _require(ctx: _Request) -> None:
    """Raise MCPError if the client is of an earlier revision without extensions, or has not declared this one."""
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        raise MCPError(types.METHOD_NOT_FOUND, "Method not found", ctx.method)
    require_client_extension(ctx, TASKS)
