"""`/metrics` of the server: what is there of the projects that whoever asks may read."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from importlib.util import find_spec

from fastapi import APIRouter, Request
from starlette.responses import Response

from wtb.config.distribution import pip_install
from wtb.hosting.api.problems import Problem
from wtb.hosting.api.routes import METRICS
from wtb.operations.context import Context
from wtb.operations.identity import Identity
from wtb.operations.registry import Permission


def metrics_router(context: Context, subscribers: Callable[[], int]) -> APIRouter:
    """Return the route by which Prometheus reads a server.

    Args:
        context: Where operations act.
        subscribers: Says how many streams are followed.
    """
    routes = APIRouter(tags=["metrics"])
    if find_spec("prometheus_client") is None:

        @routes.get(METRICS, summary="Show metrics as Prometheus reads them.")
        def missing() -> Response:
            return Problem(HTTPStatus.NOT_IMPLEMENTED, f"metrics take more to be installed: {pip_install('metrics')}")

        return routes

    from prometheus_client.registry import Collector

    from wtb.hosting.telemetry.metrics import DatabaseMetrics, ProcessMetrics, Tallies, exposition

    tallies, process = Tallies(), ProcessMetrics(subscribers, context.database)

    @routes.get(METRICS, summary="Show metrics as Prometheus reads them.")
    def metrics(request: Request) -> Response:
        identity: Identity = request.state.identity
        refusal = identity.refusal(Permission.read)
        if refusal is not None:
            return Problem(HTTPStatus.FORBIDDEN, refusal)
        database = context.acting_as(identity, Permission.read).database
        collectors: list[Collector] = [DatabaseMetrics(database, tallies)]
        if identity.may[Permission.read] is None:
            collectors.append(process)
        body, media_type = exposition(collectors, request.headers.get("accept", ""))
        return Response(body, headers={"Content-Type": media_type})

    return routes
