"""Commands around projects: init, workflow, doctor."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from wtb.authoring import graph_snapshot
from wtb.authoring.code import import_paths, resolve
from wtb.cli import options
from wtb.cli.console import open_backend, prints_to_stderr, put, say
from wtb.cli.output import present, present_all
from wtb.config.stack_file import broker_url
from wtb.core.errors import InputError
from wtb.display.text.admin import machine
from wtb.display.text.inspect import graphs
from wtb.operations.inspection import workflows
from wtb.planning.importing import project as importing
from wtb.store import database_url as urls


def init(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="The folder; created if missing.")] = Path(),
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="SOURCE",
            help="Start from a promptfoo configuration, or a task of Inspect by its import path.",
        ),
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option("--judge", metavar="MODEL", help="Of --from: the model that judges where SOURCE names none."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that are there.")] = False,
) -> None:
    """Write a small workflow, cases and a sweep file to start from.

    It sorts customers' messages into three teams, in nine combinations, without network or models. With --from, the
    cases are the tests of promptfoo, and prompts are variants of a node, or cases are the samples of a task of Inspect,
    scored by its scorers; what has no counterpart is named.

    Examples: wtb init demo && cd demo && wtb run sweep.yaml  |  wtb init --from promptfooconfig.yaml
    |  wtb init --from promptfooconfig.yaml --judge gpt-4o-mini  |  wtb init asked --from tasks:capitals
    """
    if judge is not None and source is None:
        raise InputError("--judge is of what --from brings over; expected --from with it")
    imported = None if source is None else importing.import_project(source, judge)
    files = _template() if imported is None else imported.files
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; expected a folder")
    present_already = [name for name in files if (folder / name).exists()]
    if present_already and not force:
        raise InputError(f"{folder}: {', '.join(present_already)} would be overwritten; --force does that")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    put("\n".join(str(folder / name) for name in files))
    for what in imported.left_out if imported else ():
        say(f"left out: {what}")
    change = "" if folder.resolve() == Path.cwd() else f"cd {folder} && "
    first = "write `ask` in workflow.py, then " if imported is not None and not imported.asks else ""
    say(f"next: {first}{change}wtb run sweep.yaml")


def _template() -> Mapping[str, str]:
    """The files of the small workflow, by name."""
    folder = Path(__file__).parents[1] / "templates" / "init"
    return {path.name: path.read_text("utf-8") for path in sorted(folder.iterdir()) if path.is_file()}


def workflow_list(
    published: options.Published = False,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """List the workflows registered in wtb.toml, or in pyproject.toml under \\[tool.wtb.workflows].

    Workers publish what is registered where they run; only that can be submitted over HTTP.

    Examples: wtb workflow list  |  wtb workflow list --published
    """
    if published:
        present(open_backend(db).call(workflows.list_published), graphs.list_published, format, output)
        return
    found = [{"name": name, "path": path} for name, path in sorted(import_paths.registered().items())]
    nothing = 'no workflow is registered; add to wtb.toml:\n[workflows]\nname = "pkg.module:attribute"'
    present_all("workflows", found, graphs.listed, format, output, nothing)


def workflow_show(
    workflow: Annotated[str, typer.Argument(metavar="WORKFLOW", help="A registered name, or pkg.module:attribute.")],
    published: options.Published = False,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """Draw a workflow: its nodes with their variants and parameters, and where each leads.

    Examples: wtb workflow show triage  |  wtb workflow show pkg.module:wf --format json
    """
    if published:
        shown = open_backend(db).call(workflows.show_published, workflow)
        present(shown, graphs.draw_published, format, output)
        return
    with prints_to_stderr():
        found = resolve.workflow_at(workflow).copy()
        found.name = import_paths.registered_name(workflow) or found.name
        found.validate()
    facts = found.facts()
    parameters = graph_snapshot.variant_parameters(facts)
    present(
        graph_snapshot.graph_snapshot(facts),
        lambda graph, width, color: graphs.draw(graph, parameters, width, color),
        format,
        output,
    )


def doctor(
    db: options.Db = None,
    broker: options.Broker = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """Check what WTB needs here, and say how to fix what is wrong.

    Exits with 1 if something is. If a broker is configured, or a stack is up in this folder, workers and what they
    need are checked too.

    Examples: wtb doctor  |  wtb doctor --db postgresql://user@host/name
    """
    from wtb.hosting.diagnostics.machine import examine

    found = examine(urls.database_url(db), broker_url(broker))
    present(found, machine.checks, format, output)
    if not found["ok"]:
        raise typer.Exit(1)


WORKFLOW = {"list": workflow_list, "show": workflow_show}
