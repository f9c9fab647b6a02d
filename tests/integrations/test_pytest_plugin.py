"""`pytest --wtb` on sweep files, and the fixture `wtb` in a test, as somebody's own tests use them."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

# pytester forgets what a run of pytest imported: what cannot be imported twice, or takes long, is here before.
import genai_prices  # noqa: F401
import hypothesis.internal.conjecture.engine  # noqa: F401
import jsonschema  # noqa: F401
import numpy  # noqa: F401
import psycopg  # noqa: F401
import pytest

import wtb.analysis.comparison.compare
import wtb.analysis.gates
import wtb.display.matrix_table
import wtb.execution.runtime.sweep_run
import wtb.handles.local_sweep  # noqa: F401
from tests.support.project import run_program
from wtb.store.database import Database
from wtb.store.read import queries
from wtb.store.read.baselines import set_baseline

pytest_plugins = ["pytester"]

FLOW = """
from wtb import END, Workflow

wf = Workflow("flow")

@wf.node(variant="low")
def A(state, *, by: int = 1):
    with open("ran", "a") as file:
        file.write("A")
    return {"y": state["x"] + by}

A.variant("high", by=2)

@A.variant("odd")
def _odd(state):
    if state["x"] % 2:
        raise ValueError("an odd one")
    return {"y": state["x"]}

wf.entry(A)
wf.edge(A, END)

def y(case, result):
    return result.state["y"]
"""

SWEEP = """
workflow: flow:wf
cases: [{id: c1, input: {x: 1}}, {id: c2, input: {x: 2}}, {id: c3, input: {x: 3}}]
vary: {A: [low, high]}
evaluate: ["flow:y"]
gates: [y.mean >= 4, failed == 0]
run: {pool: thread}
"""

GATES = "gates: [y.mean >= 4, failed == 0]"


class Folder:
    """A user's folder with a workflow and sweep files, in which pytest is run."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path

    def sweep(self, name: str = "first.sweep.yaml", **changed: str) -> None:
        lines = [line for line in SWEEP.strip().splitlines() if line.partition(":")[0] not in changed]
        lines += [f"{key}: {setting}" for key, setting in changed.items() if setting]
        (self.path / name).write_text("\n".join(lines), "utf-8")

    def run(self, *args: str) -> pytest.RunResult:
        return self.pytester.runpytest_inprocess("-p", "no:cacheprovider", *args)

    def run_apart(self, *args: str) -> pytest.RunResult:
        """Run pytest in its own process, with only the plugins that it needs."""
        plugins = ("-p", "xdist", "-p", "wtb.integrations.pytest_plugin")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
            return self.pytester.runpytest_subprocess(*plugins, "-p", "no:cacheprovider", *args)

    @property
    def ran(self) -> int:
        """The number of nodes that have run."""
        file = self.path / "ran"
        return len(file.read_text("utf-8")) if file.exists() else 0

    def database(self) -> Database:
        return Database(f"sqlite:///{self.path / '.wtb' / 'wtb.db'}")


