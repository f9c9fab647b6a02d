"""Code that commands share: opening a database or server, reading common options, and writing output."""

from __future__ import annotations

import codecs
import io
import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from wtb.cli import options
from wtb.cli.options import not_through
from wtb.core.errors import InputError, WTBError

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from wtb.core.documents.matrix import JudgedMatrixDocument
    from wtb.core.tree.stored_spec import Limits
    from wtb.operations.context import Backend, Context
    from wtb.store.database import Database


SERVER = "WTB_SERVER"


_root: ContextVar[typer.Context | None] = ContextVar("root", default=None)
_command: ContextVar[str] = ContextVar("command", default="wtb")
_searched: ContextVar[str | None] = ContextVar("searched", default=None)


def begin(root: typer.Context) -> None:
    """Note the options of every command, which stand before its name."""
    _root.set(root)
    _searched.set(None)


def note_command(words: str) -> None:
    """Note the command that runs, as the audit log has it."""
    _command.set(words)


def searched() -> str | None:
    """Return the database that the command that runs has opened, without a password; None if it has opened none."""
    return _searched.get()


def server_url(db: str | None) -> str | None:
    """The server that a command asks: that of `wtb --server`, else, unless a database is named, that of WTB_SERVER.

    Raises:
        InputError: If the command line names a database, too.
    """
    root = _root.get()
    named_server = None if root is None else root.params["server"]
    if named_server is not None and db is not None:
        raise InputError("--server and --db are both given; expected one of them")
    return named_server or (os.environ.get(SERVER) or None if db is None else None)


def open_backend(db: str | None, broker: str | None = None, *, create: bool = False) -> Backend:
    """Return a client of the server if one is named, else the context of the database, as `open_context` opens it."""
    server = server_url(db)
    if server is None:
        return open_context(db, broker, create=create)
    if broker is not None:
        raise InputError(f"--broker needs a database, and {server} is a server with its own broker; leave out --broker")
    return _server(server)


def backend_elsewhere(
    published: bool, db: str | None, broker: str | None = None, *, wait: bool = False
) -> Backend | None:
    """Return the backend of a command that does not use the code on this machine; None if it does.

    Args:
        published: Use what workers publish, even if no server is named.
        db: The database that the command line names.
        broker: The broker that the command line names.
        wait: The option --wait, which needs the code.

    Raises:
        InputError: If that option is given although the code is not used.
    """
    if not published and server_url(db) is None:
        return None
    if wait:
        raise InputError("--wait needs the code here; without it, `wtb watch` follows what was submitted")
    return open_backend(db, broker)


def existing_backend(db: str | None) -> Backend | None:
    """Return the backend as `open_backend` does; None if there is no database yet."""
    from wtb.operations.context import Context

    server = server_url(db)
    if server is not None:
        return _server(server)
    database = existing_database(db)
    return None if database is None else Context(database, report=say, warn=say)


def _server(url: str) -> Backend:
    from wtb.config.distribution import pip_install

    if find_spec("httpx") is None:
        raise InputError(f"the client of servers is not installed: {pip_install('client')}")
    from wtb.hosting.client.server import Server

    server = Server(url, report=say, warn=say)
    root = _root.get()
    if root is not None:
        # click calls this at the end of the command, even if it fails.
        root.call_on_close(server.close)
    return server


def _check_no_server(db: str | None) -> None:
    """Refuse what acts on a database itself, where a server is named. Raises InputError."""
    server = server_url(db)
    if server is not None:
        raise not_through(server, _command.get())


def open_database(url: str | None, *, create: bool = False) -> Database:
    """The database to use, at the right version. Raises InputError where it is not there and not to be made."""
    from wtb.store import database as databases

    _check_no_server(url)
    database = databases.open_database(url)
    if not create and not database.exists():
        raise missing_database(database)
    database.prepare()
    _searched.set(database.shown_url)
    return database


def open_context(url: str | None, broker: str | None = None, *, create: bool = False, prepare: bool = True) -> Context:
    """Return the context of operations on a database; they report to stderr.

    Args:
        url: The database; None for the default.
        broker: The broker that the command line names.
        create: Make the database if it is missing.
        prepare: Check the version of the database. Without it, the database may be missing.
    """
    from wtb.operations.context import Context, Origin
    from wtb.store import database as databases

    _check_no_server(url)
    database = open_database(url, create=create) if prepare else databases.open_database(url)
    return Context(database, broker=broker, report=say, warn=say, origin=Origin(_command.get()))


def shared_context(url: str | None, broker: str | None) -> Context:
    """Return the context of a database that workers share. Raises InputError if machines cannot share it."""
    from wtb.store import database as databases

    _check_no_server(url)
    # Before open_context, which would make a database that workers cannot share.
    databases.check_shared(databases.open_database(url))
    return open_context(url, broker, create=True)


def existing_database(url: str | None) -> Database | None:
    """Return the database at the right version; None if there is none yet. Raises InputError if its stack is down."""
    from wtb.config.stack_file import is_down
    from wtb.store import database as databases

    database = databases.open_database(url)
    # If the stack is down, open_database raises an error with the reason, instead of showing an empty list.
    return open_database(url) if database.exists() or is_down(database.path) else None


