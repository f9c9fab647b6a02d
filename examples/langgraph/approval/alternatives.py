"""Other ways to do the nodes of the approval, for `vary` in sweep.yaml."""

from typing import Any, Literal

from langgraph.types import Command

from examples.langgraph.approval.drafting import Letter
from examples.langgraph.approval.graph import State, ask, decided, settle


def generous(state: State, *, late: float = 0.5) -> Command[Literal["draft", "refuse"]]:
    """Pay more for late deliveries."""
    return settle(state["message"], broken=1.0, late=late)


def formal(state: Letter) -> dict[str, Any]:
    """Write the letter in formal words."""
    return {
        "letter": f"We refer to your order {state['order']}. In view of the fact that {state['reason']}, an amount of "
        f"{state['amount']:.2f} EUR will be credited to your account without admission of liability."
    }


def above(state: State, *, limit: float = 10.0) -> Command[Literal["send", "draft", "refuse"]]:
    """Have a person look at refunds above a limit only."""
    return decided(ask(state) if state["amount"] > limit else {"decision": "send"})
