"""Recognizing a failure of a provider by the error that user code raised.

Errors are examined by the names of their classes and by their attributes, because the libraries that define them are
not imported here. A wrapped error counts like the error itself: the chain of causes is followed.
"""

from __future__ import annotations

import errno
import json
import math
import re
import socket
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final

from wtb.core.errors import PolicyDenied
from wtb.core.provider_faults import (
    CALLER_MISTAKES,
    CLASSES,
    CODES,
    HTTP_CLIENTS,
    LASTING,
    MODEL_CLIENTS,
    MODEL_OPERATIONS,
    OWN_HOSTS,
    SERVER_MODULES,
    ProviderFault,
    Reason,
    is_lasting,
)
from wtb.core.serialization.plain_json import storable

_LONGEST_S = 7 * 86_400.0  # a server that states more is not believed
_DELAY = re.compile(r"\d+(?:\.\d+)?s")  # a duration of Google's `RetryInfo`


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Read the headers of a response.

    Args:
        headers: The headers, by name in any case.

    Returns:
        Seconds from now; None if the headers state no time that can be read.
    """
    values = {str(name).lower(): str(header).strip() for name, header in headers.items()}
    if (milliseconds := _number(values.get("retry-after-ms", ""))) is not None:
        return _bounded(milliseconds / 1000)
    text = values.get("retry-after", "")
    seconds = _number(text)
    if seconds is None:
        until = _moment(text)
        if until is None:
            return None
        sent = _moment(values.get("date", ""))  # the server's clock, which may differ from ours
        seconds = until - (time.time() if sent is None else sent)
    return _bounded(seconds)


def delay_of(details: object) -> float | None:
    """Read the `RetryInfo` of a Google API error.

    Args:
        details: The decoded body of the error.

    Returns:
        Seconds from now; None if there is no such detail.
    """
    error = details.get("error", details) if isinstance(details, Mapping) else details
    listed = error.get("details") if isinstance(error, Mapping) else error
    for detail in listed if isinstance(listed, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, Mapping) else None
        if isinstance(delay, str) and _DELAY.fullmatch(delay):
            return _bounded(float(delay[:-1]))
    return None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _moment(text: str) -> float | None:
    """Read an HTTP date as seconds since the epoch."""
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


def _bounded(seconds: float) -> float | None:
    return max(0.0, seconds) if seconds <= _LONGEST_S else None


_DEEPEST: Final = 20  # errors of a chain that are examined
_MESSAGE: Final = 4_000  # characters of a message that are examined
_NETWORK: Final = "network"  # the name of a provider that is unknown
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")  # of a proxy, which says nothing about the provider
# Errors of the code itself. While a provider's error is handled, they are what failed, unless they name it as a cause.
_OF_CODE: Final = (NameError, TypeError, AttributeError, ImportError, SyntaxError, AssertionError, LookupError)
_UNREACHABLE: Final = frozenset({errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ETIMEDOUT})
# What the request was about: a provider that rejects its size or its content has given a result.
_ABOUT_REQUEST: Final = re.compile(
    r"context.?(length|window)|maximum context|too many (input )?tokens"
    r"|(prompt|input|request) (is |was )?too (long|large)"
    r"|content.?(filter|policy|management)|moderation|flagged|safety (system|settings|filter)"
)
_NO_MODEL: Final = re.compile(
    r"\b(invalid|unknown|no such) model\b|model identifier is invalid"
    r"|\bmodels?\b.{0,120}?\b(not found|not exist|no longer (available|exists)|could not be found)"
)
_NO_MONEY: Final = re.compile(r"credit balance|insufficient (balance|credits|funds)|exceeded your (current )?spend")
_NO_KEY: Final = re.compile(r"api.?key (is )?(not valid|invalid|expired|missing)|api_key (client option )?must be set")


def provider_fault(error: BaseException) -> ProviderFault | None:
    """Return the fault of a provider that an error states.

    Args:
        error: What user code raised. Its attributes are user code, too.

    Returns:
        The fault, or None if the error is a result of the code that raised it.
    """
    if any(isinstance(part, PolicyDenied) for cause in _causes(error) for part in (cause, *cause.args)):
        return None  # clients wrap it as a failure of the network
    for cause in _causes(error):
        if isinstance(cause, BaseExceptionGroup):
            return _common_fault([provider_fault(member) for member in cause.exceptions])
        evidence = _Evidence(cause)
        reason = evidence.reason()
        if reason is not None:
            return {
                "provider": evidence.provider,
                "reason": reason,
                "status": evidence.status,
                "retry_after_s": evidence.retry_after_s(),
            }
        if (evidence.status or 0) >= 400:  # a server has rejected the request, and that decides
            return None
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Iterate over an error and the errors that led to it, as a traceback shows them."""
    current: BaseException | None = error
    for _ in range(_DEEPEST):
        if current is None:
            return
        yield current
        if current.__cause__ is not None:
            current = current.__cause__
        elif current.__suppress_context__ or isinstance(current, _OF_CODE):
            return
        else:
            current = current.__context__


