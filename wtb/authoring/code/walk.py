"""A walk from a callable through all code that it depends on: functions, classes, globals, files, own modules.

Functions and classes are walked as the objects they are, so that closures, partials and methods differ by what they
hold. Globals that are computed are walked by their statements: see `wtb.authoring.code.globals`.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import PurePath
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from wtb.authoring.code.files import Files
from wtb.authoring.code.globals import (
    Global,
    ImportTime,
    globals_at,
    globals_in,
    import_time_nodes,
    is_literal,
    is_literal_expression,
    module_at,
    origin_of,
    submodule,
    what_varies,
)
from wtb.authoring.code.mentions import Imported, Mentions, mentions_of, mentions_of_body
from wtb.authoring.code.modules import (
    Module,
    has_parts,
    held_by,
    is_foreign,
    is_own,
    module_name_of,
    module_of,
    name_of,
    package_of,
    packages_looked_into,
    parts_of,
    version_of,
)
from wtb.authoring.code.source_file import SourceFile, Statement, source_of, unchanged_files
from wtb.core.errors import StateError
from wtb.core.frozen import frozen
from wtb.core.serialization.codec import digest, encode
from wtb.core.tree.stored_code import VALUE
from wtb.core.values import Namespace

Line = tuple[str | None, str]  # what it is a part of, by name, None for the subject itself; and the text
_REFERENCE = re.compile(r"(^|: )#\d+(, #\d+)*$")
_LIBRARY = re.compile(r"^\S*:? ?(?:module|named) \S+ of ([A-Za-z0-9._-]+)==\S+$")
_FIRST: WeakKeyDictionary[ModuleType, dict[str, str]] = WeakKeyDictionary()  # module -> global -> its first value
_VALUE = re.compile(r"[0-9a-f]{16,} of ")  # what `refer` makes of a value that can be stored
_PLAIN = (str, int, float, type(None))
_MOST_HELD = 1000  # objects in a registry that are looked through for the functions in them


@frozen
class Held:
    """Values that objects hold, such as attributes and cells of closures, which may differ between processes.

    Attributes:
        values: Each by the name of its part; None for a value that is not plain.
        places: Globals that were walked as objects, such as `lib:helper`: their statements may have made the values.
    """

    values: Namespace = field(default_factory=dict)
    places: Sequence[str] = ()


@frozen
class Code:
    """The code and values that a piece of code depends on.

    Attributes:
        fingerprint: The first 16 hex characters of a SHA-256 of all of it.
        parts: Each function, class, global and file by its name, with a short digest of its own.
        varying: Globals that a fingerprint has by their source, since their values differ between processes.
        not_followed: Parts that it may depend on and that could not be followed, as messages.
        holdings: The values among it that objects hold.
        source: As `fingerprint`, without the files.
        files: The path of each file among the parts, or that would be one if it were there, with the name of its part.
    """

    fingerprint: str
    parts: Mapping[str, str]
    varying: Sequence[str] = ()
    not_followed: Sequence[str] = ()
    holdings: Held = field(default_factory=Held)
    source: str = ""
    files: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)  # they differ between machines


class Walk:
    """Walks everything a fingerprint covers: each function, class and object once, numbered in the order it was met."""

    def __init__(self, root: Any) -> None:
        self.objects: list[Any] = [root]
        self.numbers = {id(root): 0}
        self.home = set(packages_looked_into(root))
        self._labels: dict[int, str] = {}
        self._modules: dict[int, Module] = {}  # of statements, by their ids
        self._varying: dict[str, None] = {}
        self._not_followed: dict[str, None] = {}
        self._values: dict[str, Any] = {}
        self._places: set[str] = set()
        self._has_unknown_maker = False  # whether an object was met that no statement makes
        self._run_later = root.run_later if isinstance(root, ImportTime) else frozenset()
        self._files = Files()

    def run(self) -> Code:
        """Walk through everything."""
        with unchanged_files():
            return self._run()

    def _run(self) -> Code:
        text = hashlib.sha256()
        parts: dict[str, Any] = {}
        for subject in self.objects:  # grows under way
            lines = list(self.describe(subject))
            # "\0" keeps lines apart, which may hold line breaks, so that two descriptions cannot run into one text.
            text.update("\0".join([*(line for _, line in lines), "\n"]).encode("utf-8", "surrogatepass"))
            for label, line in lines:
                if not _REFERENCE.search(line):  # what it refers to is a part of its own
                    library = _LIBRARY.search(line)
                    name = f"library {library[1]}" if library else label or self._label(subject)
                    parts.setdefault(name, hashlib.sha256()).update(line.encode("utf-8", "surrogatepass"))
        digests = {name: part.hexdigest()[:8] for name, part in parts.items()}
        source = text.hexdigest()[:16]
        for name, content in self._files.parts():
            text.update(f"{name}: {content}\n".encode("utf-8", "surrogatepass"))
            digests[name] = content[:8]
        not_followed = [*self._not_followed, *self._files.problems]
        # Of an object whose maker is unknown, `places` would not name the statements that made it.
        is_held = self._values and not self._has_unknown_maker
        holdings = Held(self._values, sorted(self._places)) if is_held else Held()
        return Code(
            text.hexdigest()[:16], digests, [*self._varying], not_followed, holdings, source, self._files.paths()
        )

    def refer(self, value: Any, captured: bool = False, label: str | None = None) -> str:
        """Return the text that stands for a value in a description.

        Args:
            value: The value.
            captured: It is in a cell, default or attribute.
        """
        kind, at_home = type(value), self.is_ours(value)
        if isinstance(value, ModuleType):
            return f"module {value.__name__}{version_of(value)}"
        if isinstance(value, type | FunctionType):
            # A function of a library is named and not followed, unless it is in a cell, default or attribute.
            followed = at_home or (captured and kind is FunctionType)
            return self.number(value) if followed else f"named {name_of(value)}"
        if isinstance(value, PurePath):
            # Paths such as `Path(__file__).parent` differ between machines.
            return name_of(kind)
        try:
            # More of such a value counts than can be stored of it.
            if has_parts(value):
                return self.number(value, label)
            return f"{digest(encode(value))} of {self.refer(kind)}"
        except (StateError, RecursionError):  # a list that holds itself, for one
            inside = kind in (functools.partial, MethodType, list, tuple, dict) or hasattr(value, "__wrapped__")
            if inside or (at_home and (captured or callable(value))):
                return self.number(value, label)
        return f"named {name_of(value)}" if hasattr(value, "__qualname__") else f"a {self.refer(kind)}"

    def _describe_held(self, holder: Any, name: str, value: Any) -> Line:
        """Describe a value that an object holds under a name."""
        reference = self.refer(value, captured=True)
        return self._value_part(holder, name, value, reference), f"{name}: {reference}"

    def _value_part(self, holder: Any, name: str, value: Any, reference: str) -> str | None:
        """Return the name of the part that a held value is; None if it is referred to, and is a part of its own."""
        if not _VALUE.match(reference):
            return None
        part = f"{VALUE}{self._label(holder)}{'.' if name else ''}{name}"
        self._values[part] = value if isinstance(value, _PLAIN) else None
        return part

    def is_ours(self, value: Any) -> bool:
        return is_own(module_name_of(value)) or package_of(value) in self.home

    def number(self, value: Any, label: str | None = None) -> str:
        if id(value) not in self.numbers:
            self.numbers[id(value)] = len(self.objects)
            self.objects.append(value)
            if label is not None:
                self._labels[id(value)] = label
        return f"#{self.numbers[id(value)]}"

    def _label(self, subject: Any) -> str:
        if id(subject) in self._labels:
            return self._labels[id(subject)]
        # By its code, because `functools.wraps` gives a wrapper the name of the function that it wraps.
        if isinstance(subject, FunctionType):
            return f"{subject.__globals__.get('__name__')}:{subject.__code__.co_qualname}"
        if isinstance(subject, functools.partial):
            return self._label(subject.func)
        kind = subject if hasattr(subject, "__qualname__") else type(subject)
        return f"{module_name_of(kind)}:{kind.__qualname__}"

    def describe(self, subject: Any) -> Iterator[Line]:
        if isinstance(subject, FunctionType):
            yield from self.function(subject)
        elif isinstance(subject, type):
            yield from self.class_body(subject)
        elif isinstance(subject, Statement):
            yield None, subject.text
            module = self._modules[id(subject)]
            self._files.read(module, [subject.node])
            yield from self.static(module, subject.mentions)
        elif isinstance(subject, list | tuple):
            captured = subject is self.objects[0]
            for member in subject:
                reference = self.refer(member, captured)
                yield self._value_part(subject, "", member, reference), reference
        elif isinstance(subject, dict):
            for key, member in subject.items():
                name, reference = self.refer(key), self.refer(member)
                part = self._value_part(subject, "", key, name)
                yield self._value_part(subject, "", member, reference) or part, f"{name}: {reference}"
        elif isinstance(subject, MethodType):
            yield None, self.refer(subject.__func__, captured=True)
            reference = self.refer(subject.__self__, captured=True)
            yield self._value_part(type(subject.__self__), "", subject.__self__, reference), reference
        elif isinstance(subject, ImportTime):
            yield from self.import_time(subject)
        else:
            yield from self.instance(subject)

    def class_body(self, kind: type[Any]) -> Iterator[Line]:
        if not is_own(module_name_of(kind)):
            yield None, name_of(kind)
            return
        source, nodes = _class_source(kind)
        text = "".join(source.text(part) for node in nodes for part in (*node.decorator_list, node)) if source else ""
        yield None, text or name_of(kind)
        yield from ((None, self.refer(base)) for base in kind.__bases__)
        walked = set()
        for name, member in sorted(vars(kind).items()):
            code = getattr(member, "__func__", getattr(member, "fget", member))
            # Without source it was generated, as those of dataclasses are: by the version of Python.
            if isinstance(code, FunctionType) and _source(code)[1]:
                walked.add(name)
                yield None, f"{name}: {self.refer(code)}"
        rest = [part for node in nodes for part in _beside_methods(node, walked)]
        if (module := module_of(module_name_of(kind))) is not None:
            self._files.read(module, rest)
            yield from self.static(module, mentions_of(rest))

    def instance(self, subject: Any) -> Iterator[Line]:
        yield None, name_of(subject) if hasattr(subject, "__qualname__") else self.refer(type(subject))
        inner = parts_of(subject)
        parts = dict(getattr(subject, "__dict__", {}) if inner is None else inner)
        if isinstance(subject, functools.partial):
            parts = {"": subject.func, **dict(enumerate(subject.args)), **subject.keywords}
        # The other attributes that `functools.wraps` copies differ between versions of Python.
        elif "__wrapped__" in parts:
            parts = {"": parts["__wrapped__"]}
        for name in sorted(parts, key=str):
            yield self._describe_held(subject, str(name), parts[name])

    def function(self, fn: FunctionType) -> Iterator[Line]:
        source, nodes = _source(fn)
        text = "".join(map(source.text, nodes)) if source else ""
        yield None, text or name_of(fn)
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            try:
                yield self._describe_held(fn, name, cell.cell_contents)
            except ValueError:  # not filled yet
                yield None, f"{name}: empty"
        module = module_of(str(fn.__globals__.get("__name__")))
        yield from self._defaults(fn, nodes, module)
        if nodes:
            if module is not None:
                self._files.read(module, nodes)
            yield from self._names(fn.__globals__, module, mentions_of_body(nodes, fn.__code__.co_freevars))

    def _defaults(self, fn: FunctionType, nodes: Sequence[Any], module: Module | None) -> Iterator[Line]:
        """Yield the values of defaults, and for computed ones the code that they are computed by."""
        arguments = nodes[0].args if nodes else None
        positional = arguments.defaults if arguments else []
        names = [argument.arg for argument in arguments.kwonlyargs] if arguments else []
        keywords = dict(zip(names, arguments.kw_defaults if arguments else (), strict=True))
        values = fn.__defaults__ or ()
        expressions = positional if len(positional) == len(values) else [None] * len(values)
        named = sorted((fn.__kwdefaults__ or {}).items())
        pairs = [("", default, node) for default, node in zip(values, expressions, strict=True)]
        pairs += [(f"{name}: ", default, keywords.get(name)) for name, default in named]
        for prefix, default, node in pairs:
            if node is None or module is None or is_literal_expression(module, node):
                yield None, f"{prefix}{self.refer(default, captured=True)}"
            else:  # its text is in the source
                yield from self.static(module, mentions_of([node]))

    def _names(self, namespace: Namespace, module: Module | None, mentions: Mentions) -> Iterator[Line]:
        """Yield the globals that a function names, and the names that it takes from the user's modules."""
        attributes: dict[str, dict[str, None]] = {}  # by module
        spaces = [(module, namespace, {chain[0]: None for chain in mentions.chains})]
        if mentions.reaches_all and module is not None:
            yield from self._whole(module)
        for chain in mentions.chains:
            yield from self._descend(namespace, chain, attributes)
        spaces += [(module_of(name), vars(sys.modules[name]), names) for name, names in attributes.items()]
        for place, space, names in spaces:
            for name in sorted(names.keys() & space.keys()):
                # For example, `__file__` differs between machines.
                if not name.startswith("__"):
                    yield self._global(place, space, name)
        for imported in mentions.imports:
            if module is not None:
                yield from self._imported(module, imported)
        for line in mentions.computed:
            self._miss(module, f"line {line} imports a module by a computed name")

    def _descend(
        self, namespace: Namespace, chain: tuple[str, ...], attributes: dict[str, dict[str, None]]
    ) -> Iterator[Line]:
        """Go along a chain of names through modules of the user's, and note what is taken of each."""
        space, member = namespace, namespace.get(chain[0])
        for attribute in chain[1:]:
            if not isinstance(member, ModuleType) or not self.is_ours(member):
                return
            space = vars(member)
            attributes.setdefault(member.__name__, {})[attribute] = None
            if attribute not in space:  # not imported yet, or made by a function when it is asked for
                yield from self._static_chain(member.__name__, chain[chain.index(attribute) :])
                return
            member = space[attribute]
        if (
            isinstance(member, ModuleType)
            and self.is_ours(member)
            and (module := module_of(member.__name__)) is not None
        ):
            yield from self._whole(module)

    def _global(self, module: Module | None, space: Namespace, name: str) -> Line:
        """Describe a global by its value, or by the statements that compute it."""
        value = space[name]
        place = None if module is None or isinstance(value, ModuleType) else origin_of(module, name)
        if place is None:
            reference = self.refer(value, label=name)
            self._has_unknown_maker |= reference.startswith("#") and not isinstance(value, type | FunctionType)
            return None, f"{name}: {reference}"
        label = str(place)
        if place.is_defined or is_literal(place):
            self._places.add(label)
            reference = self._first_reference(place, value)
            if place.is_defined:  # a decorator may have made it
                label = self._value_part(value, name, value, reference) or label
            if reference.startswith("#") or not place.is_defined or is_foreign(package_of(value)):
                return None if reference.startswith("#") else label, f"{name}: {reference}"
            return label, f"{name}: {reference}, {self._statements(place)}"  # others' object, which hides the function
        is_made = isinstance(value, type | FunctionType)  # by the statement, with all that it holds
        references = [] if is_made else [self.refer(function) for function in self._callables(value)]
        return None, f"{name}: {', '.join([self._statements(place), *references])}"

    def _first_reference(self, place: Global, value: Any) -> str:
        """Return the text for a value; for one that functions change, such as a cache, as this process first saw it."""
        module = sys.modules.get(place.module.name)
        if module is None or place.is_defined or not place.changers:
            return self.refer(value, label=str(place))
        # A run may change such a global, for one by filling a cache. The fingerprint must not depend on runs before it.
        first_references = _FIRST.setdefault(module, {})
        if place.name not in first_references:
            reference = self.refer(value, label=str(place))
            if reference.startswith("#"):  # functions are in it
                return reference
            first_references[place.name] = reference
        return first_references[place.name]

    def _statements(self, place: Global) -> str:
        """Return references to the statements that make a global."""
        # The code of nodes has fingerprints of its own, and must not change that of the code which runs on import.
        if (place.module.name, place.name) in self._run_later:
            return "a node"
        if not place.is_defined and (cause := what_varies(place)) is not None:
            self._varying[f"{place} ({cause})"] = None
        numbers = []
        for statement in (*place.statements, *(() if place.is_defined else place.changers)):
            self._modules.setdefault(id(statement), place.module)
            numbers.append(self.number(statement, str(place)))
        return ", ".join(numbers)

    def _callables(self, value: Any) -> Iterator[Any]:
        """Yield functions and classes of the user's in a registry, which other modules may have put there."""
        todo, seen = [value], {id(value)}
        for candidate in todo:  # grows
            if isinstance(candidate, type | FunctionType):
                if is_own(module_name_of(candidate)):
                    yield candidate
                continue
            for inner in held_by(candidate):
                if id(inner) not in seen and len(todo) < _MOST_HELD:
                    seen.add(id(inner))
                    todo.append(inner)

    def import_time(self, code: ImportTime) -> Iterator[Line]:
        """Yield everything that runs when modules are imported."""
        for name in code.modules:
            module = module_of(name)
            if module is None or module.source is None:
                continue
            nodes = list(import_time_nodes(module))
            yield from ((None, module.source.text(node)) for node in nodes)
            self._files.read(module, nodes)
            yield from self.static(module, mentions_of(nodes))
        for path in code.paths:
            name, _, attributes = path.partition(":")
            yield from self._static_chain(name, tuple(attributes.split(".")))

    def static(self, module: Module, mentions: Mentions) -> Iterator[Line]:
        """Yield what statements refer to, without the objects, which this process may not have."""
        if mentions.reaches_all:
            yield from self._whole(module)
        for chain in sorted(mentions.chains):
            targets = list(globals_at(module, chain))
            for target in targets:
                yield None, f"{'.'.join(chain)}: {self._statements(target)}"
            if not targets and (whole := module_at(module, chain)) is not None:
                yield from self._whole(whole) if whole.is_own else [(None, f"module {whole.versioned_name}")]
        for imported in sorted(mentions.imports, key=str):
            yield from self._imported(module, imported)
        for line in mentions.computed:
            self._miss(module, f"line {line} imports a module by a computed name")

    def _imported(self, module: Module, imported: Imported) -> Iterator[Line]:
        yield from self._static_chain(module.absolute(imported), imported.attributes)

    def _static_chain(self, name: str, attributes: tuple[str, ...]) -> Iterator[Line]:
        """Yield what attributes of a module stand for, which this process may not have imported."""
        dotted = ".".join((name, *attributes))
        targets = list(globals_in(name, attributes))
        for target in targets:
            yield None, f"{dotted}: {self._statements(target)}"
        if targets:
            return
        module = submodule(name, attributes) or module_of(name)
        if module is not None:
            yield from self._whole(module) if module.is_own else [(None, f"module {module.versioned_name}")]

    def _whole(self, module: Module) -> Iterator[Line]:
        """Yield all of a module of which any name may be used."""
        source = module.source
        if source is None or source.tree is None:
            yield f"file of {module.name}", f"all of {module.name}: {_file_digest(module)}"
            if module.is_compiled:
                self._miss(module, "it is compiled")
            return
        for name in sorted(source.statements):
            place = Global(module, name)
            if not any(name in statement.imports for statement in place.bindings):
                yield None, f"{place}: {self._statements(place)}"

    def _miss(self, module: Module | None, problem: str) -> None:
        self._not_followed[f"{module.name if module else 'a function of no module'}: {problem}"] = None


