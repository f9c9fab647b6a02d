"""Commands about a matrix: matrix, score, scoring show, scoring cancel."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

import typer

from wtb.cli import options
from wtb.cli.console import (
    backend_elsewhere,
    open_backend,
    open_context,
    prints_to_stderr,
    put_matrix,
    read_limits,
    read_names,
    read_row,
    say,
)
from wtb.cli.pages import open_page
from wtb.cli.progress import EVERY_S
from wtb.core.errors import ConflictError, InputError
from wtb.core.scoring.scores import CALLS_AT_ONCE
from wtb.core.texts import plural
from wtb.operations.results import matrix as operations

if TYPE_CHECKING:
    from wtb.core.documents.matrix import JudgedMatrixDocument
    from wtb.operations.context import Backend
    from wtb.operations.results.scoring import Scored
    from wtb.operations.running.published import Scoring

LOOK_S = 0.5  # between two looks at what workers score


def matrix(
    ref: options.Sweep,
    edited: Annotated[bool, typer.Option("--edited", help="Include cells whose state a person edited.")] = False,
    on_failure: Annotated[
        str | None, typer.Option(help="Score of a failed cell, or left_out \\[default: the sweep's].", metavar="SCORE")
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline", metavar="ROW", help="The row to compare with, by number (#) or as NODE.PARAMETER=LEVEL."
        ),
    ] = None,
    where: options.Where = None,
    within: options.Within = False,
    sort: options.Sort = None,
    group_by: Annotated[
        list[str] | None,
        typer.Option("--group-by", metavar="FACTOR", help="Show rows with the same level of it together; repeatable."),
    ] = None,
    pivot: Annotated[
        list[str] | None,
        typer.Option("--pivot", metavar="FACTOR [FACTOR]", help="Show a table of means by one or two factors."),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option("--metric", help="With --pivot and --within: by which metric \\[default: the one that decides]."),
    ] = None,
    other_factor: Annotated[str | None, typer.Argument(hidden=True, metavar="FACTOR")] = None,
    warnings: Annotated[
        bool, typer.Option("--warnings", help="Show all warnings, including those that cannot change the decision.")
    ] = False,
    open_it: options.Open = False,
    db: options.Db = None,
    form: options.MatrixForm = options.MATRIX_TABLE,
) -> None:
    """Show the figures of every combination, with intervals.

    This is the comparison matrix, of a sweep that is finished or not: scores, costs and durations, and which is best.
    You can filter, sort and group its rows by factors, or show a pivot table: the mean over the combinations that
    share a level of each of two factors. Such views change no interval, test or correction.

    See also: `wtb report` writes it with charts and cases for others; `wtb status` shows how far the sweep is.

    Examples: wtb matrix nightly --format html -o matrix.html  |  wtb matrix nightly --where answer.model=mini --within
    --sort cost  |  wtb matrix nightly --pivot answer.model answer.temperature
    """
    # An option takes one value, so that the second factor of `--pivot A B` arrives as an argument.
    factors = read_names(pivot) + read_names([other_factor] if other_factor else ())
    if other_factor and not pivot:
        raise InputError(f"{other_factor!r} is one argument too many; expected the name of one sweep")
    view_options: dict[str, Any] = {
        "baseline": None if baseline is None else read_row(baseline),
        "where": where or (),
        "within": within,
        "sort": sort,
        "group_by": read_names(group_by),
        "pivot": factors,
        "metric": metric,
    }
    document = open_backend(db).call(
        operations.matrix, ref, edited=edited, on_failure=_number_or_text(on_failure), **view_options
    )
    put_matrix(document, form, warnings=warnings)
    if open_it:
        open_page(f"/sweeps/{document['sweep']['id']}{page_query(document, baseline)}", db)


def page_query(document: JudgedMatrixDocument, baseline: str | None) -> str:
    """Return the query with which the page of a sweep shows the same view."""
    rows = [row["combination"] for row in document["rows"]]
    query = {} if baseline is None else {"baseline": str(rows.index(document["baseline"] or {}))}
    if view := document.get("view"):
        filters = [operations.split_filter(text) for text in view["where"]]
        single = [pair for pairs in filters if len(pairs) == 1 for pair in pairs]
        together = [pairs for pairs in filters if len(pairs) > 1]
        pivot = view.get("pivot")
        query |= {
            "where": ";".join(map(urlencode, [single, *together])),
            "good": "1" if view["within"] else "",
            "sort": view["sort"] or "",
            "group": ",".join(view["group_by"][:1]),
            "pivot": ",".join(pivot["factors"]) if pivot else "",
            # Cost and latency are no metrics, so the page takes them by another name.
            ("metric" if view["metric"] in document["metrics"] else "measure"): view["metric"] or "",
        }
    text = urlencode({key: parameter for key, parameter in query.items() if parameter})
    return f"?{text}" if text else ""


def _number_or_text(text: str | None) -> Any:
    """Return a number if the text is one, else the text. The operation checks it."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def score(
    ref: options.Sweep,
    evaluate: Annotated[
        list[str] | None,
        typer.Option("--evaluate", "-e", help="An evaluator as in a sweep file: name, path, or with options."),
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", help="Use the evaluators of this sweep file.")] = None,
    at_once: Annotated[
        int, typer.Option("--at-once", metavar="N", help="Cells judged at a time; not on workers.")
    ] = CALLS_AT_ONCE,
    limits: Annotated[
        list[str] | None,
        typer.Option("--limits", metavar="KEY=VALUE", help="A limit on judges: judging.usd=5, judging.usd=none."),
    ] = None,
    anyway: Annotated[bool, typer.Option("--anyway", help="On workers: even if none is running.")] = False,
    db: options.Db = None,
    form: options.MatrixForm = options.MATRIX_TABLE,
    published: options.Published = False,
) -> None:
    """Score finished cells again, without running a node.

    The evaluators are those of the sweep, or more. Where judges have cost what they may, the rest keeps its scores, and
    it exits with 1: with a higher limit, what was judged costs nothing again.

    Through a server, and with --published, workers do it, by built-in evaluators and those that they publish.

    See also: `wtb matrix` shows the scores; `wtb retry` runs failed cells again; `wtb admin scoring show`
    waits for workers.

    Example: wtb score nightly --evaluate 'exact_match: {field: answer}'
    """
    from wtb.config import yaml_reader
    from wtb.operations.results import scoring
    from wtb.planning import parameter_files

    # Parsed as YAML, so that the option accepts exactly what a sweep file does.
    listed = "".join(f"- {text}\n" for text in evaluate or ())
    evaluators = yaml_reader.parse(f"evaluate:\n{listed}".encode(), "--evaluate").data["evaluate"] if listed else ()
    evaluators = parameter_files.with_file_texts(evaluators, "--evaluate")
    judging_limits = read_limits(limits) or None
    backend = backend_elsewhere(published, db)
    scored: Scored | Scoring
    if backend is not None:
        scored = _end_of(backend, _submitted(backend, ref, evaluators, file, limits=judging_limits, anyway=anyway))
    else:
        backend = context = open_context(db)
        with prints_to_stderr():
            scored = scoring.score(context, ref, evaluate=evaluators, file=file, at_once=at_once, limits=judging_limits)
    _show(backend, scored, form)
    if scored.reason is not None:
        say(f"{scored.reason}: {plural(scored.left, 'execution')} not judged; --limits judging.usd=MORE goes on")
        raise typer.Exit(1)


