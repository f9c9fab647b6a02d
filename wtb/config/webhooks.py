"""Notifications to a webhook, or to a command of the user.

The name of a webhook is resolved once, and the connection goes to the address that was checked. Addresses that are not
public are rejected unless allowed, redirects and proxies are not followed, and only the status of the response counts.
"""

from __future__ import annotations

import base64
import http.client
import ipaddress
import os
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypedDict
from urllib.parse import SplitResult, quote, unquote, urlsplit

import orjson

from wtb.core.errors import InputError, one_line

ANSWER_S = 10.0  # for a webhook, without the resolution of its name
COMMAND_S = 60.0
_BODY = 1024  # bytes that are read of a response
_MAX_TEXT = 300
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

Payload = Literal["json", "slack", "teams"]
_HOSTS: Mapping[str, Payload] = {  # by the end of a host's name, if no payload is named
    "hooks.slack.com": "slack",
    ".webhook.office.com": "teams",
    ".logic.azure.com": "teams",
    ".powerplatform.com": "teams",
}
_MOST_TEXT = 3_000  # characters of a text; Slack cuts at 4,000
_OPEN = "Open in WTB"
_MARKDOWN = str.maketrans(
    {char: f"\\{char}" for char in "\\*_[]"}
)  # escaped, because the text of a card must not be formatted by them
PAGES_URL = "WTB_PAGES_URL"  # the variable with the address of the pages of `wtb serve`


class Target(TypedDict, total=False):
    """A target of notifications: a webhook (url), or a command with its arguments; none, if neither is set.

    Attributes:
        allow_private: Allow a URL with a non-public address.
        on: The occasions, for a target of a sweep.
        payload: The form of the body for a URL; without it, the host decides.
    """

    command: list[str]
    url: str
    allow_private: bool
    on: list[str]
    payload: Payload


class NotificationError(Exception):
    """A notification could not be sent, for the reason in the message, which has no credentials."""


def read_target(
    text: str,
    *,
    allow_private: bool,
    option: str = "notify",
    folder: Path | None = None,
    payload: Payload | None = None,
) -> Target:
    """Parse a notification target as it is stored.

    Args:
        text: A URL, or a command with its arguments.
        allow_private: Allow a URL with a non-public address.
        option: The name of the option for errors.
        folder: The folder of a program with a relative path, if it is not the working directory.
        payload: The form of the body for a URL; without it, the host decides.

    Returns:
        The target.

    Raises:
        InputError: If there is no such program or address, or if a command has a payload.
    """
    name = f"{option}: " if option else ""
    if "://" not in text:
        if payload not in (None, "json"):
            raise InputError(f"{name}payload {payload} is for a URL; a command gets JSON", argument="payload")
        return {"command": _command(text, option, name, folder)}
    try:
        url = urlsplit(text)
        usable = url.scheme in ("http", "https") and url.hostname and (url.port or 80) and text.isascii()
    except ValueError:
        usable = False
    if not usable or any(char.isspace() or not char.isprintable() for char in text):
        raise InputError(
            f"{option} {text.partition('://')[0]}://...: expected an http or https URL, or a command".lstrip(),
            argument="notify",
        )
    target: Target = {"url": text, "allow_private": allow_private}
    if payload is not None:
        target["payload"] = payload
    try:
        addresses(target)
    except NotificationError as error:
        raise InputError(f"{name}{error}", argument="notify") from None
    return target


def _command(text: str, option: str, name: str, folder: Path | None) -> list[str]:
    try:
        command = shlex.split(text)
    except ValueError as error:
        raise InputError(f"{option} {text!r}: {error}".lstrip(), argument="notify") from None
    if not command:
        raise InputError(f"{option or 'it'} is empty; expected an http or https URL, or a command", argument="notify")
    if folder is not None and "/" in command[0]:
        command[0] = str((folder / command[0]).absolute())
    if shutil.which(command[0]) is None:
        raise InputError(
            f"{name}there is no program {command[0]!r}; expected an http or https URL, or a command", argument="notify"
        )
    return command


def describe_target(target: Target) -> str | None:
    """Return a notification target for messages. Only the server of a URL is shown, because the rest may be a
    secret.
    """
    if "command" in target:
        return shlex.join(target["command"])
    if "url" not in target:
        return None
    url = urlsplit(target["url"])
    return f"{url.scheme}://{url.netloc.rpartition('@')[2]}" + ("/..." if url.path.strip("/") or url.query else "")


def send(target: Target, message: Mapping[str, object], key: str) -> None:
    """Send a message once; a command starts in this folder. Raises NotificationError.

    `key` is the same for each try, so that a receiver can recognize duplicates.
    """
    if "command" in target:
        _run(target["command"], orjson.dumps({**message, "key": key}))
    else:
        _post(target, orjson.dumps(shaped(payload_of(target), message, key)), key)


def page_url(*path: str) -> str | None:
    """Return the address of a page of `wtb serve`, or None if WTB_PAGES_URL does not name where the pages are."""
    base = os.environ.get(PAGES_URL, "").rstrip("/")
    return "/".join((base, *(quote(part, safe="") for part in path))) if base else None


def payload_of(target: Target) -> Payload:
    """Return the form of the body for a URL: the named one, else that of its host."""
    host = urlsplit(target["url"]).hostname or ""
    of_host: Payload = next((payload for end, payload in _HOSTS.items() if host.endswith(end)), "json")
    return target.get("payload", of_host)


