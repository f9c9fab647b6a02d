"""Messages in a graph's state: given by people in any form that LangChain takes, and known by their ids."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import uuid4

from langchain_core.messages import BaseMessage, convert_to_messages
from langgraph._internal._constants import OVERWRITE
from langgraph.channels.base import BaseChannel
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.graph.message import add_messages
from pydantic_core import CoreSchema, core_schema


class Messages(list[Any]):
    """The type of a key that `add_messages` joins: `[{role: user, content: hi}]` is read as messages."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(_read)


def _read(given: Any) -> list[Any]:
    try:
        return list(convert_to_messages(given if isinstance(given, list) else [given]))
    except NotImplementedError as error:
        raise ValueError(str(error)) from error


def type_of(channel: BaseChannel[Any, Any, Any]) -> Any:
    """The type of what a key of the state takes."""
    return Messages if _joins_messages(channel) else getattr(channel, "typ", Any)


def with_message_ids(channel: BaseChannel[Any, Any, Any] | None, value: Any) -> Any:
    """What is written to a channel of messages, each with an id: `add_messages` would draw one anew at each join."""
    if not _joins_messages(channel):
        return value
    if isinstance(value, list):
        return [_with_id(one) for one in value]
    return _with_id(value)


def with_ids(update: Any) -> Any:
    """What a Command writes, with an id for each message in it: only its graph knows which keys join messages."""
    if isinstance(update, BaseMessage):
        return _with_id(update)
    if isinstance(update, dict):
        return {key: with_ids(value) for key, value in update.items()}
    return type(update)(map(with_ids, update)) if type(update) in (list, tuple) else update


def _with_id(message: Any) -> Any:
    if isinstance(message, BaseMessage) and message.id is None:
        return message.model_copy(update={"id": str(uuid4())})
    if isinstance(message, dict) and OVERWRITE in message:
        return message
    if isinstance(message, str | tuple | dict):
        return _with_id(convert_to_messages([message])[0])
    return message


def _joins_messages(channel: Any) -> bool:
    if not isinstance(channel, BinaryOperatorAggregate):
        return False
    operator = channel.operator
    return operator is add_messages or (isinstance(operator, partial) and operator.func is add_messages)
