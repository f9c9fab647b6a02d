"""One short name for the code behind a callable, so that changed code is noticed.

It covers source text, closure cells, defaults, the globals that the code names and the files that it names, down
through all modules of the user's own. What was installed from an index counts by the name and version of its
distribution. It holds no ids, addresses, paths of a machine or bytecode: the same code has the same fingerprint in
every process and under every version of Python.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import FunctionType
from typing import Any

import orjson

from wtb.authoring.code.described_function import DescribedFunction
from wtb.authoring.code.recipe import NamedEvaluator, Recipe
from wtb.authoring.code.sources.files import files_named_by
from wtb.authoring.code.sources.import_time import ImportTime, has_varying_call, is_written_in
from wtb.authoring.code.sources.modules import module_of
from wtb.authoring.code.sources.ownership import is_own_code, module_name_of
from wtb.authoring.code.sources.written_files import watch_files
from wtb.authoring.code.walk import Code, Held, Walk
from wtb.authoring.evaluation.evaluators import Evaluator
from wtb.authoring.nodes import Node, Variant
from wtb.core.mappings import Namespace
from wtb.core.tree.stored_code import EVALUATORS, MADE_BY, VALUE, RecordedCode, StoredCode, stored_code

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_SORTED = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


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
        for node, codes in _codes_of(nodes, vary, _Makers(nodes, None)).items()
    }


def present_code(
    nodes: Iterable[Node], vary: Mapping[str, Sequence[str]], recipe: Recipe
) -> tuple[dict[str, dict[str, str]], StoredCode]:
    """Find the code and parameters behind the variants that a sweep can reach, as it is recorded.

    From then on this process reports which of the files among it nodes write.

    Args:
        nodes: Those of the workflow.
        vary: Varied node -> the names of its variants.
        recipe: How the workflow is imported.

    Returns:
        Node -> variant -> fingerprint, and what these rest on.
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

    Of those that are built in, the options count only: another version of WTB scores as before.

    Args:
        named: The evaluators, each with what names it.

    Returns:
        Name -> fingerprint, and what these rest on; both below the node `EVALUATORS`.
    """
    found: dict[str, str] = {}
    parts: dict[str, dict[str, str]] = {}
    for by, evaluator in named:
        code = Code("", {})
        if ":" in by.name:
            fn = evaluator.fn.func if isinstance(evaluator.fn, partial) else evaluator.fn
            code = _Makers((), Recipe(by.name)).add_to(code_of(fn))
        options = {key: value for key, value in by.options.items() if key != "timeout"}
        declared = [evaluator.better, evaluator.compare, evaluator.scale, evaluator.on_failure]
        told = {"options": options, "declaration": declared}
        words = {name: orjson.dumps(value, option=_SORTED, default=shown) for name, value in told.items()}
        found[evaluator.name] = hashlib.sha256(b"".join((code.fingerprint.encode(), *words.values()))).hexdigest()[:16]
        digests = {name: hashlib.sha256(text).hexdigest()[:8] for name, text in words.items()}
        parts[evaluator.name] = {**code.parts, **digests}
    return RecordedCode({EVALUATORS: found}, stored_code({EVALUATORS: parts}))


def _codes_of(nodes: Iterable[Node], vary: Mapping[str, Sequence[str]], makers: _Makers) -> dict[str, dict[str, Code]]:
    """Node -> variant -> the code and parameters behind it."""
    found: dict[str, dict[str, Code]] = {}
    for node in nodes:
        codes: dict[int, Code] = {}  # variants often share their function
        chosen = [node.variants[name] for name in vary.get(node.name, [node.default])]
        for variant in chosen:
            if id(variant.fn) not in codes:
                codes[id(variant.fn)] = code_of(node.code(variant))
        found[node.name] = {
            variant.name: makers.add_to(makers.with_params(variant, codes[id(variant.fn)])) for variant in chosen
        }
    return found


class _Makers:
    """Adds to code that holds values, which may differ between processes, all code that can have made those."""

    def __init__(self, nodes: Iterable[Node], recipe: Recipe | None) -> None:
        self._paths = () if recipe is None else recipe.paths
        self._added = set() if recipe is None else {(added.node, added.name) for added in recipe.variants}
        functions = [variant.fn for node in nodes for variant in node.variants.values()]
        self._run_later = frozenset((fn.__module__, fn.__name__) for fn in functions if _is_defined_at_top(fn))
        self._made: dict[frozenset[str], tuple[Code, bool]] = {}  # by import paths

    def add_to(self, code: Code) -> Code:
        """Return code with the part MADE_BY, if it holds values and its workflow is imported."""
        if not (code.held.values and self._paths):
            return code
        paths = frozenset((*self._paths, *code.held.places))
        if paths not in self._made:
            modules = tuple(dict.fromkeys(path.partition(":")[0] for path in self._paths))
            maker = ImportTime(modules, tuple(sorted(paths)), self._run_later)
            self._made[paths] = code_of(maker), has_varying_call(maker)
        graph_code, varies = self._made[paths]
        files = graph_code.parts.keys() & graph_code.files.values()  # apart, since nodes may write them
        return replace(
            code,
            files={**graph_code.files, **code.files},
            parts={
                **code.parts,
                MADE_BY: graph_code.source,
                **{f"{MADE_BY} {name}": graph_code.parts[name] for name in sorted(files)},
            },
            varying=[*code.varying, *(_computed(code.held.values, paths) if varies else ())],
            not_followed=list(dict.fromkeys((*code.not_followed, *graph_code.not_followed))),
        )

    def with_params(self, variant: Variant, code: Code) -> Code:
        """The code of a variant: its function, its parameters, and the files that they name."""
        if not variant.params:
            return code
        try:
            words = orjson.dumps(dict(variant.params), option=orjson.OPT_SORT_KEYS, default=shown)
        except TypeError:  # what JSON does not have, such as a whole number of more than 64 bits
            words = repr(sorted(variant.params.items())).encode("utf-8", "surrogatepass")
        module = module_of(module_name_of(inspect.unwrap(getattr(variant.fn, "func", variant.fn))))
        beside = files_named_by(module, variant.params.values())
        files, paths = dict(beside.parts()), {**code.files, **beside.paths()}
        named = orjson.dumps(files, option=orjson.OPT_SORT_KEYS) if files else b""
        text = hashlib.sha256(code.fingerprint.encode() + words + named).hexdigest()[:16]
        digest = hashlib.sha256(words).hexdigest()[:8]
        short = {name: content[:8] for name, content in files.items()}
        if (variant.node, variant.name) in self._added:  # by the sweep: they are the same in every process
            return replace(code, fingerprint=text, parts={**code.parts, "parameters": digest, **short}, files=paths)
        values = {f"{VALUE}{variant.name}.{name}": value for name, value in variant.params.items()}
        parts = {**code.parts, f"{VALUE}parameters": digest, **short}
        held = Held({**code.held.values, **values}, code.held.places)
        return replace(code, fingerprint=text, parts=parts, held=held, files=paths)


def _is_defined_at_top(fn: Any) -> bool:
    return isinstance(fn, FunctionType) and fn.__closure__ is None and fn.__qualname__ == fn.__name__


def _computed(values: Namespace, paths: Iterable[str]) -> Iterator[str]:
    """Name the values that stand in no source as they are."""
    names = [name.removeprefix(VALUE) for name in values]
    modules = map(module_of, {name.partition(":")[0] for name in (*paths, *names) if ":" in name})
    sources = [module.source for module in modules if module is not None]
    for name, value in zip(names, values.values(), strict=True):
        if not any(source is not None and is_written_in(source, value) for source in sources):
            yield name


def shown(value: Any) -> str:
    """Return text that stands for a parameter which cannot be stored, the same in every process."""
    text = _ADDRESS.sub("", repr(value))
    return f"{text} {fingerprint(value)}" if is_own_code(value) else text
