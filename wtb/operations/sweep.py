"""Sweeps from Python: the same as a sweep file, with objects in place of import paths.

result = Sweep(workflow=wf, cases=[...], vary={"retrieve": "all"}, evaluate=[score]).run()
print(result)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wtb.analysis.gates import check_gates, judge
from wtb.analysis.matrix.build import build
from wtb.authoring.code.import_paths import is_importable
from wtb.authoring.code.resolve import as_workflow
from wtb.authoring.workflow import Workflow
from wtb.config.distribution import pip_install
from wtb.core.errors import InputError
from wtb.core.serialization.codec import decode
from wtb.core.stop import INTERRUPTED
from wtb.core.tree.checkpoints import shown
from wtb.execution.runtime.sweep_run import Ended, SweepRun, new_run
from wtb.planning.prepare import MAX_CELLS, Only, Prepared, prepare
from wtb.planning.sweep_spec import load_spec, parse_spec
from wtb.store.database import Database, database_url
from wtb.store.files.locations import workspaces_of
from wtb.store.read import queries

if TYPE_CHECKING:
    from pandas import DataFrame


class Sweep:
    """A workflow under combinations of variants, over cases. The keywords are the keys of a sweep file.

    Args:
        workflow: A Workflow, a LangGraph graph, or the import path of one, such as `package.module:wf`.
        cases: A list of cases (`input` by key of the state; `id`, `expected`, `tags`), or the path of a file of them.
        vary: By node, the variants to compare: `all`, or a list of names and of mappings with parameters.
        evaluate: Functions `(case, result) -> bool | float | dict`, names of built-in evaluators, or mappings of a
            name to its options.
        name: The sweep's name; by default that of the workflow.
        **keys: Any other key of a sweep file, such as `repeats`, `gates`, `limits` and `run`.

    Raises:
        InputError: With everything that is wrong, one line each.

    Example:
        >>> from wtb import END, Sweep, Workflow
        >>> wf = Workflow("doubling")
        >>> @wf.node
        ... def double(state, *, by: int = 2):
        ...     return {"y": state["x"] * by}
        >>> triple = double.variant("triple", by=3)
        >>> wf.entry(double)
        >>> wf.edge(double, END)
        >>> cases = [{"id": "two", "input": {"x": 2}, "expected": 4}, {"id": "zero", "input": {"x": 0}, "expected": 0}]
        >>> sweep = Sweep(workflow=wf, cases=cases, vary={"double": "all"}, evaluate=[{"exact_match": {"field": "y"}}])
        >>> result = sweep.run(db="sqlite:///:memory:")
        >>> [(cell["combination"]["double"], cell["case"], cell["scores"]["exact_match"]) for cell in result.cells]
        [('default', 'two', 1.0), ('triple', 'two', 0.0), ('default', 'zero', 1.0), ('triple', 'zero', 1.0)]
    """

    def __init__(
        self,
        *,
        workflow: Any,
        cases: str | Path | Sequence[Mapping[str, Any]],
        vary: Mapping[str, Any],
        evaluate: Sequence[str | Mapping[str, Any] | Callable[..., Any]] = (),
        name: str | None = None,
        **keys: Any,
    ) -> None:
        path = workflow if isinstance(workflow, str) else import_path_of(workflow)
        self._workflow = None if isinstance(workflow, str) else as_workflow(workflow, path)
        self._evaluators: dict[str, Callable[..., Any]] = {}
        data: dict[str, Any] = {
            "sweep": name or ("sweep" if self._workflow is None else self._workflow.name),
            "workflow": path,
            "cases": str(cases) if isinstance(cases, Path) else cases,
            "vary": {node: list(v) if isinstance(v, tuple) else v for node, v in vary.items()},
            "evaluate": [self._name_evaluator(one) for one in evaluate],
            **keys,
        }
        self.spec = parse_spec(data)

    def _name_evaluator(self, one: str | Mapping[str, Any] | Callable[..., Any]) -> Any:
        if isinstance(one, str | Mapping):
            return one
        name = f"{one.__module__}:{getattr(one, '__qualname__', type(one).__name__)}"
        self._evaluators[name] = one
        return name

    def prepare(self, only: Only | None = None) -> Prepared:
        """Check the sweep against its code and cases, without running it.

        Args:
            only: Which of its cases and combinations to take; by default all but the holdout.

        Returns:
            The sweep, ready to be submitted.

        Raises:
            InputError: With everything that is wrong, one line each.
        """
        return prepare(self.spec, workflow=self._workflow, evaluators=self._evaluators, only=only)

    def run(self, db: str | Database | None = None, *, files: Path | None = None, final: bool = False) -> SweepResult:
        """Run every cell and return the result.

        Args:
            db: A database URL, such as `sqlite:///runs.db`; the default is that of the command line.
            files: Where workspaces are kept; the default is beside an SQLite database, else `.wtb`.
            final: Run the cases that `holdout` keeps for the end, in place of the others.

        Returns:
            The result, also of a sweep that was paused or interrupted.

        Raises:
            InputError: If the sweep is refused.
            StoreError: If the database is out of reach.
        """
        return run_prepared(
            self.prepare(Only(final=final)), db if isinstance(db, Database) else Database(database_url(db)), files
        )


def prepare_file(
    file: Path,
    only: Only | None = None,
    *,
    max_cells: int = MAX_CELLS,
    session: str | None = None,
    concurrency: int | None = None,
) -> Prepared:
    """Prepare the sweep of a file, or a part of it, for its submission.

    Args:
        file: The sweep file.
        only: The part of it; None for all.
        max_cells: How many cells it may have.
        session: In place of the file's.
        concurrency: Node runs at a time, in place of the file's.

    Returns:
        The sweep, checked.

    Raises:
        InputError: With everything that is wrong, one line each.
    """
    spec = load_spec(file)
    located = spec.located
    if concurrency is not None:
        spec = spec.model_copy(update={"run": spec.run.model_copy(update={"concurrency": concurrency})})
    if session is not None:
        spec = spec.model_copy(update={"session": session})
    spec._located = located
    return prepare(spec, only=only, max_cells=max_cells)


def run_prepared(prepared: Prepared, database: Database, files: Path | None = None) -> SweepResult:
    """Submit a sweep to a database, which is made if there is none, and run it. Raises InputError."""
    database.prepare()
    check_gates(database, prepared.bound.spec)
    workspaces = workspaces_of(database, files)
    sweep_id = prepared.submit(database, workspaces)
    run = new_run(database, sweep_id, prepared.bound, workspaces)
    return SweepResult(database, sweep_id, run_to_end(run, prepared.bound.spec.run.grace))


def run_to_end(run: SweepRun, grace: float) -> Ended:
    """Start a run and wait for it. The first Ctrl-C stops new work and waits `grace` seconds, a second does not."""
    run.start()
    try:
        while not run.wait(0.1):
            for text in run.progress.take_notices():
                print(text, file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        run.stop.request(INTERRUPTED)
        with suppress(KeyboardInterrupt):
            run.wait(grace)
    return run.finish()


def import_path_of(workflow: Any) -> str:
    """Return the import path of a workflow or graph; its name if no module has it.

    Of several modules that have it, the one that defines its nodes is preferred, then one that others can import.
    """
    found = [
        (name, attribute)
        for name, module in list(sys.modules.items())
        if not name.startswith("wtb.")
        for attribute, value in list(getattr(module, "__dict__", {}).items())
        if value is workflow
    ]
    nodes = workflow.nodes.values() if isinstance(workflow, Workflow) else ()
    homes = {variant.fn.__module__ for node in nodes for variant in node.variants.values()}
    found.sort(key=lambda place: (place[0] not in homes, not is_importable(sys.modules[place[0]])))
    return ":".join(found[0]) if found else getattr(workflow, "name", type(workflow).__name__)


class SweepResult:
    """A sweep that ran, read from its database. `Sweep.run` returns it; printing it shows the matrix.

    Attributes:
        database: The database that it is in.
        id: Its id, which commands such as `wtb show` take.
        status: `completed`, `paused` or `running`.
        reason: Why it paused.

    Example:
        >>> from wtb import END, Sweep, Workflow
        >>> wf = Workflow("doubling")
        >>> wf.entry(wf.node(lambda state: {"y": 2 * state["x"]}, name="double"))
        >>> cases = [{"id": "two", "input": {"x": 2}}]
        >>> result = Sweep(workflow=wf, cases=cases, vary={"double": "all"}).run(db="sqlite:///:memory:")
        >>> result.status, [cell["state"]["y"] for cell in result.cells]
        ('completed', [4])
    """

    def __init__(self, database: Database, sweep_id: str, ended: Ended) -> None:
        self.database = database
        self.id = sweep_id
        self.status = ended.status
        self.reason = ended.reason

    @cached_property
    def matrix(self) -> dict[str, Any]:
        """The comparison as a document: the JSON contract, version 1, as `wtb matrix --format json` prints it."""
        return build(self.database, queries.find_sweep(self.database, self.id))

    @cached_property
    def gates(self) -> list[dict[str, Any]]:
        """The gates of the sweep in their order: `gate`, `holds` (None if undecided), `values`, `because`."""
        return judge(self.database, queries.find_sweep(self.database, self.id), self.matrix)

    @cached_property
    def cells(self) -> list[dict[str, Any]]:
        """Every cell: `combination`, `case`, `repeat`, `status`, `state`, `scores`, `execution`, `error`, and more."""
        return list(cell_documents(self.database, self.id))

    def to_pandas(self, state: Sequence[str] = ()) -> DataFrame:
        """Return a data frame with a row for each cell. Needs pandas.

        Its columns: the varied nodes; `case`, `repeat`, `tags`, `expected`, `status`, `error` and `execution`; the
        metrics (a failed score is missing); what the cell took as if alone: `latency_s` (seconds), `cost_usd` (not if
        a metric says the same), `tokens_in` and `tokens_out`; and keys of the final state. A column whose name is
        taken by one before it is prefixed by its kind: `cell.`, `metric.`, `spent.` or `state.`.

        Args:
            state: Keys of the final state to include.

        Returns:
            The data frame: as many rows as there are cells.

        Raises:
            InputError: If pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise InputError(f"pandas is not installed: {pip_install('pandas')}") from error
        metrics = list(self.matrix["metrics"])
        spent = [name for name, metric in SPENT.items() if metric not in metrics]
        return pandas.DataFrame([_flat(cell, metrics, spent, state) for cell in self.cells])

    def _repr_html_(self) -> str:
        """The matrix with its intervals, for notebooks."""
        from wtb.display.notebook import matrix

        return matrix({**self.matrix, "gates": self.gates})

    def __str__(self) -> str:
        from wtb.display.matrix.table import render

        return render(self.matrix)


