"""Planning and submitting what is sent from elsewhere, with the code as workers publish it.

Nothing of it is imported or read here: neither code nor files, programs or environment of this machine are of those who
send it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from wtb.config.urls import split_url
from wtb.config.yaml_reader import Located, read
from wtb.core.arguments.approval import Approval
from wtb.core.arguments.checking import checked
from wtb.core.arguments.kinds import Count, Number
from wtb.core.documents.plan import PlanDocument
from wtb.core.errors import InputError
from wtb.core.tree.stored_spec import Limits
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.operations.running.planning import plan
from wtb.operations.running.preparing import prepare_single, with_options
from wtb.operations.running.submitting import Submitted, submit
from wtb.operations.running.uploaded_cases import with_uploaded_cases
from wtb.planning.cases import case_row, read_cases
from wtb.planning.data.case_columns import CaseTable, names_files
from wtb.planning.data.picking import Only
from wtb.planning.factors.parameter_files import read_parameter_files, sent_texts
from wtb.planning.prepare import MAX_CELLS, Prepared, prepare
from wtb.planning.sweep_spec import SweepSpec, parse_spec, spec_of

_WEB = ("http", "https")


def sweep_to_send(file: Path) -> dict[str, Any]:
    """Read a sweep file, with its cases, as it is sent to where it is planned or submitted.

    Args:
        file: The sweep file.

    Returns:
        Its keys, with the texts of files that its parameters name, and its cases as a list, or as a table: only where
        they are planned are the keys of the state known.

    Raises:
        InputError: If something is wrong with it, or with a file that it names.
    """
    document = read(file)
    document = replace(document, data=read_parameter_files(document.data, file.parent, Located(document)))
    return keys_to_send(spec_of(document), document.data)


def keys_to_send(spec: SweepSpec, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a sweep as they are sent, with its cases.

    Args:
        spec: The sweep.
        data: Its keys.

    Raises:
        InputError: If something is wrong with its file of cases.
    """
    keys = {"sweep": spec.sweep, **data}
    if isinstance(spec.cases, str):
        source = read_cases(spec.cases, spec.folder, spec.located, columns=spec.columns)
        source.check()
        keys["cases"] = source.table() or [case_row(case) for case in source]
    return keys


@checked
def plan_published(
    context: Context,
    keys: Mapping[str, Any],
    *,
    part: Only | None = None,
    max_cells: Count | None = None,
    session: str | None = None,
) -> PlanDocument:
    """Tell what a sweep would run, by what workers publish of its workflow.

    Args:
        context: Where; its database has what is published.
        keys: The sweep, by the keys of a sweep file: its workflow is one that workers publish, its cases are a
            list, or `{upload: SHA-256, name: FILE}` of a file that a server was sent.
        part: The part of it; None for all.
        max_cells: How many cells it may have, in place of the cap.
        session: In place of its own.

    Returns:
        Combinations, cases, cells, and node runs as [low, high] by node; how many cases each margin takes.

    Raises:
        InputError: With everything that is wrong, or that cannot be sent.
        ConflictError: If its session takes no new sweeps.
    """
    return plan(context, _prepared(context, keys, part, max_cells, session)).document


@checked
@audited
def submit_published(
    context: Context,
    keys: Mapping[str, Any],
    *,
    part: Only | None = None,
    max_cells: Count | None = None,
    session: str | None = None,
    priority: Annotated[int, Number(-1_000, 1_000, whole=True)] | None = None,
    anyway: bool = False,
    breakpoints: Sequence[str] = (),
    until: str | None = None,
) -> Submitted:
    """Give a sweep of a workflow that workers publish to them, whole or not at all.

    Args:
        context: Where; its database has what is published.
        keys: The sweep, by the keys of a sweep file: its workflow is one that workers publish, its cases are a
            list, or `{upload: SHA-256, name: FILE}` of a file that a server was sent.
        part: The part of it; None for all.
        max_cells: How many cells it may have, in place of the cap.
        session: In place of its own.
        priority: Higher ones run first; None for its own.
        anyway: Also where no worker is there to run it, or no broker is named.
        breakpoints: Where it pauses: `[before|after] NODE [if CONDITION]`.
        until: A node to pause after.

    Returns:
        Its id, and whether it starts at once.

    Raises:
        InputError: With everything that is wrong, or that cannot be sent.
        BrokerError: If no worker takes from one of its queues, or no broker is named; nothing was submitted.
        ConflictError: If its session takes no new sweeps.
    """
    prepared = _prepared(context, keys, part, max_cells, session)
    return submit(context, prepared, priority=priority, anyway=anyway, breakpoints=breakpoints, until=until)


