"""The page that shows people what may be asked: the API's description, without a script, and open as other pages."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from html import escape
from typing import Any
from urllib.parse import urlencode

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from wtb.core.mappings import JsonSchema
from wtb.hosting.api.routes import PREFIX
from wtb.hosting.pages.static import HEADERS, address_of

PATH = "/docs"


def reference_route(app: FastAPI) -> Route:
    """Return the route of the page.

    Args:
        app: Whose description it shows.
    """

    def page(request: Request) -> Response:
        text = _page(app.openapi(), f"{request.url.scheme}://{request.url.netloc}")
        return HTMLResponse(text, headers={**HEADERS, "Cache-Control": "no-cache"})

    return Route(PATH, page, methods=["GET"])


def _page(description: JsonSchema, server: str) -> str:
    asked = [
        (method.upper(), path, one) for path, methods in description["paths"].items() for method, one in methods.items()
    ]
    schemas = description["components"]["schemas"]
    groups: dict[str, list[str]] = {}
    for method, path, one in asked:
        group = str((one.get("tags") or [path.removeprefix(f"{PREFIX}/").partition("/")[0]])[0])
        groups.setdefault(group, []).append(_request(server, method, path, one, schemas))
    contents = " ".join(f'<a href="#{escape(name)}">{escape(name)}</a>' for name in groups)
    sections = "".join(
        f'<section id="{escape(name)}"><h2>{escape(name)}</h2>{"".join(each)}</section>'
        for name, each in groups.items()
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>WTB: REST API</title>
<link rel="icon" href="{address_of("icon.svg")}">
<link rel="stylesheet" href="{address_of("style.css")}">
</head>
<body>
<main>
<h1>REST API</h1>
<p>WTB {escape(description["info"]["version"])}. Each request sends a token, <code>Authorization: Bearer TOKEN</code>;
here it is in a file. <code>{PREFIX}/openapi.json</code> has the same for tools.</p>
<nav class="bar" aria-label="What it is about">{contents}</nav>
{sections}
</main>
</body>
</html>
"""


def _request(server: str, method: str, path: str, one: JsonSchema, schemas: JsonSchema) -> str:
    """One request: what it does, what it takes, and how it is sent."""
    arguments = list(_arguments(one, schemas))
    rows = "".join(
        f"<tr><td class='name mono'>{escape(name)}</td><td>{escape(where)}</td><td>{escape(kind)}</td>"
        f"<td>{escape(text)}</td></tr>"
        for name, where, kind, text, _ in arguments
    )
    heads = "".join(f"<th scope='col'>{head}</th>" for head in ("argument", "in", "what", ""))
    table = f"<div class='scroll'><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    return (
        f"<article><h3><code>{method} {escape(path)}</code></h3><p>{escape(one.get('summary', ''))}</p>"
        f"{table if rows else ''}<pre>{escape(_command(server, method, path, arguments))}</pre></article>"
    )


def _arguments(one: JsonSchema, schemas: JsonSchema) -> Iterator[tuple[str, str, str, str, Any]]:
    """Yield of each argument its name, where it stands, what it may be, what it means, and an example if it has one."""
    for found in one.get("parameters", ()):
        schema = found["schema"]
        yield found["name"], found["in"], _kind(schema), found.get("description", ""), _example(schema)
    content = one.get("requestBody", {}).get("content", {}).get("application/json", {})
    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    for key, schema in schemas.get(name, {}).get("properties", {}).items():
        yield key, "body", _kind(schema), schema.get("description", ""), _example(schema)


def _kind(schema: JsonSchema) -> str:
    """What a value may be, in a word or a few."""
    if alternatives := schema.get("anyOf"):
        return " or ".join(dict.fromkeys(_kind(one) for one in alternatives if one.get("type") != "null"))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    return str(schema.get("type", "any"))


def _example(schema: JsonSchema) -> Any:
    return next(iter(schema.get("examples", ())), None)


def _command(server: str, method: str, path: str, arguments: list[tuple[str, str, str, str, Any]]) -> str:
    """The request as a command, with the examples."""
    given = {(where, name): example for name, where, _, _, example in arguments if example is not None}
    url = server + path
    for (where, name), example in given.items():
        if where == "path":
            url = url.replace(f"{{{name}}}", str(example))
    query = {name: example for (where, name), example in given.items() if where == "query"}
    body = {name: example for (where, name), example in given.items() if where == "body"}
    words = [shlex.quote(url + (f"?{urlencode(query, doseq=True)}" if query else ""))]
    if method != "GET":
        words = ["-X", method, *words]
    if body:
        words = ["-H 'Content-Type: application/json'", "-d", shlex.quote(json.dumps(body)), *words]
    return f'curl -H "Authorization: Bearer $(cat token)" {" ".join(words)}'
