"""Measure the length and plainness of the documentation, and fail above the bounds: part of `make check`.

Rates are per 10,000 words of docs/*.md and README.md, without code blocks. Tables that a generator writes count neither
as words of a page nor in rates.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from statistics import median

from scripts.write_operations import LACKING_HEADER, OPERATIONS_HEADER, ROUTES_HEADER
from scripts.write_schemas import HEADER as SCHEMAS_HEADER

ROOT = Path(__file__).resolve().parent.parent

# People look things up on these, so they may be longer.
REFERENCES = {
    "api", "built-in-evaluators", "configuration", "events", "json", "operations", "other-tools", "pages", "statistics",
    "sweep-file", "workflow-reference",
}  # fmt: skip
PAGE_WORDS, REFERENCE_WORDS, MEDIAN_WORDS = 1_200, 2_800, 900
WORDS = {"README.md": 600, "docs/decisions.md": 800}
ALL_WORDS = 38_000

_FENCE = re.compile(r"(?ms)^[ ]*(```+|~~~+).*?^[ ]*\1[ ]*$")
_MARKED = re.compile(r"(?s)<!-- (measured|simulated) -->.*?<!-- end of \1 -->")
_HEADERS = "|".join(re.escape(header) for header in (OPERATIONS_HEADER, LACKING_HEADER, ROUTES_HEADER, SCHEMAS_HEADER))
_TABLES = re.compile(rf"(?m)^(?:{_HEADERS})(?:\|.*\n)*")

# (name, pattern, least, most) per 10,000 words
RATES = [
    ("say, tell of software", re.compile(r"\b(says?|said|saying|tells?|told|telling)\b", re.IGNORECASE), 0.0, 3.0),
    ("'What' as subject", re.compile(r"(?m)(?:^|[.!?:]\s+|^- |\| )What\b(?![^.|\n]*\?)(?! next)"), 0.0, 0.5),
    ("you, your", re.compile(r"\b(you|your|yours|yourself)\b", re.IGNORECASE), 60.0, float("inf")),
    ("for example, such as", re.compile(r"\b(for example|such as)\b", re.IGNORECASE), 8.0, float("inf")),
]


def pages() -> dict[str, str]:
    """Return the text of each page that is written by hand, by its path."""
    files = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return {str(file.relative_to(ROOT)): _TABLES.sub("", _MARKED.sub("", file.read_text("utf-8"))) for file in files}


def words_allowed(page: str) -> int:
    """Return the word limit of a page."""
    return WORDS.get(page, REFERENCE_WORDS if Path(page).stem in REFERENCES else PAGE_WORDS)


def rates(texts: list[str]) -> list[tuple[str, float, float, float]]:
    """Return (name, rate, least, most) per 10,000 words of texts without their code blocks."""
    prose = _FENCE.sub("", "\n".join(texts))
    count = len(prose.split())
    return [
        (name, 10_000 * len(pattern.findall(prose)) / count, least, maximum) for name, pattern, least, maximum in RATES
    ]


def problems() -> list[str]:
    """Return each bound that does not hold, one a line."""
    texts = pages()
    sizes = {page: len(text.split()) for page, text in texts.items()}
    allowed = {page: words_allowed(page) for page in texts}
    broken = [
        f"{page}: {size:,} words; at most {allowed[page]:,}" for page, size in sizes.items() if size > allowed[page]
    ]
    docs = [size for page, size in sizes.items() if page != "README.md"]
    if sum(docs) > ALL_WORDS:
        broken.append(f"docs: {sum(docs):,} words; at most {ALL_WORDS:,}")
    if median(docs) > MEDIAN_WORDS:
        broken.append(f"docs: a median of {median(docs):,} words; at most {MEDIAN_WORDS:,}")
    for name, rate, least, maximum in rates(list(texts.values())):
        if not least <= rate <= maximum:
            broken.append(f"{name}: {rate:.1f} in 10,000 words; expected {least:g} to {maximum:g}")
    return broken


def main() -> None:
    """Print the counts, and exit with 1 if a bound does not hold."""
    texts = pages()
    docs = [len(text.split()) for page, text in texts.items() if page != "README.md"]
    print(
        f"{len(docs)} pages, {sum(docs):,} words, median {median(docs):g}; README.md {len(texts['README.md'].split())}"
    )
    for name, rate, _, _ in rates(list(texts.values())):
        print(f"{name}: {rate:.1f} in 10,000 words")
    if broken := problems():
        sys.exit("\n".join(broken))


if __name__ == "__main__":
    main()
