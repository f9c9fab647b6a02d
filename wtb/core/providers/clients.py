"""The client libraries whose errors are recognized, by the names of their modules and classes.

None of them is imported: a node's process has those that the node uses, and the runner has none.
"""

from __future__ import annotations

from typing import Final

from wtb.core.providers.faults import Reason

# Libraries that call models: their errors 401, 403 and "no such model" are faults of the set-up, not results.
MODEL_CLIENTS: Final = frozenset(
    {
        "ai21",
        "anthropic",
        "cerebras",
        "cohere",
        "dashscope",
        "fireworks",
        "google",
        "groq",
        "huggingface_hub",
        "litellm",
        "mistralai",
        "ollama",
        "openai",
        "pydantic_ai",
        "replicate",
        "together",
        "vertexai",
        "voyageai",
        "xai_sdk",
        "zai",
        "zhipuai",
    }
)
# Libraries that call any service.
HTTP_CLIENTS: Final = frozenset(
    {
        "aiohttp",
        "botocore",
        "curl_cffi",
        "grpc",
        "http",
        "httpcore",
        "httpcore2",
        "httpx",
        "httpx2",
        "niquests",
        "requests",
        "urllib",
        "urllib3",
    }
)
# Modules whose errors a server raises to state its own response: they are results of the code under test.
SERVER_MODULES: Final = (
    "aiohttp.web",
    "bottle",
    "connexion",
    "django",
    "falcon",
    "fastapi",
    "flask",
    "litestar",
    "quart",
    "rest_framework",
    "sanic",
    "starlette",
    "tornado.web",
    "werkzeug",
)
# Classes of these libraries, or bases of them, that state no HTTP status.
CLASSES: Final[dict[str, Reason]] = {
    "APITimeoutError": "timeout",
    "ConnectTimeout": "timeout",
    "ConnectTimeoutError": "timeout",
    "PoolTimeout": "timeout",
    "ReadTimeout": "timeout",
    "ReadTimeoutError": "timeout",
    "ServerTimeoutError": "timeout",
    "Timeout": "timeout",
    "TimeoutException": "timeout",
    "WriteTimeout": "timeout",
    "APIConnectionError": "connection",
    "ChunkedEncodingError": "connection",
    "ClientConnectionError": "connection",
    "ClientPayloadError": "connection",
    "ConnectError": "connection",
    "ConnectionClosedError": "connection",
    "ConnectionError": "connection",
    "EndpointConnectionError": "connection",
    "HTTPClientError": "connection",
    "IncompleteRead": "connection",
    "MaxRetryError": "connection",
    "NetworkError": "connection",
    "NewConnectionError": "connection",
    "ProtocolError": "connection",
    "ProxyError": "connection",
    "ReadError": "connection",
    "RemoteDisconnected": "connection",
    "RemoteProtocolError": "connection",
    "TransportError": "connection",
    "URLError": "connection",
    "WriteError": "connection",
    "APIResponseValidationError": "invalid_response",
    "CredentialsError": "credentials",
    "DefaultCredentialsError": "credentials",
    "NoCredentialsError": "credentials",
    "PartialCredentialsError": "credentials",
    "RefreshError": "credentials",
}
# Classes of these libraries that name a mistake of the caller, although a base of them is listed above.
CALLER_MISTAKES: Final = frozenset({"InvalidURL", "LocalProtocolError", "UnsupportedProtocol", "LocationParseError"})
# Codes and types in the bodies of error responses, in lower case; some arrive with status 200 in a stream.
CODES: Final[dict[str, Reason]] = {
    "billing_hard_limit_reached": "quota",
    "billing_not_active": "quota",
    "billing_error": "quota",
    "insufficient_quota": "quota",
    "insufficient_balance": "quota",
    "servicequotaexceededexception": "quota",
    "authentication_error": "credentials",
    "expiredtokenexception": "credentials",
    "invalid_api_key": "credentials",
    "permission_error": "credentials",
    "unauthenticated": "credentials",
    "unrecognizedclientexception": "credentials",
    "model_not_found": "model",
    "modelnotfound": "model",
    "deploymentnotfound": "model",
    "limitexceededexception": "rate_limit",
    "provisionedthroughputexceededexception": "rate_limit",
    "rate_limit_error": "rate_limit",
    "rate_limit_exceeded": "rate_limit",
    "requestlimitexceeded": "rate_limit",
    "resource_exhausted": "rate_limit",
    "slowdown": "rate_limit",
    "throttling": "rate_limit",
    "throttlingexception": "rate_limit",
    "toomanyrequestsexception": "rate_limit",
    "modelnotreadyexception": "overloaded",
    "overloaded": "overloaded",
    "overloaded_error": "overloaded",
    "serviceunavailableexception": "overloaded",
    "unavailable": "overloaded",
    "api_error": "server_error",
    "internal": "server_error",
    "internalserverexception": "server_error",
    "modelerrorexception": "server_error",
    "server_error": "server_error",
    "deadline_exceeded": "timeout",
    "modeltimeoutexception": "timeout",
    "requesttimeout": "timeout",
    "timeout_error": "timeout",
}
# Operations of AWS that call models: of others, refused access is a result.
MODEL_OPERATIONS: Final = frozenset(
    {
        "Converse",
        "ConverseStream",
        "InvokeAgent",
        "InvokeEndpoint",
        "InvokeModel",
        "InvokeModelWithResponseStream",
        "RetrieveAndGenerate",
    }
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
