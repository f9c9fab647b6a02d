"""The page that shows the API's description, without scripts, with an example of each request, which a test sends."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any
from urllib.parse import urlencode

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route as StarletteRoute

from wtb.core.values import Json, JsonSchema
from wtb.hosting.api.routes import PREFIX, Route
from wtb.hosting.api.web_pages import HEADERS, address_of

PATH = "/docs"


def reference_route(app: FastAPI) -> StarletteRoute:
    """Return the route of the page.

    Args:
        app: The application whose description it shows.
    """

    def page(request: Request) -> Response:
        text = _page(app.openapi(), f"{request.url.scheme}://{request.url.netloc}")
        return HTMLResponse(text, headers={**HEADERS, "Cache-Control": "no-cache"})

    return StarletteRoute(PATH, page, methods=["GET"])


def _page(description: JsonSchema, server: str) -> str:
    operations = [
        (method.upper(), path, operation)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = description["components"]["schemas"]
    groups: dict[str, list[str]] = {}
    for method, path, operation in operations:
        group = str((operation.get("tags") or [path.removeprefix(f"{PREFIX}/").partition("/")[0]])[0])
        groups.setdefault(group, []).append(_request(server, method, path, operation, schemas))
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


def _request(server: str, method: str, path: str, operation: JsonSchema, schemas: JsonSchema) -> str:
    """Return the section of a request: its purpose, its arguments, and a command that sends it."""
    arguments = list(_arguments(operation, schemas))
    rows = "".join(
        f"<tr><td class='name mono'>{escape(name)}</td><td>{escape(where)}</td><td>{escape(kind)}</td>"
        f"<td>{escape(text)}</td></tr>"
        for name, where, kind, text, _ in arguments
    )
    heads = "".join(f"<th scope='col'>{head}</th>" for head in ("argument", "in", "what", ""))
    table = f"<div class='scroll'><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    return (
        f"<article><h3><code>{method} {escape(path)}</code></h3><p>{escape(operation.get('summary', ''))}</p>"
        f"{table if rows else ''}<pre>{escape(_command(server, method, path, arguments))}</pre></article>"
    )


def _arguments(operation: JsonSchema, schemas: JsonSchema) -> Iterator[tuple[str, str, str, str, Any]]:
    """Yield name, place, type, meaning and example of each argument."""
    for parameter in operation.get("parameters", ()):
        schema = parameter["schema"]
        yield parameter["name"], parameter["in"], _kind(schema), parameter.get("description", ""), _example(schema)
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    for key, schema in schemas.get(name, {}).get("properties", {}).items():
        yield key, "body", _kind(schema), schema.get("description", ""), _example(schema)


def _kind(schema: JsonSchema) -> str:
    """Describe the type of a value in a few words."""
    if alternatives := schema.get("anyOf"):
        return " or ".join(
            dict.fromkeys(_kind(alternative) for alternative in alternatives if alternative.get("type") != "null")
        )
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    return str(schema.get("type", "any"))


def _example(schema: JsonSchema) -> Any:
    return next(iter(schema.get("examples", ())), None)


def _command(server: str, method: str, path: str, arguments: list[tuple[str, str, str, str, Any]]) -> str:
    """Return the request as a command, with the examples."""
    examples = {(where, name): example for name, where, _, _, example in arguments if example is not None}
    url = server + path
    for (where, name), example in examples.items():
        if where == "path":
            url = url.replace(f"{{{name}}}", str(example))
    query = {name: example for (where, name), example in examples.items() if where == "query"}
    body = {name: example for (where, name), example in examples.items() if where == "body"}
    words = [shlex.quote(url + (f"?{urlencode(query, doseq=True)}" if query else ""))]
    if method != "GET":
        words = ["-X", method, *words]
    if body:
        words = ["-H 'Content-Type: application/json'", "-d", shlex.quote(json.dumps(body)), *words]
    return f'curl -H "Authorization: Bearer $(cat token)" {" ".join(words)}'


# Placeholders for ids, which differ in each database.
EXECUTION = "1ngb2g20kqy7"
OTHER_EXECUTION = "1ngb2g3x8d0c"
QUESTION = "1ngb2g41m5vz"
ANSWER = "5f2c0a61"
SCORING = "1ngb2g5q7d3k"
CHECKPOINT = "1ngb2g6r9f2m"

_KEYS = {
    "sweep": "triage-again",
    "workflow": "triage",
    "cases": [{"id": "invoice", "input": {"message": "My invoice is wrong"}, "expected": "billing"}],
    "vary": {"classify": "all"},
    "evaluate": [{"exact_match": {"field": "answer"}}],
}

# By a path, or its first part, and the argument.
_BY_PLACE: Mapping[tuple[str, str], Json] = {
    ("sweeps", "ref"): "triage",
    ("baselines", "ref"): "triage",
    ("executions", "ref"): EXECUTION,
    ("approvals", "ref"): QUESTION,
    ("checkpoints", "ref"): CHECKPOINT,
    ("executions", "name"): "before-the-change",
    ("/executions/{ref}/series", "name"): None,  # nothing was recorded over time
    ("/sweeps/{ref}/outputs", "keys"): ["answer"],
    ("/executions/{ref}/outputs", "keys"): ["answer"],
    ("/sweeps/{ref}/value", "key"): "message",
    ("/executions/{ref}/value", "key"): "answer",
    ("executions", "note"): "the last one with the old index",
    ("workflows", "name"): "triage",
    ("sessions", "name"): "ann",
    ("sessions", "to"): "crew",
    ("sessions", "owner"): "ann@example.com",
    ("sessions", "metadata"): {"ticket": "W-1"},
    ("projects", "name"): "search",
    ("users", "name"): "ann@example.com",
    ("teams", "name"): "core",
    ("tokens", "name"): "nightly",
    ("schedules", "name"): "nightly",
    ("baselines", "name"): "good",
    ("teams", "add"): ["ann@example.com"],
    ("access", "user"): "ann@example.com",
    ("access", "project"): "search",
    ("budgets", "project"): "search",
    ("projects", "sweeps"): "90d",
    ("tokens", "scopes"): ["read", "submit"],
    ("tokens", "budget"): {"usd": 20},
    ("executions", "other"): OTHER_EXECUTION,
    ("executions", "after"): EXECUTION,
    ("executions", "input"): {"message": "My invoice is wrong"},
    ("executions", "workflow"): "triage",
    ("sweeps", "other"): 1,
    ("pools", "refs"): ["triage", "triage-again"],
    ("sweeps", "statuses"): ["failed"],
    ("sweeps", "anyway"): True,
    ("sweeps", "evaluate"): [{"exact_match": {"field": "answer"}}],
    ("sweeps", "scoring"): SCORING,
    ("sweeps", "answer"): ANSWER,
    ("executions", "case"): None,  # it has one
    ("executions", "variants"): {"classify": "other"},
    ("/sweeps/{ref}/comments", "text"): "Right, but rude",
    ("/sweeps/{ref}/comments/{number}/delete", "number"): 1,
    ("/case-files", "cases"): {"headings": ["id", "message"], "rows": [["invoice", "My invoice is wrong"]]},
    ("/evaluators/preview", "evaluator"): {"exact_match": {"field": "answer"}},
    ("/evaluators/preview", "state"): {"answer": "billing"},
    ("/evaluators/preview", "expected"): {"answer": "billing"},
    ("audit", "before"): None,  # a number, and not a sweep
}
_BY_NAME: Mapping[str, Any] = {
    "keys": _KEYS,
    "a": EXECUTION,
    "b": OTHER_EXECUTION,
    "before": "good",
    "after": "triage",
    "case": "invoice",
    "path": "answer.txt",
    "to": "classify",
    "role": "runner",
    "limits": {"usd": 5},
    "combination": {"classify": "other"},
    "row": 0,
    "limit": 20,
    "kinds": ["sweep"],
    "severity": "info",
    "label": 1,
    "action": "approve",
    "questions": [QUESTION],
    "reason": "it answered another question",
}


def examples_of(route: Route, argument: str) -> list[Any] | None:
    """Return an example of an argument of a route, as a list of one.

    Args:
        route: The route.
        argument: The argument's name.

    Returns:
        None if the example of the route leaves it out.
    """
    places = [place for place in ((route.path, argument), (route.path.split("/")[1], argument)) if place in _BY_PLACE]
    example = _BY_PLACE[places[0]] if places else _BY_NAME.get(argument)
    return None if example is None else [example]
