"""Reasons why the cost of a variant of a node is not known, and the combinations that this concerns. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from typing_extensions import TypedDict

Cause = Literal["price", "usage", "connection"]
_SHOWN = 3  # as many models or hosts in a sentence


class UnknownCost(TypedDict):
    """A reason why the cost of a variant of a node is not known.

    cause: `price` (a model without a price), `usage` (a call without token counts) or `connection` (a connection that
    no recorded call explains). what: the model, or host and port.
    """

    node: str
    variant: str
    cause: Cause
    what: str


def is_concerned(choices: Mapping[str, str], reasons: Iterable[UnknownCost]) -> bool:
    """Return whether a combination uses a variant whose cost is not known.

    Args:
        choices: Varied node -> variant. A node that is not varied is used by all combinations.
        reasons: Those of its sweep.
    """
    return any(choices.get(reason["node"], reason["variant"]) == reason["variant"] for reason in reasons)


def in_sentence(reason: UnknownCost) -> str:
    """Return why the cost of a variant is not known, as in an event."""
    return f"the cost of {reason['node']}={reason['variant']} is unknown: {_why(reason['cause'], [reason['what']])}"


def sentences(reasons: Sequence[UnknownCost]) -> list[str]:
    """Return one sentence for each cause, over all variants that it concerns."""
    found = []
    for cause in ("price", "usage", "connection"):
        mine = [reason for reason in reasons if reason["cause"] == cause]
        if mine:
            variants = list(dict.fromkeys(f"{reason['node']}={reason['variant']}" for reason in mine))
            whats = list(dict.fromkeys(reason["what"] for reason in mine))
            found.append(f"the cost of {_some(variants)} is unknown: {_why(cause, whats)}")
    return found


def limit_sentence(usd: float | None, reasons: Sequence[UnknownCost], *, ended: bool) -> str | None:
    """Return that a dollar limit cannot be kept; None without a limit, or where all costs are known.

    Args:
        usd: The limit.
        reasons: Those of the sweep, or of an earlier one or a pilot of the same nodes.
        ended: The sweep has run.
    """
    if usd is None or not reasons:
        return None
    variants = list(dict.fromkeys(f"{reason['node']}={reason['variant']}" for reason in reasons))
    can = "was not kept" if ended else "cannot be kept"
    return f"limits.usd = {usd:g} {can}: the cost of {_some(variants)} is unknown, and counts as 0"


def _why(cause: str, whats: Sequence[str]) -> str:
    if cause == "price":
        return (
            f"no price is known for {_models(whats)}; record_calls(client, prices={{MODEL: (usd_in, usd_out)}}) or "
            "ctx.cost(usd=...) sets one"
        )
    if cause == "usage":
        return f"the server did not report the tokens of calls of {_models(whats)}"
    return (
        f"no recorded call explains its connections to {_some(whats)}; record the calls, or list hosts that cost "
        "nothing in run.free_hosts"
    )


def _models(whats: Sequence[str]) -> str:
    return f"{'model' if len(whats) == 1 else 'the models'} {_some([repr(what) for what in whats])}"


def _some(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    text = ", ".join(names[:_SHOWN])
    return f"{text} and {more:,} more" if more > 0 else text
