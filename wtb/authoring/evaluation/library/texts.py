"""Evaluators of texts: how close a field is to what is expected, from 0 to 1. Of several references the best counts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from wtb.authoring.evaluation.evaluators import CellResult, ScoredCase, evaluator
from wtb.authoring.evaluation.fields import field_of, filled_value, needs_expected, references_of, text_of
from wtb.authoring.evaluation.requirements import needs
from wtb.core.scoring.scales import PASS_OR_FAIL

_WORD = re.compile(r"\w+")


@needs_expected(instead="text")
@evaluator(better="higher", scale=PASS_OR_FAIL)
def contains_any(case: ScoredCase, result: CellResult, *, field: str, text: str | list[str] | None = None) -> bool:
    answer = field_of(result, field)
    expected = filled_value(case.expected, field) if text is None else text
    return any(part in answer for part in ([expected] if isinstance(expected, str) else expected))


@needs_expected()
@needs("rapidfuzz", extra="text")
@evaluator(better="higher", scale=PASS_OR_FAIL)
def edit_similarity(case: ScoredCase, result: CellResult, *, field: str, ignore_case: bool = False) -> float:
    from rapidfuzz.distance import Levenshtein

    answer, references = text_of(result, field), references_of(case, field)
    if ignore_case:
        answer, references = answer.casefold(), [reference.casefold() for reference in references]
    return max(float(Levenshtein.normalized_similarity(answer, reference)) for reference in references)


@needs_expected()
@needs("rapidfuzz", extra="text")
@evaluator(better="higher", scale=PASS_OR_FAIL)
def rouge(case: ScoredCase, result: CellResult, *, field: str, variant: str = "L", figure: str = "f1") -> float:
    words = _words(text_of(result, field))
    return max(_rouge(words, _words(reference), variant, figure) for reference in references_of(case, field))


@needs_expected()
@needs("sacrebleu", extra="text")
@evaluator(better="higher", scale=PASS_OR_FAIL)
def bleu(case: ScoredCase, result: CellResult, *, field: str, tokenize: str = "13a") -> float:
    from sacrebleu.metrics.bleu import BLEU

    # Effective order: a text of three words has no 4-grams, and would score 0 however good it is.
    metric = BLEU(effective_order=True, tokenize=tokenize)
    return _share(metric.sentence_score(text_of(result, field), references_of(case, field)).score)


@needs_expected()
@needs("sacrebleu", extra="text")
@evaluator(better="higher", scale=PASS_OR_FAIL)
def chrf(case: ScoredCase, result: CellResult, *, field: str, word_order: int = 0) -> float:
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF(word_order=word_order)
    return _share(metric.sentence_score(text_of(result, field), references_of(case, field)).score)


def _share(percent: float) -> float:
    return min(float(percent) / 100, 1.0)


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _rouge(words: Sequence[str], reference: Sequence[str], variant: str, figure: str) -> float:
    """ROUGE-1, -2 or -L of two lists of words.

    Source: Lin, "ROUGE: a package for automatic evaluation of summaries", 2004; without stemming.
    """
    if variant == "L":
        from rapidfuzz.distance import LCSseq

        common, of_found, of_reference = LCSseq.similarity(words, reference), len(words), len(reference)
    else:
        ours, theirs = _ngrams(words, int(variant)), _ngrams(reference, int(variant))
        common, of_found, of_reference = (ours & theirs).total(), ours.total(), theirs.total()
    if not common:
        return 0.0
    precision, recall = common / of_found, common / of_reference
    figures = {"precision": precision, "recall": recall, "f1": 2 * precision * recall / (precision + recall)}
    return figures[figure]


def _ngrams(words: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[at : at + n]) for at in range(len(words) - n + 1))
