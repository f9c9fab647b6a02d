"""Ranks the six rows by which of two answers is nearer to the text that asked, two at a time and in both orders.

    python -m examples.judges.pairwise [--output FOLDER] [options of `wtb run`]

Nobody is asked and no model: `embedded` prefers the answer whose embedding is nearer to that of the text that asked,
`mean-of-people` the one that people found more similar to it, on average. Neither looks at which is shown first.
"""

import argparse
import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import wtb
from examples.judges.compared import similarity
from examples.judges.demo import SWEEP_FILE
from examples.judges.demo import wtb as run_wtb
from examples.langgraph.retrieval.graph import library
from wtb.authoring.evaluation.evaluators import CellResult, ScoredCase
from wtb.authoring.evaluation.library.meanings import embedding_similarity
from wtb.core.scoring.judgement import Judgement
from wtb.display.text import judges
from wtb.operations.results.asking import Asking

_WIDTH = 100  # of the tables
Asked = dict[str, Any]  # what the text that asked is, in `input`, and the answer


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the sweep without its judges, and rank its rows by both; comparisons go to the folder."""
    parser = argparse.ArgumentParser(prog="python -m examples.judges.pairwise", allow_abbrev=False)
    parser.add_argument("--output", type=Path, default=Path("out/judges"), help="folder for the files")
    options, for_run = parser.parse_known_args(arguments)
    folder: Path = options.output
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "pairwise.yaml"
    file.write_text(without_judges(SWEEP_FILE.read_text("utf-8")), "utf-8")
    sweep = json.loads(run_wtb("run", str(file), "--quiet", "--format", "json", *for_run))["sweep"]["id"]
    for rater, close in (("embedded", by_embedding), ("mean-of-people", by_people)):
        comparisons = folder / f"{rater}.jsonl"
        with wtb.open() as bench:
            found = bench.sweep(sweep).rank(comparisons, asking=Asking(prefers(close), "answer", rater))
        print(judges.ranking(found, _WIDTH, False))


def without_judges(text: str) -> str:
    """The sweep file with another name, whose only evaluator is what people said."""
    text = text.replace("sweep: judged", "sweep: compared")
    return re.sub(r"evaluate:\n.*(?=  - examples\.judges\.compared:people)", "evaluate:\n", text, flags=re.DOTALL)


def prefers(close: Callable[[Asked, str], float]) -> Callable[[str], Judgement]:
    """What prefers the closer one of two answers."""

    def prefer(data: str) -> Judgement:
        shown = json.loads(data)
        first, second = (close(shown["input"], shown[which]) for which in ("first", "second"))
        return Judgement(float(first > second) - float(first < second))

    return prefer


def by_embedding(asked: Asked, answer: str) -> float:
    """The cosine of the embeddings of the text that asked and of an answer."""
    case, result = ScoredCase("", asked, {"answer": asked["text"]}), CellResult({"answer": answer})
    return float(embedding_similarity(case, result, field="answer"))


def by_people(asked: Asked, answer: str) -> float:
    """How similar people found the two, on average."""
    return similarity(asked["document"], documents()[answer])


@cache
def documents() -> dict[str, str]:
    """The id of each text."""
    return {text: document for document, text in library().corpus.documents.items()}


if __name__ == "__main__":
    main()
