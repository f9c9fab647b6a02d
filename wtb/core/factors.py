"""The factors of a sweep, derived from the levels of its stored variants, and references to files in its parameters."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal

from wtb.core.frozen import frozen
from wtb.core.values import Arguments, Json

Place = tuple[str | int, ...]  # keys and positions within data

SCHEME: Final = "file://"
# Arguments of operations that may name files, besides the keys of a sweep file; levels only if they are mappings.
EVALUATOR_ARGUMENTS: Final = ("evaluate", "evaluator")
LEVEL_ARGUMENTS: Final = ("variants", "vary", "typed")
_REFERENCE = re.compile(r"file://(.+)#([0-9a-f]{64})", re.DOTALL)


@frozen
class FileReference:
    """A file by its path, as the sweep file has it, and the SHA-256 of its text in UTF-8."""

    path: str
    sha256: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.path}#{self.sha256}"


def may_name_files(arguments: Arguments) -> bool:
    """Return whether arguments of an operation, by name, may name files."""
    mappings = map(arguments.get, ("keys", *LEVEL_ARGUMENTS))
    return any(map(arguments.get, EVALUATOR_ARGUMENTS)) or any(isinstance(mapping, Mapping) for mapping in mappings)


def names_file(value: object) -> bool:
    """Return whether a parameter's value names a file, read or not."""
    return isinstance(value, str) and value.startswith(SCHEME)


def file_reference(value: object) -> FileReference | None:
    """Return the file that a value refers to, if its text was read; None for any other value."""
    match = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
    return None if match is None else FileReference(match[1], match[2])


def sha256_of(text: str) -> str:
    """Return the SHA-256 of a text in UTF-8, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def with_texts(parameters: Any, texts: Mapping[str, str]) -> Any:
    """Return plain data with texts instead of references to files.

    Args:
        parameters: Parameters, or a part of them.
        texts: The texts by SHA-256.

    Returns:
        The same data; parts without a reference are not copied.
    """

    def text(_: Place, named: str) -> str:
        reference = file_reference(named)
        return named if reference is None else texts[reference.sha256]

    return replace_files(parameters, text) if texts else parameters


def replace_files(content: Any, change: Callable[[Place, str], Any], place: Place = ()) -> Any:
    """Return plain data with the result of `change` instead of each text that names a file, at any depth.

    Args:
        content: The data: a mapping, a list or a plain value.
        change: Called with the place and the text.
        place: The place of the content.

    Returns:
        The changed copy.
    """
    if names_file(content):
        return change(place, content)
    if isinstance(content, Mapping):
        return {key: replace_files(part, change, (*place, str(key))) for key, part in content.items()}
    if isinstance(content, list | tuple):
        return [replace_files(part, change, (*place, number)) for number, part in enumerate(content)]
    return content


def texts_of(content: Any, texts: Mapping[str, str]) -> dict[str, str]:
    """Return the texts, by SHA-256, to which plain data refers."""
    referenced: dict[str, str] = {}

    def note(_: Place, named: str) -> str:
        if (reference := file_reference(named)) is not None and reference.sha256 in texts:
            referenced[reference.sha256] = texts[reference.sha256]
        return named

    replace_files(content, note)
    return referenced


MAX_NAME: Final = 200
_LONGEST_LEVEL, _LONGEST_HEAD, _HASH = 40, 24, 8
_PLAIN = re.compile(r"""[^\s,="'#{}\[\]]+""")  # text that needs no quotes
_PAIR = re.compile(r'([^\s,="]+)=("(?:[^"\\]|\\.)*"|[\[{][^\s=]*?(?=, |$)|[^,]*)')
_BASE = re.compile(r'[^,="]+')


def level_label(level: Json) -> str:
    """Return the text of a level: itself if it is short, else its beginning and a hash.

    Args:
        level: A value in JSON; a file as `file://PATH#SHA256`.

    Returns:
        At most about 40 printable characters. Levels that differ have labels that differ, types included.
    """
    if isinstance(level, str):
        return _text_label(level)
    text = canonical(level)
    is_short = len(text) <= _LONGEST_LEVEL and text.isprintable() and not re.search(r"[\s=]", text)
    return text if is_short else f"{_head(text)}#{_hash(text)}"


def _text_label(text: str) -> str:
    if (reference := file_reference(text)) is not None:
        name = reference.path.rpartition("/")[2]
        # The hash is part of the label: two versions of a file are two levels.
        is_plain = len(name) <= _LONGEST_LEVEL and _PLAIN.fullmatch(name)
        return f"{name if is_plain else _head(name)}#{reference.sha256[:_HASH]}"
    if len(text) > _LONGEST_LEVEL or not text.isprintable():
        return f"{_head(text)}#{_hash(canonical(text))}"
    # The quotes distinguish the text "1" from the number 1.
    return text if _PLAIN.fullmatch(text) and not _is_scalar(text) else json.dumps(text, ensure_ascii=False)


def _head(text: str) -> str:
    """Return the first words of a text, in characters that need no quotes."""
    return re.sub(r"[^\w.]+", "-", text[: 4 * _LONGEST_HEAD]).strip("-")[:_LONGEST_HEAD].rstrip("-")


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH]


def _is_scalar(text: str) -> bool:
    """Return whether JSON or Python would read a text as another type."""
    if text in ("true", "false", "null"):
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True


