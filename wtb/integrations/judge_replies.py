"""Replies of models that judge: asked of an OpenAI-style or Anthropic-style endpoint, and stored by question.

The same question is asked once in a process, and once in all that share a folder (`kept`): its reply is kept, by
everything that was sent, unless it is to be fresh.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import tempfile
import threading
import time
import warnings
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
from wtb.core.errors import InputError, WTBError, describe
from wtb.core.failures import Failure, call_again, without_secrets
from wtb.core.frozen import frozen
from wtb.core.provider_faults import lost_to
from wtb.core.scoring.scores import Judgement
from wtb.integrations.judge_rubric import Preference, Rubric, UnusableReply, reason_of
from wtb.integrations.models import record_calls

FOLDER = "JUDGEMENTS_FOLDER"
_USED_S = 86_400.0  # until its time of use is written again


def folder() -> Path | None:
    """Return the folder that the environment names; None if it names none.

    Raises:
        InputError: It is not absolute, and would be another one for each node process.
    """
    named = os.environ.get(FOLDER)
    if not named:
        return None
    if not Path(named).is_absolute():
        raise InputError(f"{FOLDER} is {describe(named)}; expected a folder from the root on, such as /srv/judgements")
    return Path(named)


def find(digest: str, place: Path | None) -> Judgement | None:
    """Return the stored judgement; None if there is none, or it cannot be read."""
    if place is None:
        return None
    path = place / digest[:2] / digest
    try:
        score, usd, *rest = json.loads(path.read_bytes())
        # Once a day is enough for the garbage collection, and reading stays cheap.
        if path.stat().st_mtime < time.time() - _USED_S:
            os.utime(path)  # it is in use: what is not goes with a garbage collection
        price = None if usd is None else _number(usd)
        return Judgement(_number(score), usd=price, model=_text(rest[:1]), reason=_text(rest[1:2]) or "")
    # A file that cannot be read is no error: the question is sent again, and its reply replaces the file.
    except (OSError, ValueError, TypeError):
        return None


def keep(digest: str, judgement: Judgement, place: Path | None) -> None:
    """Store a judgement. If that fails, it warns, and the caller still has the judgement."""
    if place is None or judgement.score is None:
        return
    try:
        (place / digest[:2]).mkdir(parents=True, exist_ok=True)
        # In the same folder, since a file cannot be renamed into another file system.
        with tempfile.NamedTemporaryFile("w", dir=place / digest[:2], delete=False) as stream:
            # Erasing a case does not reach a folder that the environment names, and a reason may quote an answer.
            reason = judgement.reason if folder() is None else ""
            json.dump([judgement.score, judgement.usd, judgement.model, reason], stream)
        Path(stream.name).replace(place / digest[:2] / digest)  # whole or not at all, whoever else writes it
    except OSError as error:
        warnings.warn(f"a judgement could not be kept in {place}: {error.strerror}", RuntimeWarning, stacklevel=2)


def _number(number: object) -> float:
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        raise TypeError("no number")
    return float(number)


def _text(fields: list[object]) -> str | None:
    return fields[0] if fields and isinstance(fields[0], str) else None


with contextlib.suppress(ModuleNotFoundError):  # on Windows, where no files are stored that could be shared
    import fcntl

# Until the next turn. A turn that is further away was written by a clock that was ahead.
_LONGEST_S = 86_400.0
# Between the clocks of machines that share a folder. A turn that was taken later was written by a clock that was ahead.
_SKEW_S = 60.0
_changes = threading.Lock()
_of_process: dict[str, _Turns] = {}  # where there is no folder


class NoTurn(WTBError):
    """No turn comes in time."""


def wait_for_turn(name: str, per_minute: float, left_s: float, place: Path | None) -> None:
    """Wait until a request may be sent.

    Args:
        name: What has the rate: the same for all that share it.
        per_minute: Requests a minute, evenly spaced.
        left_s: Seconds that may be waited.
        place: The folder that processes share; without one it is the rate of this process.

    Raises:
        NoTurn: It would come later; none is taken then.
    """
    with _turns(name, place) as turns:
        now = time.time()
        is_possible = now <= turns.next <= now + _LONGEST_S and turns.taken_at <= now + _SKEW_S
        turn = turns.next if is_possible else now
        # Before a turn is stored: a request that gives up must not delay the others.
        if turn - now >= left_s:
            raise NoTurn(f"no turn came in time, at {per_minute:g} requests a minute")
        turns.next, turns.taken_at = turn + 60 / per_minute, now
    # The turn is taken by now. Sleeping with the lock held would keep others from taking later ones.
    time.sleep(max(0.0, turn - time.time()))


@dataclass
class _Turns:
    """The turns of a name.

    Attributes:
        next: When the next one is, in seconds since the epoch.
        taken_at: When the latest one was taken.
    """

    next: float = 0.0
    taken_at: float = 0.0


@contextlib.contextmanager
def _turns(name: str, place: Path | None) -> Iterator[_Turns]:
    """Open the turns of a name, for one process and thread at a time."""
    if place is None:
        with _changes:
            yield _of_process.setdefault(name, _Turns())
        return
    place.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(name.encode()).hexdigest()
    with (place / f"turns-{digest}").open("a+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        # A file is locked, and not only a thread lock taken, because processes on several machines may share the rate.
        turns = _read(os.pread(file.fileno(), 64, 0))
        yield turns
        # Rewritten in place and not replaced by another file: others wait for the lock of this one.
        file.truncate(0)
        file.write(f"{turns.next!r} {turns.taken_at!r}".encode())


def _read(written: bytes) -> _Turns:
    try:
        return _Turns(*map(float, written.split()))
    except (ValueError, TypeError):  # of a process that was killed while it wrote
        return _Turns()


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
    """A server on which models are asked.

    Attributes:
        provider: The provider, whose protocol it has.
        url: The URL of another server with the same protocol; None for the provider's own.
        key: The environment variable that holds its key.
    """

    provider: Provider
    url: str | None = None
    key: str | None = None


@frozen
class Question:
    """A question to a model, with everything that is sent.

    Attributes:
        endpoint: The server that is asked.
        model: The model that is asked.
        rubric: The rubric, or the preference, by which it judges.
        data: The data of the cell, as JSON.
        temperature: Its temperature; None for the model's own.
        sample: Its number among questions that are alike.
        deadline: On the monotonic clock.
        fresh: Ask again, whatever was replied before.
        place: The folder where replies are kept, unless the environment names one.
        seed: The seed of the first sample; None for none.
        per_minute: The most requests to the model in a minute.
        bill: Receives the cost of each request; None if nobody knows it.
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
        """Return a digest of everything that is sent, and of the server. The key is left out."""
        sent = (
            self.rubric.instructions(),
            self.rubric.schema(),
            self.data,
            self.temperature,
            self.sample,
            # Left out if there is none, so that replies which were kept before seeds existed are still found.
            *([] if self.seed is None else [self.seed]),
        )
        whole = json.dumps([self.endpoint.provider, self.endpoint.url, self.model, *sent], sort_keys=True)
        return hashlib.sha256(whole.encode()).hexdigest()

    @property
    def left_s(self) -> float:
        """Return the seconds until its deadline."""
        return self.deadline - time.monotonic()


