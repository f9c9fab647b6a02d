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


def _read(messages: Any) -> list[Any]:
    try:
        return list(convert_to_messages(messages if isinstance(messages, list) else [messages]))
    except NotImplementedError as error:
        raise ValueError(str(error)) from error


def type_of(channel: BaseChannel[Any, Any, Any]) -> Any:
    """Return the type of the values that a key of the state takes."""
    return Messages if _joins_messages(channel) else getattr(channel, "typ", Any)


def with_message_ids(channel: BaseChannel[Any, Any, Any] | None, update: Any) -> Any:
    """Give each message for a channel of messages an id, since `add_messages` would draw a new one at each join."""
    if not _joins_messages(channel):
        return update
    if isinstance(update, list):
        return [_with_id(message) for message in update]
    return _with_id(update)


def with_ids(update: Any) -> Any:
    """Give each message in a Command an id, whatever its key. Only the target graph has the reducers of the keys."""
    if isinstance(update, BaseMessage):
        return _with_id(update)
    if isinstance(update, dict):
        return {key: with_ids(part) for key, part in update.items()}
    return type(update)(map(with_ids, update)) if type(update) in (list, tuple) else update


def _with_id(message: Any) -> Any:
    if isinstance(message, BaseMessage) and message.id is None:
        return message.model_copy(update={"id": str(uuid4())})
    # This marks a value that replaces those of the channel, and is no message.
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
