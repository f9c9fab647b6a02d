"""Types of a graph's state: some are accepted, the others are rejected before anything runs."""

from __future__ import annotations

import datetime
import enum
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict, TypeVar, Union

import numpy as np
import pydantic
import pytest
import typing_extensions
from langchain_core.documents import Document
from langchain_core.messages import AnyMessage, BaseMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages

from tests.support.prose import sentence
from wtb.authoring.code import import_paths
from wtb.authoring.code.import_paths import as_workflow
from wtb.core.errors import InputError, WorkflowError

T = TypeVar("T")


class Color(enum.Enum):
    RED = 1


@dataclass
class Point:
    x: float
    label: str | None = None


class Model(pydantic.BaseModel):
    points: list[Point] = []


class Inner(TypedDict, total=False):
    anything: Any
    note: str | None


class Extended(typing_extensions.TypedDict, total=False):
    anything: Any
    note: typing_extensions.ReadOnly[str | None]


class Locked(typing_extensions.TypedDict):
    lock: typing_extensions.NotRequired[threading.Lock().__class__]


def checked(kind: Any, maker: Any = TypedDict) -> None:
    shape: Any = maker("shape", {"x": int, "y": kind}, total=False)
    builder = StateGraph(shape)
    builder.add_node("a", lambda state: {"x": 1})
    builder.add_edge(START, "a")
    as_workflow(builder, "tests:graph").validate()


def words(kind: Any) -> str:
    """Return the name of a type for a test id, without parts that differ between processes."""
    return str(kind).partition(" at 0x")[0][:60]


ACCEPTED: list[Any] = [
    Any, object, str, int | None, Optional[str], Union[int, str],  # noqa: UP007, UP045 - as older code has them
    int | float, list[Any], list[str] | None,
    dict[str, Any], dict[str, list[int | None]], tuple[int, ...] | None, bytes | None, list | dict, set[str],
    frozenset[int], Literal["a", "b"], Literal["a"] | None, Annotated[str | None, "a note"], NotRequired[str | None],
    Color, Point, Point | None, list[Point], Model, Model | None, Inner, list[Inner], Extended,
    list[Extended], datetime.datetime | None, Path,
    np.ndarray, np.ndarray | None, Sequence[str], Mapping[str, Any], BaseMessage, list[AnyMessage],
    Annotated[list[AnyMessage], add_messages], list[Document], T,
]  # fmt: skip

REFUSED: list[Any] = [
    threading.Lock().__class__, sqlite3.Connection, sqlite3.Connection | None, list[sqlite3.Connection],
    dict[str, sqlite3.Connection], Callable[[int], int], Callable[[int], int] | None, Locked, list[Locked],
]  # fmt: skip


@pytest.mark.parametrize("kind", ACCEPTED, ids=words)
def test_a_type_whose_values_can_be_stored_is_taken(kind: Any) -> None:
    checked(kind)
    checked(kind, typing_extensions.TypedDict)


@pytest.mark.parametrize("kind", REFUSED, ids=words)
def test_a_type_that_cannot_be_stored_is_refused_and_named(kind: Any) -> None:
    for maker in (TypedDict, typing_extensions.TypedDict):
        with pytest.raises(WorkflowError, match=r"state key 'y' holds .*, which cannot be stored"):
            checked(kind, maker)


def test_a_graph_is_refused_in_one_line_where_wtb_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_paths, "entry_points", lambda **options: ())
    with pytest.raises(InputError, match=sentence("{} is a LangGraph graph, and this WTB has no adapter", "'mine'")):
        as_workflow(StateGraph(dict), "mine")
