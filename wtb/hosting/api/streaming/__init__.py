"""Events as they happen, for followers: the readers of logs, their pace, and the requests that stay open."""
