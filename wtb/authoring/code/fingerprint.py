"""One short name for the code behind a callable, so that changed code is noticed.

It covers source text, closure cells, defaults, the globals that the code names and the files that it names, down
through all modules of the user's own. What was installed from an index counts by the name and version of its
distribution. It holds no ids, addresses, paths of a machine or bytecode: the same code has the same fingerprint in
every process and under every version of Python.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from wtb.authoring.code.described_function import DescribedFunction
from wtb.authoring.code.walk import Code, Walk, files_named_by, is_own_code
from wtb.authoring.nodes import Node, Variant
from wtb.core.tree.stored_code import StoredCode, stored_code

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def fingerprint(fn: Any) -> str:
    """The first 16 hex characters of the SHA-256 of the code behind `fn`, a callable or a list of what it is made of.

    Cells and attributes count with the values they have now, and source as it is on disk now: call it when the
    workflow has just been loaded. Decorator lines of functions do not count.
    """
    return code_of(fn).fingerprint


def code_of(fn: Any) -> Code:
    """Find all that a callable, or a list of what it is made of, rests on."""
    if isinstance(fn, DescribedFunction):
        return Code(fn.fingerprint, {})
    return Walk(fn).run()


def fingerprints(nodes: Iterable[Node], vary: Mapping[str, Sequence[str]]) -> dict[str, dict[str, str]]:
    """Node -> variant -> the fingerprint of the code and parameters behind it, for variants that a sweep can reach."""
    return {
        node: {variant: code.fingerprint for variant, code in codes.items()}
        for node, codes in codes_of(nodes, vary).items()
    }


def codes_of(nodes: Iterable[Node], vary: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Code]]:
    """Node -> variant -> the code and parameters behind it, for the variants that a sweep can reach."""
    found: dict[str, dict[str, Code]] = {}
    for node in nodes:
        codes: dict[int, Code] = {}  # variants often share their function
        chosen = [node.variants[name] for name in vary.get(node.name, [node.default])]
        for variant in chosen:
            if id(variant.fn) not in codes:
                codes[id(variant.fn)] = code_of(node.code(variant))
        found[node.name] = {variant.name: _with_params(variant, codes[id(variant.fn)]) for variant in chosen}
    return found


def stored(codes: Mapping[str, Mapping[str, Code]]) -> StoredCode:
    """Make what is stored with a sweep of the code of its variants."""
    every = [(node, code) for node, by_variant in codes.items() for code in by_variant.values()]
    return stored_code(
        {node: {variant: code.parts for variant, code in by_variant.items()} for node, by_variant in codes.items()},
        [cause for _, code in every for cause in code.varying],
        [f"{node}: {problem}" for node, code in every for problem in code.not_followed],
    )


def shown(value: Any) -> str:
    """Return text that stands for a parameter which cannot be stored, the same in every process."""
    text = _ADDRESS.sub("", repr(value))
    return f"{text} {fingerprint(value)}" if is_own_code(value) else text


def _with_params(variant: Variant, code: Code) -> Code:
    """The code of a variant: its function, its parameters, and the files that they name."""
    if not variant.params:
        return code
    try:
        words = orjson.dumps(dict(variant.params), option=orjson.OPT_SORT_KEYS, default=shown)
    except TypeError:  # what JSON does not have, such as a whole number of more than 64 bits
        words = repr(sorted(variant.params.items())).encode("utf-8", "surrogatepass")
    files = dict(files_named_by(variant.fn, variant.params.values()))
    named = orjson.dumps(files, option=orjson.OPT_SORT_KEYS) if files else b""
    text = hashlib.sha256(code.fingerprint.encode() + words + named).hexdigest()[:16]
    parameters = hashlib.sha256(words).hexdigest()[:8]
    short = {name: content[:8] for name, content in files.items()}
    return replace(code, fingerprint=text, parts={**code.parts, "parameters": parameters, **short})
