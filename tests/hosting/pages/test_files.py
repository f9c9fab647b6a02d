"""The files of the pages: what was vendored is what was published, and nothing is needed but what is here."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from wtb.display.report.bundle import WEB, without_comments
from wtb.hosting.api.web_pages import page_routes, served_files

VENDOR = WEB / "vendor"
OWN = [path for path in WEB.rglob("*.js") if VENDOR not in path.parents]


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(Starlette(routes=page_routes()))


def test_libraries_are_as_they_were_fetched_and_come_with_their_licences() -> None:
    manifest = json.loads((VENDOR / "manifest.json").read_text("utf-8"))
    assert {library["file"] for library in manifest} == {path.name for path in VENDOR.glob("*.js")}
    for library in manifest:
        assert hashlib.sha256((VENDOR / library["file"]).read_bytes()).hexdigest() == library["sha256"], library["file"]
        assert (VENDOR / f"LICENSE.{library['package'].replace('/', '.').lstrip('@')}").exists()


def test_all_files_together_are_under_500_kb() -> None:
    """Those that a browser loads: without comments, types and licences, and before they are compressed."""
    assert sum(map(len, served_files().values())) + (WEB / "index.html").stat().st_size < 500_000


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_comments_stand_where_they_can_be_left_out(path: Path) -> None:
    """At the start of a line, or after what begins or ends an expression: never within a text or a pattern."""
    text = path.read_text("utf-8")
    for match in re.finditer(r"/\*\*", text):
        before = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        assert re.search(r"(^|[(){,;=?:>|&[]|[*]/|\b(return|in|of|await|new)|[+.-]) *$", before), before
    assert without_comments(text).count("\n") == text.count("\n")


def test_every_import_leads_to_a_file() -> None:
    for path in WEB.rglob("*.js"):
        for name in re.findall(r"""\b(?:from|import) ?["']([^"'\s]+)["']""", path.read_text("utf-8")):
            assert name.startswith("."), f"{path.name} imports {name}, which a browser cannot find"
            assert (path.parent / name).exists(), f"{path.name} imports {name}"


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_text_of_users_goes_in_as_text(path: Path) -> None:
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert way not in path.read_text("utf-8")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/submit",
        "/sweeps/any",
        "/sweeps/any/compare",
        "/sweeps/any/label",
        "/executions/any",
        "/compare/a/b",
        "/inbox",
        "/costs",
    ],
)
def test_every_address_of_a_page_has_the_same_document_without_scripts_within(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    assert answer.text == client.get("/").text
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|style=", answer.text)


def test_files_are_kept_by_browsers_until_they_change(client: TestClient) -> None:
    names = re.findall(r'(?:src|href)="(/static/[^"]+)"', client.get("/").text)
    assert len(names) == 3
    for name in names:
        answer = client.get(name)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["Cache-Control"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "path", ["/static/old/main.js", "/static/VERSION/../static.py", "/static/VERSION/%2e%2e/static.py", "/nowhere"]
)
def test_nothing_else_is_sent(client: TestClient, path: str) -> None:
    version = re.findall(r"/static/([^/]+)/", client.get("/").text)[0]
    assert client.get(path.replace("VERSION", version)).status_code == 404