_LOCKS_LOCK = threading.Lock()
_BEING_ASKED: WeakValueDictionary[Question, threading.Lock] = WeakValueDictionary()


def ask(question: Question) -> Judgement:
    """Ask for one judgement, and again if the server may only be busy, until the deadline of the question.

    Args:
        question: What is asked.

    Returns:
        The judgement, without a level if there was no reply. Only replies are kept.

    Raises:
        InputError: The variable of the key is not set.
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
        # Past the cache of this process, which would return an older reply.
        return replied.__wrapped__(question)
    # `lru_cache` lets two threads compute the same key at once, and each would send the request.
    with _alone(question):
        return replied(question)


@contextmanager
def _alone(question: Question) -> Iterator[None]:
    """Wait until no other thread is asking the same question, whose reply is then kept. Raises NoTurn."""
    with _LOCKS_LOCK:
        lock = _BEING_ASKED.setdefault(question, threading.Lock())
    if not lock.acquire(timeout=max(question.left_s, 0.0)):
        raise NoTurn("no time was left after another who asked the same")
    try:
        yield
    finally:
        lock.release()


@lru_cache(_MOST_KEPT)
def replied(question: Question) -> Judgement:
    """Ask once, and keep the judgement. Errors of the client are raised, and are not kept."""
    place = folder() or question.place
    if not question.fresh and (cached := find(question.digest, place)) is not None:
        return cached
    if question.per_minute is not None:
        endpoint = question.endpoint
        name = json.dumps([endpoint.provider, endpoint.url, endpoint.key, question.model])
        wait_for_turn(name, question.per_minute, question.left_s, place)
    context = Context(CaseView(""), node="judge", variant="")  # only to see what the call costs
    exchange = _Exchange()
    with surrounding(context):
        try:
            _reply(question, exchange)
            score, problem = question.rubric.score_of(exchange.reply), ""
        except UnusableReply as error:
            score, problem = None, str(error)
    reason = "" if score is None else reason_of(exchange.reply)
    usd = context.record.usd
    is_known = question.endpoint.url is None and usd > 0  # no server need have the prices of another
    judgement = Judgement(score, problem, usd if is_known else None, exchange.model, reason)
    # Past both caches, so that only requests that were sent are on the bill.
    question.bill.append(judgement.usd)
    keep(question.digest, judgement, place)
    return judgement


@dataclass
class _Exchange:
    """The reply to a question, and the version of the model that gave it."""

    reply: object = None
    model: str | None = None


def _reply(question: Question, exchange: _Exchange) -> None:
    client = client_of(question.endpoint)
    try:
        _ASK[question.endpoint.provider](client, question, exchange)
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise UnusableReply(f"there is no reply that can be read: {error}") from error


def _ask_openai(client: Any, question: Question, exchange: _Exchange) -> None:
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
    # Before the reply is checked, so that a judgement without a usable reply has its model, too.
    exchange.model = _version(answer.model, getattr(answer, "system_fingerprint", None))
    choice = answer.choices[0]
    if getattr(choice.message, "refusal", None) or choice.finish_reason == "content_filter":
        raise UnusableReply(f"the judge refused: {choice.message.refusal or choice.finish_reason}")
    exchange.reply = choice.message.content


def _ask_anthropic(client: Any, question: Question, exchange: _Exchange) -> None:
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
    exchange.model = _version(answer.model)
    if answer.stop_reason == "refusal":
        raise UnusableReply("the judge refused")
    exchange.reply = next((part.input for part in answer.content if part.type == "tool_use"), None)


def _version(*parts: object) -> str | None:
    return "/".join(part for part in parts if isinstance(part, str) and part) or None


_ASK = {"openai": _ask_openai, "anthropic": _ask_anthropic}


def _sampling(question: Question) -> dict[str, float]:
    """Return parameters for the body itself, because not every version of the clients takes them as arguments."""
    parameters = {
        "temperature": question.temperature,
        "seed": None if question.seed is None else question.seed + question.sample,
    }
    return {name: parameter for name, parameter in parameters.items() if parameter is not None}


@lru_cache
def client_of(endpoint: Endpoint) -> Any:
    """Return the recorded client of an endpoint, one per process. No other server gets the provider's own key."""
    options: dict[str, Any] = {"max_retries": 0}  # they would go on beyond the deadline
    if endpoint.url is not None:
        # Without a key the clients would send the provider's own, from the environment, to this server.
        options |= {"base_url": endpoint.url, "api_key": "none"}
    if endpoint.key is not None:
        options["api_key"] = _secret(endpoint.key)
    if endpoint.provider == "openai":
        import openai

        return record_calls(openai.OpenAI(**options))
    import anthropic

    return record_calls(anthropic.Anthropic(**options))


def _known_secrets(endpoint: Endpoint) -> list[str]:
    """Return the keys that may have been sent, which a server may repeat."""
    names = [endpoint.key] if endpoint.key is not None else _KEYS
    return [key for name in names if (key := os.environ.get(name))]


def _secret(variable: str) -> str:
    secret = os.environ.get(variable)
    if not secret:
        raise InputError(f"the environment has no {variable}, which 'key' of the judge names")
    return secret
