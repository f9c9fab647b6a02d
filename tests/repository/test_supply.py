"""The supplies of a build: current constraints with hashes, and images that releases name by digest."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.constraints import ALONE, CONSTRAINTS, GROUPS
from scripts.pin_images import files, images

ROOT = Path(__file__).parents[2]
PINNED = re.compile(r"^([\w.-]+)==([^\s;]+)(?: ; ([^\\\n]+?))?(?: \\|$)", re.MULTILINE)


def required() -> Iterator[Requirement]:
    """Return the requirements of pyproject.toml, with all extras and the locked groups."""
    project: Mapping[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    texts = [*project["project"]["dependencies"], *chain.from_iterable(extras.values()), *ALONE]
    groups = project["dependency-groups"]
    for group in GROUPS:
        for requirement in groups[group]:
            texts += [requirement] if isinstance(requirement, str) else groups[requirement["include-group"]]
    yield from map(Requirement, texts)


def locked() -> dict[str, set[str]]:
    """Name -> versions, of which there may be several for different Pythons."""
    versions: dict[str, set[str]] = {}
    for name, version, _ in PINNED.findall(CONSTRAINTS.read_text()):
        versions.setdefault(canonicalize_name(name), set()).add(version)
    return versions


def test_the_constraints_have_all_that_is_asked_for() -> None:
    pinned = locked()
    assert len(pinned) > 100
    for requirement in required():
        versions = pinned.get(canonicalize_name(requirement.name), ())
        is_pinned = any(map(requirement.specifier.contains, versions))
        assert is_pinned, f"{requirement}: `make constraints` resolves it again"


def test_every_locked_package_has_hashes_and_none_names_an_index() -> None:
    text = CONSTRAINTS.read_text()
    assert "://" not in text
    assert "index-url" not in text
    entries = re.split(r"\n(?=[\w.-]+==)", text.split("\n", 2)[2])
    assert len(entries) > 100
    assert [requirement.split()[0] for requirement in entries if "--hash=sha256:" not in requirement] == []


def test_builds_use_the_versions_of_the_constraints() -> None:
    texts = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert "hatchling" in {Requirement(text).name for text in texts}
    pinned = {f"{name}=={version}" for name, versions in locked().items() for version in versions}
    assert set(texts) <= pinned, "change [build-system] in pyproject.toml"


def test_images_are_found() -> None:
    repositories = {image.partition(":")[0] for path in files() for image, _ in images(path.read_text())}
    assert repositories == {"caddy", "postgres", "python", "redis"}


@pytest.mark.skipif(not os.environ.get("WTB_RELEASE"), reason="of releases")
def test_a_release_names_images_by_digest() -> None:
    open_ones = {
        f"{path.name}: {image}" for path in files() for image, digest in images(path.read_text()) if not digest
    }
    assert not open_ones, "`make pin` pins them"
