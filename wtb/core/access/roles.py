"""What people may do in a project, by the word for it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Permission(StrEnum):
    """What a caller must be allowed to do."""

    read = "read"
    submit = "submit"
    steer = "steer"
    answer = "answer"
    administer = "administer"


class Role(StrEnum):
    """What somebody may do in a project."""

    viewer = "viewer"
    runner = "runner"
    approver = "approver"
    maintainer = "maintainer"
    admin = "admin"


# A runner may stop what they began, so they steer; answering for others is a matter of its own.
PERMISSIONS: Mapping[Role, frozenset[Permission]] = {
    Role.viewer: frozenset({Permission.read}),
    Role.runner: frozenset({Permission.read, Permission.submit, Permission.steer}),
    Role.approver: frozenset({Permission.read, Permission.answer}),
    Role.maintainer: frozenset({Permission.read, Permission.submit, Permission.steer, Permission.answer}),
    Role.admin: frozenset(Permission),
}
