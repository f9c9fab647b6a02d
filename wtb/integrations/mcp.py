"""Tools of MCP servers, which nodes call as `ctx.mcp("files").read(path="a.txt")`: a client of the official SDK."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from wtb.authoring.tools import Tool
from wtb.authoring.workflow import Workflow
from wtb.core.errors import InputError, meant_or_known
from wtb.integrations.mcp_connection import Connection, Server, ServerLost, ToolFailed, version_of

__all__ = ["ServerLost", "ToolFailed", "use_server"]

Reverse = str | Callable[..., Any] | None


def use_server(
    workflow: Workflow,
    name: str,
    *,
    tools: Iterable[str] | Mapping[str, Reverse],
    command: Sequence[str] = (),
    url: str = "",
    env: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = 60.0,
) -> None:
    """Have nodes of a workflow call tools of an MCP server, as `ctx.mcp(name).TOOL(...)`.

    Each process of nodes has a connection of its own, made with its first call. A command is started below it and ends
    with it. Only the tools that are named here can be called. When a sweep is submitted the server is asked for them,
    and again while nodes call them. What it says of each is recorded: `wtb compare` names a tool whose name,
    description or schema has changed, between sweeps or during one.

    Args:
        workflow: The workflow.
        name: What nodes and records call the server.
        tools: The tools that nodes may call; as a mapping with what takes a call back in a rollback: another tool of
            the server, which gets those of the arguments that its schema has (and `result`), a function
            `reverse(result, **arguments)`, or None.
        command: Program and arguments of a server over stdio, run in the folder of the command that imports this;
            `python` is the one that WTB runs with.
        url: In place of `command`, the address of a server over streamable HTTP.
        env: Variables of the environment for `command`, besides `PATH`, `HOME` and the like.
        headers: Headers for `url`.
        timeout: Seconds that a call may take.

    Raises:
        InputError: If it has neither command nor address, or both, or no tools, or a reverse that is none of them.

    Example:
        >>> from wtb import Workflow
        >>> from wtb.integrations.mcp import use_server
        >>> wf = Workflow("notes")
        >>> use_server(wf, "files", command=["python", "files.py"], tools={"read": None, "write": "remove"})
        >>> list(wf.tools)
        ['files.read', 'files.write']
    """
    declared = dict(tools) if isinstance(tools, Mapping) else dict.fromkeys(tools)
    problem = _problem(name, declared, command, url, timeout)
    if problem:
        raise InputError(f"MCP server {name!r}: {problem}")
    server = Server(name, tuple(command), url, env or {}, headers or {}, timeout_s=timeout)
    _declare(workflow, Connection(server), declared)


def use_declared(workflow: Workflow, name: str, declared: Mapping[str, Any]) -> None:
    """Have nodes of a workflow call tools of a server that a sweep file declares.

    The same declaration has the same connection, whichever sweep it is of.

    Args:
        workflow: The sweep's own copy of the workflow.
        name: What nodes and records call the server.
        declared: As the sweep file has it.

    Raises:
        InputError: If the workflow has such a server already.
    """
    existing = [tool for tool in workflow.tools if tool.startswith(f"{name}.")]
    if existing:
        raise InputError(f"workflow {workflow.name!r} has a server {name!r} already, with {existing[0]!r}")
    key = json.dumps([name, declared], sort_keys=True)
    if key not in _CONNECTIONS:
        server = Server(name, tuple(declared["command"]), declared["url"] or "", declared["env"], declared["headers"])
        _CONNECTIONS[key] = Connection(replace(server, timeout_s=declared["timeout"], names_variables=True))
    _declare(workflow, _CONNECTIONS[key], declared["tools"])


_CONNECTIONS: dict[str, Connection] = {}  # by what sweep files declare


def _declare(workflow: Workflow, connection: Connection, declared: Mapping[str, Reverse]) -> None:
    name = connection.server.name
    for tool, reverse in declared.items():
        if isinstance(reverse, str):
            reverse = _reverse(connection, reverse)
        called = f"{name}.{tool}"
        if called in workflow.tools:
            workflow.problems.append(f"two tools are named {called!r}")
        version = partial(connection.version, tool)
        workflow.tools[called] = Tool(called, _forward(connection, tool), reverse, version=version)
    workflow.versions[name] = lambda: _digests(connection.server, declared)


def _problem(name: str, tools: Mapping[str, Any], command: Sequence[str], url: str, timeout: float) -> str | None:
    if not name or "." in name:
        return "its name is to be a word without a dot"
    if isinstance(command, str):
        return "command is a list of a program and its arguments"
    if bool(command) == bool(url):
        return "give either its command or its url"
    if not tools:
        return "name the tools that nodes may call"
    if not timeout > 0:
        return f"timeout is {timeout:g}; expected seconds above 0"
    return None


def _forward(connection: Connection, tool: str) -> Callable[..., Any]:
    async def forward(**arguments: Any) -> Any:
        return await asyncio.wrap_future(connection.call(tool, arguments))

    return forward


def _reverse(connection: Connection, tool: str) -> Callable[..., Any]:
    async def reverse(result: Any, **arguments: Any) -> Any:
        listed = await asyncio.to_thread(connection.tools)
        schema = {each.name: each.input_schema for each in listed}.get(tool, {})
        accepted = schema.get("properties", {})
        sent = {key: argument for key, argument in {"result": result, **arguments}.items() if key in accepted}
        return await asyncio.wrap_future(connection.call(tool, sent))

    return reverse


def _digests(server: Server, declared: Mapping[str, Reverse]) -> dict[str, str]:
    """Ask a server for its tools. Returns a digest of each that is declared. Raises InputError."""
    # Closed at the end, since the process that submits a sweep may run no node that uses the server.
    connection = Connection(server)
    try:
        listed = {listed_tool.name: listed_tool for listed_tool in connection.tools()}
    except (ServerLost, ToolFailed) as error:
        raise InputError(str(error)) from error
    finally:
        connection.close()
    tools = [*declared, *(reverse for reverse in declared.values() if isinstance(reverse, str))]
    for tool in tools:
        if tool not in listed:
            raise InputError(f"MCP server {server.name!r} has no tool {tool!r}{meant_or_known(tool, listed)}")
    return {tool: version_of(listed[tool]) for tool in tools}
