"""The attempts that a node run may make, and what each is given of those before it."""

from __future__ import annotations

from wtb.authoring.context.attempt_record import Previous, Record, Undecoded
from wtb.authoring.nodes import Rules
from wtb.core.failures import Failure
from wtb.execution.pauses.approval_modes import PriorAnswers


class Retries:
    """Counts the attempts of one node run.

    Args:
        rules: Of the node.
        tried: How many attempts earlier claims have made.
        prior: What people answered to them.

    Attributes:
        number: The attempt that runs, or ran last, from 1 over all claims.
        last: The number of the last attempt that the rules allow.
        draws: The attempt whose random numbers the next one has, if it is another one's.
        previous: What the last failed attempt left for the next one.
    """

    def __init__(self, rules: Rules, tried: int, prior: PriorAnswers) -> None:
        self._rules = rules
        self._tried = tried
        self.number = tried
        self.last = tried + 1 + rules.retries
        self.draws = prior.draws
        self.previous = prior.previous

    @property
    def failed(self) -> int:
        """How many attempts before this one count as retries."""
        return self.number - self.last + self._rules.retries

    @property
    def backoff_s(self) -> float:
        """Seconds to wait after the last attempt."""
        return self._rules.backoff.seconds(self.number - self._tried)

    @property
    def exhausted(self) -> bool:
        return self.number >= self.last

    def forgive(self, *, same_draws: bool = False) -> None:
        """Allow one attempt more in place of the last one, which was not the node's fault.

        same_draws: the next attempt has the same random numbers.
        """
        self.last += 1
        if same_draws:
            self.draws = self.draws or self.number

    def prepare(self, failure: Failure, record: Record) -> None:
        """Keep what a failed attempt left for the next one."""
        self.previous = Previous(self.number, self.last, str(failure), _output(record), tuple(record.suggestions))
        self.draws = None


def _output(record: Record) -> Undecoded | None:
    """Return what an attempt left for the next one, as it is stored."""
    return None if record.output is None else Undecoded(record.output.encode())
