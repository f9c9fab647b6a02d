"""The number of examples of a property: all of them in `make test-all`, a third in `make test`."""

from __future__ import annotations

import os


def examples(many: int) -> int:
    return many if os.environ.get("TEST_ALL") else -(-many // 3)
