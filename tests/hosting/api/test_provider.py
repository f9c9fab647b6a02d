"""A person that the provider signs in gets the identity of this very sign-in, and nobody else gets in."""

from __future__ import annotations

import asyncio
import base64
import hmac
import http.client
import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.hosting.api.serving import Server
from tests.support.project import FLOW, SWEEP, Project
from tests.support.prose import sentence
from tests.support.provider import CLIENT, SECRET, TestProvider, provider_running
from wtb.core.errors import InputError
from wtb.hosting.api import provider as module
from wtb.hosting.api.cookies import Flow, flow_of, new_flow
from wtb.hosting.api.provider import Provider, SignInFailed
from wtb.hosting.api.provider_settings import Person, ProviderSettings, read_provider
from wtb.hosting.api.routes import PREFIX

BACK = "http://127.0.0.1:8765/api/v1/sign-in/callback"


@pytest.fixture(scope="module")
def running() -> Iterator[TestProvider]:
    with provider_running() as provider:
        yield provider


@pytest.fixture
def issuer(running: TestProvider) -> Iterator[TestProvider]:
    """The provider, which tells the truth again after each test."""
    state = dict(vars(running))
    running.redirect = BACK
    yield running
    vars(running).update(state)
    running.claims = dict(running.claims)


@pytest.fixture
def provider(issuer: TestProvider) -> Provider:
    grants = {"testers": frozenset({"read", "steer"}), "leads": frozenset({"administer"})}
    settings = ProviderSettings(
        "http://127.0.0.1:8765", issuer.issuer, CLIENT, SECRET, "openid email", "email", "groups", grants, frozenset()
    )
    return Provider(settings, BACK)


def went(url: str) -> str:
    """Return the address to which a browser that opens a URL is redirected."""
    parts = urlsplit(url)
    with closing(http.client.HTTPConnection(parts.netloc, timeout=20)) as connection:
        connection.request("GET", f"{parts.path}?{parts.query}")
        response = connection.getresponse()
        assert response.status == 302, response.read()
        return str(response.headers["Location"])


async def back(provider: Provider, flow: Flow) -> dict[str, str]:
    """The query with which the provider sends a browser back."""
    address = await provider.address(flow)
    return dict(parse_qsl(urlsplit(await asyncio.to_thread(went, address)).query))


def sign_in(provider: Provider) -> Person:
    async def flow() -> Person:
        flow = new_flow()
        return await provider.person(flow_of(flow.as_cookie()), await back(provider, flow))

    return asyncio.run(flow())


def test_somebody_is_who_the_provider_says_and_may_do_what_their_groups_may(provider: Provider) -> None:
    person = sign_in(provider)
    assert (person.name, person.scopes) == ("ann@example.org", {"read", "steer"})
    assert len(person.subject) == 64


def test_a_provider_is_asked_for_itself_and_its_keys_once(provider: Provider, issuer: TestProvider) -> None:
    issuer.requests = []

    async def twice() -> None:
        for _ in range(2):
            flow = new_flow()
            await provider.person(flow, await back(provider, flow))

    asyncio.run(twice())
    assert issuer.requests.count("/.well-known/openid-configuration") == 1
    assert issuer.requests.count("/keys") == 1


def test_a_key_that_is_new_is_asked_for_and_one_that_nobody_published_is_not_believed(
    provider: Provider, issuer: TestProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def rotating() -> None:
        for has_waited in (True, True, False):
            monkeypatch.setattr(module, "_KEYS_S", 0 if has_waited else 1e9)
            issuer.rotate()
            flow = new_flow()
            await provider.person(flow, await back(provider, flow))

    with pytest.raises(SignInFailed, match=sentence("a key that the provider does not publish")):
        asyncio.run(rotating())


def expired(claims: dict[str, Any]) -> None:
    claims["exp"] = int(time.time()) - 120


LIES: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda claims: claims.update(nonce="another"), "of another sign-in"),
    (lambda claims: claims.pop("nonce"), "of another sign-in"),
    (lambda claims: claims.update(aud="another"), "Audience"),
    (lambda claims: claims.update(aud=[CLIENT, "another"]), "not issued to this server"),
    (lambda claims: claims.update(iss="https://evil.example"), "issuer"),
    (lambda claims: claims.pop("exp"), "exp"),
    (lambda claims: claims.pop("sub"), "sub"),
    (expired, "expired"),
    (lambda claims: claims.update(iat=int(time.time()) + 600), "not yet valid"),
    (lambda claims: claims.update(email=None), "returned no 'email'"),
    (lambda claims: claims.update(email="a\nb"), "returned no 'email'"),
    (lambda claims: claims.update(email_verified=False), "has not verified"),
]


