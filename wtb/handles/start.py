"""Single executions: one input through a workflow, to be watched, paused, changed and resumed.

It is a sweep of one cell, so everything that holds for sweeps and their executions holds for it, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wtb.authoring.code.import_paths import as_workflow
from wtb.core.questions import Approval
from wtb.handles.execution import ExecutionHandle
from wtb.operations.context import Context, open_context
from wtb.operations.running.local import begin, check_options, create
from wtb.operations.running.preparing import prepare_single
from wtb.operations.running.submitting import submit
from wtb.planning.parameter_files import read_level_files
from wtb.store.database import Database


def start(
    workflow: Any,
    input: Any,
    *,
    variants: Mapping[str, str] | None = None,
    from_node: str | None = None,
    until: str | None = None,
    breakpoints: Sequence[str] = (),
    db: str | Database | Context | None = None,
    mode: str | None = None,
    approval: Approval | None = None,
    queued: bool = False,
    create_only: bool = False,
    **keys: Any,
) -> ExecutionHandle:
    """Start one input through a workflow, and return at once; `wait` waits for its end, a pause or a question.

    Args:
        workflow: A Workflow, a LangGraph graph, or the import path of one.
        input: Values by key of the state, or an object of a dataclass or pydantic model.
        variants: Variant by node, if it is not the default.
        from_node: The node to start at, with the input as the state.
        until: A node to pause after.
        breakpoints: Where else to pause: `NODE` or `NODE if CONDITION`.
        db: A database URL, or an open database; the default is that of the command line.
        mode: `interactive` (people answer in place of models; the default) or `autonomous`.
        approval: When people are asked to let it go on, as in `Workflow(approval=...)`.
        queued: Leave it to workers, instead of running it on threads of this process.
        create_only: Begin only when somebody resumes it, as `ExecutionHandle.resume` does.
        **keys: Keys of a sweep file, such as `project`, `limits` and `run`.

    Returns:
        The execution.

    Raises:
        InputError: With everything that is wrong, one line each.
        BrokerError: If it is left to workers and none takes it; nothing was submitted.

    Example:
        >>> from wtb import END, Workflow, start
        >>> wf = Workflow("greeting")
        >>> @wf.node
        ... def greet(state, *, word: str = "Hello"):
        ...     return {"text": f"{word}, {state['name']}!"}
        >>> wf.entry(greet)
        >>> wf.edge(greet, END)
        >>> run = start(wf, {"name": "Ana"}, breakpoints=["greet"], db="sqlite:///:memory:").wait()
        >>> run.status
        'paused'
        >>> run.resume(set={"name": "Bo"}).wait().state["text"]
        'Hello, Bo!'
    """
    options = {name: option for name, option in (("mode", mode), ("approval", approval)) if option is not None}
    keys["run"] = {**keys.get("run", {}), **options}
    if isinstance(db, Context) and db.session is not None:
        keys.setdefault("session", db.session)
    checked_workflow = workflow if isinstance(workflow, str) else as_workflow(workflow, "workflow")
    # Files that levels name are read here, because operations may run on a server.
    levels, texts = read_level_files(variants, "variants")
    keys["texts"] = {**keys.get("texts", {}), **texts}
    prepared = prepare_single(checked_workflow, input, variants=levels, from_node=from_node, **keys)
    # Before a database is opened, which a wrong option should not make.
    check_options(prepared, breakpoints=breakpoints, until=until)
    context = db if isinstance(db, Context) else open_context(db)
    own = None if isinstance(checked_workflow, str) else checked_workflow
    if queued:
        submitted = submit(context, prepared, breakpoints=breakpoints, until=until, create_only=create_only)
        return ExecutionHandle(context, submitted.sweep, own)
    if create_only:
        return ExecutionHandle(context, create(context, prepared, breakpoints=breakpoints, until=until), own)
    run = begin(context, prepared, breakpoints=breakpoints, until=until)
    handle = ExecutionHandle(context, run.sweep_id, own)
    handle.run_in_background(context, run, prepared.bound.spec.run.grace)
    return handle
