"""Clients of language models whose calls are kept with the node that makes them.

`record_calls(OpenAI(...))` or `record_calls(Anthropic(...))` in a workflow's `resources` is all: nodes do not change.
Clients are known by their shape; this package imports none of their packages.
"""

from wtb.integrations.models.ask import ActionNode, complete
from wtb.integrations.models.recording import record_calls

__all__ = ["ActionNode", "complete", "record_calls"]
