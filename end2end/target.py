"""The server under test, which the environment names."""

import os
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

#: Variables with the program and the settings of the server under test, for tests that start others.
OF_PROGRAM = ("OPENSANDBOX_TEST_SERVER_BINARY", "OPENSANDBOX_TEST_SERVER_CONFIG")


def free_port() -> int:
    """Find a port for a server of this machine.

    The kernel gives it to no other program for a minute, because a connection of it has just ended.
    """
    with socket.socket() as listener:
        # Otherwise the server could not have it either.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        with socket.create_connection(listener.getsockname()), listener.accept()[0] as ended:
            # The port stays with the side that ends the connection.
            ended.close()
            return listener.getsockname()[1]


@dataclass(frozen=True)
class Target:
    """A server that answers the lifecycle API."""

    url: str
    api_key: str
    image: str

    @property
    def address(self) -> str:
        """``host:port``, as SDKs want it."""
        return urlsplit(self.url).netloc

    @staticmethod
    def from_environment() -> "Target":
        missing = [name for name in ("URL", "API_KEY") if f"OPENSANDBOX_TEST_{name}" not in os.environ]
        if missing:
            raise RuntimeError(
                "no server to test: `cargo xtask test` starts one, or set "
                + " and ".join(f"OPENSANDBOX_TEST_{name}" for name in missing)
            )
        return Target(
            url=os.environ["OPENSANDBOX_TEST_URL"].rstrip("/"),
            api_key=os.environ["OPENSANDBOX_TEST_API_KEY"],
            image=os.environ.get("OPENSANDBOX_TEST_IMAGE", "opensandbox/base:latest"),
        )
