"""Rate limits delay only the client that exceeds them, and their memory does not grow with time."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from tests.hosting.api.serving import TOKEN
from wtb.features.access.operations import create_token
from wtb.hosting.api import guard
from wtb.hosting.api.app import make_app
from wtb.hosting.api.guard import Doors, Rates, network_of
from wtb.hosting.api.routes import PREFIX
from wtb.operations.context import Context
from wtb.store.database import Database


def test_a_burst_is_allowed_and_then_as_many_as_the_rate() -> None:
    now = [0.0]
    rates = Rates(2.0, 3, lambda: now[0])
    assert [rates.take("a") for _ in range(4)] == [0, 0, 0, 0.5]
    assert rates.take("b") == 0, "others are not held up"
    assert rates.take("a") == 0.5, "being refused takes nothing"
    now[0] = 0.5
    assert [rates.take("a") for _ in range(2)] == [0, 0.5]
    now[0] = 1e6
    assert [bool(rates.take("a")) for _ in range(4)] == [False, False, False, True], "no more than the burst is saved"


def test_memory_does_not_grow_with_those_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "MOST_KEYS", 10)
    rates = Rates(1.0, 1, lambda: 0.0)
    for number in range(1000):
        assert rates.take(str(number)) == 0
    assert len(rates._buckets) == 10
    assert rates.take("999") > 0
    assert rates.take("0") == 0


def test_a_network_of_ipv6_is_one_address() -> None:
    assert network_of("10.0.0.1") == "10.0.0.1"
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff") == "2001:db8::/64"
    assert network_of(None) == "None"


def test_who_asks_or_fails_too_often_is_told_when_to_come_again(prepared_url: str) -> None:
    context = Context(Database(prepared_url))
    token = create_token(context, "ann")["token"]
    often = Doors(requests=Rates(0.01, 3), failures=Rates(0.01, 2), failures_at_address=Rates(0.01, 6))
    client = TestClient(make_app(context, token=TOKEN, hosts=["testserver"], doors=often))

    def ask(sent: str) -> tuple[int, str | None]:
        answer = client.get(f"{PREFIX}/nowhere", headers={"Authorization": f"Bearer {sent}"})
        return answer.status_code, answer.headers.get("Retry-After")

    assert [ask(token) for _ in range(4)] == [(404, None)] * 3 + [(429, "100")]
    assert [ask("wrong")[0] for _ in range(3)] == [401, 401, 429]
    assert client.get(f"{PREFIX}/sweeps").status_code == 401, "who shows nothing has not failed"

    def sign_in(**secret: str) -> int:
        return client.post(f"{PREFIX}/sign-in", json=secret).status_code

    assert [sign_in(token="wrong"), sign_in(code="wrong")] == [429, 429]
    assert [ask(f"wtb_other-{number}")[0] for number in range(3)] == [401, 401, 401], "which begin in another way"
    assert ask("wtb_other-more")[0] == 401
    assert ask("a third one")[0] == 429, "whatever it is, once an address has shown too many"
    assert sign_in(token=token) == 200, "what is of use is never refused for what others show"
    assert sign_in(token=TOKEN) == 200
    assert [ask(TOKEN)[0] for _ in range(10)] == [404] * 10, "the operator waits for nobody"
    context.close()
