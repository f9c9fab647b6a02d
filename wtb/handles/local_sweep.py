"""Sweeps from Python: the same as a sweep file, with objects in place of import paths.

result = Sweep(workflow=wf, cases=[...], vary={"retrieve": "all"}, evaluate=[score]).run()
print(result)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wtb.authoring.code.import_paths import as_workflow
from wtb.config.yaml_reader import Located
from wtb.handles.records import ProgressCallback, reporter
from wtb.handles.sweep import SweepHandle
from wtb.operations.context import open_context
from wtb.operations.running.local import run
from wtb.operations.running.preparing import import_path_of, with_options
from wtb.operations.running.published import keys_to_send
from wtb.planning.picking import Only
from wtb.planning.prepare import MAX_CELLS, Prepared, prepare
from wtb.planning.sweep_spec import read_spec
from wtb.store.database import Database


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
        >>> [(cell["combination"]["double"], cell["case"], cell["scores"]["exact_match"]) for cell in result.cells()]
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
        document = {
            "sweep": name or ("sweep" if self._workflow is None else self._workflow.name),
            "workflow": path,
            "cases": str(cases) if isinstance(cases, Path) else cases,
            "vary": {node: list(v) if isinstance(v, tuple) else v for node, v in vary.items()},
            "evaluate": [self._name_evaluator(evaluator) for evaluator in evaluate],
            **keys,
        }
        # Kept as they were given: keys of a sweep are sent without what reading them added.
        self._data = document
        self.spec = read_spec(document, Path(), Located())

    def _name_evaluator(self, evaluator: str | Mapping[str, Any] | Callable[..., Any]) -> Any:
        if isinstance(evaluator, str | Mapping):
            return evaluator
        # An object has no import path, so it gets a name under which it is found again.
        name = f"{evaluator.__module__}:{getattr(evaluator, '__qualname__', type(evaluator).__name__)}"
        self._evaluators[name] = evaluator
        return name

    def prepare(
        self,
        only: Only | None = None,
        *,
        session: str | None = None,
        max_cells: int | None = None,
        concurrency: int | None = None,
    ) -> Prepared:
        """Check the sweep against its code and cases, without running it.

        Args:
            only: Which of its cases and combinations to take; by default all but the holdout.
            session: In place of its own.
            max_cells: How many cells it may have, in place of the cap.
            concurrency: Node runs at a time, in place of its own.

        Returns:
            The sweep, ready to be submitted.

        Raises:
            InputError: With everything that is wrong, one line each.
        """
        spec = with_options(self.spec, session=session, concurrency=concurrency)
        limit = MAX_CELLS if max_cells is None else max_cells
        return prepare(spec, workflow=self._workflow, evaluators=self._evaluators, only=only, max_cells=limit)

    def keys_to_send(self) -> dict[str, Any]:
        """Return its keys as they are sent to workers that publish its workflow, with its cases.

        Returns:
            The keys of a sweep file.

        Raises:
            InputError: If something is wrong with its file of cases.
        """
        return keys_to_send(self.spec, self._data)

    def run(
        self,
        db: str | Database | None = None,
        *,
        files: Path | None = None,
        final: bool = False,
        progress: ProgressCallback | None = None,
    ) -> SweepHandle:
        """Run every cell and return the result.

        Args:
            db: A database URL, such as `sqlite:///runs.db`; the default is that of the command line.
            files: Where workspaces are kept; the default is beside an SQLite database, else `.wtb`.
            final: Run the cases that `holdout` keeps for the end, in place of the others.
            progress: Called several times a second with how far it is.

        Returns:
            The sweep with its results, also one that was paused or interrupted.

        Raises:
            InputError: If the sweep is refused.
            StoreError: If the database is out of reach.
        """
        prepared = self.prepare(Only(final=final))
        context = open_context(db, files=files)
        ran = run(context, prepared, progress=reporter(progress))
        return SweepHandle(context, ran.sweep.id, self._workflow, self._evaluators)
