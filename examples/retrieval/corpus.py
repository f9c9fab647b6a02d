"""Read the Lee corpus of news documents and human ratings of their similarity.

The files come with gensim's wheel. They are found without importing gensim, which takes seconds.

Source: M. D. Lee, B. Pincombe, M. Welsh, "An empirical evaluation of models of text document
similarity", Proceedings of the 27th Annual Conference of the Cognitive Science Society, 2005.
"""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

RELEVANT = 0.5
"""Least mean similarity, on a scale from 0 to 1, at which a document counts as relevant to another."""

JUDGED = 50
DISTRACTORS = 300


class CorpusMissing(RuntimeError):
    """The corpus is not installed, or is not the one that this example knows."""


@dataclass(frozen=True)
class Corpus:
    """Documents by id, judged ones first, and how similar people find the judged ones.

    `similarity` is a symmetric (50, 50) array of means in 0..1; row and column i belong to the
    document `lee-i`. The 300 documents `background-i` have no judgements and serve as distractors.
    """

    documents: dict[str, str]
    similarity: NDArray[np.float64]

    def relevant(self, number: int) -> dict[str, float]:
        """Return the documents similar to document `number` (0..49): human similarity by id, without itself."""
        row = self.similarity[number]
        return {
            judged_id(other): float(row[other]) for other in range(JUDGED) if other != number and row[other] >= RELEVANT
        }


def judged_id(number: int) -> str:
    """The id of the judged document `number` (0..49)."""
    return f"lee-{number:02d}"


def read() -> Corpus:
    """Return the corpus of the installed gensim; raise `CorpusMissing` if it is not there."""
    folder = _folder()
    judged = _lines(folder / "lee.cor")
    distractors = _lines(folder / "lee_background.cor")
    rows = [line.split() for line in _lines(folder / "similarities0-1.txt")]
    if (len(judged), len(distractors)) != (JUDGED, DISTRACTORS) or {len(row) for row in rows} != {JUDGED}:
        raise CorpusMissing(
            f"{folder} holds {len(judged)} judged documents and {len(distractors)} others where {JUDGED} and "
            f"{DISTRACTORS} were expected; get the files again: pip install --force-reinstall gensim"
        )
    documents = {judged_id(number): text for number, text in enumerate(judged)}
    documents |= {f"background-{number:03d}": text for number, text in enumerate(distractors)}
    # The file gives each pair once, above the diagonal; below it there are zeros, not judgements.
    upper = np.triu(np.array(rows, dtype=np.float64), 1)
    return Corpus(documents, upper + upper.T + np.eye(JUDGED))


def _folder() -> Path:
    spec = importlib.util.find_spec("gensim")
    if spec is None or spec.origin is None:
        raise CorpusMissing("the Lee corpus comes with gensim, which is missing: pip install gensim")
    return Path(spec.origin).parent / "test" / "test_data"


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="latin-1")
    except FileNotFoundError as error:
        raise CorpusMissing(f"this gensim came without {path.name}; get the files again: pip install gensim") from error
    # Not splitlines: it would also split at control characters that latin-1 maps to line breaks.
    return [line.strip() for line in text.split("\n") if line.strip()]