def canonical(value: Json) -> str:
    """Return a value as JSON with sorted keys. Values of other types differ: `1`, `1.0`, `"1"` and `true`."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def point_name(levels: Mapping[str, Json], base: str | None = None) -> str:
    """Return the name of a grid point.

    Args:
        levels: Parameter -> level, in declared order.
        base: The variant, or the import path, that it derives from; None for the node's default.

    Returns:
        At most 200 characters.
    """
    parts = [f"{parameter}={level_label(level)}" for parameter, level in levels.items()]
    name = ", ".join([base, *parts] if base else parts)
    if len(name) <= MAX_NAME:
        return name
    exact = canonical([base, [[parameter, level] for parameter, level in levels.items()]])
    return f"{name[: MAX_NAME - _HASH - 2].rstrip(' ,')}…#{_hash(exact)}"


@lru_cache(maxsize=16_384)
def split_name(name: str) -> tuple[str | None, Mapping[str, str]]:
    """Split the name of a variant into the variant that it derives from and the labels of its levels.

    Args:
        name: The name of any variant.

    Returns:
        The variant that it derives from, if the name has it, and labels by parameter. For a variant that is no grid
        point, the name and no labels.
    """
    base, place, labels = None, 0, dict[str, str]()
    # Long names end in a hash instead of their last levels, so nothing can be read from them.
    if "=" not in name or "…#" in name:
        return name, {}
    if (first := _BASE.match(name)) is not None and name[first.end() : first.end() + 2] == ", ":
        base, place = first[0], first.end() + 2
    while (pair := _PAIR.match(name, place)) is not None and pair[1] not in labels:
        labels[pair[1]] = pair[2]
        if pair.end() == len(name):
            return base, labels
        if name[pair.end() : pair.end() + 2] != ", ":
            break
        place = pair.end() + 2
    return name, {}


Vary = Mapping[str, Literal["all"] | Sequence[Any]]  # `StoredSpec.vary`


@frozen
class Level:
    """A value of a factor.

    Attributes:
        value: In JSON; of a file `file://PATH#SHA256`.
        label: A short text, different for each level of the factor.
        variants: The names of the variants of the node that have it.
    """

    value: Json
    label: str
    variants: tuple[str, ...]

    @property
    def file(self) -> FileReference | None:
        """The file whose text the level is, if it is one."""
        return file_reference(self.value)


@frozen
class Factor:
    """A parameter of a node that is varied.

    Attributes:
        node: The node's name.
        parameter: The parameter's name.
        levels: In the order of the sweep file.
        is_nested: Whether some variants of the node do not have it.
    """

    node: str
    parameter: str
    levels: tuple[Level, ...]
    is_nested: bool

    @property
    def name(self) -> str:
        """`node.parameter`."""
        return f"{self.node}.{self.parameter}"

    def level_of(self, variant: str) -> Level | None:
        """Return the level of a variant of the node; None if the variant has none."""
        return next((level for level in self.levels if variant in level.variants), None)


def factors_of(vary: Vary) -> Mapping[str, tuple[Factor, ...]]:
    """Return the factors of a sweep.

    Args:
        vary: The stored value (`StoredSpec.vary`).

    Returns:
        The factors by node, in the order of the sweep file. Nodes without factors are left out.
    """
    by_node = {node: _factors(node, refs) for node, refs in vary.items() if not isinstance(refs, str)}
    return {node: factors for node, factors in by_node.items() if factors}


def _factors(node: str, refs: Sequence[Any]) -> tuple[Factor, ...]:
    points = {str(ref["name"]): levels_of(ref) for ref in refs}
    by_parameter: dict[str, dict[str, tuple[Json, list[str]]]] = {}
    for variant, levels in points.items():
        for parameter, level in levels.items():
            by_parameter.setdefault(parameter, {}).setdefault(canonical(level), (level, []))[1].append(variant)
    return tuple(
        Factor(
            node,
            parameter,
            tuple(Level(level, level_label(level), tuple(variants)) for level, variants in levels.values()),
            any(parameter not in levels for levels in points.values()),
        )
        for parameter, levels in by_parameter.items()
    )


def levels_of(ref: Mapping[str, Any] | str) -> Mapping[str, Json]:
    """Return the levels of a variant by parameter, in declared order.

    Args:
        ref: A stored variant: a grid point has `levels`, a list of pairs, and a name made from them.

    Returns:
        The levels; none for a variant that is no grid point.
    """
    pairs = ref.get("levels") if isinstance(ref, Mapping) else None
    if not isinstance(ref, Mapping) or not isinstance(pairs, list) or not all(map(_is_pair, pairs)):
        return {}
    levels = dict(pairs)
    return levels if levels and point_name(levels, base_name(ref.get("of"), ref.get("with"))) == ref["name"] else {}


def base_name(of: str | None, source: str | None) -> str | None:
    """Return the beginning of a grid point's name: the variant, or the name of the callable, that it derives from."""
    return of or (None if source is None else re.split("[:.]", source)[-1])


def _is_pair(pair: object) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)


def labels_of(choices: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a combination by factor.

    Args:
        choices: The variants by node.

    Returns:
        For grid points, the label of the level by `node.parameter`; for other variants, and for variants that grid
        points derive from, the variant by node.
    """
    labels: dict[str, str] = {}
    for node, variant in choices.items():
        base, levels = split_name(variant)
        if base is not None:
            labels[node] = base
        labels.update({f"{node}.{parameter}": label for parameter, label in levels.items()})
    return labels


def label_columns(combinations: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the keys of `labels_of` over combinations: nodes in their order, each before its own factors."""
    by_node: dict[str, dict[str, None]] = {}
    for choices in combinations:
        for node, variant in choices.items():
            by_node.setdefault(node, {}).update(dict.fromkeys(labels_of({node: variant})))
    columns: list[str] = []
    for node, keys in by_node.items():
        columns += [key for key in keys if key == node] + [key for key in keys if key != node]
    return columns
