"""What one attempt may spend. Pure: node processes have it too."""

from __future__ import annotations

from typing import Literal

from wtb.core.classes.frozen import frozen

Kind = Literal["usd", "tokens"]
_ROUNDING = 1e-9  # of sums of money


@frozen(slots=True)
class Allowance:
    """US dollars and tokens that an attempt may spend; None is no limit. declared: those of the node itself."""

    usd: float | None = None
    tokens: float | None = None
    declared: tuple[Kind, ...] = ()

    def exceeded(self, usd: float, tokens: float, *, used_up: bool = False) -> Kind | None:
        """The kind of which more than that was spent; used_up: or all of it."""
        for kind, limit, spent in (("usd", self.usd, usd), ("tokens", self.tokens, tokens)):
            if limit is not None:
                rounding = _ROUNDING * max(1.0, limit)
                if spent > limit + rounding or (used_up and spent >= limit - rounding):
                    return kind  # type: ignore[return-value]  # both are one
        return None

    def words(self, kind: Kind) -> str:
        """What it is of a kind, and where from."""
        limit = self.usd if kind == "usd" else self.tokens
        amount = f"{limit:g} US dollars" if kind == "usd" else f"{limit:.0f} tokens"
        if kind in self.declared:
            return f"{amount} (its max_{kind})"
        return f"{amount}, which is all that its budget has left"
