"""The documentation is as short and as plain as `scripts.plain_docs` counts it."""

from __future__ import annotations

import pytest

from scripts import plain_docs


def test_the_docs_keep_their_bounds() -> None:
    assert plain_docs.problems() == []


def test_generated_tables_count_no_words() -> None:
    texts = plain_docs.pages()
    assert "sweeps.submit" not in texts["docs/operations.md"]
    assert "/api/v1" in texts["docs/api.md"]
    assert "| `GET /sweeps` |" not in texts["docs/api.md"]
    assert "★ where another is as good" not in texts["docs/simulated.md"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("The file says what runs. You read it, for example.", "say, tell of software"),
        ("What dies is repeated. You see it, for example.", "'What' as subject"),
        ("The scheduler ends a sweep, for example.", "you, your"),
        ("You read this page.", "for example, such as"),
    ],
)
def test_a_text_in_another_style_is_noticed(text: str, name: str) -> None:
    outside = [rule for rule, rate, least, highest in plain_docs.rates([text]) if not least <= rate <= highest]
    assert outside == [name]


def test_code_counts_in_no_rate() -> None:
    (rate, *_) = (rate for name, rate, _, _ in plain_docs.rates(["You\n\n```text\nit says\n```\n"]) if "say" in name)
    assert rate == 0