@pytest.mark.parametrize(("lie", "words"), LIES, ids=[words for _, words in LIES])
def test_what_an_id_token_says_is_checked(
    provider: Provider, issuer: TestProvider, lie: Callable[[dict[str, Any]], Any], words: str
) -> None:
    issuer.lie = lie
    with pytest.raises(SignInFailed, match=words):
        sign_in(provider)


def test_a_clock_that_is_a_little_off_is_no_lie(provider: Provider, issuer: TestProvider) -> None:
    issuer.lie = lambda claims: claims.update(iat=int(time.time()) + 30, exp=int(time.time()) - 30)
    assert sign_in(provider).name == "ann@example.org"


def signed_with(key: bytes, claims: dict[str, Any], header: dict[str, str]) -> str:
    """A token that is signed as by a shared key, with what is no such key."""
    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
        for part in ({"alg": "HS256", "typ": "JWT", **header}, claims)
    ]
    digest = hmac.digest(key, ".".join(parts).encode(), "sha256")
    return ".".join([*parts, base64.urlsafe_b64encode(digest).decode().rstrip("=")])


def test_only_the_providers_own_signature_is_believed(provider: Provider, issuer: TestProvider) -> None:
    public = issuer.key.public_key()
    shared = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    header = {"kid": issuer.key_id}
    for sign in (
        lambda claims: jwt.encode(claims, None, "none", header),  # type: ignore[arg-type]
        lambda claims: signed_with(shared, claims, header),
        lambda claims: jwt.encode(claims, ec.generate_private_key(ec.SECP256R1()), "ES256", header),
        lambda claims: "no token",
    ):
        issuer.sign = sign
        with pytest.raises(SignInFailed, match=sentence("the ID token is invalid")):
            sign_in(provider)


@pytest.mark.parametrize("part", ["state", "verifier", "none", "iss", "error"])
def test_an_answer_that_is_not_of_this_browsers_sign_in_is_refused(provider: Provider, part: str) -> None:
    """Somebody may have begun it in another browser, or have the code of somebody else."""

    async def mixed() -> Person:
        mine, other = new_flow(), new_flow()
        answer = await back(provider, mine)
        flow: Flow | None = mine
        if part == "iss":
            answer["iss"] = "https://evil.example"
        elif part == "error":
            answer = {"state": mine.state, "error": "access_denied"}
        elif part == "none":
            flow = None
        else:
            flow = Flow(**{**vars(mine), part: getattr(other, part)})
        return await provider.person(flow, answer)

    words = {"verifier": "invalid_grant", "iss": "another provider", "error": "access_denied"}
    with pytest.raises(SignInFailed, match=words.get(part, "belongs to no sign-in of this browser")):
        asyncio.run(mixed())


def test_another_place_to_come_back_to_is_refused_by_the_provider(provider: Provider, issuer: TestProvider) -> None:
    issuer.redirect = f"{BACK}/"
    with pytest.raises(AssertionError, match="invalid_request"):
        sign_in(provider)


def test_a_provider_that_is_away_or_another_one_is_told(provider: Provider, issuer: TestProvider) -> None:
    issuer.issuer = "https://other.example"
    with pytest.raises(SignInFailed, match="calls itself"):
        asyncio.run(provider.address(new_flow()))
    unreachable = ProviderSettings(**{**vars(provider.settings), "issuer": "http://127.0.0.1:1"})
    with pytest.raises(SignInFailed, match=sentence("did not respond as OpenID Connect")):
        asyncio.run(Provider(unreachable, BACK).address(new_flow()))


# Settings

OIDC = 'issuer = "https://id.example"\nclient_id = "wtb"\n'


def test_settings_say_what_groups_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_provider() is None
    text = f'[server]\nurl = "https://bench.example/"\n[server.oidc]\n{OIDC}everybody = ["read"]\n'
    Path("wtb.toml").write_text(text + '[server.oidc.grants]\nleads = ["administer"]\n')
    settings = read_provider()
    assert settings is not None
    assert settings.url == "https://bench.example"
    assert settings.scopes_of({"groups": ["leads", "others", 5]}) == {"read", "administer"}
    assert settings.scopes_of({"groups": "leads"}) == {"read", "administer"}
    assert settings.scopes_of({}) == {"read"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('url = "http://bench.example"\n[server.oidc]\n' + OIDC, sentence("expected a URL such as https")),
        ('url = "https://b.example"\n[server.oidc]\nissuer = "https://id.example"\n', "client_id is None"),
        (
            'url = "https://b.example"\n[server.oidc]\n' + OIDC + 'everybody = ["all"]',
            sentence("expected a list of some of"),
        ),
        ('url = "https://b.example"\n[server.oidc]\n' + OIDC + "secret = 1", sentence("no setting {}", "'secret'")),
        ("odd = 1\n", sentence("no setting {}", "'odd'")),
    ],
)
def test_wrong_settings_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wtb.toml").write_text(f"[server]\n{text}")
    with pytest.raises(InputError, match=words):
        read_provider()


