"""Tools of MCP servers, which nodes call as `ctx.mcp("files").read(path="a.txt")`: a client of the official SDK."""

from wtb.integrations.mcp.connection import ServerLost, ToolFailed
from wtb.integrations.mcp.declaring import use_server

__all__ = ["ServerLost", "ToolFailed", "use_server"]
