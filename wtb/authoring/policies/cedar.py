"""Cedar in this process: policies that are parsed once, and decisions by them.

Cedar skips a policy that cannot be evaluated, so that a `forbid` that fails would not forbid; here any error denies.
A `forbid` with the annotation `@ask` asks a person instead, unless another one forbids the same without it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, NotRequired

from typing_extensions import TypedDict

from wtb.core.classes.frozen import frozen
from wtb.core.values import Json

ASK = "ask"  # the annotation of a policy that asks a person


@frozen
class Decision:
    """The result of evaluating policies.

    Attributes:
        allowed: Whether it may be done.
        rules: The policies that decided; empty if none permits it.
        errors: What could not be evaluated, each of which denies.
        question: What to ask a person, if only policies forbid it that ask.
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
        self._questions = {f"policy{number}": policy.question for number, policy in enumerate(listed)}

    def decide(
        self,
        by: str,
        action: str,
        resource: tuple[str, str],
        context: Mapping[str, Json],
        entities: Sequence[Entity] = (),
    ) -> Decision:
        """Decide whether somebody may do something. Whatever goes wrong denies.

        Args:
            by: Who acts.
            action: What they do.
            resource: The kind of what they act on, and its id.
            context: What else policies can refer to.
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
            known = self._entities(entities) if entities else self._nobody
            result = self._cedar.is_authorized(request, self._parsed, known)
            errors, reasons = list(result.diagnostics.errors), list(result.diagnostics.reasons)
            allowed = bool(result.allowed)
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
        """Return what to ask a person, if all policies that forbid it ask."""
        questions = [self._questions.get(reason) for reason in sorted(reasons)]
        texts = [question for question in questions if question is not None]
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
    """The actions that a policy is about, as Cedar writes it as JSON; neither key where it is about all."""

    entity: NotRequired[_Action]
    entities: NotRequired[list[_Action]]


class _Policy(TypedDict):
    """A policy, as Cedar writes it as JSON: what is read of it."""

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
