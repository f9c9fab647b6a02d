"""Forms of secrets, such as API keys, which providers repeat in the text of an error."""

from __future__ import annotations

import re
from collections.abc import Mapping

SECRETS: Mapping[str, re.Pattern[str]] = {
    "aws_key": re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "github_token": re.compile(r"\bgh[pousr]_[0-9A-Za-z]{36,255}\b|\bgithub_pat_[0-9A-Za-z_]{22,255}\b"),
    "model_key": re.compile(r"\bsk-(?:ant-|proj-)?[0-9A-Za-z_-]{20,200}"),
    "slack_token": re.compile(r"\bxox[abeoprs]-[0-9A-Za-z-]{10,200}"),
    "google_key": re.compile(r"\bAIza[0-9A-Za-z_-]{35}"),
    "private_key": re.compile(r"-----BEGIN (?:[A-Z]{1,20} ){0,2}PRIVATE KEY-----"),
    "json_web_token": re.compile(r"\beyJ[0-9A-Za-z_-]{10,2000}\.eyJ[0-9A-Za-z_-]{10,4000}\.[0-9A-Za-z_-]{10,1000}"),
}
MASK = "[secret]"
# Keys of any length, and what stands where a key does. The name before it is kept.
_SHORT = re.compile(r"\bsk-[0-9A-Za-z_*-]{4,200}")
_NAMED = re.compile(
    r"((?:api|access|secret|private)[ _-]?(?:key|token)(?:\s+provided)?[\"']?\s*[:=]\s*[\"']?"
    r"|[?&](?:key|token|api_key|access_token)="
    r"|\b(?:authorization[\"']?\s*[:=]\s*[\"']?(?:bearer |basic )?|bearer ))"
    r"([^\s\"'&,;}@]{4,2000})",
    re.IGNORECASE,
)
_IN_URL = re.compile(r"(://[^/\s:@]{0,200}:)([^/\s@]{1,2000})(?=@)")


def without_secrets(text: str, *secrets: str) -> str:
    """Return a text with what looks like a secret masked.

    Args:
        text: Such as the message of an error.
        secrets: Secrets that are known to have been sent.
    """
    for secret in secrets:
        text = text.replace(secret, MASK) if secret else text
    for pattern in (*SECRETS.values(), _SHORT):
        text = pattern.sub(MASK, text)
    for pattern in (_IN_URL, _NAMED):
        text = pattern.sub(lambda match: match[0] if MASK in match[2] else f"{match[1]}{MASK}", text)
    return text