def shaped(payload: Payload, message: Mapping[str, object], key: str) -> dict[str, object]:
    """Return the body for a receiver: the message itself, or its text and a link.

    Sources: Slack, "Sending messages using incoming webhooks" and "Formatting text for app surfaces"; Microsoft Teams,
    "Create incoming webhooks with Workflows"; Adaptive Cards 1.4.
    """
    text, url = str(message["text"])[:_MOST_TEXT], message.get("url")
    if payload == "slack":
        for char, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
            text = text.replace(char, name)
        return {"text": f"{text}\n<{url}|{_OPEN}>" if url else text}
    if payload == "teams":
        card: dict[str, object] = {
            "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
            "type": "AdaptiveCard",
            "version": "1.4",
            "body": [{"type": "TextBlock", "text": text.translate(_MARKDOWN), "wrap": True}],
        }
        if url:
            card["actions"] = [{"type": "Action.OpenUrl", "title": _OPEN, "url": url}]
        attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
        return {"type": "message", "attachments": [attachment]}
    return {**message, "key": key}


def _run(command: list[str], body: bytes) -> None:
    try:
        process = subprocess.Popen(
            # A command of the user gets none of WTB's credentials, and a session of
            # its own, so that it is killed with its children.
            command,
            env={name: text for name, text in os.environ.items() if not name.startswith("WTB_")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise NotificationError(f"{command[0]}: cannot be started ({error.strerror})") from error
    with process:
        try:
            output, _ = process.communicate(body, timeout=COMMAND_S)
        except subprocess.TimeoutExpired:
            raise NotificationError(f"{command[0]} did not end within {COMMAND_S:g} s") from None
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        last = output.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise NotificationError(
            f"{command[0]} ended with exit code {process.returncode}: {last[:_MAX_TEXT]}".rstrip(": ")
        )


def _post(target: Target, body: bytes, key: str) -> None:
    url = urlsplit(target["url"])
    where = describe_target(target)
    # A timeout of a socket counts each read by itself; the timer bounds the whole exchange with a slow server.
    connection = _Pinned(url, addresses(target))
    watchdog = threading.Timer(ANSWER_S, connection.abort)
    watchdog.daemon = True
    watchdog.start()
    try:
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        connection.request("POST", path, body, _headers(url, key))
        answer = connection.getresponse()
        answer.read(_BODY)
    except (OSError, http.client.HTTPException) as error:
        if connection.late or isinstance(error, TimeoutError):
            raise NotificationError(f"{where} did not respond within {ANSWER_S:g} s") from error
        raise NotificationError(f"{where}: {_reason(error)}") from error
    finally:
        watchdog.cancel()
        connection.close()
    if 300 <= answer.status < 400:
        raise NotificationError(
            f"{where} answered {answer.status}, and redirects are not followed: give the URL it leads to"
        )
    if not 200 <= answer.status < 300:
        raise NotificationError(f"{where} answered {answer.status} {answer.reason[:_MAX_TEXT]}".rstrip())


def _headers(url: SplitResult, key: str) -> dict[str, str]:
    headers = {"Content-Type": "application/json", "User-Agent": "wtb", "Idempotency-Key": key}
    if url.username is not None:
        user = f"{unquote(url.username)}:{unquote(url.password or '')}"
        headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
    return headers


class _Pinned(http.client.HTTPConnection):
    """A connection to one of the addresses that were checked, whatever its name resolves to now."""

    def __init__(self, url: SplitResult, addresses: list[str]) -> None:
        self._secure = url.scheme == "https"
        super().__init__(url.hostname or "", _port(url), timeout=ANSWER_S)
        self.default_port = 443 if self._secure else 80  # the header `Host` leaves it out
        self._addresses = addresses
        self.late = False

    def connect(self) -> None:
        for number, address in enumerate(self._addresses, 1):
            try:
                self.sock = socket.create_connection((address, self.port), ANSWER_S / len(self._addresses))
                break
            except OSError:
                if number == len(self._addresses):
                    raise
        self.sock.settimeout(ANSWER_S)
        if self._secure:
            context = ssl.create_default_context()
            # The handshake is separate, so that `abort` can end it: the socket is already assigned.
            self.sock = context.wrap_socket(self.sock, server_hostname=self.host, do_handshake_on_connect=False)
            self.sock.do_handshake()

    def abort(self) -> None:
        """End the exchange from another thread, however slow it is."""
        self.late = True
        if self.sock is not None:
            with suppress(OSError):  # it has ended by itself
                self.sock.shutdown(socket.SHUT_RDWR)


def addresses(target: Target) -> list[str]:
    """Return the addresses of a webhook. Raises NotificationError if there are none, or if one of them is not
    allowed.
    """
    url = urlsplit(target["url"])
    host = url.hostname or ""
    try:
        infos = socket.getaddrinfo(host, _port(url), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NotificationError(f"{host} has no address ({_reason(error)})") from error
    every = list(dict.fromkeys(str(info[4][0]) for info in infos))
    # All of them: the connection tries one after the other, and a private one among them is enough for an attack.
    for address in every:
        if not (target["allow_private"] or is_public(address)):
            raise NotificationError(
                f"{host} leads to {address}, which is not a public address; allow_private allows it"
            )
    return every


def _port(url: SplitResult) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def is_public(address: str) -> bool:
    """Return whether an address, and every address embedded in it, is public."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    ways: list[ipaddress.IPv4Address | ipaddress.IPv6Address | None] = [ip]
    if isinstance(ip, ipaddress.IPv6Address):
        # An IPv6 address may embed an IPv4 address, to which the system or a gateway would connect.
        if ip.ipv4_mapped is not None:
            ways = [ip.ipv4_mapped]
        ways += [ip.sixtofour, *(ip.teredo or ())]
        if ip in _NAT64:
            ways.append(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF))
    return all(way.is_global and not way.is_multicast for way in ways if way is not None)


def _reason(error: BaseException) -> str:
    return str(getattr(error, "strerror", None) or one_line(error))[:_MAX_TEXT]