@pytest.fixture
def folder(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.delenv("WTB_DATABASE_URL", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (pytester.path / "flow.py").write_text(FLOW, "utf-8")
    project = Folder(pytester)
    project.sweep()
    return project


def test_sweep_files_are_tests_only_when_asked_for(folder: Folder) -> None:
    assert folder.run().ret == pytest.ExitCode.NO_TESTS_COLLECTED
    collection = folder.run("--wtb", "--collect-only", "-q")
    names = ["gate: y.mean >= 4", "gate: failed == 0", "A=low", "A=high"]
    assert collection.outlines[:4] == [f"first.sweep.yaml::{name}" for name in names]
    assert (folder.ran, (folder.path / ".wtb").exists()) == (0, False)


def test_a_good_sweep_passes_runs_once_and_tells_its_answer(folder: Folder) -> None:
    pytest_run = folder.run("--wtb", "-v")
    pytest_run.assert_outcomes(passed=4)
    assert folder.ran == 6
    passed = "first.sweep.yaml::gate: y.mean >= 4 PASSED*"
    pytest_run.stdout.fnmatch_lines([passed, "*= wtb =*", "first.sweep.yaml: sweep *", "*by y: *A=high (4*"])


def test_gates_and_combinations_that_fail_say_why_without_a_traceback(folder: Folder) -> None:
    folder.sweep(gates="[y.mean < 4, y.nope.mean > 1, failed == 0]", vary="{A: [low, high, odd]}")
    pytest_run = folder.run("--wtb")
    pytest_run.assert_outcomes(passed=2, failed=4)
    title = "*_ first.sweep.yaml: {} _*"
    expected = [title.format("gate: y.mean < 4"), "y.mean is 4", "*- wtb matrix -*", "first (completed)*"]
    expected += [title.format("gate: y.nope.mean > 1"), "cannot be decided: *nope*"]
    expected += [title.format("gate: failed == 0"), "failed is 2"]
    expected += [title.format("A=odd"), "2 cells did not succeed", "  c1, c3: node 'A': ValueError: an odd one*"]
    pytest_run.stdout.fnmatch_lines(expected)
    text = pytest_run.stdout.str()
    assert text.count("wtb matrix -") == 1
    assert "Traceback" not in text
    assert "pytest_plugin.py" not in text


def test_a_combination_whose_scores_fail_fails_with_the_reason(folder: Folder) -> None:
    code = FLOW.replace('return result.state["y"]', 'return result.state["y"] if result.state["y"] % 2 else None')
    (folder.path / "flow.py").write_text(code, "utf-8")
    folder.sweep(gates="[failed == 0, scores_failed == 0]")
    pytest_run = folder.run("--wtb")
    pytest_run.assert_outcomes(passed=1, failed=3)
    two = "2 scores of y failed: returned NoneType; expected a bool, a number, a wtb.Score or a dict of them"
    pytest_run.stdout.fnmatch_lines(["scores_failed is 3", two, "1 score of y failed: *"])
    folder.pytester.makepyfile("def test_mine(wtb): wtb.check(wtb.run('first.sweep.yaml', gates=['failed == 0']))")
    folder.run().stdout.fnmatch_lines(["E *A=low: 2 scores of y failed: returned NoneType*"])


def test_only_what_is_selected_is_judged_and_nothing_runs_where_nothing_is(folder: Folder) -> None:
    folder.run("--wtb", "-k", "nothing").assert_outcomes(deselected=4)
    assert folder.ran == 0
    folder.run("--wtb", "-k", "gate and failed").assert_outcomes(passed=1, deselected=3)
    folder.run("--wtb", "first.sweep.yaml::A=high").assert_outcomes(passed=1)


def test_a_file_that_is_refused_is_an_error_in_our_words(folder: Folder) -> None:
    folder.sweep(vary="{B: all}")
    pytest_run = folder.run("--wtb")
    pytest_run.assert_outcomes(errors=1)
    pytest_run.stdout.fnmatch_lines(["*ERROR collecting first.sweep.yaml*", "*first.sweep.yaml:6: *has no node 'B'*"])
    assert "Traceback" not in pytest_run.stdout.str()


def test_what_a_sweep_meets_before_it_runs_is_told_at_each_of_its_tests(folder: Folder) -> None:
    (folder.path / "sweep.yaml").write_text(SWEEP, "utf-8")  # named, so whatever its name
    pytest_run = folder.run("--wtb", "--wtb-db", "mysql://nowhere", "sweep.yaml")
    pytest_run.assert_outcomes(errors=4)
    pytest_run.stdout.fnmatch_lines(["database URL: 'mysql' is not supported; *"])
    assert "Traceback" not in pytest_run.stdout.str()


def test_a_baseline_is_one_more_gate(folder: Folder) -> None:
    in_database = ("--wtb-db", f"sqlite:///{folder.path / '.wtb' / 'wtb.db'}")
    unknown = folder.run("--wtb", *in_database, "--wtb-baseline", "main")
    unknown.assert_outcomes(errors=1)
    unknown.stdout.fnmatch_lines(["--wtb-baseline: there is no baseline 'main' in session 'default'; *"])
    assert folder.ran == 0
    folder.run("--wtb", *in_database).assert_outcomes(passed=4)
    database = folder.database()
    set_baseline(database, "main", queries.find_sweep(database, "first").id)
    database.close()
    against_main = ("--wtb", *in_database, "--wtb-baseline", "main", "-k", "no_worse_than")
    folder.run(*against_main).assert_outcomes(passed=1, deselected=4)
    (folder.path / "flow.py").write_text(FLOW.replace("by=2", "by=-2"), "utf-8")
    skipped = folder.run(*against_main, "-rs")
    skipped.assert_outcomes(skipped=1, deselected=4)
    skipped.stdout.fnmatch_lines(["*unclear: y differs in 1 combination by what could be chance*"])
    strict = folder.run(*against_main, "--wtb-strict")
    strict.assert_outcomes(failed=1, deselected=4)
    strict.stdout.fnmatch_lines(["*no_worse_than: main*"])
    inside = "def test_mine(wtb): wtb.check(wtb.run('first.sweep.yaml', gates=['no_worse_than: main']))"
    folder.pytester.makepyfile(inside)
    own = (*in_database, "-k", "test_mine")
    folder.run(*own).stdout.no_fnmatch_line("*no_worse_than: main: cannot be decided: *")
    folder.run(*own, "--wtb-strict").stdout.fnmatch_lines(["*no_worse_than: main: cannot be decided: *"])


def test_side_by_side_a_sweep_runs_once(folder: Folder) -> None:
    pytest_run = folder.run_apart("--wtb", "-n", "2")
    pytest_run.assert_outcomes(passed=4)
    assert folder.ran == 6
    pytest_run.stdout.fnmatch_lines(["*= wtb =*", "first.sweep.yaml: sweep *"])
    assert pytest_run.stdout.str().count("first.sweep.yaml: sweep") == 1


@pytest.mark.slow
def test_ctrl_c_stops_the_sweep_so_that_it_can_continue(folder: Folder) -> None:
    slow = FLOW.replace("    return {", "    import signal\n    signal.raise_signal(signal.SIGINT)\n    return {", 1)
    (folder.path / "flow.py").write_text(slow, "utf-8")
    folder.sweep(run="{pool: thread, concurrency: 1}")
    pytest_run = folder.run_apart("--wtb")
    assert pytest_run.ret == pytest.ExitCode.INTERRUPTED
    database = folder.database()
    row = queries.find_sweep(database, "first")
    database.close()
    assert (row.status, row.reason) == ("paused", "interrupted")
    resume = f"wtb resume {row.id} --db sqlite:///.wtb/wtb.db"
    pytest_run.stdout.fnmatch_lines([f"*interrupted; the sweep continues with: {resume}*"])


def test_the_fixture_runs_files_and_objects_and_checks_them(folder: Folder) -> None:
    folder.pytester.makepyfile(
        test_mine=textwrap.dedent(
            """
            import flow
            import pytest
            from wtb import InputError, Sweep

            def test_file(wtb):
                result = wtb.run("first.sweep.yaml", gates=["max(y.mean) == 4"])
                assert [row["metrics"]["y"]["mean"] for row in result.matrix()["rows"]] == [3, 4]
                assert [gate["holds"] for gate in result.gates()] == [True, True, True]
                wtb.check(result)

            def test_object(wtb):
                cases = [{"id": "a", "input": {"x": 1}}]
                keys = {"workflow": flow.wf, "cases": cases, "vary": {"A": ["odd"]}, "evaluate": [flow.y]}
                with pytest.raises(InputError, match="gates of its own"):
                    wtb.run(Sweep(**keys), gates=["failed == 0"])
                with pytest.raises(AssertionError, match="failed == 0(.|\\n)*A=odd: 1 cell did(.|\\n)*an odd one"):
                    wtb.check(wtb.run(Sweep(**keys, gates=["failed == 0"])))

            def test_gate(wtb):
                wtb.check(wtb.run("first.sweep.yaml", gates=["y.mean > 5"]))

            def test_refused(wtb):
                with pytest.raises(InputError, match="y.mean ="):
                    wtb.run("first.sweep.yaml", gates=["y.mean = 5"])
            """
        )
    )
    pytest_run = folder.run()
    pytest_run.assert_outcomes(passed=3, failed=1)
    pytest_run.stdout.fnmatch_lines(["E *y.mean > 5*"])
    assert not (folder.path / ".wtb").exists()


def test_a_run_of_pytest_pays_nothing_for_the_plugin() -> None:
    heavy = ("sqlalchemy", "numpy", "pydantic", "yaml", "typer", "wtb.core.errors")
    code = f"import sys, wtb.integrations.pytest_plugin; print([name for name in {heavy} if name in sys.modules])"
    done = run_program([sys.executable, "-c", code], code=0, cwd=Path(__file__).parent)
    assert done.stdout == "[]\n"
