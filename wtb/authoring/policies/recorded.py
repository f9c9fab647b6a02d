"""The policies that are recorded with a sweep, and the requests of its nodes that they decide about.

They are recorded when the sweep is submitted, and hold until its end. So workers and node processes need no folder of
policies, and all cells of a sweep, which are compared with each other, run under the same rules.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import orjson

from wtb.authoring.policies.cedar import Decision, Entity, PolicySet
from wtb.core.mappings import Arguments
from wtb.core.serialization.codec import encode
from wtb.core.tree.stored_spec import StoredPolicies
from wtb.core.values import Json

CALL: Final = "call tool with arguments"
WRITE: Final = "write file"
CONNECT: Final = "connect"
START: Final = "start program"
NODE_ACTIONS: Final = (CALL, WRITE, CONNECT, START)  # that nodes do, in the order in which the page lists them
_DEEPEST: Final = 5  # mappings within arguments whose values have names of their own
_MOST: Final = 2**63 - 1  # of a number in Cedar


class NodePolicies:
    """The policies of a sweep, in one process that runs its nodes.

    Args:
        recorded: As the sweep was submitted.
        facts: What is known of the sweep.
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
            facts: What is known of the attempt that calls it, such as its node.
        """
        texts, numbers = named_arguments(arguments)
        entities = (Entity("Arguments", "call", texts), Entity("Numbers", "call", numbers))
        more = {"arguments": entities[0].reference, "numbers": entities[1].reference}
        return self._decide(CALL, ("Tool", tool), {**facts, **more}, entities)

    def decide_act(self, action: str, resource: tuple[str, str], facts: Mapping[str, Json]) -> Decision:
        """Decide about a file, a host or a program.

        Args:
            action: What is done with it.
            resource: Its kind, and which it is.
            facts: What is known of it, and of the attempt.
        """
        return self._decide(action, resource, facts)

    def _decide(
        self, action: str, resource: tuple[str, str], facts: Mapping[str, Json], entities: tuple[Entity, ...] = ()
    ) -> Decision:
        if self._problem is not None:
            return Decision(False, (), (self._problem,))
        known = {"by": self._by, "needs": "submit", "effect": "spends", **self._facts, **facts}
        return self._policies.decide(self._by, action, resource, known, entities)


def written(recorded: StoredPolicies, facts: Mapping[str, str]) -> str:
    """Write policies with what is known of their sweep, for `read_policies` in another process."""
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
    for key, value in values.items():
        name = f"{prefix}{key}"
        if value is None:
            continue
        if isinstance(value, bool):
            texts[name] = "true" if value else "false"
        elif isinstance(value, int | float):
            texts[name], numbers[name] = str(value), _whole(value)
        elif isinstance(value, str):
            texts[name] = _sound(value)
        elif isinstance(value, os.PathLike):
            texts[name] = _sound(os.fsdecode(value))
        else:
            texts[name] = _sound(_as_text(value))
            if isinstance(value, Mapping) and deepest:
                _name(f"{name}.", value, texts, numbers, deepest - 1)


def _sound(text: str) -> str:
    """A text that JSON can carry, also if it has lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()


def _as_text(value: Any) -> str:
    """A list, mapping or object as JSON, as it is stored."""
    stored = encode(value).decode()
    return json.dumps(orjson.loads(stored), ensure_ascii=False, separators=(",", ":"))


def _whole(value: float) -> int:
    """A number as a whole one that Cedar takes."""
    if math.isnan(value) or value >= _MOST:
        return _MOST
    if value <= -_MOST:
        return -_MOST
    return math.ceil(value) if value > 0 else math.floor(value)
