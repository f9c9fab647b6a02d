"""Evaluators of texts: how close a field is to what is expected, from 0 to 1. Of several references the best counts."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from wtb.authoring.evaluation.evaluators import CellResult, ScoredCase, evaluator
from wtb.authoring.evaluation.fields import field_of, filled_value, needs, needs_expected, references_of, text_of
from wtb.core.failures import SECRETS
from wtb.core.scoring.scores import PASS_OR_FAIL

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

    # The import configures the root logger, which would print the messages of all packages.
    root.handlers[:], root.level = handlers, level
    # Its weights and its tokenizer are in the wheel: it finds the latter only where it would keep what it downloads.
    place = Path(wordllama.__file__).parent
    return wordllama.WordLlama.load(cache_dir=place, disable_download=True)


_PERSONAL: Mapping[str, re.Pattern[str]] = {
    "email": re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,5}\b"),
    "card": re.compile(r"(?<![\d-])[2-6](?:[ -]?\d){12,18}(?![\d-])"),
    "iban": re.compile(r"\b[A-Z]{2}\d{2}(?:[A-Z0-9]{11,30}|(?: [A-Z0-9]{4}){2,7}(?: [A-Z0-9]{1,4})?)\b"),
    "phone": re.compile(r"(?<![\w+])\+\d{1,3}(?:[ ()./-]{0,2}\d){6,12}(?!\d)"),
    "us_ssn": re.compile(r"(?<![\d-])(?!000|666|9\d\d)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\d-])"),
}
KINDS = tuple(_PERSONAL)


@evaluator(better="higher", scale=PASS_OR_FAIL)
def no_secrets(case: ScoredCase, result: CellResult, *, field: str) -> bool:
    text = text_of(result, field)
    return not any(pattern.search(text) for pattern in SECRETS.values())


@evaluator(better="higher", scale=PASS_OR_FAIL)
def no_personal_data(case: ScoredCase, result: CellResult, *, field: str, kinds: list[str] | None = None) -> bool:
    text = text_of(result, field)
    return not any(_has(kind, text) for kind in (KINDS if kinds is None else kinds))


def _has(kind: str, text: str) -> bool:
    check = _CHECKS.get(kind)
    return any(check is None or check(match[0]) for match in _PERSONAL[kind].finditer(text))


def _is_card(text: str) -> bool:
    """Return whether the check digit is right (Luhn; ISO/IEC 7812)."""
    digits = [int(character) for character in text if character.isdecimal()]
    doubled = [2 * digit - 9 * (digit > 4) for digit in digits[-2::-2]]
    return any(digits) and (sum(doubled) + sum(digits[-1::-2])) % 10 == 0


def _is_iban(text: str) -> bool:
    """Return whether the check digits of an account are right (ISO 13616); a short word may stand behind it."""
    return any(
        _remainder(candidate.replace(" ", "")) == 1 for candidate in (text, text.rpartition(" ")[0]) if candidate
    )


def _remainder(iban: str) -> int:
    return int("".join(str(int(character, 36)) for character in iban[4:] + iban[:4])) % 97


_CHECKS: Mapping[str, Callable[[str], bool]] = {"card": _is_card, "iban": _is_iban}
