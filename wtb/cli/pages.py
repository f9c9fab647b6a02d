"""Addresses of pages in a browser: at the named server, else at that of this folder's stack."""

from __future__ import annotations

from urllib.parse import urlsplit

from wtb.cli.console import say, server_url
from wtb.core.errors import InputError


def address(path: str, db: str | None) -> str | None:
    """Return the address of a page.

    Args:
        path: Of the page, with its query.
        db: The database that the command line names.

    Returns:
        Its URL; None where no server is known that shows the same database.

    Raises:
        InputError: If the command line names a server, too, or the file of the stack cannot be read.
    """
    from wtb.config.stack_file import find_stack
    from wtb.store.database_url import database_url

    server = server_url(db)
    # The server of a stack shows the stack's own database only.
    if server is None and (stack := find_stack()) is not None and database_url(db) == stack.database_url:
        server = None if stack.api is None else "{0.scheme}://{0.netloc}".format(urlsplit(stack.api))
    return None if server is None else server.rstrip("/") + path


def open_page(path: str, db: str | None) -> None:
    """Print the address of a page, and open it in a browser.

    Args:
        path: Of the page, with its query.
        db: The database that the command line names.

    Raises:
        InputError: If no server is known that shows it.
    """
    url = address(path, db)
    if url is None:
        raise InputError("--open: no server is configured; start one with `wtb serve`, or name one with --server")
    import webbrowser  # which takes as long as a query

    say(url)
    # Without a browser on this machine, you can open the printed address elsewhere.
    webbrowser.open(url)
