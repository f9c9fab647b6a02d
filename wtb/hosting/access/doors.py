"""How people come in at a server: by its code, at a provider, and how often they may try and ask."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from wtb.core.classes.frozen import frozen
from wtb.hosting.access.codes import OneTimeCode
from wtb.hosting.access.rates import Rates

if TYPE_CHECKING:
    from wtb.hosting.access.provider import Provider

REQUESTS_PER_S, REQUESTS_AT_ONCE = 50.0, 500
FAILURES_PER_S, FAILURES_AT_ONCE = 10 / 60, 50
MORE = 10  # times as many, of all that one address shows


def _requests() -> Rates:
    return Rates(REQUESTS_PER_S, REQUESTS_AT_ONCE)


def _failures() -> Rates:
    return Rates(FAILURES_PER_S, FAILURES_AT_ONCE)


def _failures_at_address() -> Rates:
    return Rates(MORE * FAILURES_PER_S, MORE * FAILURES_AT_ONCE)


@frozen
class Doors:
    """How people come in.

    Attributes:
        code: By which the operator's browser signs in.
        provider: At which others sign in; None if there is none.
        requests: How often somebody may ask.
        failures: How often somebody at an address may show what is of no use and begins alike.
        failures_at_address: The same of all that is shown there.
    """

    code: OneTimeCode = field(default_factory=OneTimeCode)
    provider: Provider | None = None
    requests: Rates = field(default_factory=_requests)
    failures: Rates = field(default_factory=_failures)
    failures_at_address: Rates = field(default_factory=_failures_at_address)
