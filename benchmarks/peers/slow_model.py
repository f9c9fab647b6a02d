"""A model that takes a while: `python -m benchmarks.peers.slow_model SECONDS` says its port, and gives everything 1."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress

_MESSAGE = {"role": "assistant", "content": json.dumps({"reasoning": "So it is.", "level": 1})}
_REPLY = json.dumps(
    {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "model",
        "choices": [{"index": 0, "message": _MESSAGE, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }
).encode()
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(_REPLY), _REPLY)


async def _serve(wait_s: float) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
                await asyncio.sleep(wait_s)
                writer.write(_ANSWER)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1])))
