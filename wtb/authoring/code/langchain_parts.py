"""What the user wrote in objects of LangChain and LangGraph: functions, prompts, tools, graphs; nothing of their own.

Classes are recognized by their names, so that neither has to be installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from wtb.authoring.code.sources.distributions import distribution_of
from wtb.core.mappings import Namespace

_SEQUENCE, _EITHER = ("steps",), ("func", "afunc", "kwargs")
_HELD: Mapping[str, tuple[str, ...] | None] = {  # class -> what it holds; None: all of it
    "langchain_core.RunnableBindingBase": ("bound", "kwargs", "config", "config_factories"),
    "langchain_core.RunnableRetry": ("max_attempt_number", "retry_exception_types", "wait_exponential_jitter"),
    "langchain_core.RunnableSequence": _SEQUENCE,
    "langchain_core.RunnableParallel": ("steps__",),
    "langchain_core.RunnableAssign": ("mapper",),
    "langchain_core.RunnablePassthrough": _EITHER,
    "langchain_core.RunnablePick": ("keys",),
    "langchain_core.RunnableLambda": _EITHER,
    "langchain_core.RunnableGenerator": ("_transform", "_atransform"),
    "langchain_core.RunnableWithFallbacks": ("runnable", "fallbacks", "exceptions_to_handle", "exception_key"),
    "langchain_core.RunnableBranch": ("branches", "default"),
    "langchain_core.RunnableEachBase": ("bound",),
    "langchain_core.RouterRunnable": ("runnables",),
    "langchain_core.BaseTool": (
        "name", "description", "func", "coroutine", "args_schema", "return_direct", "response_format",
        "handle_tool_error", "handle_validation_error",
    ),
    "langchain_core.BasePromptTemplate": None,
    "langchain_core.BaseMessagePromptTemplate": None,
    "langgraph.RunnableCallable": _EITHER,
    "langgraph.ToolNode": ("_tools_by_name", "_handle_tool_errors", "_wrap_tool_call", "_awrap_tool_call"),
    "langgraph.RunnableSeq": _SEQUENCE,
    "langgraph.PregelNode": ("bound",),
    "langgraph.Pregel": ("builder", "nodes"),
}  # fmt: skip
_PLAIN = (str, int, float, bool)


def is_foreign(package: str) -> bool:
    """Return whether a package is one of LangChain's, or of those that are installed beside it and named like it."""
    return package.startswith(("langchain", "langgraph")) and distribution_of(package) is not None


def parts_of(thing: Any) -> Namespace | None:
    """What there is of the user's in an object of LangChain or LangGraph, by name; None where it is none of these."""
    kind: Any = type(thing)
    names = _names(kind)
    foreign = is_foreign(kind.__module__.partition(".")[0])
    if "langgraph.StateGraph" in names:
        return _graph(thing)
    if foreign and "langchain_core.BaseLanguageModel" in names:  # its settings, but no clients and no keys
        return {name: value for name, value in _all(thing).items() if isinstance(value, _PLAIN)}
    known = names & _HELD.keys()
    if not known:
        return None
    if not foreign or any(_HELD[name] is None for name in known):
        return _all(thing)
    if hasattr(thing, "builder"):  # a compiled graph: its nodes are those of what it was made of
        return {"builder": thing.builder}
    known_parts = {part for name in known for part in _HELD[name] or ()}
    return {part: getattr(thing, part) for part in sorted(known_parts) if getattr(thing, part, None) is not None}


def has_parts(value: Any) -> bool:
    """Return whether something is such an object, or a list or mapping with one in it."""
    if isinstance(value, list | tuple | dict):
        return any(map(has_parts, value.values() if isinstance(value, dict) else value))
    return parts_of(value) is not None


def _all(thing: Any) -> Namespace:
    """What an object holds; of a pydantic model its fields, since LangChain remembers things beside them."""
    fields = getattr(type(thing), "model_fields", None)
    return {name: value for name, value in vars(thing).items() if fields is None or name in fields}


def _graph(builder: Any) -> Namespace:
    """A graph's nodes and how they lead on."""
    return {
        "nodes": {place: spec.runnable for place, spec in builder.nodes.items()},
        "handlers": {place: spec.error_handler_node for place, spec in builder.nodes.items()},
        "edges": sorted(builder.edges),
        "waiting": sorted(builder.waiting_edges),
        "paths": [
            [start, branch.path, sorted((branch.ends or {}).items(), key=str)]
            for start, named in builder.branches.items()
            for branch in named.values()
        ],
    }


@lru_cache(maxsize=1024)
def _names(kind: type) -> frozenset[str]:
    return frozenset(f"{one.__module__.partition('.')[0]}.{one.__name__.partition('[')[0]}" for one in kind.__mro__)
