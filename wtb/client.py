"""Asking a server of WTB's from Python: what `wtb serve` answers, with the results and errors of the Python API.

`wtb.open(url)` has the same as live objects. It takes the extra `client`.
"""

from __future__ import annotations

from wtb.hosting.client.async_client import AsyncClient
from wtb.hosting.client.client import Client

__all__ = ["AsyncClient", "Client"]
