"""Three ways to cut a document into the pieces that are searched. Each takes a text and returns texts."""

import re

# A full stop, question or exclamation mark, perhaps a closing quote, then space and a capital or quote.
_SENTENCE_END = re.compile(r"""(?<=[.!?])["']?\s+(?=["'A-Z0-9])""")


def whole(text: str) -> list[str]:
    """The document as it is: one chunk."""
    return [text]


def sentences(text: str) -> list[str]:
    """One chunk for each sentence; a text without any sentence end is one chunk."""
    return [sentence for sentence in _SENTENCE_END.split(text) if sentence.strip()]


def windows(text: str, size: int, overlap: int) -> list[str]:
    """Runs of `size` words, each sharing its first `overlap` words with the one before.

    The last window ends with the text and may be shorter. Raises ValueError unless
    0 <= overlap < size, since the windows would not move on.
    """
    if not 0 <= overlap < size:
        raise ValueError(f"overlap must be at least 0 and less than size ({size}), found {overlap}")
    words = text.split()
    step = size - overlap
    last_start = max(len(words) - overlap, 1)
    return [" ".join(words[start : start + size]) for start in range(0, last_start, step)]
