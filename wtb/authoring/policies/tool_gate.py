"""Holding calls of tools against policies: each call is allowed, denied, or waits until a person approves it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping

from wtb.authoring.boundary import DecisionReport
from wtb.authoring.context.ask import Questioner
from wtb.authoring.context.attempt_record import Record
from wtb.authoring.policies.cedar import Decision
from wtb.authoring.policies.recorded import CALL, NodePolicies
from wtb.authoring.tools import ToolReport
from wtb.core.errors import ToolDenied
from wtb.core.mappings import Arguments
from wtb.core.questions import Question
from wtb.core.serialization.codec import encode
from wtb.core.serialization.plain_json import storable

_NAMED = 200  # characters of arguments in the text of a question, whose context has them whole


class ToolGate:
    """Decides about the calls of one attempt.

    One approval is for one call: a call that was approved and made by an earlier attempt is not made again, and one
    that failed is asked about anew.

    Args:
        policies: Of the sweep.
        facts: What is known of the attempt.
        record: Of the attempt.
        questioner: Asks people.
        earlier: Calls that attempts of this node run have made, in order.
    """

    def __init__(
        self,
        policies: NodePolicies,
        facts: Mapping[str, str],
        record: Record,
        questioner: Questioner,
        earlier: Iterable[ToolReport] = (),
    ) -> None:
        self._policies = policies
        self._facts = facts
        self._record = record
        self._questioner = questioner
        self._lock = threading.Lock()
        self._results: dict[tuple[str, str], list[str]] = {}
        self._failures: Counter[tuple[str, str]] = Counter()
        self._calls: Counter[tuple[str, str]] = Counter()
        self._replayed: Counter[tuple[str, str]] = Counter()
        self._reported: set[tuple[str, tuple[str, ...]]] = set()
        for call in earlier:
            key = (call["tool"], call["arguments"])
            if call["status"] == "done" and call["result"] is not None:
                self._results.setdefault(key, []).append(call["result"])
            else:
                self._failures[key] += 1

    def check(self, tool: str, arguments: Arguments, stored: str, result: str | None) -> str | None:
        """Decide about a call before it is made.

        Args:
            tool: The name of the tool.
            arguments: Those of the call, by name.
            stored: The same as typed JSON.
            result: What an earlier attempt's call returned, if this one is not to be made anyway.

        Returns:
            What an earlier call returned, as typed JSON; None if this one is to be made.

        Raises:
            ToolDenied: If policies or a person deny it.
            Asked: If a person has to approve it first.
        """
        key = (tool, stored)
        with self._lock:
            number = self._calls[key] + self._failures[key]
            self._calls[key] += 1
            if result is not None:
                self._replayed[key] += 1
                return result
        decision = self._policies.decide_call(tool, arguments, self._facts)
        if decision.allowed:
            self._note_allowed(tool, decision)
            return None
        if decision.question is None:
            self._report(tool, decision, stored)
            raise ToolDenied(f"tool {tool!r} may not be called with these arguments: {decision.why}")
        with self._lock:
            results = self._results.get(key, ())
            if self._replayed[key] < len(results):
                self._replayed[key] += 1
                return results[self._replayed[key] - 1]
        self._ask(tool, arguments, stored, decision, number)
        return None

    def _ask(self, tool: str, arguments: Arguments, stored: str, decision: Decision, number: int) -> None:
        """Return if a person has approved a call. Raises Asked, or ToolDenied if they rejected it."""
        shown = storable(", ".join(f"{name}={value!r}" for name, value in arguments.items()), _NAMED)
        text = f"{decision.question} " if decision.question else ""
        call = {"tool": tool, "arguments": dict(arguments), "policies": list(decision.rules), **self._facts}
        question = Question("ask", self._questioner.task, f"{text}Call {tool}({shown})?", number, context=encode(call))
        answer = self._questioner.approval(question, lambda: self._report(tool, decision, stored, asked=True))
        if answer is None:
            self._report(tool, decision, stored)
            raise ToolDenied(f"tool {tool!r} may not be called: {decision.why}, and nobody is there to ask")
        approved = Decision(answer.action != "reject", decision.rules)
        self._report(tool, approved, stored, answered_by=answer.by)
        if not approved.allowed:
            raise ToolDenied(f"tool {tool!r} may not be called: {decision.why}, and it was {answer.refusal}")

    def _note_allowed(self, tool: str, decision: Decision) -> None:
        """Report that calls are allowed, once for each tool and the policies that permit it."""
        key = (tool, decision.rules)
        if key not in self._reported:
            self._reported.add(key)
            self._report(tool, decision, None)

    def _report(
        self,
        tool: str,
        decision: Decision,
        arguments: str | None,
        *,
        asked: bool = False,
        answered_by: str | None = None,
    ) -> None:
        report: DecisionReport = {
            "action": CALL,
            "on": tool,
            "at": time.time(),
            "allowed": decision.allowed,
            "rules": list(decision.rules),
            "errors": list(decision.errors),
            "arguments": arguments,
            "asked": asked,
            "answered_by": answered_by,
        }
        self._record.report("decided", report)
