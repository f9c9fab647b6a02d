"""A chat model that follows a script: the same questions and tools give the same replies, offline.

It is to the graph what ChatOpenAI would be: it takes messages, has tools bound to it, asks for tool calls and tells
how many tokens it took. It reads what it needs from the messages alone, so that it may be asked from any state.
"""

import json
import operator
import re
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    ToolCall,
    ToolMessage,
    convert_to_openai_messages,
)
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

OPERATIONS: dict[str, Callable[[float, float], float]] = {"+": operator.add, "-": operator.sub, "/": operator.truediv}
FIELDS = {"price": "cost|price", "weight": "heavy|heavier|weigh", "stock": "stock"}
AMOUNT = re.compile(r"\b(\d+|an?|the) ((?:(?!(?:and|than|cost|weigh|are|is|in|of)\b)[a-z]+ ?)+)")


class Task(NamedTuple):
    """A parsed question: `field` of each (number, item), combined with `sign`."""

    field: str
    amounts: list[tuple[int, str]]
    sign: str


class ScriptedChat(BaseChatModel):
    """Looks up each item in the question, calculates if it can, and answers. A token is a word."""

    model_name: str = "scripted"

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(
        self, tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool], **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind tools as OpenAI does: with `parallel_tool_calls=False` a reply has one tool call."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        *,
        tools: Sequence[dict[str, Any]] = (),
        parallel_tool_calls: bool = True,
        **kwargs: Any,
    ) -> ChatResult:
        reply = _reply(messages, {tool["function"]["name"] for tool in tools})
        calls = reply if isinstance(reply, list) else []
        message = AIMessage(
            content="" if calls else str(reply),
            tool_calls=calls if parallel_tool_calls else calls[:1],
            response_metadata={"model_name": self.model_name},
        )
        input_tokens, output_tokens = _words(messages) + _words(tools), _words([message])
        message.usage_metadata = {
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "total_tokens": input_tokens + output_tokens,
        }
        return ChatResult(generations=[ChatGeneration(message=message)])


def _words(things: Sequence[Any]) -> int:
    plain = [convert_to_openai_messages(message) if isinstance(message, BaseMessage) else message for message in things]
    return len(re.findall(r"\w+", json.dumps(plain)))


def _reply(messages: Sequence[BaseMessage], tools: set[str]) -> list[ToolCall] | str:
    """Return the next tool calls, or the answer."""
    question = max(number for number, message in enumerate(messages) if isinstance(message, HumanMessage))
    task, since = _read(messages[question].text), messages[question + 1 :]
    if not task.amounts:
        return "I cannot tell: I know the prices, weights and stock of our items only."
    calls = [call for message in since if isinstance(message, AIMessage) for call in message.tool_calls]
    answers = {message.tool_call_id: message for message in since if isinstance(message, ToolMessage)}
    lookups = {call["args"]["item"]: answers[call["id"] or ""] for call in calls if call["name"] == "lookup"}

    values: list[str] = []
    missing: list[ToolCall] = []
    for _, item in task.amounts:
        answer = lookups.get(item)
        if answer is not None and (meant := re.search(r"did you mean '(.+)'", answer.text)):
            item = meant[1]
            answer = lookups.get(item)
        if answer is None:
            missing.append(_call("lookup", len(calls) + len(missing), item=item, field=task.field))
        elif answer.status == "error":
            return f"I cannot tell: {answer.text}."
        else:
            values.append(answer.text)
    if missing:
        return missing

    numbers = [number for number, _ in task.amounts]
    if numbers == [1]:
        return f"It is {values[0]}."
    if "calculate" not in tools:  # in its head it counts with whole numbers
        whole: list[float] = [number * round(float(figure)) for number, figure in zip(numbers, values, strict=True)]
        if task.sign == "/" and 0 in whole[1:]:
            return "I cannot tell: there are none to compare with."
        return f"It is about {reduce(OPERATIONS[task.sign], whole):.0f}."
    worked_out = [answers[call["id"] or ""] for call in calls if call["name"] == "calculate"]
    if worked_out:
        return f"{'I cannot tell:' if worked_out[0].status == 'error' else 'It is'} {worked_out[0].text}."
    parts = [figure if number == 1 else f"{number} * {figure}" for number, figure in zip(numbers, values, strict=True)]
    return [_call("calculate", len(calls), expression=f" {task.sign} ".join(parts))]


def _call(name: str, number: int, **arguments: str) -> ToolCall:
    return ToolCall(name=name, args=arguments, id=f"call-{number}", type="tool_call")


def _read(question: str) -> Task:
    text = question.lower()
    field = next((name for name, words in FIELDS.items() if re.search(rf"\b({words})\b", text)), "")
    named = [(int(number) if number.isdigit() else 1, item.strip()) for number, item in AMOUNT.findall(text)]
    amounts = [(number, item.removesuffix("s") if number > 1 else item) for number, item in named] if field else []
    return Task(field, amounts, "/" if "times" in text else "-" if "more" in text or "heavier" in text else "+")
