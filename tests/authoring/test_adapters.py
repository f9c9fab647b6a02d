"""Scorers of other tools as evaluators, each with the real package.

Packages that conflict with those of WTB have their own environments.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.prose import sentence
from wtb.authoring.code.import_paths import load
from wtb.authoring.evaluation.adapters import adapted
from wtb.authoring.evaluation.declarations import make_evaluator
from wtb.authoring.evaluation.evaluators import CellResult, Evaluator, ScoredCase
from wtb.core.errors import InputError

if TYPE_CHECKING:
    from tests.support.project import Project

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / "out" / "tools"

WORKFLOW = """
from wtb import Workflow

wf = Workflow("parcels")


@wf.node
def answer(state):
    return {"answer": "It is in Leeds.", "found": ["Parcel 7 is in Leeds."]}


wf.entry(answer)
"""
SWEEP = """
sweep: parcels
workflow: flow:wf
vary: {answer: all}
cases:
  - {id: right, input: {question: Where is parcel 7?}, expected: It is in Leeds.}
  - {id: wrong, input: {question: Where is parcel 8?}, expected: It is lost.}
evaluate:
"""


def evaluator_of(path: str, **options: Any) -> Evaluator:
    return make_evaluator(path, {"field": "a", **options}, load)


def score(path: str, answer: Any, expected: Any, **options: Any) -> Any:
    return evaluator_of(path, **options).fn(
        ScoredCase("case", {"question": "why"}, expected), CellResult({"a": answer})
    )


def test_a_scorer_of_autoevals_scores_and_has_its_scale() -> None:
    from autoevals import Levenshtein

    theirs = Levenshtein()(output="kitten", expected="sitting").score
    assert float(score("autoevals:Levenshtein", "kitten", "sitting")) == theirs == pytest.approx(4 / 7)
    assert evaluator_of("autoevals:Levenshtein").measure("Levenshtein").scale == (0, 1)
    assert evaluator_of("autoevals:NumericDiff", at_least=0.9).judged(0.95) == 1


def test_a_metric_of_scikit_learn_scores_lists_and_its_name_says_which_way_is_better() -> None:
    from sklearn.metrics import f1_score

    expected, answers = ["a", "b", "b", "c"], ["a", "b", "c", "c"]
    theirs = f1_score(expected, answers, average="macro")
    assert score("sklearn.metrics:f1_score", answers, expected, arguments={"average": "macro"}) == theirs
    assert score("sklearn.metrics:mean_absolute_error", [1, 2], [1, 4]) == 1.0
    assert evaluator_of("sklearn.metrics:mean_absolute_error").better == "lower"
    assert evaluator_of("sklearn.metrics:accuracy_score").better == "higher"


@pytest.mark.parametrize(
    ("path", "options", "words"),
    [
        (
            "sklearn.metrics:f1_score",
            {"arguments": {"avrage": "macro"}},
            sentence("no argument {}", "'avrage'") + sentence("; did you mean '{}'?", "average"),
        ),
        ("sklearn.metrics:f1_score", {"arguments": {"y_true": [1]}}, sentence("no argument {}", "'y_true'")),
        (
            "sklearn.metrics:f1_score",
            {"arguments": "macro"},
            sentence("'arguments' is {}; expected a mapping", "'macro'"),
        ),
        (
            "autoevals:Levenshtein",
            {"feild": "a"},
            sentence("takes no option {}", "'feild'") + sentence("; did you mean '{}'?", "field"),
        ),
    ],
)
def test_arguments_that_a_scorer_does_not_take_are_refused_before_anything_runs(
    path: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError) as raised:
        evaluator_of(path, **options)
    assert words in str(raised.value)


def test_a_scorer_that_cannot_be_made_is_refused_before_anything_runs() -> None:
    from autoevals.score import Scorer

    class Needy(Scorer):
        def __init__(self) -> None:
            raise RuntimeError("there is no key")

        def _run_eval_sync(self, *args: Any, **options: Any) -> Any:
            raise NotImplementedError

    with pytest.raises(
        InputError, match="evaluator 'my:Needy': 'my:Needy' cannot be made: RuntimeError: there is no key"
    ):
        make_evaluator("my:Needy", {"field": "a"}, lambda path: Needy)


def test_what_a_scorer_cannot_read_is_an_error_of_the_score() -> None:
    with pytest.raises(InputError, match="no key 'questoin'; did you mean 'question'"):
        score("autoevals:Levenshtein", "a", "a", input="questoin")
    with pytest.raises(
        InputError, match=sentence("{} of the final state is {}; expected a list of texts", "'a'", "'text'")
    ):
        score("autoevals:Levenshtein", "text", "a", contexts="a")


def test_what_is_no_scorer_of_another_tool_is_left_as_it_is() -> None:
    for candidate in (score, str, ScoredCase("a", {}), json.dumps):
        assert adapted("some:path", candidate) is candidate


def test_a_sweep_is_scored_by_a_scorer_of_autoevals(empty_project: Project) -> None:
    empty_project.write({"flow.py": WORKFLOW, "sweep.yaml": SWEEP + '  - "autoevals:ExactMatch": {field: answer}\n'})
    empty_project.inside("run", "sweep.yaml", "--quiet", check=0)
    assert scores_of(empty_project.inside("matrix", "parcels", "--format", "json", check=0).stdout) == {
        "ExactMatch": 0.5
    }


def scores_of(matrix: str) -> dict[str, float]:
    (row,) = json.loads(matrix)["rows"]
    return {name: metric["mean"] for name, metric in row["metrics"].items()}


TOOLS = {
    "inspect": (
        ["inspect-ai>=0.3.285"],
        """
  - "inspect_ai.scorer:includes": {field: answer}
  - "inspect_ai.scorer:match": {field: answer, arguments: {location: exact}}
  - "inspect_ai.scorer:f1": {field: answer}
