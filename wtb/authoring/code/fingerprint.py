"""Fingerprints: a short name for the code behind a callable, by which changes are noticed; stand-ins that have one.

It covers source text, closure cells, defaults, the globals that the code names and the files that it names, down
through all modules of the user's own. What was installed from an index counts by the name and version of its
distribution. It holds no ids, addresses, paths of a machine or bytecode: the same code has the same fingerprint in
every process and under every version of Python.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import FunctionType
from typing import Any, Literal, NoReturn

import orjson

from wtb.authoring.code.files import files_named_by
from wtb.authoring.code.globals import ImportTime, has_varying_call, is_written_in
from wtb.authoring.code.modules import is_own_code, module_name_of, module_of
from wtb.authoring.code.recipe import NamedEvaluator, Recipe
from wtb.authoring.code.walk import Code, Held, Walk
from wtb.authoring.context.audit_hook import watch_files
from wtb.authoring.evaluation.evaluators import Evaluator
from wtb.authoring.nodes import Node, Variant
from wtb.core.documents.workflows import PublishedFunction, PublishedType
from wtb.core.errors import InputError
from wtb.core.tree.stored_code import EVALUATORS, MADE_BY, VALUE, RecordedCode, StoredCode, stored_code
from wtb.core.values import JsonSchema, Namespace


class DescribedFunction:
    """A stand-in for a function that only workers have, with its signature and its fingerprint."""

    def __init__(self, name: str, described: PublishedFunction, *, returns: Any = None) -> None:
        self.__name__ = name
        self.fingerprint = described["fingerprint"]
        kinds = inspect.Parameter
        parameters = [kinds("state", kinds.POSITIONAL_ONLY), kinds("ctx", kinds.POSITIONAL_ONLY)]
        self.__annotations__ = {"return": returns}
        for key, parameter in described["parameters"].items():
            default = kinds.empty if parameter["required"] else None
            parameters.append(kinds(key, kinds.KEYWORD_ONLY, default=default))
            self.__annotations__[key] = plain_type(parameter["type"])
        if described["any"]:
            parameters.append(kinds("others", kinds.VAR_KEYWORD))
        self.__signature__ = inspect.Signature(parameters, return_annotation=returns)

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise InputError(f"{self.__name__!r} is code that only workers have")


def plain_type(kind: PublishedType) -> Any:
    """Return a described type if it is plain; else Any, because values cannot be checked without the code."""
    return _plain_type(kind["schema"] or {}) if kind["plain"] else Any


def _plain_type(schema: JsonSchema) -> Any:
    """Return the plain type from which a JSON Schema was made."""
    if "anyOf" in schema:
        return functools.reduce(operator.or_, map(_plain_type, schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return Literal[tuple(schema.get("enum", [schema.get("const")]))]
    simple = {"string": str, "integer": int, "number": float, "boolean": bool, "null": None}
    match schema.get("type"):
        case "array":
            return list[_plain_type(schema["items"])] if schema.get("items") else list  # type: ignore[misc]
        case "object":
            inner = schema.get("additionalProperties")
            return dict[str, _plain_type(inner)] if isinstance(inner, Mapping) else dict  # type: ignore[misc]
        case kind:
            return simple.get(str(kind), Any)


_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_SORTED = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


def fingerprint(fn: Any) -> str:
    """Compute 16 hex characters of the SHA-256 of the code behind `fn`, a callable or a list of its parts.

    Cells and attributes count with the values they have now, and source as it is on disk now: call it when the
    workflow has just been loaded. Decorator lines of functions do not count.
    """
    return code_of(fn).fingerprint


def code_of(fn: Any) -> Code:
    """Find all code that a callable, or a list of its parts, depends on."""
    if isinstance(fn, DescribedFunction):
        return Code(fn.fingerprint, {})
    return Walk(fn).run()


def fingerprints(nodes: Iterable[Node], vary: Mapping[str, Sequence[str]]) -> dict[str, dict[str, str]]:
    """Compute fingerprints of code and parameters by node and variant, for variants that a sweep can reach."""
    return {
        node: {variant: code.fingerprint for variant, code in codes.items()}
        for node, codes in _codes_of(nodes, vary, _Makers(nodes, None)).items()
    }


def present_code(
    nodes: Iterable[Node], vary: Mapping[str, Sequence[str]], recipe: Recipe
) -> tuple[dict[str, dict[str, str]], StoredCode]:
    """Find the code and parameters behind the variants that a sweep can reach, as it is recorded.

    From then on, this process reports files among it that nodes write.

    Args:
        nodes: The nodes of the workflow.
        vary: Varied node -> the names of its variants.
        recipe: The recipe of the workflow.

    Returns:
        Node -> variant -> fingerprint, and the parts of the code behind them.
    """
    codes = _codes_of(nodes, vary, _Makers(nodes, recipe))
    for by_variant in codes.values():
        for code in by_variant.values():
            watch_files(code.files)
    every = [(node, code) for node, by_variant in codes.items() for code in by_variant.values()]
    return (
        {node: {variant: code.fingerprint for variant, code in by_name.items()} for node, by_name in codes.items()},
        stored_code(
            {node: {variant: code.parts for variant, code in by_name.items()} for node, by_name in codes.items()},
            [cause for _, code in every for cause in code.varying],
            [f"{node}: {problem}" for node, code in every for problem in code.not_followed],
        ),
    )


def evaluator_code(named: Iterable[tuple[NamedEvaluator, Evaluator]]) -> RecordedCode:
    """Find the code, options and declarations behind evaluators, as they are recorded.

    For built-in ones, only the options count: another version of WTB scores as before.

    Args:
        named: The evaluators, each with its name in the sweep.

    Returns:
        Name -> fingerprint, and the parts behind them; both below the node `EVALUATORS`.
    """
    fingerprints: dict[str, str] = {}
    parts: dict[str, dict[str, str]] = {}
    for by, evaluator in named:
        code = Code("", {})
        if ":" in by.name:
            fn = evaluator.fn.func if isinstance(evaluator.fn, partial) else evaluator.fn
            code = _Makers((), Recipe(by.name)).add_to(code_of(fn))
        options = {key: option for key, option in by.options.items() if key != "timeout"}
        declared = [evaluator.better, evaluator.compare, evaluator.scale, evaluator.on_failure]
        facts = {"options": options, "declaration": declared}
        words = {name: orjson.dumps(fact, option=_SORTED, default=stable_text) for name, fact in facts.items()}
        fingerprints[evaluator.name] = hashlib.sha256(
            b"".join((code.fingerprint.encode(), *words.values()))
        ).hexdigest()[:16]
        digests = {name: hashlib.sha256(text).hexdigest()[:8] for name, text in words.items()}
        parts[evaluator.name] = {**code.parts, **digests}
    return RecordedCode({EVALUATORS: fingerprints}, stored_code({EVALUATORS: parts}))


def _codes_of(nodes: Iterable[Node], vary: Mapping[str, Sequence[str]], makers: _Makers) -> dict[str, dict[str, Code]]:
    """Find the code and parameters behind variants, by node."""
    by_node: dict[str, dict[str, Code]] = {}
    for node in nodes:
        # Variants often share their function, whose code is then walked once.
        codes: dict[int, Code] = {}
        variants = [node.variants[name] for name in vary.get(node.name, [node.default])]
        for variant in variants:
            if id(variant.fn) not in codes:
                codes[id(variant.fn)] = code_of(node.code(variant))
        by_node[node.name] = {
            variant.name: makers.add_to(makers.with_params(variant, codes[id(variant.fn)])) for variant in variants
        }
    return by_node


class _Makers:
    """Adds, to code with values that may differ between processes, all code that can have made these values."""

    def __init__(self, nodes: Iterable[Node], recipe: Recipe | None) -> None:
        self._paths = () if recipe is None else recipe.paths
        self._added = set() if recipe is None else {(added.node, added.name) for added in recipe.variants}
        functions = [variant.fn for node in nodes for variant in node.variants.values()]
        self._run_later = frozenset((fn.__module__, fn.__name__) for fn in functions if _is_defined_at_top(fn))
        self._makers: dict[frozenset[str], tuple[Code, bool]] = {}  # by import paths

    def add_to(self, code: Code) -> Code:
        """Return code with the part MADE_BY, if it holds values and its workflow is imported."""
        if not (code.holdings.values and self._paths):
            return code
        paths = frozenset((*self._paths, *code.holdings.places))
        if paths not in self._makers:
            modules = tuple(dict.fromkeys(path.partition(":")[0] for path in self._paths))
            maker = ImportTime(modules, tuple(sorted(paths)), self._run_later)
            self._makers[paths] = code_of(maker), has_varying_call(maker)
        graph_code, varies = self._makers[paths]
        # Files are parts of their own, because nodes may write them.
        files = graph_code.parts.keys() & graph_code.files.values()
        return replace(
            code,
            files={**graph_code.files, **code.files},
            parts={
                **code.parts,
                MADE_BY: graph_code.source,
                **{f"{MADE_BY} {name}": graph_code.parts[name] for name in sorted(files)},
            },
            varying=[*code.varying, *(_computed(code.holdings.values, paths) if varies else ())],
            not_followed=list(dict.fromkeys((*code.not_followed, *graph_code.not_followed))),
        )

    def with_params(self, variant: Variant, code: Code) -> Code:
        """Return the code of a variant: its function, its parameters, and the files that they name."""
        if not variant.params:
            return code
        try:
            words = orjson.dumps(dict(variant.params), option=orjson.OPT_SORT_KEYS, default=stable_text)
        # JSON does not have some values, such as a whole number of more than 64 bits.
        except TypeError:
            words = repr(sorted(variant.params.items())).encode("utf-8", "surrogatepass")
        module = module_of(module_name_of(inspect.unwrap(getattr(variant.fn, "func", variant.fn))))
        beside = files_named_by(module, variant.params.values())
        files, paths = dict(beside.parts()), {**code.files, **beside.paths()}
        named = orjson.dumps(files, option=orjson.OPT_SORT_KEYS) if files else b""
        text = hashlib.sha256(code.fingerprint.encode() + words + named).hexdigest()[:16]
        digest = hashlib.sha256(words).hexdigest()[:8]
        short = {name: content[:8] for name, content in files.items()}
        # The sweep file sets these parameters, so they are the same in every process. Others may be computed on import.
        if (variant.node, variant.name) in self._added:
            return replace(code, fingerprint=text, parts={**code.parts, "parameters": digest, **short}, files=paths)
        values = {f"{VALUE}{variant.name}.{name}": argument for name, argument in variant.params.items()}
        parts = {**code.parts, f"{VALUE}parameters": digest, **short}
        holdings = Held({**code.holdings.values, **values}, code.holdings.places)
        return replace(code, fingerprint=text, parts=parts, holdings=holdings, files=paths)


def _is_defined_at_top(fn: Any) -> bool:
    return isinstance(fn, FunctionType) and fn.__closure__ is None and fn.__qualname__ == fn.__name__


def _computed(values: Namespace, paths: Iterable[str]) -> Iterator[str]:
    """Yield the names of values that no source contains literally."""
    names = [name.removeprefix(VALUE) for name in values]
    modules = map(module_of, {name.partition(":")[0] for name in (*paths, *names) if ":" in name})
    sources = [module.source for module in modules if module is not None]
    for name, value in zip(names, values.values(), strict=True):
        if not any(source is not None and is_written_in(source, value) for source in sources):
            yield name


def stable_text(parameter: Any) -> str:
    """Return text for a parameter that cannot be stored, which is the same in every process."""
    text = _ADDRESS.sub("", repr(parameter))
    return f"{text} {fingerprint(parameter)}" if is_own_code(parameter) else text
