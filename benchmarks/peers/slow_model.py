"""A slow model: `python -m benchmarks.peers.slow_model SECONDS [BYTES]` prints its port.

It gives everything 1, as judges expect it, or replies with a text of so many bytes.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress

_JUDGEMENT = json.dumps({"reasoning": "So it is.", "level": 1})


def _response(content: str) -> bytes:
    """Return the whole HTTP response with a completion."""
    message = {"role": "assistant", "content": content}
    completion = {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "model",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }
    body = json.dumps(completion).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


async def _serve(wait_s: float, response: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
                await asyncio.sleep(wait_s)
                writer.write(response)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=256)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    text = "x" * int(sys.argv[2]) if len(sys.argv) > 2 else _JUDGEMENT
    asyncio.run(_serve(float(sys.argv[1]), _response(text)))
