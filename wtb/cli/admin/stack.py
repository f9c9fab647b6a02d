"""Commands of the stack on one machine: up, down, flower."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wtb.cli.console import say
from wtb.config.credentials import BROKER_URL, DATABASE_URL, credential
from wtb.config.stack_file import find_stack
from wtb.core.units import MOST_SLOTS
from wtb.store.files.system import check_system

if TYPE_CHECKING:
    from wtb.config.stack_file import Stack


def up(
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", "-c", min=1, max=MOST_SLOTS, help="Node runs at a time of the worker."),
    ] = None,
    queues: Annotated[
        str | None, typer.Option("--queues", "-Q", metavar="A,B", help="Queues that the worker takes from.")
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return once everything is ready; logs are in .wtb/logs.")
    ] = False,
    no_flower: Annotated[bool, typer.Option("--no-flower", help="Do not start Flower.")] = False,
    flower_port: Annotated[
        int | None, typer.Option("--flower-port", min=1, max=65535, help="Port of Flower \\[default: a free one].")
    ] = None,
    spare: Annotated[
        bool, typer.Option("--spare", help="Also start a standby worker, which replaces the first if it dies.")
    ] = False,
    serve: Annotated[bool, typer.Option("--serve", help="Also start the server, as `wtb serve` does.")] = False,
    serve_port: Annotated[
        int | None,
        typer.Option("--serve-port", min=1, max=65535, help="Port of the API with --serve \\[default: a free one]."),
    ] = None,
    background: Annotated[bool, typer.Option("--background", hidden=True)] = False,
) -> None:
    """Start servers, a worker and the scheduler, all in this folder.

    The stack is PostgreSQL, Valkey, a worker, the scheduler and Flower, all in .wtb. Commands in this folder use it as
    long as it is up. Ctrl-C stops all of it, a second one at once.

    See also: `wtb status --stack` shows its state; `wtb down` stops it; `wtb admin token create` makes an access token.

    Examples: wtb up  |  wtb up --concurrency 8 --detach  |  wtb up --serve
    """
    check_system()
    folder = Path.cwd()
    serve = serve or serve_port is not None
    if detach:
        # The detached process is `wtb up` with the same options: pass on new options of this function, too.
        ports = {"--flower-port": flower_port, "--serve-port": serve_port}
        values = {"--concurrency": concurrency, "--queues": queues, **ports}
        options = [text for name, option in values.items() if option is not None for text in (name, str(option))]
        flags = {"--no-flower": no_flower, "--spare": spare, "--serve": serve}
        _start_detached(folder, [*options, *(name for name, is_given in flags.items() if is_given)])
        return
    from wtb.hosting.servers.background import LOGS
    from wtb.hosting.servers.program import to_files, to_terminal
    from wtb.hosting.servers.up import StackOptions, run_stack

    line = to_files(folder / LOGS) if background else to_terminal(sys.stderr)

    def report_ready(stack: Stack, took: float) -> None:
        line("wtb", f"ready after {took:.1f} s; next, in this folder: wtb submit sweep.yaml")
        # With --detach the parent process prints this, so that no log has the password.
        if not background:
            for text in (*_access(stack), "stop: Ctrl-C here, or `wtb down`"):
                line("wtb", text)

    stack_options = StackOptions(concurrency, queues, not no_flower, flower_port, serve, serve_port, spare)
    run_stack(folder, stack_options, line, report_ready)


def _start_detached(folder: Path, options: list[str]) -> None:
    from wtb.hosting.servers.background import start_detached

    if code := start_detached(folder, options, say):
        raise typer.Exit(code)
    stack = find_stack(folder)
    for text in _access(stack) if stack is not None else ():
        say(text)
    say("look: wtb status --stack; logs: .wtb/logs; stop: wtb down")


def _access(stack: Stack) -> Iterator[str]:
    """Yield the addresses of a stack that is ready, with what to sign in with."""
    if stack.flower is not None:
        yield f"Flower: {stack.flower.url}, user {stack.flower.user}, password {stack.flower.password}"
    if stack.api is not None:
        from wtb.hosting.api.routes import PREFIX

        pages = stack.api.removesuffix(PREFIX)
        yield f"pages: {pages}; API: {stack.api}; `wtb admin token create NAME` makes a token for both"
    from wtb.store.database import Database
    from wtb.store.database_url import DEFAULT_URL

    if Database(DEFAULT_URL).exists():
        how = f"wtb admin copy SWEEP --db {DEFAULT_URL}"
        yield f"sweeps of {DEFAULT_URL} stay there; copy one to this stack with: {how}"
    if credential(DATABASE_URL) or credential(BROKER_URL):
        yield "commands where WTB_DATABASE_URL or WTB_BROKER_URL is set, as it is here, use those, and not this stack"


def down() -> None:
    """Stop what `wtb up` started in this folder.

    It waits until nothing of the stack is left. A second `wtb down` meanwhile is quick.

    Example: wtb down
    """
    from wtb.hosting.servers.background import stop_stack

    stack = find_stack()
    if stack is None:
        say("no stack is up in this folder: nothing to stop")
        return
    stop_stack(stack)
    say("the stack is down")


def flower(
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port to listen on.")] = 5555,
    address: Annotated[str, typer.Option("--address", help="Address to listen on.")] = "127.0.0.1",
) -> None:
    """Run Flower, a read-only page on the broker's workers.

    The broker is that of the environment or of this folder's stack. User and password are those of
    WTB_FLOWER_AUTH=USER:PASSWORD, else new ones.

    See also: `wtb watch` shows sweeps, workers and queues here.

    Example: wtb admin flower --port 5555
    """
    from wtb.hosting.servers.flower import run_flower

    def application() -> Any:
        from wtb_workers.app import app

        return app

    run_flower(application, address, port, say)
