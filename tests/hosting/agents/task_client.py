"""A client of the protocol's extension for tasks, written with the SDK's own extension API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import anyio
from mcp import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp_types import CallToolResult, Request, RequestParams, Result

TASKS = "io.modelcontextprotocol/tasks"


class TaskParams(RequestParams):
    task_id: str


class TaskRequest(Request[TaskParams, str]):
    name_param = "taskId"


class Task(Result):
    """A task as the server gives it, now and at first."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int | None = None
    result: dict[str, Any] | None = None


class GotTask(Task):
    result_type: Literal["complete"] = "complete"  # type: ignore[assignment]


async def ask(client: Client, method: str, task_id: str) -> Any:
    """Ask for a task, or something of it. Raises MCPError as the server answers."""
    request = TaskRequest(method=method, params=TaskParams(task_id=task_id))
    return await client.session.send_request(request, GotTask if method == "tasks/get" else Result)


class KnowsTasks(ClientExtension):
    """Takes tasks in place of replies, and waits for their results."""

    identifier = TASKS

    def __init__(self) -> None:
        self.seen: list[Task] = []

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=Task, resolve=self._resolve)]

    async def _resolve(self, task: Task, context: ClaimContext) -> CallToolResult:
        self.seen.append(task)
        while True:
            request = TaskRequest(method="tasks/get", params=TaskParams(task_id=task.task_id))
            now = await context.session.send_request(request, GotTask)
            self.seen.append(now)
            if now.status == "completed":
                return CallToolResult.model_validate(now.result)
            assert now.status == "working", now
            await anyio.sleep((now.poll_interval_ms or 1000) / 1000)
