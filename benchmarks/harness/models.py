"""A model in another process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def serving_model(wait_s: float, reply_bytes: int | None = None) -> Iterator[str]:
    """Serve a model until the block ends. Yields its base URL.

    Args:
        wait_s: Seconds before each reply.
        reply_bytes: How long the text of a reply is; without it, the reply is a judgement.
    """
    command = [sys.executable, "-m", "benchmarks.peers.slow_model", str(wait_s)]
    command += [] if reply_bytes is None else [str(reply_bytes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        finally:
            server.terminate()
