"""Calls of tools: permissions are checked, costly calls need consent, and answers are shortened."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NotRequired, cast

from jsonschema import Draft202012Validator
from typing_extensions import TypedDict

from wtb.core.errors import AccessDenied, ConflictError, InputError, NotFound, did_you_mean
from wtb.core.frozen import frozen
from wtb.core.values import Json
from wtb.display.json_text import as_json
from wtb.hosting.agent_tools import TOOLS, Found, Tool, ToolArguments, show_outcome
from wtb.operations.auditing import note_refusal
from wtb.operations.context import Context, Origin
from wtb.operations.identity import Identity
from wtb.operations.running.waiting import looks

MOST_TOKENS: Final = 10_000
CHARACTERS_PER_TOKEN: Final = 2.5  # of JSON full of numbers and ids; of prose there are more
MOST_CHARACTERS: Final = int(MOST_TOKENS * CHARACTERS_PER_TOKEN)
_ROOM: Final = 4_000  # for what stands around the document
_PATHS: Final = (20, 100)  # that are named of what was cut, and characters of each
_DECISION: Final = 4_000
_STEPS: Final = ((10, 500), (5, 200), (3, 100), (1, 60), (0, 40))  # items of lists and characters of texts that stay


class ConfirmDocument(TypedDict):
    """The token that confirms a call."""

    token: str
    expires_s: float
    how: str


class Reply(TypedDict):
    """A reply of any tool."""

    decision: str
    done: bool
    document: dict[str, Json]
    left_out: list[str]
    confirm: NotRequired[ConfirmDocument]


REPLY_SCHEMA: Final[dict[str, object]] = {
    "type": "object",
    "properties": {
        "decision": {"type": "string", "description": "The outcome in words."},
        "done": {"type": "boolean", "description": "False where nothing is done until it is confirmed."},
        "document": {"type": "object", "description": "The document of the command, cut where it is long."},
        "left_out": {
            "type": "array",
            "items": {"type": "string"},
            "description": "The parts that were cut, and where to get them.",
        },
        "confirm": {
            "type": "object",
            "properties": {
                "token": {"type": "string"},
                "expires_s": {"type": "number"},
                "how": {"type": "string"},
            },
            "required": ["token", "expires_s", "how"],
        },
    },
    "required": ["decision", "done", "document", "left_out"],
}


def make_reply(decision: str, document: object, *, done: bool = True, confirm: ConfirmDocument | None = None) -> Reply:
    """Make a reply that is short enough.

    Args:
        decision: The result in words.
        document: The full document.
        done: Whether the call was run, not only previewed.
        confirm: The token that confirms the call.
    """
    decision = _shortened(decision, _DECISION)
    # Through JSON, because only plain lists, objects and texts can be cut.
    whole = json.loads(as_json(document))
    whole = whole if isinstance(whole, dict) else {"items": whole}
    room = MOST_CHARACTERS - _ROOM - len(decision)
    reply: Reply = {"decision": decision, "done": done, "document": whole, "left_out": []}
    for most_members, characters in _STEPS:
        if len(json.dumps(reply["document"])) <= room:
            break
        # Each step cuts the whole document, so that `left_out` names everything that is missing.
        left_out: list[str] = []
        reply["document"] = {key: _cut(part, key, (most_members, characters), left_out) for key, part in whole.items()}
        reply["left_out"] = [_shortened(path, _PATHS[1]) for path in left_out[: _PATHS[0]]]
    else:
        if len(json.dumps(reply["document"])) > room:  # of very many keys
            reply["document"], reply["left_out"] = {}, ["all of it: it is too large for a reply"]
    if confirm is not None:
        reply["confirm"] = confirm
    return reply


def _cut(content: Json, path: str, step: tuple[int, int], left_out: list[str]) -> Json:
    """Return a value with shortened lists and texts; record what was left out."""
    most_members, characters = step
    if isinstance(content, str):
        return _shortened(content, characters)
    if isinstance(content, Mapping):
        return {key: _cut(part, f"{path}.{key}", step, left_out) for key, part in content.items()}
    if isinstance(content, Sequence):
        if len(content) > most_members:
            left_out.append(f"{len(content) - most_members:,} of {len(content):,} of {path}")
        return [_cut(part, f"{path}[]", step, left_out) for part in content[:most_members]]
    return content


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


LASTS_S = 300.0
_BYTES = 16


@frozen
class Consent:
    """A token with which a caller consents to a previewed call.

    Attributes:
        token: The token, to be sent with the same arguments.
        expires_s: Seconds for which it is valid.
    """

    token: str
    expires_s: float


@frozen
class Consented:
    """The target of a call to which somebody has consented."""

    _digest: str

    def check(self, target: str) -> None:
        """Raise ConflictError if the call would now act on another target."""
        if self._digest != _digest(target):
            raise ConflictError(
                "the effect of this call has changed since its token was issued; nothing was done. Call without "
                "`confirm` for a new token"
            )


class Confirmations:
    """Issues consents and accepts each once, during the life of this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Make it with a key of its own.

        Args:
            clock: Returns seconds. The time of day would not do, because it may be corrected meanwhile.
        """
        self._key = secrets.token_bytes(32)
        self._clock = clock
        self._lock = threading.Lock()
        self._used: dict[str, float] = {}  # used nonce -> when it expires anyway

    def offer(self, who: str, tool: str, arguments: ToolArguments, target: str = "") -> Consent:
        """Return the consent that the caller sends to confirm.

        Args:
            who: The caller.
            tool: The tool.
            arguments: Its arguments.
            target: The target that the call would act on.
        """
        head = f"{secrets.token_urlsafe(_BYTES)}.{int(self._clock() + LASTS_S)}.{_digest(target)}"
        return Consent(f"{head}.{self._signature(head, who, _request(tool, arguments))}", LASTS_S)

    def take(self, token: str, who: str, tool: str, arguments: ToolArguments) -> Consented:
        """Accept a consent, which is then used up.

        Args:
            token: The token.
            who: As for `offer`.
            tool: As for `offer`.
            arguments: As for `offer`.

        Returns:
            The consented target.

        Raises:
            ConflictError: If it is another caller's, for another call, expired, used, or none at all.
        """
        head, _, signed = token.rpartition(".")
        nonce, _, rest = head.partition(".")
        until, _, target = rest.partition(".")
        if not (until.isascii() and until.isdigit() and len(until) < 16 and token.isascii()):
            raise ConflictError(_NONE)
        if not hmac.compare_digest(signed, self._signature(head, who, _request(tool, arguments))):
            raise ConflictError(_NONE)
        now = self._clock()
        if int(until) < now:
            raise ConflictError("the confirm token is too old; nothing was done. Call without it to get another one")
        with self._lock:
            # Expired tokens are rejected above, so their nonces can be forgotten.
            self._used = {used_nonce: ends for used_nonce, ends in self._used.items() if ends >= now}
            if nonce in self._used:
                raise ConflictError("the confirm token was used already; nothing more was done")
            self._used[nonce] = float(until)
        return Consented(target)

    def _signature(self, head: str, who: str, request: str) -> str:
        signed = json.dumps([head, who, request]).encode()
        return hmac.new(self._key, signed, hashlib.sha256).hexdigest()


_NONE = (
    "the confirm token is not one that you were given for these arguments; nothing was done. Call without `confirm` to "
    "get one"
)


def _request(tool: str, arguments: ToolArguments) -> str:
    return json.dumps([tool, arguments], sort_keys=True)


def _digest(target: str) -> str:
    return hashlib.sha256(target.encode()).hexdigest()[:16]


MOST_ARGUMENTS: Final = 1_000_000  # characters
LOOK_S: Final = 0.5  # between two looks at what somebody waits for
_BY_NAME: Final = {tool.name: tool for tool in TOOLS}
_VALIDATORS: Final = {tool.name: Draft202012Validator(tool.schema) for tool in TOOLS}


@frozen
class Caller:
    """The caller of a tool.

    Attributes:
        identity: The caller's identity and permissions.
        address: The caller's address; None for this machine.
    """

    identity: Identity
    address: str | None = None

    @property
    def key(self) -> str:
        """A key that is unique to the caller."""
        return f"{self.identity.method}:{self.identity.digest or self.identity.name}"


@frozen
class Answer:
    """The answer to a call.

    Attributes:
        reply: The reply to the agent.
        links: Paths of the full documents, by name.
    """

    reply: Reply
    links: Mapping[str, str]


class Calls:
    """Runs calls of tools."""

    def __init__(self, context: Context, confirmations: Confirmations | None = None) -> None:
        """Make it.

        Args:
            context: The context of operations.
            confirmations: Issues and accepts consents.
        """
        self._context = context
        self._confirmations = confirmations or Confirmations()

    def call(self, name: str, raw_arguments: Mapping[str, Json], caller: Caller) -> Answer:
        """Run a call, or return a preview if it needs consent.

        Args:
            name: The name of the tool.
            raw_arguments: Its arguments.
            caller: The caller.

        Returns:
            The answer.

        Raises:
            NotFound: If there is no such tool.
            InputError: If the arguments do not fit.
            AccessDenied: If the caller lacks the permission.
            ConflictError: If the consent is invalid.
            WTBError: As the operation raises it.
        """
        tool = find_tool(name)
        arguments = checked_arguments(tool, raw_arguments)
        # A consent is signed for the arguments of the preview, which had no token.
        consent = arguments.pop("confirm", None)
        acting = self._acting(tool, arguments, caller)
        if not tool.needs_consent(arguments):
            if consent is not None:
                raise InputError("confirm is given, but nothing needs confirmation; leave it out", argument="confirm")
            return _answer(tool.call(acting, arguments))
        assert tool.preview is not None
        if consent is None:
            return self._offer(tool, acting, arguments, caller)
        # Used up before the call, so that one that failed halfway is not simply sent again.
        consented = self._confirmations.take(consent, caller.key, name, arguments)
        # Previewed again: a name may refer to another sweep by now, to which the caller has not consented.
        consented.check(tool.preview(acting, arguments).target)
        return _answer(tool.call(acting, arguments))

    def waiting(
        self, name: str, raw_arguments: Mapping[str, Json], caller: Caller, started: str | None = None
    ) -> WaitingFor:
        """Return the sweep or execution that a caller of `status` or `start` waits for.

        Args:
            name: The name of the tool.
            raw_arguments: Its arguments.
            caller: The caller.
            started: The execution that `start` began.
        """
        tool = find_tool(name)
        arguments = checked_arguments(tool, raw_arguments)
        acting = self._acting(tool, arguments, caller)
        return WaitingFor(acting, started or str(arguments["ref"]), float(arguments.get("wait_s", 0)))

    def started(self, execution: str, raw_arguments: Mapping[str, Json], caller: Caller) -> Answer:
        """Return the outcome or the status of an execution that `start` began.

        Args:
            execution: Its id.
            raw_arguments: The arguments of `start`.
            caller: Who called it.
        """
        tool = find_tool("start")
        return _answer(show_outcome(self._acting(tool, checked_arguments(tool, raw_arguments), caller), execution))

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
            noting = self._context.noting_for(caller.identity.attribution, origin)
            note_refusal(noting, tool.operation(arguments), denied)
            raise denied
        return self._context.acting_as(caller.identity, operation.needs, origin)


class WaitingFor:
    """Repeated looks at a sweep or an execution, between which the caller waits."""

    def __init__(self, context: Context, ref: str, wait_s: float) -> None:
        """Make it.

        Args:
            context: The context of the caller.
            ref: The sweep or execution.
            wait_s: The maximum number of seconds.
        """
        self._looks = looks(context, ref, count=False)
        self._ends = time.monotonic() + wait_s

    def should_wait(self) -> bool:
        """Return whether it still runs and there is time left. Raises InputError if it does not exist."""
        return time.monotonic() < self._ends and next(self._looks).is_running


def find_tool(name: str) -> Tool:
    """Return a tool. Raises NotFound if there is none of this name."""
    tool = _BY_NAME.get(name)
    if tool is None:
        short_name = _shortened(name, 60)
        raise NotFound(f"there is no tool {short_name!r}{did_you_mean(short_name, _BY_NAME)}")
    return tool


def checked_arguments(tool: Tool, raw_arguments: Mapping[str, Json]) -> ToolArguments:
    """Return the arguments of a call. Raises InputError if they do not fit the tool's schema, or are too many."""
    try:
        size = len(json.dumps(raw_arguments))
    except RecursionError:
        raise InputError(f"the arguments of {tool.name} hold too many lists or objects within each other") from None
    if size > MOST_ARGUMENTS:
        raise InputError(
            f"the arguments of {tool.name} have {size:,} characters; at most {MOST_ARGUMENTS:,} may be sent"
        )
    problems = [
        f"{'.'.join(map(str, error.absolute_path)) or 'arguments'}: {_shortened(error.message, 200)}"
        for error in _VALIDATORS[tool.name].iter_errors(raw_arguments)
    ]
    if problems:
        raise InputError(*problems[:10])
    return cast("ToolArguments", dict(raw_arguments))  # the schemas of tools have its keys


def _answer(outcome: Found) -> Answer:
    return Answer(make_reply(outcome.decision, outcome.document), outcome.links)
