"""The stored code of a sweep's variants, by which comparisons name changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple, NotRequired

from typing_extensions import TypedDict

Parts = Mapping[str, str]  # "lib:helper" or "file prompts/v1.md" -> a short digest of it
Fingerprints = Mapping[str, Mapping[str, str]]  # node -> variant -> the fingerprint of its code

VALUE = "value "  # the prefix of a part that is a value in an object
MADE_BY = "made by"  # the part of all code that may have made such values; the prefix of files that this code names
EVALUATORS = "evaluate"  # stands for a node in the code of evaluators
OUTSIDE = ""  # instead of a node if code wrote a file outside of node runs, for example when it was imported

_MOST_NAMED = 5
_MOST_PARTS = 200  # of a variant; if there are more, the parts of a module are combined


class StoredCode(TypedDict):
    """The parts on which code depends.

    Attributes:
        parts: Each part with its digest.
        sets: Sets of parts, by their numbers.
        variants: The number of the set of each variant, by node and variant.
        varying: Globals and held values that count by the code that makes them, because they differ between processes.
        not_followed: Possible dependencies that could not be followed.
        written: Files among the parts that nodes wrote, each with the node that was seen first: they are no code.
    """

    parts: list[list[str]]
    sets: list[list[int]]
    variants: dict[str, dict[str, int]]
    varying: list[str]
    not_followed: list[str]
    written: NotRequired[dict[str, str]]


def stored_code(
    variants: Mapping[str, Mapping[str, Parts]], varying: Sequence[str] = (), not_followed: Sequence[str] = ()
) -> StoredCode:
    """Make the stored form of code.

    Args:
        variants: Parts by node and variant.
        varying: See `StoredCode`.
        not_followed: See `StoredCode`.

    Returns:
        The stored form, with each part and each set of parts once.
    """
    numbers: dict[tuple[str, str], int] = {}
    sets: dict[tuple[int, ...], int] = {}
    set_numbers: dict[str, dict[str, int]] = {}
    for node, parts_by_variant in variants.items():
        for variant, parts in parts_by_variant.items():
            members = tuple(numbers.setdefault(part, len(numbers)) for part in sorted(_bounded(parts).items()))
            set_numbers.setdefault(node, {})[variant] = sets.setdefault(members, len(sets))
    return {
        "parts": [list(part) for part in numbers],
        "sets": [list(members) for members in sets],
        "variants": set_numbers,
        "varying": list(dict.fromkeys(varying)),
        "not_followed": list(dict.fromkeys(not_followed)),
    }


def _bounded(parts: Parts) -> Parts:
    if len(parts) <= _MOST_PARTS:
        return parts
    modules = groupby(sorted(parts.items()), key=lambda part: part[0].partition(":")[0])
    return {name: "".join(digest[:2] for _, digest in members)[:400] for name, members in modules}


def parts_of(code: StoredCode | None, node: str, variant: str) -> Parts | None:
    """Return the parts of a variant; None if they were not stored."""
    number = None if code is None else code["variants"].get(node, {}).get(variant)
    if code is None or number is None:
        return None
    members = [code["parts"][part] for part in code["sets"][number]]
    return {label: content for label, content in members}  # noqa: C416 - of lists, as JSON has them


def differences(before: StoredCode | None, after: StoredCode | None, node: str, variant: str) -> list[str]:
    """Return the differences between two codes of a variant: files and scripts first.

    Returns:
        Texts such as "lib:helper changed"; none if one of the codes was stored by an earlier version.
    """
    old, new = parts_of(before, node, variant), parts_of(after, node, variant)
    if old is None or new is None:
        return []
    names = sorted(_different(old, new) - _written(before, after), key=lambda name: (not is_file(name), name))
    return [_difference(name, old, new) for name in names if not name.startswith(MADE_BY)]


class RecordedCode(NamedTuple):
    """The code of the variants of a sweep: their fingerprints, and their parts."""

    fingerprints: Fingerprints
    code: StoredCode | None

    def variants(self) -> Iterator[tuple[str, str]]:
        """Yield each variant as (node, variant)."""
        return ((node, variant) for node, variants in self.fingerprints.items() for variant in variants)

    def has_same(self, present: RecordedCode, node: str, variant: str) -> bool:
        """Return whether a variant that was recorded has the same code at present."""
        before = self.fingerprints.get(node, {}).get(variant)
        after = present.fingerprints.get(node, {}).get(variant)
        return before == after or is_same_code(self.code, present.code, node, variant)

    def changed(self, present: RecordedCode) -> list[tuple[str, str]]:
        """Return the recorded variants whose code is not the same at present, as (node, variant)."""
        return [pair for pair in self.variants() if not self.has_same(present, *pair)]

    def changed_files(self, present: RecordedCode, changed: Sequence[tuple[str, str]]) -> set[str] | None:
        """Return the files that differ, if changed variants differ in nothing else; None if they do.

        Args:
            present: The code at present.
            changed: The variants that changed, as (node, variant).
        """
        differing: set[str] = set()
        for node, variant in changed:
            old, new = parts_of(self.code, node, variant), parts_of(present.code, node, variant)
            if old is None or new is None:
                return None
            differing |= {name.removeprefix(f"{MADE_BY} ") for name in _different(old, new)}
        files = {name for name in differing if is_file(name)}
        without = self.writing(files)
        return files if all(without.has_same(present, *pair) for pair in changed) else None

    def writing(self, files: Iterable[str]) -> RecordedCode:
        """Return the code with more files that count as written by nodes."""
        if self.code is None:
            return self
        written = {**dict.fromkeys(files, OUTSIDE), **self.code.get("written", {})}
        return self._replace(code={**self.code, "written": written})

    def replaced(self, node: str, variant: str, other: RecordedCode, name: str) -> RecordedCode:
        """Return the code with another one's code of a variant, which is called `name` there."""
        fingerprints = {key: dict(variants) for key, variants in self.fingerprints.items()}
        fingerprints[node][variant] = other.fingerprints[node][name]
        parts = {
            key: {variant_name: parts_of(self.code, key, variant_name) or {} for variant_name in variants}
            for key, variants in fingerprints.items()
        }
        parts[node][variant] = parts_of(other.code, node, name) or {}
        return RecordedCode(fingerprints, stored_code(parts))

    def replacing(self, present: RecordedCode) -> dict[str, dict[str, str]]:
        """Return present fingerprints, with the recorded ones of variants whose code is the same."""
        return {
            node: {
                variant: self.fingerprints.get(node, {}).get(variant, fingerprint)
                if self.has_same(present, node, variant)
                else fingerprint
                for variant, fingerprint in variants.items()
            }
            for node, variants in present.fingerprints.items()
        }


