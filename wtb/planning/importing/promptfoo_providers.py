"""Providers of a promptfoo configuration as models with settings. What has no counterpart is named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from wtb.core.classes.frozen import frozen
from wtb.core.errors import describe
from wtb.core.values import Json
from wtb.planning.importing.promptfoo_assertions import Grader, grader_of

# Settings that both protocols take by these names.
_SETTINGS = ("temperature", "max_tokens", "top_p", "stop", "seed", "frequency_penalty", "presence_penalty")


@frozen
class Provider:
    """A model with the settings that it is asked with."""

    model: Grader
    settings: Mapping[str, Json]


def read_providers(written: Json, left_out: list[str]) -> list[Provider]:
    """Read the providers of a configuration; those of other protocols, and what else is set of one, are named."""
    entries: Sequence[Json] = written if isinstance(written, list) else [] if written is None else [written]
    providers: list[Provider] = []
    for number, entry in enumerate(entries):
        place = f"providers[{number}]"
        id, options = _of_entry(entry)
        model = grader_of(id)
        if model is None:
            left_out.append(f"{place}: {describe(id if isinstance(id, str) else entry)}")
            continue
        left_out += [f"{place}.{key}" for key in options if key != "config"]
        config = options.get("config") or {}
        provider = Provider(model, dict(_settings(place, config, left_out)))
        if provider in providers:
            left_out.append(f"{place}: the same model and settings as those of another provider")
        else:
            providers.append(provider)
    return providers


def _of_entry(entry: Json) -> tuple[Json, Mapping[str, Json]]:
    """The id of a provider and what is set of it: of a text, of `{id: ...}`, or of `{ID: {...}}`."""
    if not isinstance(entry, Mapping):
        return entry, {}
    if "id" in entry:
        return entry["id"], {key: value for key, value in entry.items() if key != "id"}
    if len(entry) == 1:
        ((id, options),) = entry.items()
        return id, options if isinstance(options, Mapping) else {}
    return None, {}


def _settings(place: str, config: Json, left_out: list[str]) -> Iterator[tuple[str, Json]]:
    if not isinstance(config, Mapping):
        left_out.append(f"{place}.config: {describe(config)}")
        return
    for key, value in config.items():
        if key in _SETTINGS and value is not None:
            yield key, value
        else:
            left_out.append(f"{place}.config.{key}")


def grids(prompts: Sequence[str], providers: Sequence[Provider]) -> list[dict[str, list[Json]]]:
    """Return what is varied: a grid of prompts and models for each group of models with equal settings.

    Args:
        prompts: `file://PATH` of each.
        providers: The models with their settings.
    """
    every: dict[str, list[Json]] = {"prompt": [*prompts]}
    if not providers:
        return [every]
    groups: list[tuple[Mapping[str, Json], list[Json]]] = []
    for provider in providers:
        models = next((models for settings, models in groups if settings == provider.settings), None)
        if models is None:
            groups.append((provider.settings, [provider.model.model]))
        elif provider.model.model not in models:
            models.append(provider.model.model)
    return [{**every, "model": models, **{key: [value] for key, value in s.items()}} for s, models in groups]
