"""Faults of outside services, such as model providers, and the client libraries by whose errors they are recognized."""

from __future__ import annotations

import random
from typing import Final, Literal, get_args

from typing_extensions import TypedDict

Reason = Literal[
    "rate_limit",
    "overloaded",
    "server_error",
    "timeout",
    "connection",
    "invalid_response",
    "quota",
    "credentials",
    "model",
]
REASONS: Final[tuple[Reason, ...]] = get_args(Reason)
WAITING: Final = "waiting for provider "  # so begins the reason of a sweep that paused for one
LOST_TO: Final = "lost to provider "  # so begins the error of a score that a provider prevented
FIRST_WAIT_S: Final = 1.0  # before the second try if the provider names no time; doubled each time
LONGEST_WAIT_S: Final = 60.0
_TRUSTED: Final = 3  # tries after which a stated time that was too short is no longer enough
_JITTER: Final = 0.25  # of each wait, added at random, so that waiting callers do not return at the same moment
LASTING: Final[frozenset[Reason]] = frozenset({"quota", "credentials", "model"})
_PHRASES: Final[dict[Reason, str]] = {
    "rate_limit": "limits the rate of requests",
    "overloaded": "is overloaded",
    "server_error": "has an internal error",
    "timeout": "does not respond in time",
    "connection": "cannot be reached",
    "invalid_response": "sent an incomplete response",
    "quota": "reports an exhausted quota",
    "credentials": "rejects the credentials",
    "model": "does not have the model",
}


class ProviderFault(TypedDict):
    """A fault of a provider.

    Attributes:
        provider: The name of the client library, or the host that was called.
        reason: The kind of fault.
        status: The HTTP status; None if there was no response.
        retry_after_s: Seconds after which the provider accepts another request; None if it did not state any.
    """

    provider: str
    reason: Reason
    status: int | None
    retry_after_s: float | None


def is_lasting(fault: ProviderFault) -> bool:
    """Return whether waiting does not help: a person has to change something first."""
    return fault["reason"] in LASTING


def wait_s(fault: ProviderFault, tries: int) -> float:
    """Compute the time to wait before the next try.

    Args:
        fault: The latest fault.
        tries: How many tries have failed, from 1.

    Returns:
        Seconds: at least as many as the provider stated, and longer after each try, with jitter.
    """
    growing = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(tries - 1, 10))
    stated = fault["retry_after_s"]
    if stated is None or (tries > _TRUSTED and stated < growing):
        stated = growing
    return stated + random.uniform(0, _JITTER) * growing


def describe(fault: ProviderFault) -> str:
    """Return a clause for people, such as `provider openai limits the rate of requests (429)`."""
    return f"provider {fault['provider']} {_phrase(fault)}"


def waiting_for(fault: ProviderFault) -> str:
    """Return why a sweep waits or has paused, such as `waiting for provider openai, which is overloaded (529)`."""
    return f"{WAITING}{fault['provider']}, which {_phrase(fault)}"


def lost_to(fault: ProviderFault) -> str:
    """Return why a score is missing, such as `lost to provider openai, which is overloaded (529)`."""
    return f"{LOST_TO}{fault['provider']}, which {_phrase(fault)}"


def is_waiting(reason: str | None) -> bool:
    """Return whether a sweep paused for a provider, by the reason that is stored with it."""
    return (reason or "").startswith(WAITING)


def _phrase(fault: ProviderFault) -> str:
    status = "" if fault["status"] is None else f" ({fault['status']})"
    return _PHRASES[fault["reason"]] + status


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _by_name(names: dict[Reason, str]) -> dict[str, Reason]:
    """Return the reason of each name, from the names of each reason."""
    return {name: reason for reason, text in names.items() for name in text.split()}


# Libraries that call models: their errors 401, 403 and "no such model" are faults of the set-up, not results.
MODEL_CLIENTS: Final = _names(
    "ai21 anthropic cerebras cohere dashscope fireworks google groq huggingface_hub litellm mistralai ollama openai "
    "pydantic_ai replicate together vertexai voyageai xai_sdk zai zhipuai"
)
# Libraries that call any service.
HTTP_CLIENTS: Final = _names(
    "aiohttp botocore curl_cffi grpc http httpcore httpcore2 httpx httpx2 niquests requests urllib urllib3"
)
# Modules whose errors a server raises to state its own response: they are results of the code under test.
SERVER_MODULES: Final = _names(
    "aiohttp.web bottle connexion django falcon fastapi flask litestar quart rest_framework sanic starlette "
    "tornado.web werkzeug"
)
# Classes of these libraries, or bases of them, that state no HTTP status.
CLASSES: Final = _by_name(
    {
        "timeout": "APITimeoutError ConnectTimeout ConnectTimeoutError PoolTimeout ReadTimeout ReadTimeoutError "
        "ServerTimeoutError Timeout TimeoutException WriteTimeout",
        "connection": "APIConnectionError ChunkedEncodingError ClientConnectionError ClientPayloadError ConnectError "
        "ConnectionClosedError ConnectionError EndpointConnectionError HTTPClientError IncompleteRead "
        "MaxRetryError NetworkError NewConnectionError ProtocolError ProxyError ReadError RemoteDisconnected "
        "RemoteProtocolError TransportError URLError WriteError",
        "invalid_response": "APIResponseValidationError",
        "credentials": "CredentialsError DefaultCredentialsError NoCredentialsError PartialCredentialsError "
        "RefreshError",
    }
)
# Classes of these libraries that name a mistake of the caller, although a base of them is listed above.
CALLER_MISTAKES: Final = frozenset({"InvalidURL", "LocalProtocolError", "UnsupportedProtocol", "LocationParseError"})
# Codes and types in the bodies of error responses, in lower case; some arrive with status 200 in a stream.
CODES: Final = _by_name(
    {
        "quota": "billing_hard_limit_reached billing_not_active billing_error insufficient_quota insufficient_balance "
        "servicequotaexceededexception",
        "credentials": "authentication_error expiredtokenexception invalid_api_key permission_error unauthenticated "
        "unrecognizedclientexception",
        "model": "model_not_found modelnotfound deploymentnotfound",
        "rate_limit": "limitexceededexception provisionedthroughputexceededexception rate_limit_error "
        "rate_limit_exceeded requestlimitexceeded resource_exhausted slowdown throttling throttlingexception "
        "toomanyrequestsexception",
        "overloaded": "modelnotreadyexception overloaded overloaded_error serviceunavailableexception unavailable",
        "server_error": "api_error internal internalserverexception modelerrorexception server_error",
        "timeout": "deadline_exceeded modeltimeoutexception requesttimeout timeout_error",
    }
)
# Operations of AWS that call models: of others, refused access is a result.
MODEL_OPERATIONS: Final = _names(
    "Converse ConverseStream InvokeAgent InvokeEndpoint InvokeModel InvokeModelWithResponseStream RetrieveAndGenerate"
)
# Hosts of clients that are named by their library; any other host is named itself.
OWN_HOSTS: Final = {
    "openai": "openai.com",
    "anthropic": "anthropic.com",
    "google": "googleapis.com",
    "groq": "groq.com",
    "mistralai": "mistral.ai",
    "cohere": "cohere.com",
}
