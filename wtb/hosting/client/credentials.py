"""The token by which a server knows who asks: of the environment, or of a file that only its owner may read."""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path

from wtb.config.credentials import TOKEN, client_credentials, credential
from wtb.config.urls import split_url
from wtb.core.errors import InputError

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def find_token(url: str) -> str:
    """Find the token for a server: that of WTB_TOKEN, else that of the file.

    Args:
        url: The server.

    Raises:
        InputError: If there is none, or others may read the file.
    """
    token = credential(TOKEN) or _of_file(client_credentials(), url)
    if token is None:
        raise InputError(
            f"there is no token for {url}: set {TOKEN}, or write it to {client_credentials()}, as `token` in a table "
            f"[{url!r}]; whoever runs the server makes one with `wtb token create`"
        )
    return token


def _of_file(path: Path, url: str) -> str | None:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            tables = tomllib.load(file)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}); expected TOML") from None
    if mode & _OTHERS:
        raise InputError(f"{path} may be read by others, and holds tokens: chmod 600 {path}")
    for name, table in tables.items():
        if _server(name) == _server(url) and isinstance(table, dict) and isinstance(table.get("token"), str):
            return str(table["token"])
    return None


def _server(url: str) -> tuple[str, str]:
    """Return what tells one server from another."""
    parts = split_url(url)
    if parts is None:  # no server has it
        return url, ""
    return f"{parts.scheme}://{parts.netloc}".lower(), parts.path.rstrip("/")
