"""The subgraph that writes the letter: write -> sign. It shares its keys with the graph around it."""

from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph


class Letter(TypedDict, total=False):
    """The letter: its subject, a person's note, and its text so far."""

    order: str
    customer: str
    amount: float
    reason: str
    note: str
    letter: str


def write(state: Letter) -> dict[str, Any]:
    """Write the refund and its reason in one friendly line."""
    reason, amount = state["reason"], f"{state['amount']:.2f} EUR"
    return {"letter": f"Sorry about that! As {reason}, we pay back {amount} for {state['order']}."}


def sign(state: Letter) -> dict[str, Any]:
    """Greet, add a person's note, and sign."""
    lines = [f"Dear {state['customer']},", state["letter"], state.get("note", ""), "Your shop"]
    return {"letter": "\n".join(line for line in lines if line)}


def build() -> StateGraph[Letter]:
    builder = StateGraph(Letter)
    builder.add_node("write", write)
    builder.add_node("sign", sign)
    builder.add_edge(START, "write")
    builder.add_edge("write", "sign")
    builder.add_edge("sign", END)
    return builder
