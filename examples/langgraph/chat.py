"""A LangChain chat model for any OpenAI-compatible endpoint, and the small local model."""

from functools import cache
from threading import Lock
from typing import Any

import httpx
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, convert_to_openai_messages
from langchain_core.outputs import ChatGeneration, ChatResult

from examples.model.server import NAME, serve


class HttpChat(BaseChatModel):
    """Calls `POST {url}/v1/chat/completions`. langchain-openai has a model with more features."""

    url: str
    model_name: str
    max_tokens: int = 24
    temperature: float = 0.0
    timeout_s: float = 60.0

    @property
    def _llm_type(self) -> str:
        return "http-chat"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        body = {
            "model": self.model_name,
            "messages": convert_to_openai_messages(messages),
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "stop": stop,
        }
        address = f"{self.url}/v1/chat/completions"
        reply = httpx.post(address, json=body | kwargs, timeout=self.timeout_s, trust_env=False)
        answer = reply.raise_for_status().json()
        choice, usage = answer["choices"][0], answer["usage"]
        message = AIMessage(
            content=choice["message"]["content"] or "",
            response_metadata={"model_name": self.model_name, "finish_reason": choice["finish_reason"]},
            usage_metadata={
                "input_tokens": usage["prompt_tokens"],
                "output_tokens": usage["completion_tokens"],
                "total_tokens": usage["total_tokens"],
            },
        )
        return ChatResult(generations=[ChatGeneration(message=message)])


_starting = Lock()  # of two threads that ask first


@cache
def _server() -> Any:
    return serve()


def small_model(**settings: Any) -> HttpChat:
    """Return SmolLM2 135M, which a process loads once, at the first call (half a second)."""
    with _starting:
        server = _server()
    return HttpChat(url=server.listening_address, model_name=NAME, **settings)