""",
        {"includes": 0.5, "match": 0.5, "f1": 0.785},  # of 2 common words of 4 and 3: 0.57, as it rounds,
    ),
    "deepeval": (
        ["deepeval>=4"],
        """
  - "deepeval.metrics:ExactMatchMetric": {field: answer, contexts: found}
  - "deepeval.metrics:PatternMatchMetric": {field: answer, arguments: {pattern: "It is in .*"}}
""",
        {"ExactMatchMetric": 0.5, "PatternMatchMetric": 1.0},
    ),
    "ragas": (
        ["ragas>=0.4", "langchain-community<0.4"],  # with later ones it cannot be imported
        """
  - "ragas.metrics.collections:ExactMatch": {field: answer, contexts: found}
  - "ragas.metrics:StringPresence": {field: answer}
""",
        {"ExactMatch": 0.5, "StringPresence": 0.5},
    ),
}
NOBODY = "http://127.0.0.1:9"  # whoever calls a server gets no answer
ALONE = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"), NOBODY),
    "DEEPEVAL_TELEMETRY_OPT_OUT": "YES",
    "RAGAS_DO_NOT_TRACK": "true",
}


def environment(tool: str, packages: list[str]) -> Path:
    """The folder of commands of an environment with this WTB and some packages, kept for the next run."""
    commands = ENVIRONMENTS / tool / "bin"
    ready = ENVIRONMENTS / tool / "ready"
    if not ready.exists() or ready.read_text("utf-8") != " ".join(packages):
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(commands.parent)], check=True)
        install = [str(commands / "python"), "-m", "pip", "install", "--quiet", "--editable", str(ROOT)]
        subprocess.run([*install, *packages], check=True)
        ready.write_text(" ".join(packages), "utf-8")
    return commands


@pytest.mark.slow
@pytest.mark.parametrize("tool", TOOLS)
def test_a_sweep_is_scored_by_scorers_of_other_tools_without_a_network(tool: str, tmp_path: Path) -> None:
    packages, evaluate, expected = TOOLS[tool]
    commands = environment(tool, packages)
    (tmp_path / "flow.py").write_text(WORKFLOW, "utf-8")
    (tmp_path / "sweep.yaml").write_text(SWEEP + evaluate, "utf-8")

    def wtb(*words: str) -> str:
        env = {**os.environ, **ALONE, "PATH": f"{commands}:{os.environ['PATH']}"}
        done = subprocess.run(
            [str(commands / "wtb"), *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    wtb("run", "sweep.yaml", "--quiet")
    assert scores_of(wtb("matrix", "parcels", "--format", "json")) == pytest.approx(expected, abs=0.01)


TASKS = """
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessageSystem, ChatMessageUser
from inspect_ai.scorer import includes, match, model_graded_qa
from inspect_ai.solver import generate, system_message


