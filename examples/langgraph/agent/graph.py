"""The graph: agent -> (tools -> agent ...) -> answer. It uses LangGraph only."""

from typing import Any

from langchain_core.messages import SystemMessage
from langchain_core.tools import ToolException
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from examples.langgraph.agent.scripted import ScriptedChat
from examples.langgraph.agent.tools import calculate, lookup

PROMPT = "You answer questions about our shop. Look up what you need, calculate with the tool, and never guess."

model = ScriptedChat()


class State(MessagesState):
    """The conversation, and the answer that the customer reads."""

    answer: str


def agent(state: State) -> dict[str, Any]:
    """Ask the model, which may call several tools at once."""
    bound = model.bind_tools([lookup, calculate])
    return {"messages": [bound.invoke([SystemMessage(PROMPT), *state["messages"]])]}


def error_text(error: ToolException) -> str:
    """Return the message for the model if a tool fails."""
    return str(error)


def answer(state: State) -> dict[str, Any]:
    """Answer with the model's last message."""
    return {"answer": state["messages"][-1].text}


def build() -> StateGraph[State, None, MessagesState, State]:
    builder = StateGraph(State, input_schema=MessagesState)
    builder.add_node("agent", agent)
    builder.add_node("tools", ToolNode([lookup, calculate], handle_tool_errors=error_text))
    builder.add_node("answer", answer)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition, {"tools": "tools", END: "answer"})
    builder.add_edge("tools", "agent")
    builder.add_edge("answer", END)
    return builder


graph = build()