# What a cell took, and the metric that says the same.
SPENT = {"latency_s": "latency", "cost_usd": "cost", "tokens_in": None, "tokens_out": None}
_CELL = ("case", "repeat", "tags", "expected", "status", "error", "execution")


def _flat(
    cell: Mapping[str, Any], metrics: Sequence[str], spent: Sequence[str], state: Sequence[str]
) -> dict[str, Any]:
    """A cell as a row of a data frame; the columns are the same for all cells."""
    row: dict[str, Any] = dict(cell["combination"])
    parts = {
        "cell": {key: cell[key] for key in _CELL},
        "metric": {metric: cell["scores"].get(metric) for metric in metrics},
        "spent": {key: cell[key] for key in spent},
        "state": {key: cell["state"].get(key) for key in state},
    }
    for kind, columns in parts.items():
        row |= {f"{kind}.{name}" if name in row else name: value for name, value in columns.items()}
    return row


def cell_documents(
    database: Database,
    sweep_id: str,
    *,
    statuses: Sequence[str] = (),
    case: str | None = None,
    limit: int | None = None,
    read: Callable[[bytes], Any] = decode,
) -> Iterator[dict[str, Any]]:
    """Yield the cells of a sweep as `wtb show SWEEP --cells --format json` prints them, read in chunks.

    Args:
        database: The database that it is in.
        sweep_id: Its id.
        statuses: Only cells of these.
        case: Only cells of the case with this id.
        limit: At most so many.
        read: Decodes stored values of a state.
    """
    choices = queries.choices(database, sweep_id)
    chunk: list[dict[str, Any]] = []
    for row in queries.cell_rows(database, sweep_id, statuses=statuses, case=case, limit=limit):
        chunk.append(row)
        if len(chunk) == 1000:
            yield from _documents(database, sweep_id, choices, chunk, read)
            chunk = []
    yield from _documents(database, sweep_id, choices, chunk, read)