def names_in(code: CodeType) -> set[str]:
    """Return the names that code may look up in its module, without `__file__` and the like."""
    names = {name for name in code.co_names if not name.startswith("__")}
    return names.union(*(names_in(inner) for inner in code.co_consts if isinstance(inner, CodeType)))


def _class_source(kind: type) -> tuple[SourceFile | None, Sequence[Any]]:
    module = module_of(kind.__module__)
    source = None if module is None else module.source
    return source, () if source is None else source.class_named(kind.__qualname__)


def _beside_methods(node: Any, methods: set[str]) -> Iterator[ast.AST]:
    """Yield the parts of a class that run when it is made: decorators, metaclass, attributes, wrapped methods."""
    yield from (*node.decorator_list, *(keyword.value for keyword in node.keywords))
    for part in node.body:
        if not isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) or part.name not in methods:
            yield part


def _source(fn: FunctionType) -> tuple[SourceFile | None, Sequence[Any]]:
    """Return the file of a function and its definition there; nothing if there is none, or it is not the user's."""
    code = fn.__code__
    if not is_own(str(fn.__globals__.get("__name__"))):
        return None, ()
    source = source_of(code.co_filename, fn.__globals__)
    nodes = () if source is None else source.function_at(code.co_firstlineno, code.co_name)
    # Lambdas on one line differ only by the positions of their bodies.
    if len(nodes) > 1:
        spans = set(code.co_positions())
        nodes = [node for node in nodes if _span(node.body) in spans] or nodes
    return source, nodes


def _span(node: Any) -> tuple[int, int, int, int]:
    return (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)


def _file_digest(module: Module) -> str:
    """Return the digest of a module's file, which cannot be parsed."""
    try:
        with open(module.file or "", "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return "unreadable"
