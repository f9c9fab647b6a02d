"""Roles of people in a project, and the permissions of each role."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Permission(StrEnum):
    """A permission that a caller needs."""

    read = "read"
    submit = "submit"
    steer = "steer"
    answer = "answer"
    administer = "administer"


class Role(StrEnum):
    """A role of a person in a project."""

    viewer = "viewer"
    runner = "runner"
    approver = "approver"
    maintainer = "maintainer"
    admin = "admin"


# Runners may stop their own sweeps, so they need steer. Answering for others is a permission of its own.
PERMISSIONS: Mapping[Role, frozenset[Permission]] = {
    Role.viewer: frozenset({Permission.read}),
    Role.runner: frozenset({Permission.read, Permission.submit, Permission.steer}),
    Role.approver: frozenset({Permission.read, Permission.answer}),
    Role.maintainer: frozenset({Permission.read, Permission.submit, Permission.steer, Permission.answer}),
    Role.admin: frozenset(Permission),
}


BY_TOKEN = ", by a token that "
_SUFFIX = " made"
_LONGEST = 85  # characters of each of two names: columns have room for 200


def attributed(user: str, made_by: str) -> str:
    """Return the name of a user with the creator of their token: "ann, by a token that root@vm made"."""
    return f"{_short(user)}{BY_TOKEN}{_short(made_by)}{_SUFFIX}"


def other_maker(user: str, created_by: str) -> str | None:
    """Return another person who may have kept a token of a user; None if the user made it.

    Args:
        user: The user of the token.
        created_by: The creator, attributed if they used such a token themselves.
    """
    # The inverse of `attributed`.
    names = created_by.removesuffix(_SUFFIX).split(BY_TOKEN) if BY_TOKEN in created_by else [created_by]
    return next((name for name in names if name != user), None)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def is_within(projects: frozenset[str] | None, allowed: frozenset[str] | None) -> bool:
    """Return whether all projects are allowed. None stands for all there are."""
    return allowed is None or (projects is not None and projects <= allowed)