def _documents(
    database: Database,
    sweep_id: str,
    choices: list[dict[str, str]],
    rows: list[dict[str, Any]],
    read: Callable[[bytes], Any],
) -> Iterator[dict[str, Any]]:
    if not rows:
        return
    states = queries.checkpoint_states(database, (row["head_id"] for row in rows if row["head_id"]))
    states = {id: shown(state) for id, state in states.items()}
    stored = queries.load_values(database, (key for state in states.values() for key in state.values()))
    scores: dict[tuple[int, int, int], dict[str, float | None]] = {}
    for score in queries.score_rows(database, sweep_id, {row["case_number"] for row in rows}):
        key = (score["case_number"], score["repeat"], score["combination"])
        scores.setdefault(key, {})[score["metric"]] = score["value"]
    cases = queries.case_rows(database, sweep_id, {row["case_number"] for row in rows})
    for row in rows:
        state, case = states.get(row["head_id"], {}), cases[row["case_number"]]
        yield {
            "combination": choices[row["combination"]],
            "case": row["case"],
            "repeat": row["repeat"],
            "tags": list(case["tags"] or ()),
            "expected": None if case["expected"] is None else decode(case["expected"].encode()),
            "status": row["status"],
            "state": {name: read(stored[key].data) for name, key in state.items()},
            "scores": scores.get((row["case_number"], row["repeat"], row["combination"]), {}),
            "execution": row["execution_id"],
            "error": _error(row["failure"]),
            "latency_s": row["elapsed_s"],
            "cost_usd": row["usd"],
            "tokens_in": row["tokens_in"],
            "tokens_out": row["tokens_out"],
        }


def _error(failure: Mapping[str, Any] | None) -> str | None:
    if failure is None:
        return None
    from wtb.core.failures import Failure

    return str(Failure(**failure))