_ScoringId = Annotated[str, typer.Argument(metavar="SCORING", help="The id that `wtb score` printed.")]


def show(
    ref: options.Sweep, scoring: _ScoringId, db: options.Db = None, form: options.MatrixForm = options.MATRIX_TABLE
) -> None:
    """Show the progress of a scoring on workers.

    It waits until they have ended, and then shows the matrix.

    See also: `wtb score` asks them; `wtb admin scoring cancel` ends it.

    Example: wtb admin scoring show nightly 1ng62xyrfv95
    """
    from wtb.operations.running.published import show_scoring

    backend = open_backend(db)
    _show(backend, _end_of(backend, backend.call(show_scoring, ref, scoring)), form)


def cancel(ref: options.Sweep, scoring: _ScoringId, reason: options.Reason = None, db: options.Db = None) -> None:
    """Cancel a scoring on workers; scores that were written stay.

    Example: wtb admin scoring cancel nightly 1ng62xyrfv95 --reason 'the rubric is wrong'
    """
    from wtb.operations.running.published import cancel_scoring

    ended = open_backend(db).call(cancel_scoring, ref, scoring, reason=reason)
    say(f"scoring {ended.id} is cancelled; {ended.scores:,} scores that it has written stay")


SCORING = {"show": show, "cancel": cancel}


def _show(backend: Backend, scored: Scored | Scoring, form: options.MatrixForm) -> None:
    """Print how many scores were written, and show the matrix."""
    say(f"{scored.scores:,} scores written")
    put_matrix(backend.call(operations.matrix, scored.sweep), form)


def _submitted(backend: Backend, ref: str, evaluators: Sequence[Any], file: Path | None, **more: Any) -> Scoring:
    """Ask workers to score. Returns what they are asked."""
    from wtb.operations.running.published import score_published
    from wtb.planning.sweep_spec import load_evaluators

    evaluator_specs = [*evaluators, *(spec.model_dump() for spec in load_evaluators(file))] if file else evaluators
    return backend.call(score_published, ref, evaluate=evaluator_specs, **more)


def _end_of(backend: Backend, scoring: Scoring) -> Scoring:
    """Wait until workers have scored, and say how far they are now and then. Raises ConflictError if they do not."""
    from wtb.operations.running.published import show_scoring

    capacity = (
        f"{plural(scoring.workers, 'worker')} to do it" if scoring.workers else "it starts when there is a worker"
    )
    say(f"scoring {scoring.id}: {capacity}")
    reported_at, reported_scores = time.monotonic(), scoring.scores
    while scoring.is_open:
        time.sleep(LOOK_S)
        scoring = backend.call(show_scoring, scoring.sweep, scoring.id)
        if scoring.scores != reported_scores and time.monotonic() - reported_at > EVERY_S:
            reported_at, reported_scores = time.monotonic(), scoring.scores
            say(f"{reported_scores:,} scores written so far")
    if scoring.status != "succeeded":
        raise ConflictError(f"scoring {scoring.id} of sweep {scoring.sweep} is {scoring.status}: {scoring.reason}")
    return scoring
