"""The `wtb` command: its parts put together, and errors turned into one screen and an exit code."""

from __future__ import annotations

import errno
import gc
import os
import sys

import typer

from wtb.cli.commands import CommandGroup
from wtb.cli.console import ReaderGone, begin, open_streams, searched
from wtb.config import credentials
from wtb.core.errors import InputError, NotFound, WTBError
from wtb.core.serialization.user_modules import find_modules_in
from wtb.core.version import __version__

app = typer.Typer(
    name="wtb",
    cls=CommandGroup,
    help="Workflow Test Bench: run every combination of variants, and find the best.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="rich",
    epilog="A first sweep: [bold]wtb init demo && cd demo && wtb run sweep.yaml[/bold]",
)

_LONGEST_LINE = 1_000  # characters


def _version(requested: bool) -> None:
    if requested:
        print(f"wtb {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
    server: str | None = typer.Option(
        None, "--server", metavar="URL", help="Connect to this server \\[default: $WTB_SERVER]."
    ),
) -> None:
    """Options of every command."""
    begin(context)


def _in_short(text: str) -> str:
    """A message whose lines have an end: what they quote may be of any length."""
    cut = (line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} ..." for line in text.split("\n"))
    return "\n".join(cut)


def _check_texts() -> None:
    """Refuse arguments and settings that are no text: no database keeps them."""
    named = [(f"argument {text!a:.60}", text) for text in sys.argv[1:]]
    named += [(f"{name}={setting!a:.60}", setting) for name, setting in os.environ.items() if name.startswith("WTB_")]
    for name, text in named:
        try:
            # Python reads bytes that are not UTF-8 as surrogates, which cannot be encoded.
            text.encode()
        except UnicodeEncodeError:
            raise InputError(f"{name} is not text in UTF-8") from None


def main() -> None:
    """Run the command line. Exit codes: 0 well, 1 cells failed or a limit was reached, 2 refused, 4 no database."""
    # Until a command runs: imported modules stay, and searching them for garbage takes a tenth of the start.
    gc.disable()
    # Before anything else can read the environment or start a process that inherits it.
    credentials.take()
    open_streams()
    try:
        # Import paths such as `flow:wf` start from the working directory.
        find_modules_in(os.getcwd())
    except OSError as error:
        print(f"error: the working directory is gone ({error.strerror}): change to one that exists", file=sys.stderr)
        sys.exit(2)
    try:
        _check_texts()
        try:
            app()
        finally:
            # A disk that is full is noticed here, as an error of WTB, and not while the interpreter exits.
            sys.stdout.flush()
    except ReaderGone as error:
        sys.exit(error.exit_code)
    except WTBError as error:
        option = "" if error.option is None else f" ({error.option})"
        # Something that is not found is often in the database of another folder.
        place = f" (searched {searched()})" if isinstance(error, NotFound) and searched() else ""
        print(f"error: {_in_short(str(error))}{option}{place}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        # Any argument may be given where a path is expected. Other errors of the system keep their traceback.
        if error.errno != errno.ENAMETOOLONG:
            raise
        print(f"error: {str(error.filename)[:60]!r}...: {error.strerror}; expected a path", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    finally:
        gc.enable()
