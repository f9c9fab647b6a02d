r"""A bot that writes a regular expression, as a LangGraph graph.

    shape -> discover -> explore -> build -> validate -> render -> review
                                      ^---------'                    '--> shape again, or the end

`shape`, `explore` and `build` are action nodes: a model or a person responds to their prompts. `validate` leads back to
`build` until the pattern fits the samples. In `review` a person accepts, restarts or aborts.
"""

import re
from typing import Any, Literal, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.types import Command

from examples.langgraph.bot.model import reply
from wtb import current_context
from wtb.integrations.models import ActionNode

SAMPLES = {  # kind -> texts that must match, and texts that must not
    "date": (["2026-11-28", "1999-01-02"], ["1-2-3", "20261128"]),
    "address": (["ada@example.org", "b.c@d-e.fr"], ["@example", "ada@", "a@b"]),
}
TRIES = 3


class Request(TypedDict):
    """The input of a case: a request in a person's words."""

    request: str


class State(Request, total=False):
    """The pattern in progress; `note` is a person's last comment, `problems` are mismatches with the samples."""

    note: str
    kind: str
    match: list[str]
    reject: list[str]
    ideas: list[str]
    pattern: str
    tries: int
    problems: list[str]
    page: str
    outcome: str


def shape(state: State) -> str:
    note = f" ({state['note']})" if state.get("note") else ""
    return f"Shape: which kind of text is this about ({', '.join(SAMPLES)})? {state['request']}{note}"


def shaped(state: State, response: str) -> dict[str, Any]:
    kind = response.strip().lower()
    if kind not in SAMPLES:
        raise ValueError(f"expected one of {', '.join(SAMPLES)}; found {kind!r}")
    return {"kind": kind, "tries": 0, "problems": []}


def discover(state: State) -> dict[str, Any]:
    """Find sample texts that show the meaning."""
    match, reject = SAMPLES[state["kind"]]
    return {"match": match, "reject": reject}


def explore(state: State) -> str:
    return f"Explore: ways to recognize a {state['kind']}, one a line"


def explored(state: State, response: str) -> dict[str, Any]:
    return {"ideas": [line.strip() for line in response.splitlines() if line.strip()]}


def build(state: State, *, hints: bool = True) -> str:
    hint = f"; try {' or '.join(state['ideas'])}" if hints else ""
    return "; ".join([f"Build: a regular expression for a {state['kind']}{hint}", *state["problems"]])


def built(state: State, response: str) -> dict[str, Any]:
    return {"pattern": response.strip(), "tries": state["tries"] + 1}


def validate(state: State) -> Command[Literal["build", "render"]]:
    """Check the pattern against the samples, and build again if it does not fit."""
    try:
        fits = re.compile(state["pattern"]).fullmatch
        problems = [f"missed {text!r}" for text in state["match"] if not fits(text)]
        problems += [f"wrongly matched {text!r}" for text in state["reject"] if fits(text)]
    except re.error as error:
        problems = [f"wrongly written: {error}"]
    retry = problems and state["tries"] < TRIES
    return Command(goto="build" if retry else "render", update={"problems": problems})


def render(state: State) -> dict[str, Any]:
    """Write the text for the reviewer."""
    verdict = "; ".join(state["problems"]) or "fits all samples"
    return {"page": f"{state['kind']}: {state['pattern']} ({verdict}, {state['tries']} tries)"}


def review(state: State) -> Command[Literal["shape", "__end__"]]:
    """Let a person accept, restart or abort. In autonomous runs the samples decide."""
    context = current_context()
    if context is None or not context.interactive:
        return Command(goto="__end__", update={"outcome": "aborted" if state["problems"] else "approved"})
    answer = context.ask("Use this pattern?", options=["accept", "restart", "abort"], context=state["page"])
    if answer.choice == "restart":
        return Command(goto="shape", update={"note": answer.feedback or ""})
    return Command(goto="__end__", update={"outcome": "aborted" if answer.choice == "abort" else "approved"})


def compose() -> StateGraph[State, None, Request, State]:
    builder = StateGraph(State, input_schema=Request)
    builder.add_node("shape", ActionNode(shape, shaped, client=reply))
    builder.add_node("discover", discover)
    builder.add_node("explore", ActionNode(explore, explored, client=reply))
    builder.add_node("build", ActionNode(build, built, client=reply))
    builder.add_node("validate", validate)
    builder.add_node("render", render)
    builder.add_node("review", review)
    for start, end in (
        (START, "shape"),
        ("shape", "discover"),
        ("discover", "explore"),
        ("explore", "build"),
        ("build", "validate"),
        ("render", "review"),
    ):
        builder.add_edge(start, end)
    return builder


graph = compose()