@checked
@audited
def start_published(
    context: Context,
    workflow: str,
    input: Any,
    *,
    variants: Mapping[str, str] | None = None,
    from_node: str | None = None,
    breakpoints: Sequence[str] = (),
    until: str | None = None,
    mode: str | None = None,
    approval: Approval | None = None,
    project: str | None = None,
    session: str | None = None,
    limits: Limits | None = None,
    written: Mapping[str, str] | None = None,
    texts: Mapping[str, str] | None = None,
    create_only: bool = False,
) -> Submitted:
    """Give one input for a workflow that workers publish to them.

    Args:
        context: Where; its database has what is published.
        workflow: Its registered name.
        input: Values by key of the state, or the state itself if that is a single value.
        variants: Variant by node, if it is not the default.
        from_node: The node to start at, with the input as the state.
        breakpoints: Where it pauses: `[before|after] NODE [if CONDITION]`.
        until: A node to pause after.
        mode: `interactive` (people answer in place of models; the default) or `autonomous`.
        approval: When people are asked to let it go on.
        project: Its project.
        session: Its session, in place of the one of the context.
        limits: As in a sweep file.
        written: Values of the input that were typed as text; they are read as the types of their keys.
        texts: Texts of the files that levels name as `file://PATH#SHA256`, by SHA-256.
        create_only: Begin only when somebody resumes it.

    Returns:
        Its id, and whether it starts at once.

    Raises:
        InputError: With everything that is wrong.
        BrokerError: If no broker is named; nothing was submitted.
    """
    read = sent_texts(variants, texts, "variants")
    prepared = prepare_single(
        workflow,
        input,
        variants=variants,
        from_node=from_node,
        written=written,
        code=context.published_code,
        run={name: value for name, value in (("mode", mode), ("approval", approval)) if value is not None},
        project=project,
        session=session or context.session,
        limits=dict(limits or {}),
        texts=read,
    )
    return submit(context, prepared, anyway=True, breakpoints=breakpoints, until=until, create_only=create_only)


def _prepared(
    context: Context, keys: Mapping[str, Any], part: Only | None, max_cells: int | None, session: str | None
) -> Prepared:
    """Check a sweep that was sent. Raises InputError."""
    spec = with_options(parse_spec(with_uploaded_cases(context.database, keys)), session=session or context.session)
    if problems := list(_of_this_machine(spec)):
        raise InputError(*problems, argument="keys")
    limit = MAX_CELLS if max_cells is None else max_cells
    return prepare(spec, only=part, max_cells=limit, code=context.published_code)


def _of_this_machine(spec: SweepSpec) -> Iterator[str]:
    """Yield what names something of the machine that it was sent to."""

    def problem(*place: str | int, text: str) -> str:
        return spec.located.problem(place, text)

    files = "a case names files, and nothing is read here; put what they hold into its input"
    if isinstance(spec.cases, str):
        yield problem("cases", text=f"{spec.cases!r} names a file or code, and nothing is read here; send the cases")
    elif isinstance(spec.cases, CaseTable):
        if names_files(spec.cases, spec.columns):
            yield problem("cases", text=files)
    elif any(isinstance(case, Mapping) and case.get("files") for case in spec.cases):
        yield problem("cases", text=files)
    if spec.files_from:
        yield problem("files_from", text="it names folders, and nothing is read here")
    if spec.run.env is not None:
        yield problem("run", "env", text="which variables nodes get is set where the workers run")
    if spec.run.pool == "thread":
        yield problem("run", "pool", text="nodes would see what their worker knows; expected process")
    for server in spec.mcp:
        yield problem("mcp", server, text="servers of tools are named where the workers run, by the workflow")
    yield from _targets_of_this_machine(spec)


def _targets_of_this_machine(spec: SweepSpec) -> Iterator[str]:
    for number, target in enumerate(spec.notify):
        parts = split_url(target.to)
        if parts is None or parts.scheme not in _WEB:
            text = "it is a command, and none is run here; expected a URL"
        elif target.allow_private:
            text = "it allows private addresses; from elsewhere only public ones are"
        else:
            continue
        yield spec.located.problem(("notify", number), text)
