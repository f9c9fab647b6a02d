"""The evaluator `code_tests` runs tests on generated code, within limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.prose import sentence
from wtb.authoring.code.import_paths import load
from wtb.authoring.evaluation.declarations import make_evaluator
from wtb.authoring.evaluation.evaluators import CellResult, ScoredCase
from wtb.core.errors import InputError
from wtb.planning.publishing import PublishedCode

if TYPE_CHECKING:
    from tests.support.project import Project
    from wtb.store.database import Database

TESTS = "assert double(2) == 4\nimport solution\nassert solution.double(-1) == -2\n"
RIGHT = "def double(n):\n    return 2 * n\n"


def passes(folder: Path, code: str, tests: str = TESTS, **options: Any) -> bool:
    scorer = make_evaluator("code_tests", {"field": "code", **options}, load)
    cell_result = CellResult({"code": code}, workspace_of=lambda: folder)
    return bool(scorer.fn(ScoredCase("case", {}, tests), cell_result))


@pytest.mark.parametrize("text", [RIGHT, f"Here it is:\n```python\n{RIGHT}```\nIt doubles.\n"])
def test_code_passes_its_tests_also_among_words_of_a_model(text: str, tmp_path: Path) -> None:
    assert passes(tmp_path, text)


@pytest.mark.parametrize(
    "code",
    [
        "def double(n):\n    return n\n",
        "this is no Python",
        "import sys\nsys.exit(0)\n",
        "import os\nos._exit(0)\n",
        "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
        "",
    ],
    ids=["wrong", "unreadable", "exits", "exits at once", "killed", "empty"],
)
def test_code_that_is_wrong_or_leaves_before_its_tests_does_not_pass(code: str, tmp_path: Path) -> None:
    assert not passes(tmp_path, code)


def test_code_that_takes_too_long_or_too_much_memory_does_not_pass(tmp_path: Path) -> None:
    assert not passes(tmp_path, f"while True: pass\n{RIGHT}", seconds=0.3)
    greedy = f"kept = bytearray(300 * 2**20)\n{RIGHT}"
    assert not passes(tmp_path, greedy, megabytes=200)
    assert passes(tmp_path, greedy, megabytes=1000)


def test_files_of_the_workspace_are_there_to_be_tested(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text("ANSWER = 42\n", "utf-8")
    tests = "import made\nassert made.ANSWER == 42\n"
    scorer = make_evaluator("code_tests", {"tests": tests}, load)
    assert scorer.fn(ScoredCase("case", {}), CellResult({}, workspace_of=lambda: tmp_path))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seconds": 0}, sentence("{} is {}; expected a number above 0", "'seconds'", 0)),
        ({"megabytes": 1.5}, sentence("{} is {}; expected a number above 0, {}", "'megabytes'", "1.5", "a whole one")),
        ({"field": 3}, "'field' is 3; expected the name of a key of the state"),
        ({"tests": "assert ("}, sentence("the tests are no Python")),
        ({"second": 1}, sentence("takes no option {}", "'second'") + sentence("; did you mean '{}'", "seconds")),
    ],
)
def test_options_are_checked_before_anything_runs(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as raised:
        make_evaluator("code_tests", options, load)
    assert words in str(raised.value)


def test_a_case_without_tests_has_no_score(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence("the tests are {}; expected Python", "nothing")):
        passes(tmp_path, RIGHT, tests=None)  # type: ignore[arg-type]


def test_remote_callers_cannot_have_code_run_so(database: Database) -> None:
    with pytest.raises(InputError, match=sentence("nothing is imported here")):
        make_evaluator("code_tests", {"field": "code"}, PublishedCode(database).load)


def test_rows_of_a_sweep_are_held_against_tests(empty_project: Project) -> None:
    flow = (
        'from wtb import Workflow\n\nwf = Workflow("coding")\n\n\n@wf.node\ndef write(state, *, times: int = 2):\n'
        '    return {"code": f"def double(n):\\n    return {times} * n\\n"}\n\n\n'
        'write.variant("wrong", times=3)\nwf.entry(write)\n'
    )
    case = json.dumps({"id": "double", "input": {"task": "Double it."}, "expected": TESTS})
    sweep = "workflow: flow:wf\nsweep: coding\ncases: cases.jsonl\nvary: {write: all}\nevaluate:\n"
    empty_project.write(
        {"flow.py": flow, "cases.jsonl": case + "\n", "sweep.yaml": sweep + "  - code_tests: {field: code}\n"}
    )
    empty_project.inside("run", "sweep.yaml", "--quiet", check=0)
    rows = empty_project.inside("matrix", "coding", "--format", "json", check=0).json["rows"]
    assert [row["metrics"]["code_tests"]["mean"] for row in rows] == [1.0, 0.0]
