"""Opens pages in the browser of whoever started the server."""

from __future__ import annotations

import os
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path


@contextmanager
def opened(url: str) -> Iterator[None]:
    """Open an address that signs in, by a file that its owner alone can read: arguments of processes are everybody's.

    Args:
        url: The address.
    """
    handle, name = tempfile.mkstemp(prefix="wtb-", suffix=".html")  # with mode 0600
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(f'<!doctype html><title>WTB</title><meta http-equiv="refresh" content="0; url={escape(url)}">\n')
    try:
        webbrowser.open(Path(name).as_uri())
        yield
    finally:
        Path(name).unlink(missing_ok=True)