def missing_database(database: Database) -> InputError:
    """Return the error for a missing database: it has not been made yet, or its stack is down."""
    from wtb.config.stack_file import is_down

    if is_down(database.path):
        return InputError("the stack of this folder is down, so its database is, too; start it with `wtb up`")
    return InputError(f"there is no database at {database.shown_url} yet; `wtb run` creates one")


def read_choices(texts: Iterable[str] | None) -> dict[str, str]:
    """Return the variants by node that `--combination NODE=VARIANT,...` options name. Raises InputError."""
    return read_pairs("--combination", texts)


def read_limits(texts: list[str] | None) -> Limits:
    """Limits as a sweep file has them, not yet checked; `none` lifts one. Raises InputError."""
    from wtb.config import yaml_reader

    lines = []
    nodes: dict[str, list[str]] = {}
    judging: list[str] = []
    for part in texts or []:
        key, equals, limit = part.partition("=")
        if not equals:
            raise InputError(f"--limits {part!r}: expected KEY=VALUE, such as usd=5 or nodes.answer.usd=1")
        limit = "null" if limit.strip().lower() == "none" else limit
        scope, _, rest = key.partition(".")
        node, _, kind = rest.rpartition(".")
        if scope == "nodes" and node:
            nodes.setdefault(node, []).append(f"      {kind}: {limit}\n")
        elif scope == "judging" and rest:
            judging.append(f"    {rest}: {limit}\n")
        else:
            lines.append(f"  {key}: {limit}\n")
    if judging:
        lines += ["  judging:\n", *judging]
    if nodes:
        lines.append("  nodes:\n")
        # In quotes, because a node may be called `no` or `1`, which YAML reads as something else.
        lines += [f"    {json.dumps(node)}:\n{''.join(of)}" for node, of in nodes.items()]
    if not lines:
        return {}
    # Parsed as YAML, so that the option accepts exactly what a sweep file does.
    limits: Limits = yaml_reader.parse(f"limits:\n{''.join(lines)}".encode(), "--limits").data["limits"]
    return limits


def read_pairs(option: str, texts: Iterable[str] | None) -> dict[str, str]:
    """Return the variants by node that options of the form NODE=VARIANT,... name. Raises InputError.

    The name of a variant may have commas: what follows one without `=` belongs to the variant before it.
    """
    pairs: list[str] = []
    for text in texts or ():
        first, *following = text.split(",")
        pairs.append(first.strip())
        for part in following:
            if "=" in part:
                pairs.append(part.strip())
            else:
                pairs[-1] += f",{part}"
    return dict(read_pair(option, pair) for pair in pairs)


def read_row(text: str) -> int | str:
    """A row of the matrix as it was typed: its number, or its variants, which the operation reads."""
    return int(text) if re.fullmatch("-?[0-9]+", text) else text


def read_names(texts: Iterable[str] | None) -> list[str]:
    """Names of an option that was given any number of times, each with one name or several between commas."""
    return [name.strip() for text in texts or () for name in text.split(",") if name.strip()]


def read_pair(option: str, text: str) -> tuple[str, str]:
    """The node and the variant of one NODE=VARIANT. Raises InputError."""
    node, _, variant = text.partition("=")
    if not (node and variant):
        raise InputError(f"{option} {text!r}: expected NODE=VARIANT")
    return node, variant


def confirm_first(yes: bool, question: str, otherwise: str | None = None) -> None:
    """Ask for confirmation unless --yes gives it; without it print `otherwise`, and exit with 1."""
    if not yes and not confirm(question):
        if otherwise is not None:
            say(otherwise)
        raise typer.Exit(1)


def confirm(question: str) -> bool:
    """Ask the person at the terminal. Returns True for yes. Raises InputError if there is no terminal."""
    try:
        # Even with err=True a blank of the prompt would go to stdout.
        with prints_to_stderr():
            return typer.confirm(question, err=True)
    except typer.Abort:
        raise InputError("this needs confirmation, and there is no terminal; give --yes") from None


_logs = False  # whether what is said is logged, since nobody reads it in a terminal


def log_what_is_said() -> None:
    """Make it write log lines from now on."""
    global _logs
    _logs = True


def say(text: str) -> None:
    """Print a message that is not the result, to stderr."""
    if _logs:
        logging.getLogger("wtb").info("%s", text)
        return
    # Keeps the order of results and messages if both streams go to one file.
    sys.stdout.flush()
    print(text, file=sys.stderr, flush=True)


@contextmanager
def prints_to_stderr() -> Iterator[None]:
    """Send to stderr what user code and its programs print: stdout is for the result alone."""
    # The buffer still has text for the real stdout.
    sys.stdout.flush()
    # The descriptor is replaced, because programs that user code starts do not write to sys.stdout.
    saved_stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        # User code wrote this into the buffer, so it belongs to stderr, too.
        sys.stdout.flush()
        os.dup2(saved_stdout, 1)
        os.close(saved_stdout)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError), "only what is written is escaped"
    # As in JSON: a character beyond U+FFFF is a pair of surrogates.
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2)), error.end


