"""Commands of the stack on one machine: up, down, flower."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wtb.cli.console import say
from wtb.config.credentials import BROKER_URL, DATABASE_URL, credential
from wtb.config.stack_file import HOME, find_stack
from wtb.core.errors import WTBError
from wtb.core.units import MOST_SLOTS

if TYPE_CHECKING:
    from wtb.config.stack_file import Stack


class Pool(StrEnum):
    """Pools of a worker."""

    process = "process"
    threads = "threads"
    prefork = "prefork"


def register(app: typer.Typer) -> None:
    app.command(epilog="Examples: wtb up  |  wtb up --concurrency 8 --pool threads --detach")(up)
    app.command(epilog="Example: wtb down")(down)
    app.command(epilog="Example: wtb flower --port 5555")(flower)


def up(
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", "-c", min=1, max=MOST_SLOTS, help="Node runs at a time of the worker."),
    ] = None,
    pool: Annotated[Pool, typer.Option("--pool", help="Pool of the worker.")] = Pool.process,
    queues: Annotated[
        str | None, typer.Option("--queues", "-Q", metavar="A,B", help="Queues that the worker takes from.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return once all is ready; logs go to .wtb/logs.")] = False,
    no_flower: Annotated[bool, typer.Option("--no-flower", help="Without Flower.")] = False,
    flower_port: Annotated[
        int | None,
        typer.Option("--flower-port", min=1, max=65535, help="Port of Flower \\[default: a free one]."),
    ] = None,
    report_to: Annotated[int | None, typer.Option("--report-to", hidden=True)] = None,
) -> None:
    """Start servers, a worker and the scheduler, all in this folder.

    The stack is PostgreSQL, Valkey, a worker, the scheduler and Flower, all in .wtb. Commands in this folder use it as
    long as it is up. Ctrl-C stops all of it, a second one at once.

    See also: `wtb status --stack` says how it is; `wtb down` stops it.
    """
    folder = Path.cwd()
    if detach:
        from wtb.hosting.stack.background import start_detached

        given = {"--concurrency": concurrency, "--pool": pool.value, "--queues": queues, "--flower-port": flower_port}
        options = [text for name, value in given.items() if value is not None for text in (name, str(value))]
        start_detached(folder, [*options, *(["--no-flower"] if no_flower else [])], say)
        return
    from wtb.hosting.stack.up import Wanted, run_stack

    wanted = Wanted(concurrency, pool.value, queues, not no_flower, flower_port)
    if report_to is not None:
        _in_background(folder, wanted, report_to)
    else:
        from wtb.hosting.stack.logs import to_terminal

        line = to_terminal(sys.stderr)
        run_stack(folder, wanted, line, lambda stack, took: _tell(stack, took, lambda text: line("wtb", text)))


def _in_background(folder: Path, wanted: Any, report_to: int) -> None:
    from wtb.hosting.stack.background import LOGS, Reporter
    from wtb.hosting.stack.logs import to_files
    from wtb.hosting.stack.up import run_stack

    reporter = Reporter(report_to)
    line = to_files(folder / HOME / LOGS)

    def write(name: str, text: str) -> None:
        if name == "wtb":
            reporter.tell(said=text)
        line(name, text)

    def ready(stack: Stack, took: float) -> None:
        _tell(stack, took, lambda text: reporter.tell(said=text), detached=True)
        line("wtb", f"ready after {took:.1f} s")
        reporter.tell(ready=True)
        reporter.close()

    try:
        run_stack(folder, wanted, write, ready)
    except WTBError as error:
        reporter.tell(error=str(error), exit_code=error.exit_code)
        raise


def _tell(stack: Stack, took: float, say: Any, *, detached: bool = False) -> None:
    say(f"ready after {took:.1f} s; next, in this folder: wtb submit sweep.yaml")
    if stack.flower is not None:
        say(f"Flower: {stack.flower.url}, user {stack.flower.user}, password {stack.flower.password}")
    if detached:
        say("look: wtb status --stack; logs: .wtb/logs; stop: wtb down")
    else:
        say("stop: Ctrl-C here, or `wtb down`")
    if credential(DATABASE_URL) or credential(BROKER_URL):
        say("commands where WTB_DATABASE_URL or WTB_BROKER_URL is set, as it is here, use those, and not this stack")


def down() -> None:
    """Stop what `wtb up` started in this folder.

    It waits until nothing of the stack is left. A second `wtb down` meanwhile is quick.
    """
    from wtb.hosting.stack.background import stop_stack

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
    """
    from wtb.hosting.servers.flower import run_flower

    def application() -> Any:
        from wtb_workers.app import app

        return app

    run_flower(application, address, port, say)
