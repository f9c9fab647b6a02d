"""Collect the texts of the pages' scripts and of HTML templates, by a simple tokenizer. Pure.

Of scripts: strings and templates of at least two words or with a capital letter, and every string of a module of words
(`words.js`). Of `html` templates and HTML files: what stands between tags, and attributes that are read or shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_SKIPPED = re.compile(r"//[^\n]*|/\*.*?\*/|import\b[^;]*;|export \{[^}]*\}[^;]*;", re.DOTALL)
_PLAIN = re.compile(r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"")
_PATTERN = re.compile(r"/(?![*/])(?:[^/\\\n\[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/[a-z]*")
_BEFORE_PATTERN = re.compile(r"(?:^|[=(,:;!&|?{}\[]|return|=>)\s*$")
_PROSE = re.compile(r"[^\W\d_]{2}[\w'’]*[,:;.]?\s+\S|^[A-Z][a-z]|\{\}\s+[^\W\d_]{2}")
_WORD = re.compile(r"[^\W\d_]")
# Classes of elements, paths of drawings, styles.
_CODE = re.compile(
    r"^[\w-]+(?:[ -](?:is|has|of|grid|chart)-\w*\{?\}?)+$|^(?:[MmLlHhVvCcQqAaZz] ?[-\d.{},]+ ?)+$|[;{]\s*[\w-]+:"
)
_TAG = re.compile(r"<!--.*?-->|<(?:[^<>\"']|\"[^\"]*\"|'[^']*')*>", re.DOTALL)
_READ_ATTRIBUTE = re.compile(r"\b(?:title|placeholder|aria-label|alt|label|content)=(?:\"([^\"]*)\"|'([^']*)')")
_JINJA_CODE = re.compile(r"\{%.*?%\}|\{#.*?#\}", re.DOTALL)
_JINJA_VALUE = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_INVISIBLE = re.compile(r"<(script|style)\b.*?</\1>", re.DOTALL)


def script_texts(source: str, every_string: bool = False) -> Iterator[str]:
    """Yield the texts of a script, or every string with a letter."""
    for text, is_markup in _literals(source):
        if is_markup:
            yield from html_texts(text)
        elif _WORD.search(text) if every_string else _PROSE.search(text) and not _CODE.search(text):
            yield text


def html_texts(source: str) -> Iterator[str]:
    """Yield the texts of HTML for readers, with `{}` for each value of a template (Jinja's or a script's)."""
    source = _JINJA_CODE.sub("\x00", _JINJA_VALUE.sub("{}", _INVISIBLE.sub("\x00", source)))
    for tag in _TAG.findall(source):
        for double, single in _READ_ATTRIBUTE.findall(tag):
            yield from (text for text in (double or single).split("\x00") if _WORD.search(text))
    for text in re.split("\x00", _TAG.sub("\x00", source)):
        if _WORD.search(text):
            yield " ".join(text.split())


def _literals(source: str) -> Iterator[tuple[str, bool]]:
    """Yield each string and template of a script, and whether it is markup; those inside of a template come first."""
    at = 0
    while at < len(source):
        if skipped := _SKIPPED.match(source, at):
            at = skipped.end()
        elif source[at] in "'\"" and (plain := _PLAIN.match(source, at)):
            yield _unescaped(plain.group()[1:-1]), False
            at = plain.end()
        elif source[at] == "`":
            is_markup = source[:at].endswith("html")
            inner, text, at = _template(source, at + 1)
            for code in inner:
                yield from _literals(code)
            yield _unescaped(text), is_markup
        elif (
            source[at] == "/"
            and _BEFORE_PATTERN.search(source, max(0, at - 20), at)
            and (pattern := _PATTERN.match(source, at))
        ):
            at = pattern.end()
        else:
            at += 1


def _template(source: str, at: int) -> tuple[list[str], str, int]:
    """Return the code of the values in a template literal, its text with `{}` for each of them, and where it ends."""
    inner: list[str] = []
    text = ""
    while source[at] != "`":
        if source.startswith("${", at):
            end = _end_of_value(source, at + 2)
            inner.append(source[at + 2 : end])
            text += "{}"
            at = end + 1
        else:
            width = 2 if source[at] == "\\" else 1
            text += source[at : at + width]
            at += width
    return inner, text, at + 1


def _end_of_value(source: str, at: int) -> int:
    """Return where the brace is that closes a value of a template."""
    depth = 0
    while depth or source[at] != "}":
        if plain := _PLAIN.match(source, at) or (_SKIPPED.match(source, at) if source.startswith("/*", at) else None):
            at = plain.end()
            continue
        if source[at] == "`":
            at = _template(source, at + 1)[2]
            continue
        depth += {"{": 1, "}": -1}.get(source[at], 0)
        at += 1
    return at


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda escape: {"n": "\n", "t": "\t"}.get(escape[1], escape[1]), text)