_ESCAPE = "wtb.escape"
codecs.register_error(_ESCAPE, _escaped)


class OutputError(WTBError):
    """The result cannot be written to stdout."""

    exit_code = 4


class ReaderGone(WTBError):
    """Nobody reads stdout any more, as after `wtb list | head`."""

    exit_code = 141  # of a program that SIGPIPE ended


class _Output(io.FileIO):
    """Stdout. What it does not take is lost with the first error, which is one of WTB's wherever it is written from."""

    _has_failed = False

    def write(self, data: Buffer) -> int:
        # The interpreter flushes stdout again when it exits, and would report the same error twice.
        if self._has_failed:
            return memoryview(data).nbytes
        try:
            return super().write(data) or 0
        except BrokenPipeError:
            self._has_failed = True
            raise ReaderGone("stdout was closed by its reader") from None
        except OSError as error:
            self._has_failed = True
            raise OutputError(f"the result cannot be written to stdout: {error.strerror}") from None


class _Messages(io.FileIO):
    """Stderr. A message that it does not take is lost, and the command goes on."""

    def write(self, data: Buffer) -> int:
        try:
            return super().write(data) or 0
        except OSError:
            return memoryview(data).nbytes


class _ClosedOutput(io.TextIOBase):
    """Stands for a stdout that was closed before the command started."""

    def write(self, text: str) -> int:
        raise OutputError("stdout is closed, so the result is not written; open it, or name a file with --output")

    def fileno(self) -> int:
        return 1


def open_streams() -> None:
    """Give the command its standard streams: those that it was started without, and what happens if one is full.

    A file that it opens would take the descriptor of one that is closed, and what nodes print would be written into it.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # os.open returns the lowest descriptor that is free, which is this one.
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = _ClosedOutput()
    elif (stdout := sys.__stdout__) is not None and stdout is sys.stdout:  # and no stream of a test
        sys.stdout = _text_stream(_Output(1, "w", closefd=False), _ESCAPE, stdout.line_buffering)
    if sys.stderr is None or sys.stderr is sys.__stderr__:
        sys.stderr = _text_stream(_Messages(2, "w", closefd=False), "backslashreplace", line_buffering=True)


def _text_stream(raw: io.FileIO, errors: str, line_buffering: bool) -> io.TextIOWrapper:
    encoding = "utf-8" if sys.__stdout__ is None else sys.__stdout__.encoding
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors, line_buffering=line_buffering)


def write_result(texts: Iterable[str]) -> None:
    """Write parts of the result to stdout as they come. Raises OutputError if stdout takes no more."""
    for text in texts:
        sys.stdout.write(text)
    sys.stdout.flush()


def put(text: str, output: Path | None = None) -> None:
    """Write the result to stdout, or to a file whose folder is made where needed; both end with a newline."""
    text = text if text.endswith("\n") else text + "\n"
    if output is None:
        write_result([text])
        return
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text, "utf-8", _ESCAPE)
    except OSError as error:
        raise WTBError(f"--output {output}: cannot be written ({error.strerror})") from error
    say(f"written to {output}")


def put_json(document: object, output: Path | None = None) -> None:
    """Write a document for scripts, as `put` does."""
    from wtb.display.json_text import as_json

    put(as_json(document), output)


def width() -> int:
    """Columns of the terminal; 80 where there is none."""
    return shutil.get_terminal_size((80, 24)).columns


def put_matrix(document: JudgedMatrixDocument, form: options.MatrixForm, *, warnings: bool = False) -> None:
    """Write a matrix in the format that a command was given."""
    put(_rendered(document, form, warnings), form.output)


def _rendered(document: JudgedMatrixDocument, form: options.MatrixForm, warnings: bool) -> str:
    """The matrix in a format, or its pivot table if its view has one. warnings: with all of them, in a table."""
    format = form.format
    if format is options.MatrixFormat.json:
        from wtb.display.json_text import as_json

        return as_json(document)
    if "view" in document and format in (options.MatrixFormat.html, options.MatrixFormat.svg):
        raise InputError(
            f"--format {format.value} shows the whole matrix; for a view of it expected table, json, csv or md"
        )
    if "pivot" in document.get("view", {}):
        from wtb.display import pivot_text

        if format is options.MatrixFormat.table:
            return pivot_text.render(document, width())
        return pivot_text.as_csv(document) if format is options.MatrixFormat.csv else pivot_text.as_markdown(document)
    if format is options.MatrixFormat.table:
        from wtb.display.matrix_table import render

        return render(document, width(), form.output is None and sys.stdout.isatty(), warnings=warnings)

    module, function = _RENDERERS[format.value]
    return str(getattr(import_module(module), function)(document))


# Modules by name, because only one of them is imported: a table needs no templates.
_RENDERERS = {
    "csv": ("wtb.display.csv", "render"),
    "md": ("wtb.display.markdown", "matrix"),
    "html": ("wtb.display.report.report_files", "render_matrix"),
    "svg": ("wtb.display.matrix_table", "as_svg"),
}
