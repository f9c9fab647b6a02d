"""Which team should answer a customer's message? Three steps, of which two can be done in several ways.

    tokenize (3 variants) -> classify (3 variants) -> route

Run it: wtb run sweep.yaml
"""

import math
from collections import Counter
from collections.abc import Callable
from typing import Any, TypedDict

from wtb import END, Context, Workflow, evaluator

# What the classifiers learn from: messages that people have sorted.
EXAMPLES = {
    "billing": [
        "I was charged twice this month",
        "please send me an invoice with our tax number",
        "how do I change my credit card",
        "refund my last payment, I cancelled in time",
        "the price on the bill is not what I was offered",
    ],
    "technical": [
        "the app crashes when I open a file",
        "I get error 500 after uploading a picture",
        "search is very slow since the update",
        "the export button does nothing",
        "syncing stops and my changes are lost",
    ],
    "account": [
        "I forgot my password and cannot log in",
        "please delete my account and all data",
        "how do I add a colleague to our team",
        "change the email address of my profile",
        "my account is locked after too many attempts",
    ],
}


class Message(TypedDict):
    """What a case brings."""

    message: str


class Update(TypedDict, total=False):
    """What the nodes add to it."""

    tokens: list[str]
    learned: dict[str, list[str]]  # the same for every message, so it is stored once for each way to tokenize
    scores: dict[str, float]
    team: str


class State(Message, Update):
    """What travels between the nodes."""


wf = Workflow(
    "triage", state=State, input=Message, description="Which team should answer a customer's message?", version="1"
)


@wf.node(variant="words")
def tokenize(state: State) -> Update:
    """Words in lower case."""
    return _split(state, str.split)


@tokenize.variant("stems", description="The first letters of each word.")
def _stems(state: State, *, letters: int = 5) -> Update:
    return _split(state, lambda text: [word[:letters] for word in text.split()])


@tokenize.variant("grams", description="Groups of neighbouring letters.")
def _grams(state: State, *, n: int = 3) -> Update:
    return _split(state, lambda text: [text[i : i + n] for i in range(len(text) - n + 1)])


def _split(state: State, tokens: Callable[[str], list[str]]) -> Update:
    learned = {team: [token for text in texts for token in tokens(text.lower())] for team, texts in EXAMPLES.items()}
    return {"tokens": tokens(state["message"].lower()), "learned": learned}


@wf.node(variant="overlap")
def classify(state: State) -> Update:
    """The team whose examples have most of the message's tokens."""
    tokens = set(state["tokens"])
    return {"scores": {team: float(len(tokens & set(learned))) for team, learned in state["learned"].items()}}


@classify.variant("bayes", description="Naive Bayes with smoothing.")
def _bayes(state: State, *, alpha: float = 0.5) -> Update:
    counts = {team: Counter(learned) for team, learned in state["learned"].items()}
    size = len({token for counter in counts.values() for token in counter}) + 1
    scores = {
        team: sum(math.log((counter[token] + alpha) / (counter.total() + alpha * size)) for token in state["tokens"])
        for team, counter in counts.items()
    }
    return {"scores": scores}


classify.variant("bayes-sharp", of="bayes", alpha=0.02, description="Naive Bayes that trusts rare tokens more.")


@wf.node
def route(state: State, ctx: Context) -> Update:
    """The team of the highest score; where two are equal, chance decides, the same way in every run."""
    best = max(state["scores"].values())
    return {"team": ctx.rng.choice([team for team, score in state["scores"].items() if score == best])}


wf.entry(tokenize)
wf.edge(tokenize, classify)
wf.edge(classify, route)
wf.edge(route, END)


@evaluator(better="higher")
def right_team(case: Any, result: Any) -> bool:
    """The evaluator of this sweep: was the message sent where a person would have sent it?"""
    return bool(result.state["team"] == case.expected)
