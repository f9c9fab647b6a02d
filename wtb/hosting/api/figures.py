"""What pages draw a sweep from: its figures with their answer in words, its cells as columns of numbers, its report.

All are of operations; they are put together and encoded here as a page needs them, in one request each.
"""

from __future__ import annotations

import re
from functools import partial
from http import HTTPStatus

from fastapi import APIRouter, Request
from starlette.responses import Response

from wtb.config.stack_file import find_stack
from wtb.core.documents.matrix import JudgedMatrixDocument
from wtb.display.json_text import as_json
from wtb.display.matrix.recommendation import brief, card
from wtb.display.matrix.sentences import answers
from wtb.display.report.html import page
from wtb.hosting.api.problems import Problem
from wtb.hosting.api.routes import PREFIX
from wtb.hosting.pages.embedded_outputs import scripted_views
from wtb.operations.context import Context
from wtb.operations.identity import Identity
from wtb.operations.inspection.columns import cell_columns
from wtb.operations.outputs.side_by_side import outputs
from wtb.operations.registry import Permission
from wtb.operations.results.matrix import matrix, report

COLUMNS = "application/vnd.wtb.columns"


def router(context: Context) -> APIRouter:
    """Return the routes by which pages get figures and cells.

    Args:
        context: Where operations act.
    """
    routes = APIRouter(prefix=PREFIX, tags=["sweeps"])

    def mine(request: Request) -> Context:
        return context.acting_as(request.state.identity, Permission.read)

    @routes.get("/sweeps/{ref}/figures", summary="Show the matrix of a sweep, and what it says in words.")
    def figures(request: Request, ref: str, baseline: int | None = None) -> Response:
        return _refusal(request) or _figures(matrix(mine(request), ref, baseline=baseline))

    @routes.get("/sweeps/{ref}/decision", summary="Show what a sweep comes to: its score, and what gates say.")
    def decision(request: Request, ref: str) -> Response:
        return _refusal(request) or _json({"decision": brief(matrix(mine(request), ref))})

    @routes.get("/sweeps/{ref}/columns", summary="Return the status and score of every cell in binary.")
    def columns(request: Request, ref: str, metric: str | None = None) -> Response:
        if refused := _refusal(request):
            return refused
        return Response(cell_columns(mine(request), ref, metric).encode(), media_type=COLUMNS)

    @routes.get("/sweeps/{ref}/report.html", summary="Return the report of a sweep as one file.")
    def report_file(request: Request, ref: str) -> Response:
        if refused := _refusal(request):
            return refused
        document = report(mine(request), ref)
        name = re.sub(r"[^\w.-]+", "-", document["matrix"]["sweep"]["name"], flags=re.ASCII).strip("-.") or "sweep"
        kept = {"Content-Disposition": f'attachment; filename="{name}.html"', "Content-Security-Policy": "sandbox"}
        views = scripted_views(document, partial(outputs, mine(request), ref))
        return Response(page.render(document, views), media_type="text/html", headers=kept)

    @routes.get("/stack", summary="Say where Flower is, if `wtb up` started one beside this server.")
    def stack(request: Request) -> Response:
        if refused := _refusal(request):
            return refused
        found = find_stack()
        flower = None if found is None or found.flower is None else found.flower.url
        return _json({"flower": flower})

    return routes


def _figures(document: JudgedMatrixDocument) -> Response:
    found = card(document)
    return _json({"answers": answers(document), "decision": found and found._asdict(), "matrix": document})


def _json(document: object) -> Response:
    return Response(as_json(document), media_type="application/json")


def _refusal(request: Request) -> Problem | None:
    identity: Identity = request.state.identity
    refusal = identity.refusal(Permission.read)
    return None if refusal is None else Problem(HTTPStatus.FORBIDDEN, refusal)
