"""Who asks for an operation: what they are called, how that is known, and what they may do in which projects."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from wtb.core.access.attribution import attributed
from wtb.core.classes.frozen import frozen
from wtb.operations.registry import Permission

Projects = frozenset[str] | None  # names; None: all projects, also those that are made later


class Method(StrEnum):
    """How it is known who somebody is."""

    operator = "operator"  # they have the database, or the server's own token
    token = "token"  # one of `wtb token create`
    cookie = "cookie"  # they signed in


class Follower(NamedTuple):
    """Whose stream it is.

    Attributes:
        digest: Of the token or the cookie by which they came.
        user: Whose roles bound that, if somebody's do.
        projects: Where they might read when it began.
    """

    digest: str
    user: str | None
    projects: Projects


@frozen
class Identity:
    """Who asks.

    What they may do is a mapping from each permission to the projects in which they have it: roles that they and their
    teams have, less what their token leaves out. `Context.acting_as` makes a context in which nothing but these
    projects is there; everything else is answered as if it did not exist.

    Attributes:
        name: What events call them; None for the operator, whom events call by the user of the process.
        method: How that is known.
        may: In which projects they may do what; what they may do nowhere is left out.
        token: The name of the token by which they came, if it is one of the database's. Its budgets bind what they
            submit.
        digest: Of that token.
        user: Whose roles bound it, if somebody's do.
        made_by: Who made a token of a user, if that was somebody else, who may have kept it.
    """

    name: str | None
    method: Method
    may: Mapping[Permission, Projects]
    token: str | None = None
    digest: str | None = None
    user: str | None = None
    made_by: str | None = None

    @property
    def attribution(self) -> str | None:
        """What events, approvals and the audit log call them: with who made their token, if that was somebody else."""
        if self.name is None or self.made_by is None:
            return self.name
        return attributed(self.name, self.made_by)

    @property
    def follower(self) -> Follower | None:
        """Who their streams are of, for as long as they may read as they may now; None for the operator."""
        if self.digest is None:
            return None
        return Follower(self.digest, self.user, self.may.get(Permission.read, frozenset()))

    @property
    def key(self) -> str | None:
        """By what their requests are counted together; None for the operator, who has the database itself."""
        return self.name or self.digest

    def refusal(self, needs: Permission, *, everywhere: bool = False) -> str | None:
        """Return why they may not do something in any project; None if they may in some.

        Args:
            needs: The permission that it takes.
            everywhere: Whether it is about all projects at once, such as collecting garbage.
        """
        if needs not in self.may:
            return f"{self.name!r} may {', '.join(sorted(self.may)) or 'nothing'}; this takes the scope {needs}"
        if everywhere and self.may[needs] is not None:
            return f"{self.name!r} is limited to projects, and this is about all of them"
        return None

    def allows(self, permission: Permission, project: str | None) -> bool:
        """Return whether they may do something in a project; None stands for all projects."""
        if permission not in self.may:
            return False
        projects = self.may[permission]
        return projects is None or project in projects


OPERATOR = Identity(None, Method.operator, dict.fromkeys(Permission, None))
