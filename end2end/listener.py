"""A server on this machine, and how a program in a sandbox reaches it."""

import contextlib
import socketserver
import threading
from collections.abc import Iterator

#: Shell command that prints the address of this machine, as a sandbox on it sees it: its gateway.
GATEWAY = (
    "python3 -c 'import socket; "
    "rows = [line.split() for line in open(\"/proc/net/route\")][1:]; "
    "gateways = [row[2] for row in rows if row[1] == \"00000000\"]; "
    "print(socket.inet_ntoa(bytes.fromhex(gateways[0])[::-1]))'"
)

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


class Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        if self.request.recv(4096):
            self.request.sendall(ANSWER)


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@contextlib.contextmanager
def listening() -> Iterator[int]:
    """Answer requests on a port of every address of this machine."""
    with Server(("0.0.0.0", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def connect(address: str, port: int) -> str:
    """Shell command that prints 200 if the server answers, and 000 if there is no connection."""
    return f"curl -s -m 10 -o /dev/null -w '%{{http_code}}' http://{address}:{port}/"
