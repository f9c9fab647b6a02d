"""Clients of language models whose calls are kept with the node that makes them.

`record_calls(OpenAI(...))` or `record_calls(Anthropic(...))` in a workflow's `resources` is all: nodes do not change.
Clients are known by their shape; this package imports none of their packages.
"""

from wtb.integrations.models.ask import complete
from wtb.integrations.models.recording import record_calls
from wtb.integrations.models.two_pass import ActionNode

__all__ = ["ActionNode", "complete", "record_calls"]
