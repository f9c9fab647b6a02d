"""Sweeps are tasks of the protocol's extension to clients that know it, and to nobody else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_REQUIRED_CLIENT_CAPABILITY, Result

from tests.hosting.agents.task_client import TASKS, KnowsTasks, TaskParams, TaskRequest, ask
from tests.support.bench import make_bench
from tests.support.prose import sentence
from tests.support.tenants import Tenant, asking, limited_to
from wtb.hosting.agent_calls import Caller
from wtb.hosting.agent_server import make_server
from wtb.operations.context import Context
from wtb.operations.control.pause_cancel import cancel
from wtb.operations.identity import OPERATOR
from wtb.operations.registry import Permission
from wtb.store.database import Database
from wtb.store.read.queries import find_sweep

ANN = Caller(OPERATOR)


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Context]:
    folder = tmp_path_factory.mktemp("tasks")
    database = Database(f"sqlite:///{folder / 'wtb.db'}")
    database.prepare()
    context = Context(database, by="ann", files=folder).importing_nothing()
    yield context
    context.close()


def talk(context: Context, doing: Callable[[Client], Awaitable[Any]], caller: Caller = ANN, **options: Any) -> Any:
    """Return the outcome of a client's action. Raises its MCPError itself, outside of the client's exception group."""
    errors: list[MCPError] = []

    async def go() -> Any:
        async with Client(make_server(context, lambda _: caller), **options) as client:
            try:
                return await doing(client)
            except MCPError as error:
                errors.append(error)

    reply = anyio.run(go)
    if errors:
        raise errors[0]
    return reply


def test_the_server_says_that_it_has_tasks(context: Context) -> None:
    async def declared(client: Client) -> Any:
        return client.server_capabilities.extensions

    assert talk(context, declared) == {TASKS: {}}


def test_a_sweep_that_continues_is_a_task_at_work(context: Context, tmp_path: Path) -> None:
    sweep = make_bench(context.database, tmp_path, asking(), sweep="at-work").sweep_id
    task = talk(context, lambda client: ask(client, "tasks/get", sweep), extensions=[KnowsTasks()])
    assert (task.task_id, task.status, task.ttl_ms, task.result) == (sweep, "working", None, None)
    assert sentence("{}: {} of {} cells ended", "is pending", 0, 1) in task.status_message


def test_who_cancels_a_task_pauses_the_sweep_and_destroys_nothing(context: Context, tmp_path: Path) -> None:
    bench = make_bench(context.database, tmp_path, asking(), sweep="to-pause")
    sweep = bench.prepared.submit(context.database, bench.workspaces, queued=True)

    async def cancels(client: Client) -> Any:
        for _ in range(2):
            await ask(client, "tasks/cancel", sweep)
        return await ask(client, "tasks/get", sweep)

    reader = Caller(replace(OPERATOR, may={Permission.read: None}))
    with pytest.raises(MCPError, match=sentence("takes the scope {}", "steer")):
        talk(context, cancels, reader, extensions=[KnowsTasks()])
    assert find_sweep(context.database, sweep).status == "pending"
    task = talk(context, cancels, extensions=[KnowsTasks()])
    assert find_sweep(context.database, sweep).status == "paused"
    assert (task.status, "tasks/cancel" in task.status_message) == ("working", True)

    cancel(context, sweep)
    task = talk(context, lambda client: ask(client, "tasks/get", sweep), extensions=[KnowsTasks()])
    assert task.status == "cancelled"


def test_what_is_answered_to_a_sweep_that_asks_nothing_is_ignored(context: Context, tmp_path: Path) -> None:
    sweep = Tenant(context, tmp_path, "delta").names["sweep"]

    async def answers(client: Client) -> Any:
        params = TaskParams.model_validate({"taskId": sweep, "inputResponses": {"x": {"action": "accept"}}})
        return await client.session.send_request(TaskRequest(method="tasks/update", params=params), Result)

    before = find_sweep(context.database, sweep)
    assert talk(context, answers, extensions=[KnowsTasks()])
    assert find_sweep(context.database, sweep) == before


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_there_is_no_task_where_there_is_none_for_whoever_asks(context: Context, tmp_path: Path, method: str) -> None:
    tenant = Tenant(context, tmp_path, f"of-{method[6:]}")
    names, other = tenant.names, Caller(limited_to("elsewhere"))
    hostile = ["", "iiiiiiii", names["execution"], names["sweep_name"], names["sweep"][:6], "x" * 200, "../x", "\0"]
    for caller, task_id in [*((ANN, text) for text in hostile), (other, names["sweep"])]:
        with pytest.raises(MCPError) as refusal:
            talk(context, lambda client, id=task_id: ask(client, method, id), caller, extensions=[KnowsTasks()])
        assert refusal.value.code == INVALID_PARAMS, task_id
    with pytest.raises(MCPError):
        talk(context, lambda client: ask(client, method, "x" * 1_000_000), extensions=[KnowsTasks()])
    assert find_sweep(context.database, names["sweep"]).status == "paused"


def test_who_has_not_said_that_they_know_tasks_gets_none(context: Context, tmp_path: Path) -> None:
    sweep = Tenant(context, tmp_path, "eta").names["sweep"]
    with pytest.raises(MCPError) as refusal:
        talk(context, lambda client: ask(client, "tasks/get", sweep))
    assert refusal.value.code == MISSING_REQUIRED_CLIENT_CAPABILITY
    assert refusal.value.data == {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    with pytest.raises(MCPError) as refusal:
        talk(context, lambda client: ask(client, "tasks/get", sweep), extensions=[KnowsTasks()], mode="legacy")
    assert refusal.value.code == METHOD_NOT_FOUND
