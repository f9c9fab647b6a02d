"""pytest and sweeps: `pytest --wtb` collects sweep files as tests, and the fixture `wtb` runs sweeps inside a test.

pytest loads this module in every run of everybody who has WTB installed: what costs time is imported where it is used.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import pytest

if TYPE_CHECKING:
    from wtb.core.documents.matrix import GateDocument, JudgedMatrixDocument
    from wtb.handles.local_sweep import Sweep
    from wtb.handles.sweep import SweepHandle
    from wtb.operations.context import Context
    from wtb.planning.prepare import Prepared
    from wtb.planning.sweep_spec import SweepSpec
    from wtb.store.database import Database

__all__ = ["SweepTester"]

_NAMES = (".sweep.yaml", ".sweep.yml")
_MAX_LISTED = 5  # causes of a failed combination that are listed, and cases of each


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("wtb", "sweeps (Workflow Test SweepTester)")
    group.addoption("--wtb", action="store_true", help="Collect *.sweep.yaml: a test for each gate and combination.")
    group.addoption("--wtb-db", metavar="URL", help="Database of the sweeps; default: as that of `wtb run`.")
    group.addoption("--wtb-strict", action="store_true", help="Gates on a baseline fail where it is unclear, too.")
    group.addoption("--wtb-baseline", metavar="NAME", help="Add the gate `no_worse_than: NAME` to each sweep file.")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--wtb"):  # as for `wtb run`, modules are found from the folder it starts in
        sys.path.insert(0, str(config.invocation_params.dir))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if not parent.config.getoption("--wtb"):
        return None
    # A file that the command line names is a sweep file, whatever its name.
    is_named = file_path.suffix in (".yaml", ".yml") and parent.session.isinitpath(file_path)
    return SweepFile.from_parent(parent, path=file_path) if is_named or file_path.name.endswith(_NAMES) else None


class Outcome(TypedDict, total=False):
    """The outcome of a sweep: why combinations are `wrong`, by number; only its `error` if it could not run."""

    matrix: JudgedMatrixDocument
    wrong: dict[str, str]
    error: str


class SweepFile(pytest.File):
    """A sweep file. Collecting it runs nothing; its sweep runs once, when the first of its tests is set up."""

    prepared: Prepared
    is_matrix_shown = False  # whether a test that failed has the matrix already

    def collect(self) -> Iterator[pytest.Item]:
        from wtb.core.errors import WTBError
        from wtb.planning.prepare import prepare
        from wtb.planning.sweep_spec import load_spec

        baseline = self.config.getoption("--wtb-baseline")
        try:
            spec = _with_gates(load_spec(self.path), [{"no_worse_than": baseline}] if baseline else [])
            self.prepared = prepare(spec)
            if baseline:
                self._check_baseline(baseline)
        except WTBError as error:
            raise self.CollectError(str(error)) from None
        for number, gate in enumerate(spec.gates):
            yield Gate.from_parent(self, name=f"gate: {gate}", number=number)
        for number, choices in enumerate(self.prepared.choices):
            name = " ".join(f"{node}={variant}" for node, variant in choices.items())
            yield Combination.from_parent(self, name=name, number=number)

    def _check_baseline(self, name: str) -> None:
        """Raises InputError where there is none of this name for the sweep."""
        from wtb.core.errors import InputError
        from wtb.store.access.sessions import session_name
        from wtb.store.database import open_database
        from wtb.store.read.baselines import named_baseline

        with closing(open_database(self.config.getoption("--wtb-db"))) as database:
            database.prepare()
            try:
                named_baseline(database, session_name(self.prepared.bound.spec.session), name)
            except InputError as error:
                raise InputError(f"--wtb-baseline: {error}") from None

    @cached_property
    def outcome(self) -> Outcome:
        """The outcome of the sweep: `matrix` with its `gates`, and what is `wrong` by combination; or its `error`.

        With pytest-xdist, the first worker that reads it runs the sweep, and stores the outcome for the others.
        """
        if not hasattr(self.config, "workerinput"):
            return self._run()
        import fcntl

        name = f"wtb-{hashlib.sha256(str(self.path).encode()).hexdigest()[:16]}.json"
        # Each worker of pytest-xdist has a folder of its own, and all of them are in this one.
        folder: Path = self.config._tmp_path_factory.getbasetemp().parent  # type: ignore[attr-defined]
        with (folder / name).open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            if outcome_text := file.read():
                kept_outcome: Outcome = json.loads(outcome_text)
                return kept_outcome
            outcome = self._run()
            file.write(json.dumps(outcome))
            return outcome

    def _run(self) -> Outcome:
        from wtb.core.errors import WTBError
        from wtb.operations.context import open_context

        try:
            context = open_context(self.config.getoption("--wtb-db"))
            with closing(context.database):
                sweep = _run(self.prepared, context)
                matrix: Any = sweep.matrix()
                return {"matrix": matrix, "wrong": _wrong(sweep)}
        except WTBError as error:
            return {"error": str(error)}


class SweepItem(pytest.Item):
    """A test of a sweep file: its `number`-th gate or combination."""

    def __init__(self, *, number: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.number = number

    @property
    def file(self) -> SweepFile:
        assert isinstance(self.parent, SweepFile)
        return self.parent

    def setup(self) -> None:
        if error := self.file.outcome.get("error"):
            pytest.fail(error, pytrace=False)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"{self.path.name}: {self.name}"


class Gate(SweepItem):
    def runtest(self) -> None:
        gate = self.file.outcome["matrix"]["gates"][self.number]
        from wtb.analysis.comparison.verdicts import is_unclear

        if is_unclear(gate) and not self.config.getoption("--wtb-strict"):
            pytest.skip(f"unclear: {gate['because']}")
        if not gate["holds"]:
            pytest.fail(_why(gate), pytrace=False)


class Combination(SweepItem):
    def runtest(self) -> None:
        if text := self.file.outcome["wrong"].get(str(self.number)):
            pytest.fail(text, pytrace=False)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    outcome = yield
    if not isinstance(item, SweepItem) or call.when != "call":
        return
    from wtb.display import matrix_table, sentences

    report, matrix = outcome.get_result(), item.file.outcome["matrix"]
    if report.failed and not item.file.is_matrix_shown:
        item.file.is_matrix_shown = True
        report.sections.append(("wtb matrix", matrix_table.render(matrix)))
    answers = sentences.answers(matrix)
    report.wtb = [matrix["sweep"]["id"], *answers, sentences.totals(matrix)[0]]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = chain.from_iterable(terminalreporter.stats.values())
    answers = {report.fspath: report.wtb for report in reports if hasattr(report, "wtb")}
    if answers:
        terminalreporter.section("wtb")
    for file, (sweep, *lines) in sorted(answers.items()):
        terminalreporter.write_line(f"{file}: sweep {sweep}")
        for line in lines:
            terminalreporter.write_line(f"  {line}")


class SweepTester:
    """Runs sweeps inside a test: what the fixture `wtb` gives.

    Example:
        >>> from pathlib import Path
        >>> from wtb import Sweep, Workflow
        >>> from wtb.integrations.pytest_plugin import SweepTester
        >>> wf = Workflow("doubling")
        >>> wf.entry(wf.node(lambda state: {"y": 2 * state["x"]}, name="double"))
        >>> sweep = Sweep(workflow=wf, cases=[{"input": {"x": 2}}], vary={"double": "all"})
        >>> def test_doubling(wtb: SweepTester) -> None:
        ...     wtb.check(wtb.run(sweep))
        >>> with_database = SweepTester(Path(), "sqlite:///:memory:")  # pytest gives the fixture
        >>> test_doubling(with_database)
        >>> with_database.close()
    """

    def __init__(self, folder: Path, url: str, *, strict: bool = False) -> None:
        self._folder = folder
        self._url = url
        self._strict = strict
        self._opened: list[Database] = []

    def run(self, sweep: str | Path | Sweep, *, gates: Sequence[str] = (), db: str | None = None) -> SweepHandle:
        """Run a sweep, or a sweep file, to its end.

        Args:
            sweep: A Sweep, or the path of a sweep file from the folder of the test.
            gates: Further gates, beside those of the file.
            db: A database URL, in place of a database of the test's own.

        Returns:
            The result.

        Raises:
            InputError: If the sweep is refused.
        """
        from wtb.core.errors import InputError
        from wtb.operations.context import open_context
        from wtb.planning.prepare import prepare
        from wtb.planning.sweep_spec import load_spec

        if isinstance(sweep, str | Path):
            prepared = prepare(_with_gates(load_spec(self._folder / sweep), gates))
        elif gates:
            raise InputError("a Sweep has gates of its own: Sweep(..., gates=[...])")
        else:
            prepared = sweep.prepare()
        context = open_context(db or self._url)
        # Open until the test has ended, because its result reads from it.
        self._opened.append(context.database)
        return _run(prepared, context)

    def check(self, result: SweepHandle) -> None:
        """Fail the test unless all gates hold, all cells succeeded and all scores are there.

        Args:
            result: What `run` returned.

        Raises:
            AssertionError: With the gates that do not hold, the cells that did not succeed and the failed scores.
        """
        __tracebackhide__ = True
        from wtb.analysis.comparison.verdicts import passes

        matrix = result.matrix()
        choices = [row["combination"] for row in matrix["rows"]]
        wrong = [f"{gate['gate']}: {_why(gate)}" for gate in matrix["gates"] if not passes(gate, strict=self._strict)]
        for number, text in _wrong(result).items():
            named = " ".join(f"{node}={variant}" for node, variant in choices[int(number)].items())
            wrong.append(f"{named}: {text}")
        if wrong:
            raise AssertionError("\n".join([*wrong, "", str(result)]))

    def close(self) -> None:
        """Close the databases; the fixture does it after the test."""
        for database in self._opened:
            database.close()


@pytest.fixture
def wtb(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SweepTester]:
    """Runs sweeps: `result = wtb.run("quality.sweep.yaml")`, then `wtb.check(result)`; see `SweepTester`.

    Each test has a database of its own, unless `--wtb-db` names one.
    """
    monkeypatch.syspath_prepend(request.config.invocation_params.dir)
    url = request.config.getoption("--wtb-db") or f"sqlite:///{tmp_path_factory.mktemp('wtb') / 'wtb.db'}"
    bench = SweepTester(request.path.parent, url, strict=request.config.getoption("--wtb-strict"))
    yield bench
    bench.close()


def _with_gates(spec: SweepSpec, gates: Sequence[Any]) -> SweepSpec:
    from wtb.planning.sweep_spec import parse_part

    if not gates:
        return spec
    more = parse_part(json.dumps({"gates": list(gates)}), "gates").gates
    return spec.model_copy(update={"gates": tuple(dict.fromkeys([*spec.gates, *more]))})


def _run(prepared: Prepared, context: Context) -> SweepHandle:
    """Run a sweep to its end. Ctrl-C stops it as it stops `wtb run`, and then the tests."""
    from wtb.handles.sweep import SweepHandle
    from wtb.operations.running.local import run

    ran = run(context, prepared)
    sweep = SweepHandle(context, ran.sweep.id)
    if ran.interrupted:
        pytest.exit(
            f"interrupted; the sweep continues with: wtb resume {sweep.id} --db {shlex.quote(sweep.database.shown_url)}"
        )
    return sweep


def _wrong(sweep: SweepHandle) -> dict[str, str]:
    """Return why combinations fail, by number: cells that did not succeed, and scores that failed."""
    from wtb.core.texts import plural, printable
    from wtb.store.read.evidence import failed_scores

    unscored: dict[str, list[str]] = {}
    for metric, message, combination, count in failed_scores(sweep.database, sweep.id):
        text = f"{plural(count, 'score')} of {metric} failed: {message}"
        unscored.setdefault(str(combination), []).append(printable(text))
    causes = _causes(sweep)
    problems = {}
    for number in sorted({*causes, *unscored}, key=int):
        lines = unscored.get(number, [])
        more = [f"and {len(lines) - _MAX_LISTED:,} other causes"] if len(lines) > _MAX_LISTED else []
        cause_lines = [_causes_text(causes[number])] if number in causes else []
        problems[number] = "\n".join([*cause_lines, *lines[:_MAX_LISTED], *more])
    return problems


def _causes(sweep: SweepHandle) -> dict[str, dict[str, list[str]]]:
    """Return combination -> cause -> cases of cells that did not succeed. Numbers are text, as keys of JSON."""
    from wtb.core.failures import Failure
    from wtb.core.status import CELL
    from wtb.core.texts import printable
    from wtb.store.read.queries import cell_rows

    causes: dict[str, dict[str, list[str]]] = {}
    ended = f"the sweep is {sweep.status}" + (f" ({sweep.reason})" if sweep.reason else "")
    statuses = [status for status in CELL if status not in ("succeeded", "skipped")]  # skipped by the sweep's own rule
    for row in cell_rows(sweep.database, sweep.id, statuses=statuses):
        why = str(Failure(**row.failure)) if row.failure else f"{row.status}; {ended}"
        causes.setdefault(str(row.combination), {}).setdefault(printable(why), []).append(printable(row.case))
    return causes


def _causes_text(causes: Mapping[str, Sequence[str]]) -> str:
    count = sum(map(len, causes.values()))
    lines = [f"{count:,} cell{'s' * (count != 1)} did not succeed"]
    for why, cases in list(causes.items())[:_MAX_LISTED]:
        more = f" and {len(cases) - _MAX_LISTED:,} more" if len(cases) > _MAX_LISTED else ""
        lines.append(f"  {', '.join(cases[:_MAX_LISTED])}{more}: {why}")
    if len(causes) > _MAX_LISTED:
        lines.append(f"  and {len(causes) - _MAX_LISTED:,} other causes")
    return "\n".join(lines)


def _why(gate: GateDocument) -> str:
    """Return the reason why a gate does not hold."""
    from wtb.core.texts import printable

    values = [f"{name} is {figure:g}" for name, figure in gate["values"].items() if figure is not None]
    because = printable("; ".join([*values, *([gate["because"]] if gate["because"] else [])]))
    return because if gate["holds"] is False else f"cannot be decided: {because}"
