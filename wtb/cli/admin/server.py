"""The commands that answer others: serve over HTTP, mcp an agent on this machine."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_context, say
from wtb.cli.log_format import log_as_json
from wtb.config.credentials import SERVER_TOKEN, credential
from wtb.config.distribution import pip_install
from wtb.core.errors import InputError
from wtb.core.serialization import user_modules

if TYPE_CHECKING:
    from wtb.operations.context import Context

SHORTEST = 16


def serve(
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 for a free one.")] = 8765,
    address: Annotated[str, typer.Option("--address", help="Address to listen on.")] = "127.0.0.1",
    allow: Annotated[
        list[str] | None, typer.Option("--allow", metavar="NAME", help="A host name that requests may use; repeatable.")
    ] = None,
    proxies: Annotated[
        list[str] | None,
        typer.Option("--proxy", metavar="ADDRESS", help="A trusted proxy, or a network of proxies; repeatable."),
    ] = None,
    in_browser: Annotated[
        bool, typer.Option("--open", help="Open the pages in the browser of this machine, signed in.")
    ] = False,
    agents: Annotated[bool, typer.Option("--mcp", help="Also serve agents at /mcp.")] = False,
    runs: Annotated[bool, typer.Option("--run", help="Run started workflows on this server, without workers.")] = False,
    db: options.Db = None,
) -> None:
    """Start the server: REST API and web pages.

    Each request needs the token: that of WTB_SERVER_TOKEN, else a new one, which is printed. No code of users is
    imported. Behind anything but loopback, have a proxy in front of it that speaks TLS, and name it.

    With --run the server executes the workflows that wtb.toml registers, and uses their code as it is when a run
    begins: start one, look, change the code, start the next one.

    See also: docs/api.md lists the paths; `wtb mcp` is for an agent on this machine.

    Examples: wtb serve --open  |  wtb serve --run  |  wtb serve --allow bench.example.org --proxy 10.0.0.2
    """
    # find_spec checks that the packages of the extra are installed, and does not import them.
    if any(find_spec(name) is None for name in ("fastapi", "uvicorn", "websockets")):
        raise InputError("the server is not installed; install it with: pip install 'workflow-test-bench[server]'")
    configured_token = credential(SERVER_TOKEN)
    if configured_token is not None and len(configured_token) < SHORTEST:
        raise InputError(f"{SERVER_TOKEN} is shorter than {SHORTEST} characters, which somebody could guess")
    for proxy in proxies or ():
        _check_network(proxy)
    if agents:
        _check_agents()
    log_as_json("server")
    from wtb.hosting.api import serve as server

    if in_browser and address not in server.LOOPBACK:
        raise InputError(f"--open signs in on this machine only; expected an address of loopback, found {address}")
    token = configured_token or server.new_token()
    # Without --run there have to be workers, which create the database themselves.
    context = open_context(db, create=runs)
    if configured_token is None:
        say(f"token, until it stops: {token}")
    try:
        place = server.Place(address, port, allow or (), proxies or ())
        with user_modules.without_user_code("the server"), _running(context, runs) as context:
            server.serve(context, place, token=token, report=say, in_browser=in_browser, agents=agents)
    except OSError as error:
        raise InputError(f"cannot listen on {address}:{port}: {error.strerror or error}") from None
    finally:
        context.close()


@contextmanager
def _running(context: Context, runs: bool) -> Iterator[Context]:
    """Return where the server acts: if it runs what is started, that runs until the server ends."""
    if not runs:
        yield context
        return
    from wtb.hosting.local_runs import ServerRuns

    with ServerRuns(context.importing_nothing()) as local:
        yield context.importing_nothing(local)


def mcp(db: options.Db = None) -> None:
    """Serve a local agent over the Model Context Protocol.

    The agent can do everything that the database of this folder allows, so use it for your own agent. Tools that spend
    or destroy require confirmation. Other agents connect to `wtb serve --mcp` with access tokens.

    See also: docs/agents.md has the tools.

    Examples: wtb mcp  |  wtb mcp --db postgresql://localhost/wtb
    """
    _check_agents()
    import anyio

    from wtb.hosting.agent_server import serve_stdio

    context = open_context(db)
    try:
        anyio.run(serve_stdio, context)
    finally:
        context.close()


def _check_agents() -> None:
    """Refuse to begin without the SDK. Raises InputError."""
    if find_spec("mcp") is None:
        raise InputError(f"agents need more packages: {pip_install('mcp')}")


def _check_network(proxy: str) -> None:
    """Refuse what names no proxy; `*` would name everybody. Raises InputError."""
    try:
        ipaddress.ip_network(proxy, strict=False)
    except ValueError:
        detail = f"{proxy!r} is no address; expected one such as 10.0.0.2, or a network such as 10.0.0.0/24"
        raise InputError(detail, argument="proxies") from None
