"""One question to a real model, asked in two ways."""

from __future__ import annotations

from typing import Any, TypedDict

from examples.model.server import NAME
from examples.model.small import SmallModel
from wtb import END, Workflow, evaluator
from wtb.integrations.models import complete


class Question(TypedDict):
    question: str


class State(Question, total=False):
    answer: str


wf = Workflow("small-model", state=State, input=Question, resources=SmallModel)


@wf.node
def answer(state: State, ctx: Any, *, system: str = "You are a helpful assistant.") -> dict[str, str]:
    talk = [{"role": "system", "content": system}, {"role": "user", "content": state["question"]}]
    return {"answer": complete(ctx.resources.client, talk, model=NAME, temperature=0, max_tokens=24)}


answer.variant("brief", system="Answer with one word.")

wf.entry(answer)
wf.edge(answer, END)


@evaluator(better="higher")
def names_it(case: Any, result: Any) -> bool:
    """Return whether the expected word is in the answer."""
    return str(case.expected).lower() in result.state["answer"].lower()
