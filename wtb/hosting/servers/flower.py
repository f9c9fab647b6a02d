"""Flower for the queue of WTB: behind a password, read-only, and on the loopback unless configured otherwise."""

from __future__ import annotations

import importlib.util
import ipaddress
import os
import secrets
from collections.abc import Callable
from typing import Any

from wtb.config.credentials import FLOWER_AUTH, credential
from wtb.config.distribution import pip_install
from wtb.core.errors import InputError


def flower_auth(auth: str | None) -> tuple[str, str]:
    """Return user and password of Flower: those of `auth`, else new ones. Raises InputError."""
    if auth is None:
        return "wtb", secrets.token_urlsafe(12)
    user, _, password = auth.partition(":")
    if not (user and password) or "," in auth:
        raise InputError(f"{FLOWER_AUTH}: expected USER:PASSWORD, without a comma")
    return user, password


def run_flower(load: Callable[[], Any], address: str, port: int, report: Callable[[str], None]) -> None:
    """Run Flower until a signal stops it. Raises InputError if it would be open to others, or has no broker.

    `load` imports the Celery application of the workers.
    """
    auth = credential(FLOWER_AUTH)
    if auth is None and not _is_loopback(address):
        raise InputError(
            f"--address {address} is open to other machines: set {FLOWER_AUTH}=USER:PASSWORD, or leave it at 127.0.0.1"
        )
    user, password = flower_auth(auth)
    missing = [name for name in ("celery", "flower", "redis") if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(f"not installed: {', '.join(missing)}; Flower needs it: `{pip_install('stack')}`")
    app = load()
    if not app.conf.broker_url:
        raise InputError("no broker is configured; set WTB_BROKER_URL, or run `wtb up` in this folder")
    if auth is None:
        report(f"Flower: http://{address}:{port}, user {user}, password {password}")
    # Options for its protection come on the command line, so that neither a file nor the environment overrides them.
    app.start(
        [
            "flower",
            f"--conf={os.devnull}",
            f"--address={address}",
            f"--port={port}",
            f"--basic_auth={user}:{password}",
            "--read_only=true",
            "--unix_socket=",
            "--auth=",
            "--auth_provider=",
            "--persistent=false",
            "--tasks_columns=name,args,kwargs,state,runtime,received,worker",
        ]
    )


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
