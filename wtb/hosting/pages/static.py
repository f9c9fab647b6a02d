"""Sends the pages: one document for every address of theirs, and the files that it names."""

from __future__ import annotations

import functools
import hashlib
from http import HTTPStatus
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route

from wtb.display.report.html.bundle import WEB, without_comments

STATIC = "/static"

# Scripts, styles and pictures come from here alone, and none stands within a document: what users wrote, or what their
# nodes put out, is never run.
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
_KEPT = "public, max-age=31536000, immutable"  # a changed file has another address
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def page_routes() -> list[Route]:
    """Return the routes of the pages; they are asked without a token, since they hold nothing of anybody."""
    files = served_files()
    version = _digest()

    def page(_: Request) -> Response:
        return document()

    def file(request: Request) -> Response:
        name = request.path_params["path"]
        if name not in files or request.path_params["version"] != version:
            return Response("there is no such file", HTTPStatus.NOT_FOUND, HEADERS, "text/plain")
        return Response(files[name], headers={**HEADERS, "Cache-Control": _KEPT}, media_type=_TYPES[Path(name).suffix])

    pages = ("/", "/submit", "/sweeps/{ref}", "/sweeps/{ref}/compare", "/sweeps/{ref}/label", "/executions/{ref}")
    pairs = ("/executions/{a}/diff/{b}", "/compare/{before}/{after}")
    lists = ("/inbox", "/schedules", "/workers", "/costs", "/access", "/sessions", "/help/{name}")
    manual = {path.stem: path for path in _manual_folder().glob("*.md")}

    def manual_page(request: Request) -> Response:
        found = manual.get(request.path_params["name"])
        if found is None:
            return Response("there is no such page", HTTPStatus.NOT_FOUND, HEADERS, "text/plain")
        return FileResponse(found, headers={**HEADERS, "Cache-Control": "no-cache"}, media_type="text/markdown")

    return [
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
    """Return the document of all pages, which shows what its address names, or that this is nothing."""
    text = (WEB / "index.html").read_text("utf-8").replace("VERSION", _digest())
    return HTMLResponse(text, status, {**HEADERS, "Cache-Control": "no-cache"})


def address_of(name: str) -> str:
    """Return the address of a file of the pages, such as `style.css`."""
    return f"{STATIC}/{_digest()}/{name}"


def is_for_people(request: Request) -> bool:
    """Return whether a browser asks for a page, and not a program for an answer of its own."""
    return request.method == "GET" and "text/html" in request.headers.get("Accept", "")


@functools.cache
def _digest() -> str:
    """Return what stands for the contents of files in addresses."""
    digest = hashlib.sha256((WEB / "index.html").read_bytes())
    for name, content in sorted(served_files().items()):
        digest.update(name.encode() + content)
    return digest.hexdigest()[:12]
