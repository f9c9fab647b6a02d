"""Reasons why the cost of a variant of a node is not known, and the combinations that this concerns. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from ipaddress import ip_address
from typing import Literal

from typing_extensions import TypedDict

Cause = Literal["price", "usage", "connection"]
_MAX_NAMED = 3  # as many models or hosts in a sentence


class UnknownCost(TypedDict):
    """A reason why the cost of a variant of a node is unknown.

    Attributes:
        node: The node.
        variant: The variant.
        cause: `price` (a model without a price), `usage` (a call without token counts) or `connection` (a connection
            that no recorded call explains).
        what: The model, or host and port.
    """

    node: str
    variant: str
    cause: Cause
    what: str


def is_concerned(choices: Mapping[str, str], reasons: Iterable[UnknownCost]) -> bool:
    """Return whether a combination uses a variant whose cost is unknown.

    Args:
        choices: The variants of varied nodes. A node that is not varied is used by all combinations.
        reasons: The reasons of its sweep.
    """
    return any(choices.get(reason["node"], reason["variant"]) == reason["variant"] for reason in reasons)


def in_sentence(reason: UnknownCost) -> str:
    """Return the reason for an unknown cost as a sentence of an event."""
    return f"the cost of {reason['node']}={reason['variant']} is unknown: {_why(reason['cause'], [reason['what']])}"


def sentences(reasons: Sequence[UnknownCost]) -> list[str]:
    """Return one sentence for each cause, over all variants that it concerns."""
    lines = []
    for cause in ("price", "usage", "connection"):
        mine = [reason for reason in reasons if reason["cause"] == cause]
        if mine:
            variants = list(dict.fromkeys(f"{reason['node']}={reason['variant']}" for reason in mine))
            whats = list(dict.fromkeys(reason["what"] for reason in mine))
            lines.append(f"the cost of {_some(variants)} is unknown: {_why(cause, whats)}")
    return lines


def cost_warnings(reasons: Sequence[UnknownCost], usd: float | None, *, ended: bool) -> list[str]:
    """Return sentences on unknown costs, and on the dollar limit that cannot be kept because of them.

    Args:
        reasons: The reasons of a sweep, or of a pilot or an earlier sweep with the same variants.
        usd: The limit in US dollars; None without one.
        ended: The sweep has ended.
    """
    if usd is None or not reasons:
        return sentences(reasons)
    variants = list(dict.fromkeys(f"{reason['node']}={reason['variant']}" for reason in reasons))
    is_kept = "was not kept" if ended else "cannot be kept"
    limit = f"limits.usd = {usd:g} {is_kept}: the cost of {_some(variants)} is unknown and counts as 0"
    return [*sentences(reasons), limit]


def is_free(where: str, free_hosts: Iterable[str]) -> bool:
    """Return whether connections to a host cost nothing.

    Args:
        where: Host and port, such as `db.internal:5432`.
        free_hosts: Patterns of hosts, such as `*.internal`, or of hosts and ports, such as `localhost:6333`.
            `localhost` stands for all addresses of this machine.
    """
    host, _, port = where.rpartition(":")
    names = {host.lower(), *(["localhost"] if _is_loopback(host) else [])}
    addresses = {address for name in names for address in (name, f"{name}:{port}")}
    return any(fnmatchcase(name, pattern.lower()) for pattern in free_hosts for name in addresses)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


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
    more = len(names) - _MAX_NAMED
    text = ", ".join(names[:_MAX_NAMED])
    return f"{text} and {more:,} more" if more > 0 else text
