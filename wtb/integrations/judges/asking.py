"""Asking a model for a judgement: the structured reply of an OpenAI-style or Anthropic-style endpoint.

The same question is asked once in a process: its reply is kept, by everything that was sent.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

from wtb.integrations.judges.rubric import Rubric, UnusableReply
from wtb.integrations.models import record_calls

Provider = Literal["openai", "anthropic"]
PROVIDERS: tuple[Provider, ...] = get_args(Provider)
_KEY = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
_TOOL = "judgement"
_MOST_TOKENS = 2_048  # of a reply; Anthropic requires a limit
_MOST_KEPT = 1_000  # replies


@dataclass(frozen=True)
class Endpoint:
    """Where models are asked. url: of another server with the same protocol."""

    provider: Provider
    url: str | None = None


@dataclass(frozen=True)
class Question:
    """All that is sent. sample: its number among questions that are alike."""

    endpoint: Endpoint
    model: str
    rubric: Rubric
    data: str
    temperature: float | None
    sample: int


@dataclass(frozen=True)
class Judgement:
    """The level that a model gave, or why its reply is of no use."""

    score: float | None
    problem: str = ""


@lru_cache(_MOST_KEPT)
def ask(question: Question) -> Judgement:
    """Ask for one judgement. The call is recorded in the context that surrounds it.

    Raises:
        Exception: What the client raises where no reply came, which is not kept.
    """
    try:
        return Judgement(question.rubric.score_of(_ASK[question.endpoint.provider](question)))
    except UnusableReply as error:
        return Judgement(None, str(error))


def _ask_openai(question: Question) -> object:
    form = {"name": _TOOL, "strict": True, "schema": question.rubric.schema()}
    answer = _client(question.endpoint).chat.completions.create(
        model=question.model,
        messages=[
            {"role": "system", "content": question.rubric.instructions()},
            {"role": "user", "content": question.data},
        ],
        response_format={"type": "json_schema", "json_schema": form},
        extra_body=_sampling(question),
    )
    choice = answer.choices[0]
    if getattr(choice.message, "refusal", None) or choice.finish_reason == "content_filter":
        raise UnusableReply(f"the judge refused: {choice.message.refusal or choice.finish_reason}")
    return choice.message.content


def _ask_anthropic(question: Question) -> object:
    tool = {"name": _TOOL, "description": "Gives the judgement.", "input_schema": question.rubric.schema()}
    answer = _client(question.endpoint).messages.create(
        model=question.model,
        max_tokens=_MOST_TOKENS,
        system=question.rubric.instructions(),
        messages=[{"role": "user", "content": question.data}],
        tools=[tool],
        tool_choice={"type": "tool", "name": _TOOL},
        extra_body=_sampling(question),
    )
    if answer.stop_reason == "refusal":
        raise UnusableReply("the judge refused")
    return next((part.input for part in answer.content if part.type == "tool_use"), None)


_ASK = {"openai": _ask_openai, "anthropic": _ask_anthropic}


def _sampling(question: Question) -> dict[str, float]:
    """What goes into the body as it is: not every version of the clients takes it as an argument."""
    return {} if question.temperature is None else {"temperature": question.temperature}


@lru_cache
def _client(endpoint: Endpoint) -> Any:
    """The recorded client of an endpoint, one in each process. A server of one's own may need no key."""
    given: dict[str, Any] = {} if endpoint.url is None else {"base_url": endpoint.url}
    if endpoint.url is not None and not os.environ.get(_KEY[endpoint.provider]):
        given["api_key"] = "none"
    if endpoint.provider == "openai":
        import openai

        return record_calls(openai.OpenAI(**given))
    import anthropic

    return record_calls(anthropic.Anthropic(**given))
