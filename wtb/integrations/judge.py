"""The evaluator `judge`: it asks a model to score an answer, and reports the cost and the share of failures."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from statistics import fmean
from typing import Any, TypedDict
from urllib.parse import urlsplit

from wtb.authoring.evaluation.combining import FAILED, USD
from wtb.authoring.evaluation.evaluators import EVALUATION_S, CellResult, Priced, ScoredCase, Unscored, Versioned
from wtb.authoring.evaluation.fields import field_of, filled_value
from wtb.core.errors import InputError, describe, did_you_mean
from wtb.core.scoring.measure import Better
from wtb.core.scoring.scores import CALLS_AT_ONCE, LEFT_OUT, PASS_OR_FAIL, Judgement, OnFailure, Scale
from wtb.core.serialization.codec import encode
from wtb.core.serialization.plain_json import readable
from wtb.core.values import Options
from wtb.integrations import judge_replies
from wtb.integrations.judge_replies import PROVIDERS, Endpoint, Provider, Question, ask
from wtb.integrations.judge_rubric import Preference, read_rubric

_MOST_SAMPLES = 100
_HOTTEST = 2.0
_SHARE_OF_TIME = 0.9  # of its timeout, in which it asks; the rest is to return what is there
_AN_ADDRESS = "the address of a server, such as http://localhost:8080/v1"
_A_VARIABLE = "the name of the environment variable that holds the key, such as JUDGE_KEY"


class Declaration(TypedDict):
    """The declarations of a judge about its metrics, by key."""

    better: Mapping[str, Better]
    scale: Mapping[str, Scale]
    on_failure: Mapping[str, OnFailure]


def judge(
    case: ScoredCase,
    result: CellResult,
    *,
    field: str,
    model: str | Sequence[str],
    criteria: str | None = None,
    rubric: Mapping[object, object] | None = None,
    reference: bool = False,
    reasoning: bool = True,
    samples: int = 1,
    temperature: float | None = None,
    seed: int | None = None,
    provider: Provider = "openai",
    url: str | None = None,
    key: str | None = None,
    fresh: bool = False,
    per_minute: float | None = None,
    timeout: float = EVALUATION_S,
    better: Better = "higher",
) -> dict[str, float | Unscored | Versioned | Priced]:
    """Ask models to judge a field of the final state.

    Args:
        case: The case.
        result: The outcome of the cell.
        field: The key of the state that is judged.
        model: The model that is asked, or several, each of which counts alike.
        criteria: The criteria of a good answer. Without a rubric, an answer meets them (1) or not (0).
        rubric: The score of each level, and its description.
        reference: Whether the judge sees the expected value of the field. Cases without one have no score.
        reasoning: Whether it gives a reason before a level.
        samples: How often each model is asked.
        temperature: The temperature of samples; by default the provider's own.
        seed: The seed of the first sample, for servers of the protocol `openai` that take one; the others follow it.
        provider: The protocol: `openai` or `anthropic`.
        url: The URL of another server with this protocol.
        key: The environment variable of the key; by default the provider's own, and none for a `url`.
        fresh: Ask again even if there is a stored reply to the same question.
        per_minute: Requests a minute to each model, by all processes that share stored files.
        timeout: Seconds for all requests. Shortly before, it sends no more.
        better: The better levels, `higher` or `lower`; for `declare`.

    Returns:
        The mean level, the share of questions without a usable reply, and US dollars where all prices are known.

    Raises:
        InputError: The final state has no such key.
    """
    deadline = time.monotonic() + timeout * _SHARE_OF_TIME
    models = [model] if isinstance(model, str) else model
    parsed_rubric = read_rubric(criteria, rubric, reasoning=reasoning)
    shown_fields = {"input": case.input, "answer": field_of(result, field)}
    if reference:
        shown_fields["reference"] = filled_value(case.expected, field)
    text = json.dumps(readable(encode(shown_fields)), ensure_ascii=False)
    endpoint = Endpoint(provider, url, key)
    bill: list[float | None] = []
    questions = [
        Question(
            endpoint,
            model_name,
            parsed_rubric,
            text,
            temperature,
            n,
            deadline,
            fresh,
            result.judgements,
            seed,
            per_minute,
            bill,
        )
        for model_name in models
        for n in range(samples)
    ]
    with ThreadPoolExecutor(min(len(questions), CALLS_AT_ONCE)) as threads:
        replies = list(threads.map(ask, questions))
    judgements = [replies[start : start + samples] for start in range(0, len(replies), samples)]
    figures = _figures(judgements)
    versions = sorted({reply.model for reply in replies if reply.model is not None})
    known_costs = [usd for usd in bill if usd is not None]
    # A kept reply counts with the price it once had. Only the requests that were sent count as spent.
    cost = Priced(_cost(judgements), sum(known_costs) if len(known_costs) == len(bill) else None)
    reason = _reason(models, judgements)
    return {**figures, "": Versioned(figures[""], ", ".join(versions) or None, reason), USD: cost}


def _reason(models: Sequence[str], judgements: Sequence[Sequence[Judgement]]) -> str | None:
    """Return the reasons that models gave for their levels, each once; with several replies, each with its level."""
    replies = [
        (model, judgement)
        for model, each in zip(models, judgements, strict=True)
        for judgement in each
        if judgement.reason
    ]
    if len(replies) < 2:
        return replies[0][1].reason if replies else None
    by = {model: f"{model}, " if len(models) > 1 else "" for model in models}
    return "\n".join(
        dict.fromkeys(f"{by[model]}{judgement.score:g}: {judgement.reason}" for model, judgement in replies)
    )


def _lacks_reference(options: Options, expected: Any) -> bool:
    return bool(options.get("reference")) and filled_value(expected, options["field"]) is None


def _figures(judgements: Sequence[Sequence[Judgement]]) -> dict[str, float | Unscored]:
    """Return the mean over models of the mean over samples, and the share of failed questions."""
    by_model = [[judgement.score for judgement in each if judgement.score is not None] for each in judgements]
    problems = [judgement.problem for each in judgements for judgement in each if judgement.score is None]
    questions = sum(len(each) for each in judgements)
    # Each model has one mean, so that one of whose replies some failed counts as much as the others.
    score = fmean(fmean(each) for each in by_model) if all(by_model) else Unscored(problems[0])
    return {"": score, FAILED: len(problems) / questions}


def _cost(judgements: Sequence[Sequence[Judgement]]) -> float | Unscored:
    """Return the cost of the judgements, with those that another cell paid for; no figure if one has no known price.

    It is always returned, because judging again replaces only the figures that it returns.
    """
    costs = [judgement.usd for each in judgements for judgement in each]
    known_costs = [usd for usd in costs if usd is not None]
    return sum(known_costs) if len(known_costs) == len(costs) else Unscored("the price of a model is not known")


def declare(options: Options, on_failure: OnFailure | None) -> Declaration:
    """Return the direction, scale and failure score of each metric of a judge, by its options.

    Args:
        options: As a sweep file has them.
        on_failure: The score of a failed cell, where it is given.

    Returns:
        The same by metric.

    Raises:
        InputError: An option can give no judgement, or the package of the provider is missing.
    """
    rubric = read_rubric(options.get("criteria"), options.get("rubric"))
    _check_models(options["model"])
    # Raises for a folder that is no absolute path, before a sweep is submitted.
    judge_replies.folder()
    _check_provider(options.get("provider", PROVIDERS[0]))
    for option, kind, expected in (
        ("field", str, "the name of a key of the state"),
        ("reference", bool, "true or false"),
        ("reasoning", bool, "true or false"),
        ("fresh", bool, "true or false"),
        ("url", str, _AN_ADDRESS),
        ("key", str, _A_VARIABLE),
    ):
        if options.get(option) is not None and not isinstance(options[option], kind):
            raise InputError(f"{option!r} is {describe(options[option])}; expected {expected}")
    _check_server(options.get("url"), options.get("key"))
    _check_number("samples", options.get("samples", 1), int, 1, _MOST_SAMPLES)
    if options.get("per_minute") is not None:
        _check_rate(options["per_minute"], options.get("samples", 1), options.get("timeout"))
    if options.get("seed") is not None:
        _check_number("seed", options["seed"], int, 0, 2**31 - 1)
        if options.get("provider", PROVIDERS[0]) != "openai":
            raise InputError("'seed' is given, and 'provider' is not openai; expected one of them")
    if options.get("temperature") is not None:
        _check_number("temperature", options["temperature"], (int, float), 0, _HOTTEST)
    of_score: dict[str, OnFailure] = {} if on_failure is None else {"": on_failure}
    return {
        "better": {"": options.get("better", "higher"), FAILED: "lower", USD: "lower"},
        "scale": {"": rubric.ends, FAILED: PASS_OR_FAIL},
        "on_failure": {**of_score, FAILED: LEFT_OUT, USD: LEFT_OUT},
    }


def _check_rate(per_minute: Any, samples: int, timeout: Any) -> None:
    """Reject a rate at which the samples of one cell would not end in time. Raises InputError."""
    _check_number("per_minute", per_minute, (int, float), 1 / 60, 1_000_000)
    seconds = EVALUATION_S if timeout is None else timeout
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)  # else it is refused elsewhere
    # The first request can be sent at once.
    least = (samples - 1) * 60 / per_minute / _SHARE_OF_TIME
    if is_number and least >= seconds:
        raise InputError(
            f"'per_minute' is {per_minute:g}, so that {samples} samples take more than {least:.0f} s; expected a "
            f"'timeout' that is longer, which is {seconds:g} s"
        )


def check_endpoint(endpoint: Endpoint) -> None:
    """Check that requests can be sent to an endpoint. Raises InputError."""
    _check_provider(endpoint.provider)
    _check_server(endpoint.url, endpoint.key)


def _check_provider(provider: object) -> None:
    if not isinstance(provider, str) or provider not in PROVIDERS:
        near = did_you_mean(str(provider), PROVIDERS) or f"; expected one of {', '.join(PROVIDERS)}"
        raise InputError(f"'provider' is {describe(provider)}{near}")
    if find_spec(provider) is None:
        raise InputError(f"the package {provider} is not installed; install it with: pip install {provider}")


def _check_models(model: object) -> None:
    models = [model] if isinstance(model, str) else model
    if not isinstance(models, list | tuple) or not models or not all(isinstance(name, str) and name for name in models):
        raise InputError(f"'model' is {describe(model)}; expected the name of a model, or a list of them")
    if len(set(models)) < len(models):
        raise InputError(f"'model' has a name twice: {', '.join(models)}; expected 'samples' to ask it more often")


def _check_server(url: str | None, key: str | None) -> None:
    """Reject values that may hold a secret, because the sweep stores them. No message shows them. Raises InputError."""
    if url is not None:
        try:
            parts = urlsplit(url)
        except ValueError:
            raise InputError(f"'url' is not a URL; expected {_AN_ADDRESS}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"'url' is not an http or https URL; expected {_AN_ADDRESS}")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise InputError(f"'url' has a user, a query or a fragment; expected {_AN_ADDRESS}, and 'key' for its key")
    if key is not None and not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", key):
        raise InputError(f"'key' is not the name of a variable; expected {_A_VARIABLE}")


def _check_number(option: str, number: Any, kind: type | tuple[type, ...], low: float, high: float) -> None:
    is_number = isinstance(number, kind) and not isinstance(number, bool)
    if not is_number or not low <= number <= high:
        whole = "a whole number" if kind is int else "a number"
        raise InputError(f"{option!r} is {describe(number)}; expected {whole} from {low:g} to {high:g}")


judge.wtb_declare = declare  # type: ignore[attr-defined]
judge.wtb_lacks_expected = _lacks_reference  # type: ignore[attr-defined]


def prefer(
    model: str,
    criteria: str,
    endpoint: Endpoint,
    *,
    temperature: float | None = None,
    per_minute: float | None = None,
    timeout: float = 60.0,
) -> Callable[[str], Judgement]:
    """Return a function that asks a model for comparisons.

    Args:
        model: Its name.
        criteria: The criteria of a good answer.
        endpoint: The server.
        temperature: The temperature of samples; by default the provider's own.
        per_minute: Requests a minute by this process.
        timeout: Seconds for each comparison.

    Returns:
        A function of JSON with `input`, `first` and `second`, whose judgement is 1, -1 or 0.

    Raises:
        InputError: The model cannot be asked.
    """
    check_endpoint(endpoint)
    rubric = Preference(criteria)

    def compare(shown_answers: str) -> Judgement:
        deadline = time.monotonic() + timeout
        return ask(Question(endpoint, model, rubric, shown_answers, temperature, 0, deadline, per_minute=per_minute))

    return compare
