"""Opens pages in the browser of whoever started the server."""

from __future__ import annotations

import os
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path


@contextmanager
def opened(url: str, report: Callable[[str], None]) -> Iterator[None]:
    """Open an address that signs in, by a file that its owner alone can read: arguments of processes are everybody's.

    Args:
        url: The address.
        report: Takes the line that says so where no browser can be opened.
    """
    handle, name = tempfile.mkstemp(prefix="wtb-", suffix=".html")  # with mode 0600
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(f'<!doctype html><title>WTB</title><meta http-equiv="refresh" content="0; url={escape(url)}">\n')

    def open_it() -> None:
        if not webbrowser.open(Path(name).as_uri()):
            report(f"no browser could be opened; the address is {url}")

    try:
        # Browsers of a console, and those that only $BROWSER knows, are waited for until they end.
        threading.Thread(target=open_it, name="browser", daemon=True).start()
        yield
    finally:
        Path(name).unlink(missing_ok=True)
