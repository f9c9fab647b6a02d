"""A call of a tool by somebody: what they may do is checked, what costs is asked back, and the answer made short."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Final, cast

from jsonschema import Draft202012Validator

from wtb.core.classes.frozen import frozen
from wtb.core.errors import AccessDenied, InputError, NotFound, did_you_mean
from wtb.core.values import Json
from wtb.hosting.agents.confirmations import Confirmations
from wtb.hosting.agents.replies import ConfirmDocument, Reply, make_reply
from wtb.hosting.agents.tools import TOOLS, Found, Tool, ToolArguments, show_outcome
from wtb.operations.auditing import note_refusal
from wtb.operations.context import Context, Origin
from wtb.operations.identity import Identity
from wtb.operations.running.waiting import looks

MOST_ARGUMENTS: Final = 1_000_000  # characters
LOOK_S: Final = 0.5  # between two looks at what somebody waits for
_BY_NAME: Final = {tool.name: tool for tool in TOOLS}
_VALIDATORS: Final = {tool.name: Draft202012Validator(tool.schema) for tool in TOOLS}


@frozen
class Caller:
    """Who calls.

    Attributes:
        identity: What they may do.
        address: From where; None for this machine.
    """

    identity: Identity
    address: str | None = None

    @property
    def key(self) -> str:
        """What tells them from all others."""
        return f"{self.identity.method}:{self.identity.digest or self.identity.name}"


@frozen
class Answer:
    """What comes of a call.

    Attributes:
        reply: What the agent is told.
        links: Where the rest is, by what it is.
    """

    reply: Reply
    links: Mapping[str, str]


class Calls:
    """Carries out calls of tools."""

    def __init__(self, context: Context, confirmations: Confirmations | None = None) -> None:
        """Make it.

        Args:
            context: Where operations act.
            confirmations: What consents are given and taken by.
        """
        self._context = context
        self._confirmations = confirmations or Confirmations()

    def call(self, name: str, given: Mapping[str, Json], caller: Caller) -> Answer:
        """Carry out a call, or say what it would do.

        Args:
            name: Of the tool.
            given: Its arguments.
            caller: Who calls.

        Returns:
            What came of it.

        Raises:
            NotFound: If there is no such tool.
            InputError: If the arguments do not fit.
            AccessDenied: If they may not do it.
            ConflictError: If the consent that they show is of no use.
            WTBError: As the operation raises it.
        """
        tool = find_tool(name)
        arguments = checked_arguments(tool, given)
        consent = arguments.pop("confirm", None)
        acting = self._acting(tool, arguments, caller)
        if not tool.needs_consent(arguments):
            if consent is not None:
                raise InputError("confirm is given, and there is nothing to confirm", argument="confirm")
            return _answer(tool.call(acting, arguments))
        assert tool.preview is not None
        if consent is None:
            return self._offer(tool, acting, arguments, caller)
        consented = self._confirmations.take(consent, caller.key, name, arguments)
        consented.check(tool.preview(acting, arguments).target)
        return _answer(tool.call(acting, arguments))

    def waiting(self, name: str, given: Mapping[str, Json], caller: Caller, started: str | None = None) -> WaitingFor:
        """Return what a caller of `status` or `start` waits for.

        Args:
            name: Of the tool.
            given: Its arguments.
            caller: Who waits.
            started: The execution that `start` began.
        """
        tool = find_tool(name)
        arguments = checked_arguments(tool, given)
        acting = self._acting(tool, arguments, caller)
        return WaitingFor(acting, started or str(arguments["ref"]), float(arguments.get("wait_s", 0)))

    def started(self, execution: str, given: Mapping[str, Json], caller: Caller) -> Answer:
        """Return how an execution that `start` began has ended or stands.

        Args:
            execution: Its id.
            given: The arguments of `start`.
            caller: Who called it.
        """
        tool = find_tool("start")
        return _answer(show_outcome(self._acting(tool, checked_arguments(tool, given), caller), execution))

    def _offer(self, tool: Tool, acting: Context, arguments: ToolArguments, caller: Caller) -> Answer:
        assert tool.preview is not None
        would = tool.preview(acting, arguments)
        consent = self._confirmations.offer(caller.key, tool.name, arguments, would.target)
        confirm: ConfirmDocument = {
            "token": consent.token,
            "expires_s": consent.expires_s,
            "how": f"call {tool.name} again with the same arguments and this token as `confirm`",
        }
        decision = f"NOTHING WAS DONE YET. {would.decision}"
        return Answer(make_reply(decision, would.document, done=False, confirm=confirm), would.links)

    def _acting(self, tool: Tool, arguments: ToolArguments, caller: Caller) -> Context:
        operation = tool.acts_by(arguments)
        origin = Origin(f"mcp {tool.name}", caller.address, caller.identity.token)
        refusal = caller.identity.refusal(operation.needs, everywhere=operation.everywhere)
        if refusal is not None:
            denied = AccessDenied(refusal)
            note_refusal(
                self._context.noting_for(caller.identity.attribution, origin), tool.operation(arguments), denied
            )
            raise denied
        return self._context.acting_as(caller.identity, operation.needs, origin)


class WaitingFor:
    """Looks at a sweep or an execution; who waits does so between two looks."""

    def __init__(self, context: Context, ref: str, wait_s: float) -> None:
        """Make it.

        Args:
            context: Where, and who waits.
            ref: What for.
            wait_s: At most for how long.
        """
        self._looks = looks(context, ref, count=False)
        self._ends = time.monotonic() + wait_s

    def goes_on(self) -> bool:
        """Return whether there is time left, and something goes on. Raises InputError if there is no such thing."""
        return time.monotonic() < self._ends and next(self._looks).goes_on


def find_tool(name: str) -> Tool:
    """Return a tool. Raises NotFound if there is none of this name."""
    tool = _BY_NAME.get(name)
    if tool is None:
        shown = name if len(name) <= 60 else f"{name[:59]}…"
        raise NotFound(f"there is no tool {shown!r}{did_you_mean(shown, _BY_NAME)}")
    return tool


def checked_arguments(tool: Tool, given: Mapping[str, Json]) -> ToolArguments:
    """Return the arguments of a call. Raises InputError if they do not fit the tool's schema, or are too many."""
    try:
        size = len(json.dumps(given))
    except RecursionError:
        raise InputError(f"the arguments of {tool.name} hold too many lists or objects within each other") from None
    if size > MOST_ARGUMENTS:
        raise InputError(
            f"the arguments of {tool.name} have {size:,} characters; at most {MOST_ARGUMENTS:,} may be sent"
        )
    problems = [
        f"{'.'.join(map(str, error.absolute_path)) or 'arguments'}: {_short(error.message)}"
        for error in _VALIDATORS[tool.name].iter_errors(given)
    ]
    if problems:
        raise InputError(*problems[:10])
    return cast("ToolArguments", dict(given))  # the schemas of tools have its keys


def _answer(found: Found) -> Answer:
    return Answer(make_reply(found.decision, found.document), found.links)


def _short(message: str) -> str:
    return message if len(message) <= 200 else f"{message[:199]}…"