ITALIAN = ["Rome", "Roma"]


@task
def capitals(word="capital"):
    samples = [
        Sample(input=f"What is the {word} of France?", target="Paris", id="france"),
        Sample(input=[ChatMessageSystem(content="Be short."), ChatMessageUser(content="Of Italy?")], target=ITALIAN),
        Sample(input="Of Spain?", choices=["Madrid", "Lisbon"], target="A", metadata={"hard": True}),
    ]
    scorers = [includes(), match(location="exact"), model_graded_qa(model="mockllm/model")]
    solver = [system_message("Answer."), generate()]
    return Task(dataset=MemoryDataset(samples), solver=solver, scorer=scorers, epochs=2)


@task
def empty():
    return Task(dataset=MemoryDataset([]), scorer=includes())


@task
def needy(of):
    return Task(dataset=MemoryDataset([Sample(input=of)]), scorer=includes())
"""


@pytest.mark.slow
def test_a_task_of_inspect_is_brought_over_and_scored_by_its_scorers(tmp_path: Path) -> None:
    commands = environment("inspect", TOOLS["inspect"][0])
    (tmp_path / "tasks.py").write_text(TASKS, "utf-8")

    def wtb(*words: str, folder: Path = tmp_path) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, **ALONE, "PATH": f"{commands}:{os.environ['PATH']}"}
        return subprocess.run(
            [str(commands / "wtb"), *words], cwd=folder, env=env, capture_output=True, text=True, check=False
        )

    init = wtb("init", "asked", "--from", "tasks:capitals")
    assert init.returncode == 0, init.stderr
    left_out = [line for line in init.stderr.splitlines() if line.startswith("left out")]
    assert left_out == [
        sentence("left out: ") + sentence("samples: metadata"),
        "left out: scorer: model_graded_qa",
        "left out: solver: system_message",
    ]
    project = tmp_path / "asked"
    assert [json.loads(line) for line in (project / "cases.jsonl").read_text("utf-8").splitlines()] == [
        {"id": "france", "input": {"prompt": "What is the capital of France?"}, "expected": "Paris"},
        {"id": "2", "input": {"prompt": "system: Be short.\n\nuser: Of Italy?"}, "expected": ["Rome", "Roma"]},
        {"id": "3", "input": {"prompt": "Of Spain?", "choices": ["Madrid", "Lisbon"]}, "expected": "A"},
    ]
    text = (project / "workflow.py").read_text("utf-8")
    answers = {"system: Be short.\n\nuser: Of Italy?": "Roma", "Of Spain?\nA) Madrid\nB) Lisbon": "A"}
    answer = f"return {answers!r}.get(prompt, 'It is Paris.')"
    (project / "workflow.py").write_text(
        text.replace('raise NotImplementedError("call your model here")', answer), "utf-8"
    )
    ran = wtb("run", "sweep.yaml", "--quiet", folder=project)
    assert ran.returncode == 0, ran.stderr
    matrix = wtb("matrix", "sweep", "--format", "json", folder=project)
    assert matrix.returncode == 0, matrix.stderr
    assert scores_of(matrix.stdout) == pytest.approx({"includes": 1, "match": 2 / 3})
    assert json.loads(matrix.stdout)["cells"]["total"] == 6
    judged = wtb("init", "judged", "--from", "tasks:capitals", "--judge", "anthropic:claude-sonnet-4-5")
    assert "model_graded_qa" not in judged.stderr
    judge = {
        "field": "answer",
        "model": "claude-sonnet-4-5",
        "criteria": "The answer is correct by the reference.",
        "name": "model_graded_qa",
        "reference": True,
        "provider": "anthropic",
    }
    assert json.dumps({"judge": judge}) in (tmp_path / "judged" / "sweep.yaml").read_text("utf-8")
    for name, words in (("empty", "dataset is empty"), ("needy", "cannot be made"), ("Sample", "expected a task")):
        refused = wtb("init", name, "--from", f"tasks:{name}")
        assert refused.returncode != 0
        assert words in " ".join(refused.stderr.split())
