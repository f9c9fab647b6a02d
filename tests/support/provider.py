"""An OpenID Connect provider of the tests' own: real requests, real signatures, and lies where a test wants them."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from tests.support.model_server import ModelHandler, serving

CLIENT, SECRET = "wtb-of-the-tests", "a secret/of the tests' own"


class TestProvider:
    """A provider that knows one person, and asks for no password.

    Attributes:
        issuer: Its URL.
        redirect: Where it sends browsers back to, exactly.
        claims: What it says of the person.
        lie: Changes what an ID token says.
        sign: Makes the token of what it says.
        requests: The paths it was asked for.
    """

    __test__ = False

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self.redirect = ""
        self.claims: dict[str, Any] = {"sub": "4711", "email": "ann@example.org", "groups": ["testers"]}
        self.lie: Callable[[dict[str, Any]], Any] = lambda claims: None
        self.requests: list[str] = []
        self._codes: dict[str, dict[str, str]] = {}
        self.rotate()
        self.sign: Callable[[dict[str, Any]], str] = self._signed

    def rotate(self) -> None:
        """Have another key, and publish it alone."""
        self.key, self.key_id = ec.generate_private_key(ec.SECP256R1()), secrets.token_hex(4)

    def _signed(self, claims: dict[str, Any]) -> str:
        return jwt.encode(claims, self.key, "ES256", {"kid": self.key_id})

    def answer(self, method: str, path: str, fields: dict[str, str], authorization: str) -> tuple[int, Any]:
        """Answer a request: a status with a document, or with where to go."""
        self.requests.append(path)
        if path == "/.well-known/openid-configuration":
            places = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
            return 200, {"issuer": self.issuer} | {name: f"{self.issuer}/{end}" for name, end in places.items()}
        if path == "/keys":
            key = json.loads(ECAlgorithm.to_jwk(self.key.public_key()))
            return 200, {"keys": [{**key, "kid": self.key_id, "use": "sig", "alg": "ES256"}]}
        if path == "/authorize":
            return self._authorized(fields)
        return self._token(fields, authorization) if (method, path) == ("POST", "/token") else (404, {})

    def _authorized(self, fields: dict[str, str]) -> tuple[int, Any]:
        assert fields["response_type"] == "code"
        assert fields["code_challenge_method"] == "S256"
        assert "openid" in fields["scope"].split()
        if (fields["client_id"], fields["redirect_uri"]) != (CLIENT, self.redirect):
            return 400, {"error": "invalid_request"}
        code = secrets.token_urlsafe(16)
        self._codes[code] = fields
        return 302, f"{self.redirect}?{urlencode({'code': code, 'state': fields['state'], 'iss': self.issuer})}"

    def _token(self, fields: dict[str, str], authorization: str) -> tuple[int, Any]:
        request = self._codes.pop(fields.get("code", ""), None)
        expected = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if authorization != f"Basic {expected}":
            return 401, {"error": "invalid_client"}
        digest = hashlib.sha256(fields.get("code_verifier", "").encode()).digest()
        if (
            request is None
            or fields["redirect_uri"] != request["redirect_uri"]
            or base64.urlsafe_b64encode(digest).decode().rstrip("=") != request["code_challenge"]
        ):
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": request["nonce"]}
        claims |= self.claims
        self.lie(claims)
        return 200, {"access_token": "unused", "token_type": "Bearer", "id_token": self.sign(claims)}


@contextmanager
def provider_running() -> Iterator[TestProvider]:
    """Run one inside the block."""

    class Handler(ModelHandler):
        protocol_version = "HTTP/1.0"

        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            self._answer(dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode())))

        def _answer(self, form: dict[str, str]) -> None:
            parts = urlsplit(self.path)
            fields = dict(parse_qsl(parts.query)) | form
            status, reply = provider.answer(self.command, parts.path, fields, self.headers.get("Authorization", ""))
            body = b"" if status == 302 else json.dumps(reply).encode()
            self.send_response(status)
            self.send_header(*(("Location", reply) if status == 302 else ("Content-Type", "application/json")))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with serving(Handler) as url:
        provider = TestProvider(url)
        yield provider