# With a server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, running: TestProvider) -> Iterator[Server]:
    project = Project(tmp_path_factory.mktemp("provider"))
    project.write({"flow.py": FLOW, "sweep.yaml": SWEEP, "cases.jsonl": Project.cases(1)})
    project.inside("run", "sweep.yaml", "--break", "B", check=1)
    server = Server(project)
    grants = '[server.oidc.grants]\ntesters = ["read", "steer"]\n'
    oidc = f'issuer = "{running.issuer}"\nclient_id = "{CLIENT}"\n'
    project.write({"wtb.toml": f'[server]\nurl = "http://127.0.0.1:{server.port}"\n[server.oidc]\n{oidc}{grants}'})
    server.start({"WTB_OIDC_SECRET": SECRET})
    yield server
    server.kill()
    project.close()


def send_request(server: Server, path: str, cookies: dict[str, str]) -> tuple[http.client.HTTPResponse, bytes]:
    """Send a request as a browser does, which keeps what cookies it is given."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)) as connection:
        sent = {"Cookie": "; ".join(f"{name}={cookie}" for name, cookie in cookies.items())} if cookies else {}
        connection.request("GET", path, headers=sent)
        response = connection.getresponse()
        for header in response.headers.get_all("Set-Cookie") or ():
            name, _, cookie = header.partition(";")[0].partition("=")
            cookies[name] = cookie
            assert "HttpOnly" in header
            assert f"SameSite={'Lax' if 'provider' in name else 'Strict'}" in header
        return response, response.read()


def sign_in_browser(server: Server, issuer: TestProvider, cookies: dict[str, str]) -> tuple[str, Message]:
    """Send a browser to the provider and back. Returns the path that it comes back to, and the response's headers."""
    issuer.redirect = f"http://127.0.0.1:{server.port}{PREFIX}/sign-in/callback"
    redirect, _ = send_request(server, f"{PREFIX}/sign-in/provider", cookies)
    address = urlsplit(went(redirect.headers["Location"]))
    path = f"{address.path}?{address.query}"
    response, _ = send_request(server, path, cookies)
    assert (redirect.status, response.status, response.headers["Referrer-Policy"]) == (303, 303, "no-referrer")
    return path, response.headers


def test_a_browser_goes_to_the_provider_and_comes_back_signed_in(server: Server, issuer: TestProvider) -> None:
    cookies: dict[str, str] = {}
    path, headers = sign_in_browser(server, issuer, cookies)
    assert headers["Location"] == "/"
    status = json.loads(send_request(server, f"{PREFIX}/sign-in", cookies)[1])
    assert (status["name"], status["scopes"]) == ("ann@example.org", ["read", "steer"])
    assert send_request(server, f"{PREFIX}/sweeps", cookies)[0].status == 200
    listing = server.project.inside("admin", "audit", "list", "--command", "sign-in", "--format", "json", check=0)
    latest = listing.json["audit"][0]
    assert (latest["by"], latest["arguments"]) == ("ann@example.org", {"kind": "provider"})
    repeat, _ = send_request(server, path, {})
    assert repeat.headers["Location"] == "/#sign-in=failed", "another browser, and an answer that was used"


def test_whom_no_group_lets_in_is_told_so(server: Server, issuer: TestProvider) -> None:
    issuer.claims = {**issuer.claims, "groups": ["others"]}
    cookies: dict[str, str] = {}
    assert sign_in_browser(server, issuer, cookies)[1]["Location"] == "/#sign-in=not-allowed"
    assert send_request(server, f"{PREFIX}/sweeps", cookies)[0].status == 401


def test_a_user_has_their_roles_and_is_nobody_any_more_when_they_are_removed(
    server: Server, issuer: TestProvider
) -> None:
    issuer.claims = {**issuer.claims, "groups": [], "email": "bob@example.org"}
    project = server.project
    project.inside("admin", "user", "create", "bob@example.org", check=0)
    project.inside("admin", "access", "grant", "viewer", "--user", "bob@example.org", check=0)
    cookies: dict[str, str] = {}
    sign_in_browser(server, issuer, cookies)
    assert json.loads(send_request(server, f"{PREFIX}/sign-in", cookies)[1])["scopes"] == ["read"]
    assert send_request(server, f"{PREFIX}/sweeps", cookies)[0].status == 200
    project.inside("admin", "user", "remove", "bob@example.org", check=0)
    assert send_request(server, f"{PREFIX}/sweeps", cookies)[0].status == 401
