"""Policies in Cedar: decisions by them, and those that are recorded with a sweep for the acts of its nodes.

Cedar skips a policy that cannot be evaluated, so that a `forbid` that fails would not forbid; here any error denies.
A `forbid` with the annotation `@ask` asks a person instead, unless another one forbids the same without it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, Final, NamedTuple, NotRequired

import orjson
from typing_extensions import TypedDict

from wtb.core.frozen import frozen
from wtb.core.serialization.codec import encode
from wtb.core.tree.stored_spec import StoredPolicies
from wtb.core.values import Arguments, Json

ASK = "ask"  # the annotation of a policy that asks a person


@frozen
class Decision:
    """The result of evaluating policies.

    Attributes:
        allowed: Whether it may be done.
        rules: The policies that decided; empty if none permits it.
        errors: Errors of policies, each of which denies.
        question: The question to a person, if all policies that forbid it ask.
    """

    allowed: bool
    rules: tuple[str, ...]
    errors: tuple[str, ...] = ()
    question: str | None = None

    @property
    def why(self) -> str:
        """The reason in words."""
        if self.errors:
            return f"a policy could not be evaluated, which denies: {'; '.join(self.errors)}"
        if not self.rules:
            return "no policy permits it"
        if self.question is not None:
            return f"policy {', '.join(self.rules)} requires that a person approves it"
        return f"policy {', '.join(self.rules)} {'permits' if self.allowed else 'forbids'} it"


class Entity(NamedTuple):
    """A thing that policies refer to, with text or numbers by name (its tags)."""

    kind: str
    id: str
    tags: Mapping[str, Json]

    @property
    def reference(self) -> Json:
        """The entity, as a context refers to it."""
        return {"__entity": {"type": self.kind, "id": self.id}}


class PolicySet:
    """Policies that were parsed.

    Attributes:
        text: The policies, in Cedar.
        names: The name of each, in order.
    """

    def __init__(self, text: str, names: Sequence[str]) -> None:
        """Parse policies. Raises ModuleNotFoundError if Cedar is not installed, ValueError for bad policies."""
        self._cedar: Any = import_module("cedarpy")
        self.text = text
        self.names = names
        self._parsed = self._cedar.PolicySet.from_str(text)
        self._nobody = self._cedar.Entities.from_json_str("[]")
        listed = parse_policies(text)
        # Cedar calls the policies of a text policy0, policy1 and so on, in their order.
        self._questions = {f"policy{number}": policy.question for number, policy in enumerate(listed)}

    def decide(
        self,
        by: str,
        action: str,
        resource: tuple[str, str],
        context: Mapping[str, Json],
        entities: Sequence[Entity] = (),
    ) -> Decision:
        """Decide whether a user may act. Any error denies.

        Args:
            by: The user.
            action: The action.
            resource: The kind and the id of its object.
            context: Further facts that policies can refer to.
            entities: Those that the context refers to.
        """
        kind, id = resource
        request = {
            "principal": {"type": "User", "id": by},
            "action": {"type": "Action", "id": action},
            "resource": {"type": kind, "id": id},
            "context": json.dumps(dict(context)),  # as the library would, after a copy
        }
        try:
            all_entities = self._entities(entities) if entities else self._nobody
            response = self._cedar.is_authorized(request, self._parsed, all_entities)
            errors, reasons = list(response.diagnostics.errors), list(response.diagnostics.reasons)
            allowed = bool(response.allowed)
        except Exception as error:  # noqa: BLE001 - of the library: whatever it is denies
            return Decision(False, (), (f"{type(error).__name__}: {error}",))
        rules = tuple(sorted(map(self._name, reasons)))
        question = None if allowed or errors else self._question(reasons)
        return Decision(allowed and not errors, rules, tuple(str(error) for error in errors), question)

    def _entities(self, entities: Sequence[Entity]) -> Any:
        listed = [
            {"uid": {"type": kind, "id": id}, "attrs": {}, "parents": [], "tags": tags} for kind, id, tags in entities
        ]
        return self._cedar.Entities.from_json_str(json.dumps(listed))

    def _question(self, reasons: Sequence[str]) -> str | None:
        """Return the question to a person, if all policies that forbid it have one."""
        questions = [self._questions.get(reason) for reason in sorted(reasons)]
        texts = [question for question in questions if question is not None]
        # One policy that forbids without asking is enough: no approval may override it.
        return " ".join(dict.fromkeys(texts)) if texts and len(texts) == len(questions) else None

    def _name(self, id: str) -> str:
        number = id.removeprefix("policy")
        return self.names[int(number)] if number.isdigit() and int(number) < len(self.names) else id


class ParsedPolicy(NamedTuple):
    """A policy, as far as WTB reads it.

    Attributes:
        name: Its `@id`, if it has one.
        forbids: Whether it is a `forbid`.
        actions: Those that it names; None if it holds for any.
        question: The text of its `@ask`; None without it.
    """

    name: str | None
    forbids: bool
    actions: frozenset[str] | None
    question: str | None


def parse_policies(text: str) -> list[ParsedPolicy]:
    """Parse a text of policies, in order. Raises ValueError for bad ones and for templates."""
    cedar: Any = import_module("cedarpy")
    cedar.PolicySet.from_str(text)
    document = json.loads(cedar.policies_to_json_str(text))
    if document.get("templates"):
        raise ValueError("it has a template, which nothing links; write a policy for each")
    listed = document.get("staticPolicies", {})
    return [_parsed(listed[f"policy{number}"]) for number in range(len(listed))]


class _Action(TypedDict):
    """The id of an action, as Cedar writes policies as JSON."""

    id: str


class _ActionScope(TypedDict):
    """The actions of a policy, as Cedar writes it as JSON; without either key it is about all actions."""

    entity: NotRequired[_Action]
    entities: NotRequired[list[_Action]]


class _Policy(TypedDict):
    """The keys of a policy that are read, as Cedar writes it as JSON."""

    effect: str
    action: _ActionScope
    annotations: NotRequired[Mapping[str, str | None]]


def _parsed(policy: _Policy) -> ParsedPolicy:
    annotations = policy.get("annotations") or {}
    scope = policy["action"]
    named = [scope["entity"]] if "entity" in scope else scope.get("entities")
    actions = None if named is None else frozenset(action["id"] for action in named)
    question = (annotations[ASK] or "") if ASK in annotations else None
    return ParsedPolicy(annotations.get("id"), policy["effect"] == "forbid", actions, question)


CALL: Final = "call tool with arguments"
WRITE: Final = "write file"
CONNECT: Final = "connect"
START: Final = "start program"
NODE_ACTIONS: Final = (CALL, WRITE, CONNECT, START)  # that nodes do, in the order in which the page lists them
_DEEPEST: Final = 5  # mappings within arguments whose values have names of their own
_MAX_NUMBER: Final = 2**63 - 1  # of a number in Cedar


class NodePolicies:
    """The policies of a sweep, in one process that runs its nodes.

    Args:
        recorded: As the sweep was submitted.
        facts: Facts about the sweep, by name.
    """

    def __init__(self, recorded: StoredPolicies, facts: Mapping[str, str]) -> None:
        self.actions = frozenset(recorded["actions"])
        self._by = recorded["by"]
        self._facts = facts
        self._problem: str | None = None
        try:
            self._policies = PolicySet(recorded["text"], recorded["names"])
        except ModuleNotFoundError:
            self._problem = "Cedar, which evaluates policies, is not installed where the node runs"
        except ValueError as error:
            self._problem = f"the recorded policies cannot be read: {error}"

    def decide_call(self, tool: str, arguments: Arguments, facts: Mapping[str, str]) -> Decision:
        """Decide about a call of a tool.

        Args:
            tool: Its name.
            arguments: Those of the call, by name.
            facts: Facts about the attempt that calls it, such as its node.
        """
        texts, numbers = named_arguments(arguments)
        entities = (Entity("Arguments", "call", texts), Entity("Numbers", "call", numbers))
        more = {"arguments": entities[0].reference, "numbers": entities[1].reference}
        return self._decide(CALL, ("Tool", tool), {**facts, **more}, entities)

    def decide_act(self, action: str, resource: tuple[str, str], facts: Mapping[str, Json]) -> Decision:
        """Decide about a file, a host or a program.

        Args:
            action: The action.
            resource: The kind and the name of its object.
            facts: Facts about it and about the attempt.
        """
        return self._decide(action, resource, facts)

    def _decide(
        self, action: str, resource: tuple[str, str], facts: Mapping[str, Json], entities: tuple[Entity, ...] = ()
    ) -> Decision:
        # Policies that cannot be evaluated deny everything. Without them, a missing package would switch them off.
        if self._problem is not None:
            return Decision(False, (), (self._problem,))
        context = {"by": self._by, "needs": "submit", "effect": "spends", **self._facts, **facts}
        return self._policies.decide(self._by, action, resource, context, entities)


def written(recorded: StoredPolicies, facts: Mapping[str, str]) -> str:
    """Write policies with the facts about their sweep, for `read_policies` in another process."""
    return orjson.dumps([recorded, facts]).decode()


@lru_cache(maxsize=8)
def read_policies(text: str) -> NodePolicies:
    """Read what `written` wrote; the same object each time."""
    return NodePolicies(*orjson.loads(text))


def named_arguments(arguments: Arguments) -> tuple[dict[str, Json], dict[str, Json]]:
    """Return arguments as policies see them: all as text by name, and the numbers among them.

    Values within a mapping have names such as `address.city`. Fractions are rounded away from zero, and numbers beyond
    64 bits count as the largest.
    """
    texts: dict[str, Json] = {}
    numbers: dict[str, Json] = {}
    _name("", arguments, texts, numbers, _DEEPEST)
    return texts, numbers


def _name(
    prefix: str, values: Mapping[Any, Any], texts: dict[str, Json], numbers: dict[str, Json], deepest: int
) -> None:
    for key, argument in values.items():
        name = f"{prefix}{key}"
        if argument is None:
            continue
        # Before numbers, since a bool is an int in Python.
        if isinstance(argument, bool):
            texts[name] = "true" if argument else "false"
        elif isinstance(argument, int | float):
            texts[name], numbers[name] = str(argument), _whole(argument)
        elif isinstance(argument, str):
            texts[name] = _sound(argument)
        elif isinstance(argument, os.PathLike):
            texts[name] = _sound(os.fsdecode(argument))
        else:
            texts[name] = _sound(_as_text(argument))
            if isinstance(argument, Mapping) and deepest:
                _name(f"{name}.", argument, texts, numbers, deepest - 1)


def _sound(text: str) -> str:
    """Return a text that JSON can carry, even if it has lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()


def _as_text(argument: Any) -> str:
    """Return a list, mapping or object as JSON, as it is stored."""
    stored = encode(argument).decode()
    return json.dumps(orjson.loads(stored), ensure_ascii=False, separators=(",", ":"))


def _whole(number: float) -> int:
    """Return a number as a whole one that Cedar takes."""
    if math.isnan(number) or number >= _MAX_NUMBER:
        return _MAX_NUMBER
    if number <= -_MAX_NUMBER:
        return -_MAX_NUMBER
    # Away from zero, so that a limit such as "at most 10" also stops 10.5.
    return math.ceil(number) if number > 0 else math.floor(number)
