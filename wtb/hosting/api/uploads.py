"""Uploads of files that are too large for a request: they are stored part by part, under their digest."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator
from http import HTTPStatus

from fastapi import APIRouter, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from wtb.core.errors import WTBError
from wtb.core.ids import new_id
from wtb.hosting.api.identities import needing, origin_of
from wtb.hosting.api.problems import Problem, json_response, problem_of
from wtb.hosting.api.routes import PREFIX, UPLOADS
from wtb.hosting.api.threads import run_quickly
from wtb.operations.auditing import noting
from wtb.operations.context import Context
from wtb.operations.identity import Identity
from wtb.operations.registry import Permission
from wtb.store.access import requests
from wtb.store.access.projects import find_project
from wtb.store.database import Database

_DIGEST = re.compile(r"[0-9a-f]{64}")
_PATH = f"{UPLOADS}/{{digest}}"
_VIA = f"PUT {_PATH}"


class _TooLarge(Exception):
    """An upload is larger than the limit."""


def upload_routes(context: Context) -> APIRouter:
    """Return the route for uploads.

    Args:
        context: The context with the database of uploads.
    """
    routes = APIRouter(prefix=PREFIX, tags=["uploads"], dependencies=[needing(Permission.submit)])

    @routes.put(_PATH, summary="Keep a file for a day, for the cases of a sweep.", response_model=None)
    async def upload(request: Request, digest: str, project: str | None = None) -> Response:
        identity: Identity = request.state.identity
        if not _DIGEST.fullmatch(digest):
            return Problem(HTTPStatus.BAD_REQUEST, f"{digest!r:.80} is no SHA-256; expected 64 hexadecimal digits")
        acting = context.acting_as(identity, Permission.submit, origin_of(request, _VIA))
        project_row = await run_quickly(find_project, acting.database, acting.project_name(project))
        return await _received(request, acting, requests.NewUpload(new_id(), project_row.name, digest, acting.by))

    return routes


async def _received(request: Request, acting: Context, new: requests.NewUpload) -> Response:
    """Store an upload, or nothing of it if its digest is wrong."""
    database = acting.database
    try:
        async with asyncio.timeout(requests.COMES_S):
            await run_quickly(requests.begin_upload, database, new)
            size, digest = await _keep_parts(request.stream(), database, new)
        if digest != new.digest:
            detail = f"what came has the SHA-256 {digest}, and not that of the path; send it again"
            return Problem(HTTPStatus.BAD_REQUEST, detail)
        await run_quickly(_complete, acting, new)
    except WTBError as error:
        return problem_of(error)
    except _TooLarge:
        return _closing(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the file is larger than {requests.MOST_BYTES:,} bytes")
    except TimeoutError:
        return _closing(HTTPStatus.REQUEST_TIMEOUT, f"the file had not come after {requests.COMES_S:g} s")
    except ClientDisconnect:
        return _closing(HTTPStatus.BAD_REQUEST, "the file did not come whole")
    finally:
        # This removes nothing of an upload that is complete.
        await run_quickly(requests.abandon_upload, database, new.id)
    return json_response({"upload": new.digest, "bytes": size, "project": new.project}, HTTPStatus.CREATED)


async def _keep_parts(pieces: AsyncIterator[bytes], database: Database, new: requests.NewUpload) -> tuple[int, str]:
    """Store an upload in parts. Returns its size and its digest."""
    hashed, size, number, part = hashlib.sha256(), 0, 0, bytearray()
    async for piece in pieces:
        hashed.update(piece)
        size += len(piece)
        part += piece
        if size > requests.MOST_BYTES:
            raise _TooLarge
        if len(part) >= requests.PART_BYTES:
            await run_quickly(requests.add_part, database, new, number, bytes(part))
            number, part = number + 1, bytearray()
    if part:
        await run_quickly(requests.add_part, database, new, number, bytes(part))
    return size, hashed.hexdigest()


def _complete(acting: Context, new: requests.NewUpload) -> None:
    with noting(acting, "upload", digest=new.digest, project=new.project):
        requests.complete_upload(acting.database, new)


def _closing(status: HTTPStatus, what: str) -> Problem:
    return Problem(status, f"{what}, which is the limit; nothing was kept", headers={"Connection": "close"})
