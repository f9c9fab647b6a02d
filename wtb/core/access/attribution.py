"""What events, approvals and the audit log call somebody who came by a token that somebody else made for them."""

from __future__ import annotations

BY_TOKEN = ", by a token that "
_SUFFIX = " made"
_LONGEST = 85  # characters of each of two names: columns have room for 200


def attributed(user: str, made_by: str) -> str:
    """Name a user, and who made the token by which they came: "ann, by a token that root@vm made"."""
    return f"{_short(user)}{BY_TOKEN}{_short(made_by)}{_SUFFIX}"


def other_maker(user: str, created_by: str) -> str | None:
    """Return who else may have kept a token of a user; None if they made it themselves.

    Args:
        user: Whose token it is.
        created_by: Who made it, attributed if they came by such a token themselves.
    """
    names = created_by.removesuffix(_SUFFIX).split(BY_TOKEN) if BY_TOKEN in created_by else [created_by]
    return next((name for name in names if name != user), None)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
