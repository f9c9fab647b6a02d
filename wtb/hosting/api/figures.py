"""What pages draw a sweep from: its figures with their answer in words, and its cells as columns of numbers.

Both are of operations; they are put together and encoded here as a page needs them, in one request each.
"""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter, Request
from starlette.responses import Response

from wtb.display.json_text import as_json
from wtb.display.matrix.sentences import answers
from wtb.hosting.api.problems import Problem
from wtb.hosting.api.routes import PREFIX
from wtb.operations.context import Context
from wtb.operations.identity import Identity
from wtb.operations.inspection.columns import cell_columns
from wtb.operations.registry import Permission
from wtb.operations.results.matrix import matrix

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
    def figures(request: Request, ref: str) -> Response:
        if refused := _refusal(request):
            return refused
        document = matrix(mine(request), ref)
        return Response(as_json({"answers": answers(document), "matrix": document}), media_type="application/json")

    @routes.get("/sweeps/{ref}/columns", summary="Return the status and score of every cell in binary.")
    def columns(request: Request, ref: str, metric: str | None = None) -> Response:
        if refused := _refusal(request):
            return refused
        return Response(cell_columns(mine(request), ref, metric).encode(), media_type=COLUMNS)

    return routes


def _refusal(request: Request) -> Problem | None:
    identity: Identity = request.state.identity
    refusal = identity.refusal(Permission.read)
    return None if refusal is None else Problem(HTTPStatus.FORBIDDEN, refusal)
