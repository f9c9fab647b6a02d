"""Schedules: fire times, missed fires, charts of their histories, and allowed webhook URLs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from tests.support.prose import sentence
from wtb.config.webhooks import (
    PAGES_URL,
    Payload,
    Target,
    describe_target,
    is_public,
    page_url,
    payload_of,
    read_target,
    shaped,
)
from wtb.core.cron import (
    GRACE_S,
    MOST_MISSED,
    PROCESS_DIED,
    check_cron,
    due,
    late_after,
    next_after,
    next_step,
    zone_of,
)
from wtb.core.errors import InputError
from wtb.features.schedules import text as render

BERLIN = zone_of("Europe/Berlin")
DAY = 86_400.0


def at(text: str, fold: int = 0) -> float:
    """A local time in Berlin; `fold=1` selects the second one if it comes twice."""
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=fold).timestamp()


def fires(cron: str, after: float, count: int) -> list[str]:
    times = []
    for _ in range(count):
        after = next_after(cron, BERLIN, after)
        times.append(datetime.fromtimestamp(after, BERLIN).isoformat()[5:22])
    return times


def test_a_local_time_that_spring_leaves_out_fires_once_at_the_first_one_after_it() -> None:
    assert fires("30 2 * * *", at("2026-03-28T12:00"), 2) == ["03-29T03:00:00+02", "03-30T02:30:00+02"]
    assert fires("0 2,3 * * *", at("2026-03-29T00:00"), 2) == ["03-29T03:00:00+02", "03-30T02:00:00+02"]


@pytest.mark.parametrize("looked", [at("2026-10-25T02:31"), at("2026-10-25T02:10", 1), at("2026-10-25T02:30", 1)])
def test_a_local_time_that_comes_twice_in_autumn_fires_the_first_time_only(looked: float) -> None:
    assert fires("30 2 * * *", at("2026-10-24T12:00"), 1) == ["10-25T02:30:00+02"]
    assert fires("30 2 * * *", looked, 1) == ["10-26T02:30:00+01"]
    fire = due("30 2 * * *", BERLIN, at("2026-10-25T02:30"), looked, "once")
    assert (fire.fire_at, fire.next_at) == (at("2026-10-25T02:30"), at("2026-10-26T02:30"))


def test_an_hourly_schedule_goes_by_real_time_over_both_changes() -> None:
    assert fires("0 * * * *", at("2026-10-25T01:30"), 3) == [
        "10-25T02:00:00+02",
        "10-25T02:00:00+01",
        "10-25T03:00:00+01",
    ]
    assert fires("0 * * * *", at("2026-03-29T00:30"), 2) == ["03-29T01:00:00+01", "03-29T03:00:00+02"]


def test_times_that_were_missed_are_made_up_for_once_or_skipped() -> None:
    first, now = at("2026-06-01T03:00"), at("2026-06-04T12:00")
    latest, following = at("2026-06-04T03:00"), at("2026-06-05T03:00")
    once = due("0 3 * * *", BERLIN, first, now, "once")
    assert (once.fire_at, once.missed, once.next_at) == (latest, 3, following)
    skip = due("0 3 * * *", BERLIN, first, now, "skip")
    assert (skip.fire_at, skip.missed, skip.next_at) == (None, 4, following)


def test_a_fire_that_is_hardly_late_is_no_missed_one() -> None:
    first = at("2026-06-01T03:00")
    fire = due("0 3 * * *", BERLIN, first, first + GRACE_S, "skip")
    assert (fire.fire_at, fire.missed) == (first, 0)


def test_years_of_missed_minutes_are_counted_up_to_a_bound() -> None:
    now = at("2026-06-01T03:00:30")
    fire = due("* * * * *", BERLIN, now - 900 * DAY, now, "once")
    assert (fire.fire_at, fire.next_at) == (at("2026-06-01T03:00"), at("2026-06-01T03:01"))
    assert fire.missed == MOST_MISSED - 1


def test_a_clock_that_went_back_gives_no_fire_twice() -> None:
    fire = due("0 3 * * *", BERLIN, at("2026-06-01T03:00"), at("2026-06-01T03:00:05"), "once")
    assert fire.next_at == at("2026-06-02T03:00")
    assert next_after("0 3 * * *", BERLIN, at("2026-06-01T03:00")) == fire.next_at


def test_what_comes_of_a_fire_is_late_after_two_periods_and_at_most_an_hour() -> None:
    noon = at("2026-06-01T12:00")
    assert late_after("*/5 * * * *", BERLIN, noon) == 600
    assert late_after("0 12 * * *", BERLIN, noon) == 3600


@pytest.mark.parametrize("cron", ["0 3 * *", "0 0 3 * * *", "61 * * * *", "0 0 30 2 *", "* * * * */0", "a b c d e", ""])
def test_cron_texts_that_mean_nothing_are_refused(cron: str) -> None:
    with pytest.raises(InputError, match="cron"):
        check_cron(cron)


def test_a_time_zone_that_is_not_there_is_refused_with_a_near_match() -> None:
    with pytest.raises(InputError, match=sentence("did you mean '{}'", "Europe/Berlin")):
        zone_of("Europe/Berln")
    for name in ("../../etc/passwd", "", "Europe"):
        with pytest.raises(InputError, match=sentence("there is no time zone")):
            zone_of(name)


@pytest.mark.parametrize(
    ("status", "sweep", "queued", "lease", "step"),
    [
        ("due", None, None, None, "submit"),
        ("starting", None, None, 1.0, "submit"),
        ("running", "running", False, 1.0, "run"),
        ("running", "pending", False, 1.0, "run"),
        ("running", "running", True, 1.0, None),
        ("running", "paused", False, 1.0, None),
        ("running", "completed", True, None, "judge"),
        ("running", "cancelled", False, None, "judge"),
        ("running", None, None, None, "judge"),
        ("judged", "completed", True, 1.0, "notify"),
        ("failed", None, None, None, None),
    ],
)
def test_what_a_fire_needs_next(
    status: str, sweep: str | None, queued: bool | None, lease: float | None, step: str | None
) -> None:
    fire = {"status": status, "sweep_status": sweep, "sweep_queued": queued, "lease_until": lease}
    assert next_step(**fire, sweep_reason=None) == step


def test_a_sweep_that_was_reclaimed_from_a_dead_process_continues() -> None:
    fire = {"status": "running", "sweep_status": "paused", "sweep_queued": False, "lease_until": None}
    assert next_step(**fire, sweep_reason=PROCESS_DIED) == "run"
    assert next_step(**fire, sweep_reason="limit reached: usd = 1") is None


# Whom to tell


PRIVATE = """127.0.0.1 10.1.2.3 192.168.0.1 169.254.169.254 100.64.0.1 224.0.0.1 0.0.0.0 ::1 :: fe80::1%eth0 fd00::1
ff0e::1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 2002:7f00:1:: 64:ff9b::a00:1"""
PUBLIC = "8.8.8.8 2606:4700::1111 ::ffff:8.8.8.8 64:ff9b::808:808"


def test_addresses_that_are_not_public_are_known_in_every_disguise() -> None:
    assert [address for address in f"{PRIVATE} {PUBLIC}".split() if is_public(address)] == PUBLIC.split()


HTTP_TARGETS = ["http://", "https://8.8.8.8:99999/", "http://8.8.8.8/a b", "http://127.0.0.1/"]


@pytest.mark.parametrize("text", [*HTTP_TARGETS, "ftp://8.8.8.8/x", "", "no-such-x"])
def test_targets_that_cannot_be_told_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="notify"):
        read_target(text, allow_private=False)


def test_what_may_be_a_secret_of_a_url_is_never_shown() -> None:
    target = read_target("https://ann:secret@8.8.8.8:8443/services/T0/B0/key?token=x", allow_private=False)
    assert describe_target(target) == "https://8.8.8.8:8443/..."
    with pytest.raises(InputError) as error:
        read_target("ftp://ann:secret@8.8.8.8/key", allow_private=False)
    assert "secret" not in str(error.value)


# Histories


def history(*figures: tuple[float | None, str], **more: Any) -> dict[str, Any]:
    rows = [
        {
            "fire_at": f"2026-06-{day:02}T03:00:00.000+00:00",
            "manual": False,
            "status": "judged",
            "verdict": verdict,
            "because": [],
            "sweep": f"s{day}",
            "mean": mean,
            "ci": None if mean is None else [mean - 0.1, mean + 0.1],
            "code_changed": ["rank"] if day == 2 else [],
        }
        for day, (mean, verdict) in enumerate(figures, 1)
    ]
    return {"schedule": "nightly", "tz": "UTC", "metric": "recall", "better": "higher", "fires": rows, **more}


def test_a_history_shows_each_fire_with_its_interval_and_where_code_changed() -> None:
    nightly = history((0.5, "same"), (0.7, "better"), (None, "failed"), (0.4, "worse"))
    assert render.chart(nightly, 80) == [
        sentence("{} by fire: ● mean, │ 95% interval, × worse or failed, ▲ new code", "recall"),
        "    0.800 ┤    │",
        "          │    │",
        "          │    ●",
        "          │ │  │",
        "    0.550 ┤ │",
        "          │ ●        │",
        "          │ │        ×",
        "          │          │",
        "    0.300 ┤          │",
        "          └────────────",
        "               ▲  ×",
        "           2026-06-01 to 2026-06-04",
    ]


def test_a_chart_fits_its_width_and_can_be_drawn_in_ascii() -> None:
    many = history(*[(0.5 + day / 100, "same") for day in range(28)])
    for width in (37, 80):
        lines = render.plain("\n".join(render.chart(many, width))).splitlines()
        assert max(map(len, lines)) <= width
        assert all(line.isascii() for line in lines)
        assert sum(line.count("o") for line in lines[3:-1]) == min(28, width - 11)


@pytest.mark.parametrize("figures", [[], [(0.5, "same")], [(None, "failed"), (None, "failed")]])
def test_a_history_without_two_figures_has_no_chart(figures: list[tuple[float | None, str]]) -> None:
    assert render.chart(history(*figures), 80) == []
    assert render.history(history(*figures, metric=None), 80)


def test_a_constant_metric_is_drawn_all_the_same() -> None:
    nightly = history((0.0, "same"), (0.0, "same"))
    for fire in nightly["fires"]:
        fire["ci"] = None
    assert sum(line.count("●") for line in render.chart(nightly, 80)[1:]) == 2


@pytest.mark.parametrize(
    ("url", "payload", "expected"),
    [
        ("https://hooks.slack.com/services/T0/B0/key", None, "slack"),
        ("https://prod-1.westeurope.logic.azure.com:443/workflows/1/triggers", None, "teams"),
        ("https://example.webhook.office.com/webhookb2/1", None, "teams"),
        ("https://hooks.slack.com/services/T0/B0/key", "json", "json"),
        ("https://8.8.8.8/hooks/1", "slack", "slack"),
        ("https://8.8.8.8/hooks.slack.com", None, "json"),
    ],
)
def test_what_a_url_is_sent_is_named_or_known_by_its_host(url: str, payload: Payload | None, expected: str) -> None:
    target: Target = {"url": url, "allow_private": False}
    if payload is not None:
        target["payload"] = payload
    assert payload_of(target) == expected


def test_a_text_of_a_chat_mentions_nobody_and_formats_nothing() -> None:
    message = {"text": "<!channel> & *all* [here](https://evil.example)", "url": None}
    assert shaped("slack", message, "1") == {"text": "&lt;!channel&gt; &amp; *all* [here](https://evil.example)"}
    card = shaped("teams", message, "1")["attachments"][0]["content"]
    assert card["body"][0]["text"] == r"<!channel> & \*all\* \[here\](https://evil.example)"
    assert shaped("json", message, "1") == {**message, "key": "1"}


def test_a_command_has_no_payload_of_a_chat() -> None:
    assert read_target("sh -c true", allow_private=False, payload="json") == {"command": ["sh", "-c", "true"]}
    with pytest.raises(InputError, match=sentence("payload {} is for a URL; a command gets JSON", "slack")):
        read_target("sh -c true", allow_private=False, payload="slack")


def test_a_page_has_an_address_where_the_environment_names_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PAGES_URL, raising=False)
    assert page_url("sweeps", "a") is None
    monkeypatch.setenv(PAGES_URL, "https://bench.example.org/wtb/")
    assert page_url("sweeps", "a b/c") == "https://bench.example.org/wtb/sweeps/a%20b%2Fc"
