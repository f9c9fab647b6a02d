"""LangGraph's cache of node results, under keys of ours: two variants never share a result, nor do two repeats."""

from __future__ import annotations

from typing import Any

from langgraph.cache.base import BaseCache

from wtb.core.classes.frozen import frozen
from wtb.core.serialization.codec import decode, digest, encode
from wtb.core.values import Value, Values
from wtb.execution.engine.protocol import Task
from wtb.integrations.langgraph.authoring.nodes import Graph, GraphNode
from wtb.integrations.langgraph.engine.frames import Write


@frozen
class Cached:
    """The place of one node's result in the cache that the graph was compiled with. ttl: seconds."""

    cache: BaseCache[Any]
    space: tuple[str, ...]
    key: str
    ttl: int | None

    @classmethod
    def of(cls, node: GraphNode, graph: Graph, task: Task, given: Any) -> Cached | None:
        """None where the node has no cache policy, or the graph no cache."""
        policy = node.own.cache_policy
        if policy is None or graph.cache is None:
            return None
        variant = node.variants[task.variant]
        params = digest(encode(dict(variant.params)))
        space = ("wtb", node.name, task.variant, node.fingerprint(task.variant), params, str(task.root.repeat))
        name = policy.key_func(given)
        return cls(graph.cache, space, digest(name.encode() if isinstance(name, str) else bytes(name)), policy.ttl)

    def found(self) -> tuple[list[Write], dict[str, Value]] | None:
        """What the node wrote, and what it changed in the store."""
        found = self.cache.get([(self.space, self.key)])
        if not found:
            return None
        writes, changes = next(iter(found.values()))
        return [(channel, value) for channel, value in writes], {key: Value.of(decode(it)) for key, it in changes}

    def keep(self, writes: list[Write], changes: Values) -> None:
        stored = [(key, value.data) for key, value in changes.items()]
        self.cache.set({(self.space, self.key): ((writes, stored), self.ttl)})
