"""Error texts do not contain the key that was sent to a provider."""

from __future__ import annotations

import pytest

from tests.support.prose import sentence
from wtb.core.failures import MASK, Failure, without_secrets


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Incorrect API key provided: sk-SECRET12. You can find yours at", "sk-SECRET12"),
        ("Incorrect API key provided: wrongkey99", "wrongkey99"),
        ("invalid x-api-key: 'abc123def'", "abc123def"),
        ('{"headers": {"Authorization": "Bearer abc.def-123"}}', "abc.def-123"),
        ("401 for https://example.org/v1beta/models?key=AIzaShort1&alt=json", "AIzaShort1"),
        ("cannot reach https://user:hunter22@example.org/v1", "hunter22"),
        ("token ghp_" + "a" * 36, "ghp_" + "a" * 36),
    ],
)
def test_a_key_is_masked(text: str, secret: str) -> None:
    assert secret not in without_secrets(text)
    assert MASK in without_secrets(text)
    failure = Failure.of(RuntimeError(text))
    assert secret not in str(failure)


def test_a_known_secret_of_any_form_is_masked() -> None:
    assert without_secrets("rejected plainword", "plainword") == f"rejected {MASK}"


@pytest.mark.parametrize(
    "text",
    [
        "KeyError: 'api_key'",
        sentence("the environment has no {}", "OPENAI_API_KEY"),
        "the key of the state is missing: answer",
        "http://127.0.0.1:8080/v1 refused",
        "token limit of 4096 reached",
        "task-force and risk-averse",
    ],
)
def test_other_words_stay(text: str) -> None:
    assert without_secrets(text) == text
