"""A shop's help desk: which article answers a question, and should a person answer instead?

find (words, stems) -> reply (eager, careful)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

from wtb import END, Context, Workflow, evaluator

ARTICLES = {
    "returns": "Return anything within thirty days and we refund the whole price",
    "delivery": "Parcels are delivered in three working days; follow yours with the tracking number",
    "payment": "We accept cards, bank transfers and invoices; you pay when the order is placed",
    "account": "Change your password, email or address in the settings of your account",
    "warranty": "Broken within two years: we repair or replace it under the warranty",
}
COMMON = {"and", "are", "can", "does", "how", "the", "what", "when", "will", "with", "you", "your"}


class Question(TypedDict):
    """The input of a case."""

    question: str


class State(Question, total=False):
    """The state that nodes share."""

    article: str
    score: int
    answer: str


wf = Workflow("help-desk", state=State, input=Question, version="1")


@wf.node(variant="words")
def find(state: State) -> dict[str, Any]:
    """Find the article that shares most words with the question."""
    return _nearest(state["question"], str)


@find.variant("stems", description="Words by their first letters.")
def _stems(state: State, *, letters: int = 4) -> dict[str, Any]:
    return _nearest(state["question"], lambda word: word[:letters])


def _nearest(question: str, stem: Callable[[str], str]) -> dict[str, Any]:
    def stems(text: str) -> set[str]:
        words = "".join(char if char.isalpha() else " " for char in text.lower()).split()
        return {stem(word) for word in words if len(word) > 2 and word not in COMMON}

    question_words = stems(question)
    scores = {name: len(question_words & stems(f"{name} {text}")) for name, text in ARTICLES.items()}
    best = max(scores, key=scores.__getitem__)
    return {"article": best, "score": scores[best]}


@wf.node(variant="eager")
def reply(state: State, ctx: Context, *, least: int = 0) -> dict[str, Any]:
    """Answer with the article, or hand over to a person if its score is too low."""
    ctx.cost(usd=0.001)
    return {"answer": state["article"] if state["score"] >= least else "person"}


reply.variant("careful", least=1)

wf.entry(find)
wf.edge(find, reply)
wf.edge(reply, END)


@evaluator(better="higher")
def right(case: Any, result: Any) -> bool:
    """Return whether a person would have chosen this answer."""
    return bool(result.state["answer"] == case.expected)
