"""An evaluator of meanings: how close a text is to what is expected by embeddings of a small model on this machine."""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path
from typing import Any

from wtb.authoring.evaluation.evaluators import CellResult, ScoredCase, evaluator
from wtb.authoring.evaluation.fields import needs_expected, references_of, text_of
from wtb.authoring.evaluation.requirements import needs
from wtb.core.scoring.scales import PASS_OR_FAIL


@needs_expected()
@needs("wordllama", extra="embedding")
@evaluator(better="higher", scale=PASS_OR_FAIL)
def embedding_similarity(case: ScoredCase, result: CellResult, *, field: str) -> float:
    answer, model = text_of(result, field), _model()
    cosine = max(float(model.similarity(answer, reference)) for reference in references_of(case, field))
    return min(max(cosine, 0.0), 1.0)


@cache
def _model() -> Any:
    root = logging.getLogger()
    handlers, level = [*root.handlers], root.level
    import wordllama

    root.handlers[:], root.level = handlers, level  # it has everybody's messages printed
    # Its weights and its tokenizer are in the wheel: it finds the latter only where it would keep what it downloads.
    place = Path(wordllama.__file__).parent
    return wordllama.WordLlama.load(cache_dir=place, disable_download=True)
