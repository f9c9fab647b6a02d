"""A batch test in Python: a grid of variants over cases, on two slots, with its matrix, a comparison and new scores.

    python -m examples.lifecycle.batch

A question is matched with the documents that share its words, and the best one is the answer.
"""

from __future__ import annotations

import sys
from typing import Any

import wtb
from wtb import END, Sweep, Workflow

DOCUMENTS = {
    "returns": "You can return a lamp within thirty days, in its box.",
    "repairs": "We repair a broken lamp for free in the first year.",
    "delivery": "We deliver to your door within three days, for free.",
}
CASES = [
    {"id": "broken", "input": {"question": "Is a repair of my broken lamp free?"}, "expected": "repairs"},
    {"id": "when", "input": {"question": "When do you deliver to my door?"}, "expected": "delivery"},
    {"id": "back", "input": {"question": "Can I return it in its box?"}, "expected": "returns"},
    {"id": "days", "input": {"question": "How many days do I have to return a lamp?"}, "expected": "returns"},
]


def build() -> Workflow:
    """Build the workflow: tokenize -> rank, with two variants of each."""
    wf = Workflow("help-desk")

    @wf.node
    def tokenize(state: dict[str, Any], *, least: int = 1) -> dict[str, Any]:
        words = [word.strip("?.,").lower() for word in state["question"].split()]
        return {"words": [word for word in words if len(word) >= least]}

    tokenize.variant("long-words", least=7)

    @wf.node
    def rank(state: dict[str, Any], *, penalty: float = 0.0) -> dict[str, Any]:
        scores = {}
        for name, text in DOCUMENTS.items():
            article_words = [word.strip(".,").lower() for word in text.split()]
            scores[name] = sum(word in article_words for word in state["words"]) - penalty * len(article_words)
        return {"answer": max(scores, key=lambda name: scores[name])}

    rank.variant("short-first", penalty=0.1)
    wf.entry(tokenize)
    wf.edge(tokenize, rank)
    wf.edge(rank, END)
    return wf


def brevity(case: Any, result: Any) -> dict[str, float]:
    """Measure how much of the question was used, and how many words."""
    words = len(result.state["words"])
    return {"words": float(words), "share": words / len(case.input["question"].split())}


def main(database: str = "sqlite:///:memory:") -> None:
    """Run the batch and print its results."""
    sweep = Sweep(
        workflow=build(),
        cases=CASES,
        vary={"tokenize": "all", "rank": "all"},
        evaluate=[{"exact_match": {"field": "answer"}}],
        run={"concurrency": 2},
    )
    with wtb.open(database) as bench:
        result = bench.run(sweep)
        print("cells:", dict(result.record.counts)["succeeded"], "of", len(CASES) * 4)
        matrix = result.matrix()
        for row in matrix["rows"]:
            print("  ", row["combination"], row["metrics"]["exact_match"]["mean"])

        result.score(["examples.lifecycle.batch:brevity"])
        scored = result.matrix()["rows"][0]["metrics"]
        print("scored again:", sorted(scored))

        repeated = bench.run(sweep)
        comparison = bench.compare(result.id, repeated.id)
        print("the same again:", comparison["verdict"])
        print("attempts:", repeated.costs()["total"]["attempts"], "instead of", len(CASES) * 4 * 2)


if __name__ == "__main__":
    main(*sys.argv[1:])