def is_same_code(before: StoredCode | None, after: StoredCode | None, node: str, variant: str) -> bool:
    """Return whether no code of a variant changed, although its fingerprints differ.

    Three kinds of differences are no change of code. Files that nodes of either sweep wrote are output. Files that
    appear while a sweep runs are nearly always written by its nodes. And values that objects hold, such as a session's
    id, may differ between processes: they count only if the code that may have made them changed, too.
    """
    old, new = parts_of(before, node, variant), parts_of(after, node, variant)
    if old is None or new is None:
        return False
    ignored = _written(before, after)
    counted = {name for name in _different(old, new) if name not in ignored and not _is_output(name, old)}
    # The same code that makes values makes values of the same meaning, such as another id of a session.
    is_made_alike = MADE_BY in old and not any(name.startswith(MADE_BY) for name in counted)
    if all(name.startswith(MADE_BY) for name in _different(old, new)):  # the same parts in another order
        return is_made_alike
    counted = {name for name in counted if not name.startswith(MADE_BY)}
    return not counted or (is_made_alike and all(name.startswith(VALUE) for name in counted))


def _different(old: Parts, new: Parts) -> set[str]:
    return {name for name, _ in old.items() ^ new.items()}


def _written(*codes: StoredCode | None) -> set[str]:
    """Return the parts that are files which nodes wrote, including files of the code that makes held values."""
    files = {file for code in codes if code is not None for file in code.get("written", ())}
    return files | {f"{MADE_BY} {file}" for file in files}


def _is_output(name: str, old: Parts) -> bool:
    """Return whether a part is a file that did not exist before."""
    return is_file(name.removeprefix(f"{MADE_BY} ")) and name not in old


def _difference(name: str, old: Parts, new: Parts) -> str:
    if name not in old:
        return f"{name} is new"
    if name not in new:
        return f"{name} is gone"
    return f"{name}: content differs" if is_file(name) else f"{name} changed"


def is_file(name: str) -> bool:
    """Return whether a part is a file or a script."""
    return name.startswith(("file ", "script "))


def why(before: StoredCode | None, after: StoredCode | None, variants: Iterable[tuple[str, str]]) -> str:
    """Return why the code of variants differs, in parentheses: "(lib:helper changed)"."""
    causes = list(dict.fromkeys(cause for each in variants for cause in differences(before, after, *each)))
    if not causes:
        return "(or a library that it uses)"
    more = f", and {len(causes) - _MOST_NAMED} more" if len(causes) > _MOST_NAMED else ""
    return f"({', '.join(causes[:_MOST_NAMED])}{more})"


def with_added(recorded: StoredCode | None, added: StoredCode) -> StoredCode:
    """Return recorded code with the variants of another that it does not have."""
    if recorded is None:
        return added
    variants = {
        node: {
            variant: parts_of(recorded, node, variant) or parts_of(added, node, variant) or {}
            for variant in {**recorded["variants"].get(node, {}), **added["variants"].get(node, {})}
        }
        for node in {**recorded["variants"], **added["variants"]}
    }
    both = stored_code(
        variants,
        [*recorded["varying"], *added["varying"]],
        [*recorded["not_followed"], *added["not_followed"]],
    )
    return keeping_written(both, recorded)


def keeping_written(code: StoredCode, before: StoredCode | None) -> StoredCode:
    """Return code with the files that nodes wrote before it was recorded."""
    written = {**({} if before is None else before.get("written", {})), **code.get("written", {})}
    return {**code, "written": written} if written else code


def check_stored(code: StoredCode) -> None:
    """Read all stored code as its users do. Raises KeyError, IndexError, TypeError or ValueError if it is malformed."""
    for texts in (code["varying"], code["not_followed"], *code["parts"], code.get("written", {}).values()):
        "".join(texts)
    for node, variants in code["variants"].items():
        for variant in variants:
            parts_of(code, node, variant)
