"""A proxy between a client and a server that cuts connections, as proxies on the way do."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

END_OF_BLOCK = b"\n\n"


class CuttingProxy:
    """Passes TCP on to a port, and cuts each connection after so many blocks of a stream, in the middle of the next.

    The first block of a stream is `retry`.
    """

    def __init__(self, port: int, blocks: int) -> None:
        self._server, self._blocks = port, blocks
        self.cuts = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):  # it was closed
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with client, suppress(OSError), socket.create_connection(("127.0.0.1", self._server)) as server:
            threading.Thread(target=_copy, args=(client, server), daemon=True).start()
            seen, streams = 0, False
            while piece := server.recv(1 << 16):
                streams = streams or b"text/event-stream" in piece
                before = seen
                seen += piece.count(END_OF_BLOCK) if streams else 0
                if seen > self._blocks:
                    at = 0
                    for _ in range(self._blocks - before):
                        at = piece.index(END_OF_BLOCK, at) + len(END_OF_BLOCK)
                    client.sendall(piece[: at + 20])  # some of the next, and no more
                    self.cuts += 1
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(piece)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(1 << 16):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
