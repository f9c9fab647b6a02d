"""A database that the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.databases import postgres_database


@pytest.fixture(scope="module")
def url(postgres_url: str, postgres_admin: object, postgres_template: str) -> Iterator[str]:
    with postgres_database(postgres_url, postgres_admin, postgres_template) as url:  # type: ignore[arg-type]
        yield url
