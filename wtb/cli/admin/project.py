"""Commands around projects: init, workflow, doctor."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from wtb.authoring import graph
from wtb.authoring.code import import_paths
from wtb.cli import options
from wtb.cli.console import open_backend, prints_to_stderr, put, say
from wtb.cli.output import present, present_all
from wtb.config.stack_file import broker_url
from wtb.core.errors import InputError
from wtb.display.text import administration, graphs
from wtb.features.importers import project as importing
from wtb.operations.inspection import workflows
from wtb.store import database_url as urls


def init(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="The folder; created if missing.")] = Path(),
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="SOURCE", help="A promptfoo configuration, or the import path of a task of Inspect."
        ),
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option("--judge", metavar="MODEL", help="With --from: the judge's model if SOURCE names none."),
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
        raise InputError("--judge is given without --from; expected both")
    imported = None if source is None else importing.import_project(source, judge)
    files = _template() if imported is None else imported.files
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; expected a folder")
    # All files are checked before the first is written, so that a refusal leaves the folder as it was.
    present_already = [name for name in files if (folder / name).exists()]
    if present_already and not force:
        raise InputError(f"{folder}: {', '.join(present_already)} exists already; overwrite it with --force")
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
    published: options.Published = False, db: options.Db = None, form: options.Form = options.TABLE
) -> None:
    """List the workflows registered in wtb.toml, or in pyproject.toml under \\[tool.wtb.workflows].

    Workers publish what is registered where they run; only that can be submitted over HTTP.

    Examples: wtb workflow list  |  wtb workflow list --published
    """
    if published:
        present(open_backend(db).call(workflows.list_published), graphs.list_published, form)
        return
    registered = [{"name": name, "path": path} for name, path in sorted(import_paths.registered().items())]
    nothing = 'no workflow is registered; add to wtb.toml:\n[workflows]\nname = "pkg.module:attribute"'
    present_all("workflows", registered, graphs.listed, form, nothing)


def workflow_show(
    workflow: Annotated[str, typer.Argument(metavar="WORKFLOW", help="A registered name, or pkg.module:attribute.")],
    published: options.Published = False,
    db: options.Db = None,
    form: options.Form = options.TABLE,
) -> None:
    """Draw a workflow: its nodes with their variants and parameters, and where each leads.

    Examples: wtb workflow show triage  |  wtb workflow show pkg.module:wf --format json
    """
    if published:
        snapshot = open_backend(db).call(workflows.show_published, workflow)
        present(snapshot, graphs.draw_published, form)
        return
    with prints_to_stderr():
        # A copy, because the object belongs to the user's module and its name is replaced here.
        workflow_copy = import_paths.workflow_at(workflow).copy()
        workflow_copy.name = import_paths.registered_name(workflow) or workflow_copy.name
        workflow_copy.validate()
    facts = workflow_copy.facts()
    parameters = graph.variant_parameters(facts)
    present(graph.graph_snapshot(facts), lambda drawn, width, color: graphs.draw(drawn, parameters, width, color), form)


def doctor(db: options.Db = None, broker: options.Broker = None, form: options.Form = options.TABLE) -> None:
    """Check that WTB can run here, and show how to fix problems.

    Exits with 1 if something is. If a broker is configured, or a stack is up in this folder, workers and what they
    need are checked too.

    Examples: wtb doctor  |  wtb doctor --db postgresql://user@host/name
    """
    from wtb.hosting.diagnostics import examine

    checks = examine(urls.database_url(db), broker_url(broker))
    present(checks, administration.checks, form)
    if not checks["ok"]:
        raise typer.Exit(1)


WORKFLOW = {"list": workflow_list, "show": workflow_show}
