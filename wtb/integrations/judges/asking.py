"""Asking a model for a judgement: the structured reply of an OpenAI-style or Anthropic-style endpoint.

The same question is asked once in a process, and once in all that share a folder (`kept`): its reply is kept, by
everything that was sent, unless it is to be fresh.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args
from weakref import WeakValueDictionary

from wtb.authoring.context.attempt_record import CaseView
from wtb.authoring.context.node_context import Context, surrounding
from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError
from wtb.core.failures import Failure
from wtb.core.providers.faults import lost_to
from wtb.core.providers.retrying import call_again
from wtb.core.providers.secrets import without_secrets
from wtb.core.scoring.judgement import Judgement
from wtb.integrations.judges import kept
from wtb.integrations.judges.rubric import Preference, Rubric, UnusableReply, reason_of
from wtb.integrations.judges.turns import NoTurn, wait_for_turn
from wtb.integrations.models import record_calls

Provider = Literal["openai", "anthropic"]
PROVIDERS: tuple[Provider, ...] = get_args(Provider)
_ERRORS = {"openai": "OpenAIError", "anthropic": "AnthropicError"}  # from which each package derives its own
_TOOL = "judgement"
_MOST_TOKENS = 2_048  # of a reply; Anthropic requires a limit
_MOST_KEPT = 1_000  # replies
_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
_LEAST_S = 0.1  # of a call, as the clients take no less than 0


@frozen
class Endpoint:
    """Where models are asked. url: of another server with the same protocol. key: the variable that holds its key."""

    provider: Provider
    url: str | None = None
    key: str | None = None


@frozen
class Question:
    """All that is sent. sample: its number among questions that are alike. deadline: on the monotonic clock.

    fresh: it is asked whatever was replied to it before. place: where replies are kept, unless the environment says it.
    per_minute: requests to the model. bill: takes what each request cost; None where nobody knows.
    """

    endpoint: Endpoint
    model: str
    rubric: Rubric | Preference
    data: str
    temperature: float | None
    sample: int
    deadline: float = field(compare=False)
    fresh: bool = False
    place: Path | None = field(default=None, compare=False)
    seed: int | None = None
    per_minute: float | None = field(default=None, compare=False)
    bill: list[float | None] = field(default_factory=list, compare=False, repr=False)

    @property
    def digest(self) -> str:
        """Of everything that is sent, and where to; not of the key."""
        sent = (
            self.rubric.instructions(),
            self.rubric.schema(),
            self.data,
            self.temperature,
            self.sample,
            *([] if self.seed is None else [self.seed]),
        )
        whole = json.dumps([self.endpoint.provider, self.endpoint.url, self.model, *sent], sort_keys=True)
        return hashlib.sha256(whole.encode()).hexdigest()

    @property
    def left_s(self) -> float:
        """Seconds until its deadline."""
        return self.deadline - time.monotonic()


_ONE = threading.Lock()
_BEING_ASKED: WeakValueDictionary[Question, threading.Lock] = WeakValueDictionary()


def ask(question: Question) -> Judgement:
    """Ask for one judgement, again where the server may only be busy, until the deadline of the question.

    Args:
        question: What is asked.

    Returns:
        The judgement; one without a level where no reply came. Only what was replied is kept.

    Raises:
        InputError: The variable that is to hold the key is not set.
    """
    errors = getattr(import_module(question.endpoint.provider), _ERRORS[question.endpoint.provider])
    if question.left_s <= 0:
        return Judgement(None, "no time was left to ask")
    try:
        return call_again(lambda used_s: _ask_once(question), question.left_s)
    except errors as error:
        problem = without_secrets(f"{type(error).__name__}: {error}", *_known_secrets(question.endpoint))
        fault = Failure.of(error).provider
        return Judgement(None, problem if fault is None else f"{lost_to(fault)}: {problem}")
    except NoTurn as error:
        return Judgement(None, str(error))


def _ask_once(question: Question) -> Judgement:
    if question.fresh:
        return replied.__wrapped__(question)
    with _alone(question):
        return replied(question)


@contextmanager
def _alone(question: Question) -> Iterator[None]:
    """Wait until nobody in this process is asking the same: then its reply is kept. Raises NoTurn."""
    with _ONE:
        lock = _BEING_ASKED.setdefault(question, threading.Lock())
    if not lock.acquire(timeout=max(question.left_s, 0.0)):
        raise NoTurn("no time was left after another who asked the same")
    try:
        yield
    finally:
        lock.release()


@lru_cache(_MOST_KEPT)
def replied(question: Question) -> Judgement:
    """Ask once, and keep the judgement. What the client raises where no reply came is raised, and is not kept."""
    place = kept.folder() or question.place
    if not question.fresh and (known := kept.find(question.digest, place)) is not None:
        return known
    if question.per_minute is not None:
        endpoint = question.endpoint
        name = json.dumps([endpoint.provider, endpoint.url, endpoint.key, question.model])
        wait_for_turn(name, question.per_minute, question.left_s, place)
    context = Context(CaseView(""), node="judge", variant="")  # only to see what the call costs
    said = _Said()
    with surrounding(context):
        try:
            _reply(question, said)
            score, problem = question.rubric.score_of(said.reply), ""
        except UnusableReply as error:
            score, problem = None, str(error)
    reason = "" if score is None else reason_of(said.reply)
    usd = context.record.usd
    is_known = question.endpoint.url is None and usd > 0  # no server need have the prices of another
    judgement = Judgement(score, problem, usd if is_known else None, said.model, reason)
    question.bill.append(judgement.usd)
    kept.keep(question.digest, judgement, place)
    return judgement


@dataclass
class _Said:
    """What came back: the reply, and of which version the model was that gave it."""

    reply: object = None
    model: str | None = None


def _reply(question: Question, said: _Said) -> None:
    client = client_of(question.endpoint)
    try:
        _ASK[question.endpoint.provider](client, question, said)
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise UnusableReply(f"there is no reply that can be read: {error}") from error


def _ask_openai(client: Any, question: Question, said: _Said) -> None:
    form = {"name": _TOOL, "strict": True, "schema": question.rubric.schema()}
    answer = client.chat.completions.create(
        model=question.model,
        messages=[
            {"role": "system", "content": question.rubric.instructions()},
            {"role": "user", "content": question.data},
        ],
        response_format={"type": "json_schema", "json_schema": form},
        extra_body=_sampling(question),
        timeout=max(question.left_s, _LEAST_S),
    )
    said.model = _version(answer.model, getattr(answer, "system_fingerprint", None))
    choice = answer.choices[0]
    if getattr(choice.message, "refusal", None) or choice.finish_reason == "content_filter":
        raise UnusableReply(f"the judge refused: {choice.message.refusal or choice.finish_reason}")
    said.reply = choice.message.content


def _ask_anthropic(client: Any, question: Question, said: _Said) -> None:
    tool = {"name": _TOOL, "description": "Gives the judgement.", "input_schema": question.rubric.schema()}
    answer = client.messages.create(
        model=question.model,
        max_tokens=_MOST_TOKENS,
        system=question.rubric.instructions(),
        messages=[{"role": "user", "content": question.data}],
        tools=[tool],
        tool_choice={"type": "tool", "name": _TOOL},
        extra_body=_sampling(question),
        timeout=max(question.left_s, _LEAST_S),
    )
    said.model = _version(answer.model)
    if answer.stop_reason == "refusal":
        raise UnusableReply("the judge refused")
    said.reply = next((part.input for part in answer.content if part.type == "tool_use"), None)


def _version(*parts: object) -> str | None:
    return "/".join(part for part in parts if isinstance(part, str) and part) or None


_ASK = {"openai": _ask_openai, "anthropic": _ask_anthropic}


def _sampling(question: Question) -> dict[str, float]:
    """What goes into the body as it is: not every version of the clients takes it as an argument."""
    given = {
        "temperature": question.temperature,
        "seed": None if question.seed is None else question.seed + question.sample,
    }
    return {name: value for name, value in given.items() if value is not None}


@lru_cache
def client_of(endpoint: Endpoint) -> Any:
    """The recorded client of an endpoint, one in each process. The provider's own key goes to no other server."""
    given: dict[str, Any] = {"max_retries": 0}  # they would go on beyond the deadline
    if endpoint.url is not None:
        given |= {"base_url": endpoint.url, "api_key": "none"}
    if endpoint.key is not None:
        given["api_key"] = _secret(endpoint.key)
    if endpoint.provider == "openai":
        import openai

        return record_calls(openai.OpenAI(**given))
    import anthropic

    return record_calls(anthropic.Anthropic(**given))


def _known_secrets(endpoint: Endpoint) -> list[str]:
    """Return the keys that may have been sent, which a server may repeat."""
    names = [endpoint.key] if endpoint.key is not None else _KEYS
    return [key for name in names if (key := os.environ.get(name))]


def _secret(variable: str) -> str:
    found = os.environ.get(variable)
    if not found:
        raise InputError(f"the environment has no {variable}, which 'key' of the judge names")
    return found
