"""A fault of an outside service, such as a model provider: plain data that is stored with the failure it caused."""

from __future__ import annotations

import random
from typing import Final, Literal, get_args

from typing_extensions import TypedDict

Reason = Literal[
    "rate_limit",
    "overloaded",
    "server_error",
    "timeout",
    "connection",
    "invalid_response",
    "quota",
    "credentials",
    "model",
]
REASONS: Final[tuple[Reason, ...]] = get_args(Reason)
WAITING: Final = "waiting for provider "  # so begins the reason of a sweep that paused for one
LOST_TO: Final = "lost to provider "  # so begins the error of a score that a provider prevented
FIRST_WAIT_S: Final = 1.0  # before the second try if the provider names no time; doubled each time
LONGEST_WAIT_S: Final = 60.0
_TRUSTED: Final = 3  # tries after which a stated time that was too short is no longer enough
_JITTER: Final = 0.25  # of each wait, added at random, so that waiting callers do not return at the same moment
LASTING: Final[frozenset[Reason]] = frozenset({"quota", "credentials", "model"})
_PHRASES: Final[dict[Reason, str]] = {
    "rate_limit": "limits the rate of requests",
    "overloaded": "is overloaded",
    "server_error": "has an internal error",
    "timeout": "does not respond in time",
    "connection": "cannot be reached",
    "invalid_response": "sent an incomplete response",
    "quota": "reports an exhausted quota",
    "credentials": "rejects the credentials",
    "model": "does not have the model",
}


class ProviderFault(TypedDict):
    """A fault of a provider.

    Attributes:
        provider: The name of the client library, or the host that was called.
        reason: The kind of fault.
        status: The HTTP status; None if there was no response.
        retry_after_s: Seconds after which the provider accepts another request; None if it did not state any.
    """

    provider: str
    reason: Reason
    status: int | None
    retry_after_s: float | None


def is_lasting(fault: ProviderFault) -> bool:
    """Return whether waiting does not help: a person has to change something first."""
    return fault["reason"] in LASTING


def wait_s(fault: ProviderFault, tries: int) -> float:
    """Compute the time to wait before the next try.

    Args:
        fault: The latest fault.
        tries: How many tries have failed, from 1.

    Returns:
        Seconds: at least as many as the provider stated, and longer after each try, with jitter.
    """
    growing = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(tries - 1, 10))
    stated = fault["retry_after_s"]
    if stated is None or (tries > _TRUSTED and stated < growing):
        stated = growing
    return stated + random.uniform(0, _JITTER) * growing


def describe(fault: ProviderFault) -> str:
    """Return a clause for people, such as `provider openai limits the rate of requests (429)`."""
    return f"provider {fault['provider']} {_phrase(fault)}"


def waiting_for(fault: ProviderFault) -> str:
    """Return why a sweep waits or has paused, such as `waiting for provider openai, which is overloaded (529)`."""
    return f"{WAITING}{fault['provider']}, which {_phrase(fault)}"


def lost_to(fault: ProviderFault) -> str:
    """Return why a score is missing, such as `lost to provider openai, which is overloaded (529)`."""
    return f"{LOST_TO}{fault['provider']}, which {_phrase(fault)}"


def is_waiting(reason: str | None) -> bool:
    """Return whether a sweep paused for a provider, by the reason that is stored with it."""
    return (reason or "").startswith(WAITING)


def _phrase(fault: ProviderFault) -> str:
    status = "" if fault["status"] is None else f" ({fault['status']})"
    return _PHRASES[fault["reason"]] + status
