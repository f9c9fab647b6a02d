"""The pages: their document and the files that it loads, and what they read of a sweep: figures, cells, its report."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from html import escape
from http import HTTPStatus
from pathlib import Path

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route

from wtb.config.stack_file import find_stack
from wtb.core.documents.matrix import JudgedMatrixDocument
from wtb.display.recommendation import brief, card
from wtb.display.report.bundle import WEB, without_comments
from wtb.display.report.report_files import page_with_outputs
from wtb.display.sentences import answers
from wtb.hosting.api.identities import needing
from wtb.hosting.api.problems import json_response
from wtb.hosting.api.routes import PREFIX
from wtb.operations.context import Context
from wtb.operations.inspection.cells import cell_columns
from wtb.operations.registry import Permission
from wtb.operations.results.matrix import matrix, report
from wtb.operations.results.side_by_side import outputs

STATIC = "/static"

# Scripts, styles and pictures come from this server only, and none is inline: text of users, or output of their
# nodes, is never run.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_CACHE_FOREVER = "public, max-age=31536000, immutable"  # a changed file has another address
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def page_routes() -> list[Route]:
    """Return the routes of the pages, which need no token because they contain no data."""
    files = served_files()
    version = _digest()

    def page(_: Request) -> Response:
        return document()

    def file(request: Request) -> Response:
        name = request.path_params["path"]
        # A file of another version must not be cached under this address, where it would stay for a year.
        if name not in files or request.path_params["version"] != version:
            return Response("there is no such file", HTTPStatus.NOT_FOUND, HEADERS, "text/plain")
        return Response(
            files[name], headers={**HEADERS, "Cache-Control": _CACHE_FOREVER}, media_type=_TYPES[Path(name).suffix]
        )

    pages = ("/", "/submit", "/sweeps/{ref}", "/sweeps/{ref}/compare", "/sweeps/{ref}/label", "/executions/{ref}")
    pairs = ("/executions/{a}/diff/{b}", "/compare/{before}/{after}")
    lists = ("/inbox", "/schedules", "/workers", "/costs", "/access", "/sessions", "/help/{name}")
    manual = {path.stem: path for path in _manual_folder().glob("*.md")}

    def manual_page(request: Request) -> Response:
        page_file = manual.get(request.path_params["name"])
        if page_file is None:
            return Response("there is no such page", HTTPStatus.NOT_FOUND, HEADERS, "text/plain")
        return FileResponse(page_file, headers={**HEADERS, "Cache-Control": "no-cache"}, media_type="text/markdown")

    return [
        # Before `/help/{name}`, which matches these addresses, too.
        Route("/help/{name}.md", manual_page, methods=["GET"]),
        Route(f"{STATIC}/{{version}}/{{path:path}}", file, methods=["GET"]),
        *(Route(path, page, methods=["GET"]) for path in (*pages, *pairs, *lists)),
    ]


@functools.cache
def served_files() -> dict[str, bytes]:
    """Return the contents of the files that pages load, by their paths within the folder of the pages."""
    paths = [path for path in WEB.rglob("*") if path.suffix in _TYPES]
    return {path.relative_to(WEB).as_posix(): without_comments(path.read_text("utf-8")).encode() for path in paths}


def _manual_folder() -> Path:
    """Return the folder of the documentation: within an installation, or beside the packages of a checkout."""
    package = WEB.parents[2]
    installed = package / "docs"
    return installed if installed.is_dir() else package.parent / "docs"


def document(status: HTTPStatus = HTTPStatus.OK) -> Response:
    """Return the document of all pages, which shows the object of its address, or an error."""
    text = (WEB / "index.html").read_text("utf-8").replace("VERSION", _digest())
    return HTMLResponse(text, status, {**HEADERS, "Cache-Control": "no-cache"})


def address_of(name: str) -> str:
    """Return the address of a file of the pages, such as `style.css`."""
    return f"{STATIC}/{_digest()}/{name}"


def is_for_people(request: Request) -> bool:
    """Return whether a request is a browser's for a page, and not a program's."""
    return request.method == "GET" and "text/html" in request.headers.get("Accept", "")


@functools.cache
def _digest() -> str:
    """Return the digest of all files, which is part of their addresses."""
    digest = hashlib.sha256((WEB / "index.html").read_bytes())
    for name, content in sorted(served_files().items()):
        digest.update(name.encode() + content)
    return digest.hexdigest()[:12]


@contextmanager
def opened(url: str, report: Callable[[str], None]) -> Iterator[None]:
    """Open an address that signs in, by a file that only its owner can read: all users can see arguments of processes.

    Args:
        url: The address.
        report: Called with the address if no browser can be opened.
    """
    handle, name = tempfile.mkstemp(prefix="wtb-", suffix=".html")  # with mode 0600
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(f'<!doctype html><title>WTB</title><meta http-equiv="refresh" content="0; url={escape(url)}">\n')

    def open_it() -> None:
        if not webbrowser.open(Path(name).as_uri()):
            report(f"no browser could be opened; the address is {url}")

    try:
        # On a thread, because `webbrowser` waits for console browsers, and for those that only $BROWSER names, to end.
        threading.Thread(target=open_it, name="browser", daemon=True).start()
        yield
    finally:
        Path(name).unlink(missing_ok=True)


COLUMNS = "application/vnd.wtb.columns"


def router(context: Context) -> APIRouter:
    """Return the routes by which pages get figures and cells.

    Args:
        context: The context of operations.
    """
    routes = APIRouter(prefix=PREFIX, tags=["sweeps"], dependencies=[needing(Permission.read)])

    def mine(request: Request) -> Context:
        return context.acting_as(request.state.identity, Permission.read)

    @routes.get("/sweeps/{ref}/figures", summary="Show the matrix of a sweep, and its conclusions in words.")
    def figures(request: Request, ref: str, baseline: int | None = None) -> Response:
        return _figures(matrix(mine(request), ref, baseline=baseline))

    @routes.get("/sweeps/{ref}/decision", summary="Show the outcome of a sweep: its score, and the results of gates.")
    def decision(request: Request, ref: str) -> Response:
        return json_response({"decision": brief(matrix(mine(request), ref))})

    @routes.get("/sweeps/{ref}/columns", summary="Return the status and score of every cell in binary.")
    def columns(request: Request, ref: str, metric: str | None = None) -> Response:
        return Response(cell_columns(mine(request), ref, metric).encode(), media_type=COLUMNS)

    @routes.get("/sweeps/{ref}/report.html", summary="Return the report of a sweep as one file.")
    def report_file(request: Request, ref: str) -> Response:
        document = report(mine(request), ref)
        name = re.sub(r"[^\w.-]+", "-", document["matrix"]["sweep"]["name"], flags=re.ASCII).strip("-.") or "sweep"
        headers = {"Content-Disposition": f'attachment; filename="{name}.html"', "Content-Security-Policy": "sandbox"}
        text = page_with_outputs(document, partial(outputs, mine(request), ref))
        return Response(text, media_type="text/html", headers=headers)

    @routes.get("/stack", summary="Show the address of Flower, if `wtb up` started it beside this server.")
    def stack() -> Response:
        running_stack = find_stack()
        flower = None if running_stack is None or running_stack.flower is None else running_stack.flower.url
        return json_response({"flower": flower})

    return routes


def _figures(document: JudgedMatrixDocument) -> Response:
    decision_card = card(document)
    return json_response(
        {"answers": answers(document), "decision": decision_card and decision_card._asdict(), "matrix": document}
    )
