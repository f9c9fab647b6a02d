"""URLs in messages show no password, even if the URL is invalid."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wtb.config.credentials import shown_url

SECRET = "sesame"


@pytest.mark.parametrize(
    ("url", "redacted"),
    [
        ("postgresql://u@h:5432/n", "postgresql://u@h:5432/n"),
        ("postgresql://u:sesame@h:5432/n", "postgresql://u:***@h:5432/n"),
        ("postgresql://u:sesame@h:port/n", "postgresql://u:***@h:port/n"),
        ("postgresql://u:open@sesame@h/n", "postgresql://u:***@h/n"),
        ("postgresql://u:open/sesame?1#2@h/n", "postgresql://u:***@h/n"),
        ("postgresql://u:sesame", "postgresql://u:***"),
        ("postgresql://h/n?host=a&password=sesame&sslmode=allow", "postgresql://h/n?host=a&password=***"),
        ("postgresql://h/n?pass%77ord=sesame", "postgresql://h/n?pass%77ord=***"),
        ("postgresql://h/n?pasword=sesame", "postgresql://h/n?pasword=***"),
        ("postgresql://h/n?sslmode=allow&port=1", "postgresql://h/n?sslmode=allow&port=1"),
        ("postgresql://h/n?password:=@sesame", "postgresql://h/n?password:=***"),
        ("postgresql://u:open?key=1@sesame@h/n", "postgresql://u:***"),
        ("redis://:sesame:127.0.0.1:1/0", "redis://:***"),
        ("u:sesame@h/n", "u:***@h/n"),
        ("postgresql:sesame", "postgresql:***"),
        ("redis://:sesame@[::1]:6379/0", "redis://:***@[::1]:6379/0"),
        ("redis://[::1]/0", "redis://[::1]/0"),
        ("sqlite:////a:b@c/wtb.db", "sqlite:////a:b@c/wtb.db"),
        ("wtb.db", "wtb.db"),
        ("sqlite:///a\nb.db", "sqlite:///a?b.db"),
    ],
)
def test_a_url_is_shown_without_its_passwords(url: str, redacted: str) -> None:
    assert shown_url(url) == redacted


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="s"), max_size=12)


@given(
    scheme=st.sampled_from(["postgresql://", "redis://", "postgresql+psycopg:", "", "rediss//"]), a=TEXT, b=TEXT, c=TEXT
)
def test_what_stands_between_a_colon_and_the_last_at_is_never_shown(scheme: str, a: str, b: str, c: str) -> None:
    assert SECRET not in shown_url(f"{scheme}user:{a}{SECRET}{b}@host/{c}")


@given(name=TEXT, prefix=TEXT)
def test_no_value_of_a_parameter_that_may_be_secret_is_shown(name: str, prefix: str) -> None:
    assert SECRET not in shown_url(f"postgresql://host/name?password{name}={prefix}{SECRET}")


def test_a_long_url_has_an_end() -> None:
    assert len(shown_url("sqlite:///" + "x" * 10_000)) < 400
