"""The graph: assess -> draft (a subgraph) -> review -> send, or draft again, or refuse. It uses LangGraph only.

`review` asks a person with `interrupt`. The answer is one of the options, or a mapping with one of them:

    Command(resume="send")
    Command(resume={"decision": "send", "letter": "Dear Ada, ..."})
    Command(resume={"decision": "rewrite", "amount": 10.0, "note": "A voucher is on its way as well."})
    Command(resume={"decision": "refuse", "note": "the mug was bought elsewhere"})
"""

import operator
import re
from typing import Annotated, Any, Literal, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from examples.langgraph.approval import drafting

ORDERS = {
    "R-1001": ("Ada", 24.90),
    "R-1002": ("Ben", 7.50),
    "R-1003": ("Cleo", 117.00),
    "R-1004": ("Dana", 18.75),
}
BROKEN, LATE = r"broke|crack|shatter|dent", r"late|weeks|delay"


class Complaint(TypedDict):
    """The input of a case: a customer's message."""

    message: str


class Sent(TypedDict):
    """A refund that went out, and its letter."""

    order: str
    amount: float
    letter: str


class State(Complaint, total=False):
    """The refund in progress; `note` is a person's last comment, `sent` the refunds that went out."""

    order: str
    customer: str
    amount: float
    reason: str
    note: str
    letter: str
    outcome: str
    sent: Annotated[list[Sent], operator.add]


def assess(state: State) -> Command[Literal["draft", "refuse"]]:
    """Refund the whole price for broken items, a fifth for late ones, and nothing else."""
    return settle(state["message"], broken=1.0, late=0.2)


def settle(message: str, *, broken: float, late: float) -> Command[Literal["draft", "refuse"]]:
    """Return the refund by these shares of the price."""
    number = re.search(r"R-\d{4}", message)
    if number is None or number[0] not in ORDERS:
        return Command(goto="refuse", update={"note": "we find no such order"})
    customer, price = ORDERS[number[0]]
    share, reason = 0.0, ""
    if re.search(BROKEN, message):
        share, reason = broken, "it arrived broken"
    elif re.search(LATE, message):
        share, reason = late, "it arrived late"
    update = {"order": number[0], "customer": customer, "amount": round(price * share, 2), "reason": reason}
    if not share:
        return Command(goto="refuse", update={**update, "note": "nothing is wrong with it"})
    return Command(goto="draft", update=update)


def review(state: State) -> Command[Literal["send", "draft", "refuse"]]:
    """Have a person look at every refund."""
    return decided(ask(state))


def ask(state: State) -> dict[str, Any]:
    """Ask a person, and return the answer with the decision under its key."""
    answer = interrupt(
        {
            "question": f"Pay back {state['amount']:.2f} EUR for {state['order']}?",
            "options": ["send", "rewrite", "refuse"],
            "message": state["message"],
            "letter": state["letter"],
        }
    )
    return answer if isinstance(answer, dict) else {"decision": answer}


def decided(answer: dict[str, Any]) -> Command[Literal["send", "draft", "refuse"]]:
    """Route by an answer, and apply its changes."""
    match answer:
        case {"decision": "send", **changed}:
            return Command(goto="send", update=only(changed, "letter"))
        case {"decision": "rewrite", **changed}:
            return Command(goto="draft", update=only(changed, "amount", "note"))
        case {"decision": "refuse", **changed}:
            return Command(goto="refuse", update={"note": "we looked at it again"} | only(changed, "note"))
    raise ValueError(f"expected send, rewrite or refuse, or a mapping with one of them as 'decision'; found {answer}")


def only(changed: dict[str, Any], *keys: str) -> dict[str, Any]:
    """Return the allowed changes of an answer; other keys would change values that nobody reviewed."""
    if unknown := changed.keys() - set(keys):
        raise ValueError(f"this decision may change {' and '.join(keys)}; found {', '.join(sorted(unknown))}")
    return changed


def send(state: State) -> dict[str, Any]:
    """Pay, and send the letter."""
    out = Sent(order=state["order"], amount=state["amount"], letter=state["letter"])
    return {"outcome": "sent", "sent": [out]}


def refuse(state: State) -> dict[str, Any]:
    """Write why nothing is refunded."""
    return {"outcome": "refused", "letter": f"We are sorry that we cannot pay anything back: {state['note']}."}


def build() -> StateGraph[State, None, Complaint, State]:
    builder = StateGraph(State, input_schema=Complaint)
    builder.add_node("assess", assess)
    builder.add_node("draft", drafting.build().compile())
    builder.add_node("review", review)
    builder.add_node("send", send)
    builder.add_node("refuse", refuse)
    builder.add_edge(START, "assess")
    builder.add_edge("draft", "review")
    builder.add_edge("send", END)
    builder.add_edge("refuse", END)
    return builder


graph = build()