def _common_fault(faults: list[ProviderFault | None]) -> ProviderFault | None:
    """Return the fault of a group of errors: the most severe one, or None if any error is not a provider's."""
    provider_faults = [fault for fault in faults if fault is not None]
    if not provider_faults or len(provider_faults) < len(faults):
        return None
    return max(provider_faults, key=lambda fault: (is_lasting(fault), fault["retry_after_s"] or 0.0))


class _Evidence:
    """The facts that one error states.

    Attributes:
        status: The HTTP status of the response, if there was one.
    """

    def __init__(self, error: BaseException) -> None:
        self._error = error
        mro = [cls for cls in type(error).__mro__ if cls.__module__ != "builtins"]
        self._modules = [str(cls.__module__) for cls in mro]
        self._names = [str(cls.__name__) for cls in type(error).__mro__]
        roots = [module.partition(".")[0] for module in self._modules]
        self._model_client = next((root for root in roots if root in MODEL_CLIENTS), None)
        self._is_client = self._model_client is not None or any(root in HTTP_CLIENTS for root in roots)
        self._response = _attribute(error, "response")
        self._body = _attribute(error, "body", "details")
        self._is_of_server = any(
            module == server or module.startswith((f"{server}.", f"{server}_"))
            for module in self._modules
            for server in SERVER_MODULES
        )
        self.status = None if self._is_of_server else self._read_status()
        self._raised_in = _libraries_of(error)

    @property
    def provider(self) -> str:
        """The name of the provider: its library, unless that called another host, or the host."""
        if self._is_of_bedrock():
            return "bedrock"
        host = self._host()
        library = self._model_client or next((name for name in self._raised_in if name in MODEL_CLIENTS), None)
        if library is None:
            return host or _NETWORK
        is_own = host is None or host.endswith(OWN_HOSTS.get(library, "")) or host in _LOOPBACK
        return library if is_own else host or library

    def reason(self) -> Reason | None:
        """Return why the provider failed; None if it did not, as far as this error states."""
        if self._is_of_server:
            return None
        if not self._is_client and (self.status or 0) < 400:
            return self._reason_without_client()
        message = self._message()
        if _ABOUT_REQUEST.search(message):
            return None
        return self._lasting_reason(message) or self._passing_reason()

    def _lasting_reason(self, message: str) -> Reason | None:
        """Return the reason if waiting does not help."""
        calls_model = self._calls_model()
        coded = next((CODES[code] for code in self._codes() if code in CODES), None)
        if not calls_model:
            return coded if coded == "quota" else None
        if coded == "quota" or self.status == 402 or (self.status in (400, 403, 429) and _NO_MONEY.search(message)):
            return "quota"
        if coded in ("model", "credentials"):
            return coded
        if self.status in (401, 403) or (self.status in (None, 400) and _NO_KEY.search(message)):
            return "credentials"
        is_absent = self.status == 404 and "model" in message
        return "model" if is_absent or (self.status in (400, 404, 422) and _NO_MODEL.search(message)) else None

    def _passing_reason(self) -> Reason | None:
        """Return the reason if another try may succeed."""
        status = self.status
        if status == 429:
            return "rate_limit"
        coded = next((CODES[code] for code in self._codes() if code in CODES), None) if self._is_client else None
        if coded in LASTING:
            coded = None
        if coded == "rate_limit" or (coded is not None and not 400 <= (status or 0) < 500):
            return coded  # a 4xx is the caller's mistake, but AWS states its throttling as 400
        if status is not None and 500 <= status < 600:
            return "overloaded" if status in (503, 529) else "server_error"
        if status == 408:
            return "timeout"
        if not self._is_client or CALLER_MISTAKES & {*self._names}:
            return None
        of_class = next((CLASSES[name] for name in self._names if name in CLASSES), None)
        if of_class is None or (status is not None and of_class != "invalid_response"):
            return None
        return of_class

    def _reason_without_client(self) -> Reason | None:
        """Return the reason of an error of Python's own."""
        error = self._error
        if isinstance(error, ConnectionRefusedError | ConnectionResetError | ConnectionAbortedError | socket.gaierror):
            return "connection"
        if isinstance(error, OSError) and error.errno in _UNREACHABLE:
            return "connection"
        if isinstance(error, json.JSONDecodeError) and MODEL_CLIENTS & {*self._raised_in}:
            return "invalid_response"
        return "timeout" if isinstance(error, TimeoutError) and "aiohttp" in self._raised_in else None

    def _calls_model(self) -> bool:
        return self._model_client is not None or self._is_of_bedrock()

    def _is_of_bedrock(self) -> bool:
        return _attribute(self._error, "operation_name") in MODEL_OPERATIONS

    def _read_status(self) -> int | None:
        error, response = self._error, self._response
        metadata = response.get("ResponseMetadata") if isinstance(response, dict) else None
        stated = [
            _attribute(error, "status_code"),
            _attribute(response, "status_code", "status"),
            metadata.get("HTTPStatusCode") if isinstance(metadata, dict) else None,
        ]
        code = _attribute(error, "code")
        # Many errors have a `code` that is not an HTTP status: it counts only beside other signs of HTTP.
        if self._is_client or isinstance(code, HTTPStatus) or _attribute(error, "headers", "request") is not None:
            stated += [code, *(_attribute(error, name) for name in ("status", "http_status"))]
        numbers = (int(status) for status in stated if isinstance(status, int) and not isinstance(status, bool))
        return next((number for number in numbers if 100 <= number < 600), None)

    def _codes(self) -> list[str]:
        """Return the codes and types that the error states, in lower case, the most specific one first."""
        body = self._body
        inner = body.get("error") if isinstance(body, Mapping) else None
        error_of_aws = self._response.get("Error") if isinstance(self._response, dict) else None
        values = [_attribute(self._error, "code"), _attribute(self._error, "type")]
        for part in (inner, body, error_of_aws):
            if isinstance(part, Mapping):
                values += [part.get(name) for name in ("code", "type", "status", "Code")]
        values.append(_attribute(self._error, "status"))
        code = _attribute(self._error, "code")
        if callable(code):  # of gRPC
            values.append(_attribute(_called(code), "name"))
        return [text.lower() for text in values if isinstance(text, str)]

    def _message(self) -> str:
        try:
            return str(self._error)[:_MESSAGE].lower()
        except Exception:  # noqa: BLE001 - an error whose text is user code, too
            return ""

    def retry_after_s(self) -> float | None:
        """Return the seconds after which the provider accepts another request, if it stated them."""
        response = self._response
        metadata = response.get("ResponseMetadata") if isinstance(response, dict) else None
        for headers in (
            _attribute(response, "headers"),
            metadata.get("HTTPHeaders") if isinstance(metadata, dict) else None,
            _attribute(self._error, "headers"),
            _attribute(self._error, "litellm_response_headers"),
        ):
            items = _attribute(headers, "items")
            if callable(items):
                seconds = retry_after_s(dict(_called(items) or ()))
                if seconds is not None:
                    return seconds
        return delay_of(self._body)

    def _host(self) -> str | None:
        """Return the host that was called, if the error states it."""
        error = self._error
        url = _attribute(_attribute(error, "request"), "url") or _attribute(self._response, "url")
        url = url or _attribute(_attribute(error, "request_info"), "real_url") or _attribute(error, "url")
        host = _attribute(url, "host") or _attribute(error, "host")
        if not isinstance(host, str) and isinstance(url, str):
            host = re.sub(r"^[a-z]+://", "", url).partition("/")[0].rpartition("@")[2].partition(":")[0]
        return storable(host, 200) if isinstance(host, str) and host else None


def _attribute(holder: object, *names: str) -> Any:
    """Return the first of some attributes that is there and not None; reading one may run user code."""
    for name in names:
        try:
            attribute = getattr(holder, name, None)
        except Exception:  # noqa: BLE001 - a property that is user code, too
            continue
        if attribute is not None:
            return attribute
    return None


def _called(function: Any) -> Any:
    try:
        return function()
    except Exception:  # noqa: BLE001 - user code, too
        return None


def _libraries_of(error: BaseException) -> list[str]:
    """Return the packages whose calls led to an error, the outermost first, by the modules of its frames."""
    names: dict[str, None] = {}
    traceback = error.__traceback__
    while traceback is not None:
        names[str(traceback.tb_frame.f_globals.get("__name__", "")).partition(".")[0]] = None
        traceback = traceback.tb_next
    return list(names)
