"""A Docker engine that tests may kill, and a small internet for its sandboxes.

Both have network namespaces of their own: the engine's is that of a host with a public address and
one way out, which leads to the other. The test enters the engine's, so that it reaches the engine's
sandboxes, and servers that it starts there do as well.
"""

import contextlib
import ctypes
import os
import re
import shutil
import signal
import socket
import socketserver
import struct
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from listener import ANSWER
from target import OF_PROGRAM
from waiting import patient, wait_until

PROGRAMS = ("dockerd", "docker", "ip", "unshare", "nsenter")
CLONE_NEWNET = 0x40000000

#: The engine's host, and the router of the internet beside it.
HOST = "203.0.113.1"
ROUTER = "203.0.113.254"
#: Name server of the internet.
RESOLVER = "192.0.2.53"
#: Names that it knows.
NAMES = {
    "allowed.example": "198.51.100.7",
    "forbidden.example": "198.51.100.66",
    "private.example": "10.9.9.9",
}
ALLOWED = "198.51.100.8"
FORBIDDEN = NAMES["forbidden.example"]
#: The metadata service of clouds.
METADATA = "169.254.169.254"
#: Private networks that are reached over the router, as in a company.
PRIVATE = ("10.9.9.9", "10.1.2.3", "172.31.9.9", "192.168.9.9", "100.64.9.9")
ADDRESSES = (RESOLVER, *NAMES.values(), ALLOWED, METADATA, *PRIVATE)

WEB, DISCARD, DNS = 80, 9, 53


def run(*command: str, **settings) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=patient(300), **settings)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout.strip()


class Namespace:
    """A network namespace, kept by a process that does nothing."""

    def __init__(self) -> None:
        script = "ip link set lo up && exec sleep infinity"
        self.keeper = subprocess.Popen(["unshare", "--net", "sh", "-c", script])
        name = Path(f"/proc/{self.keeper.pid}/comm")
        wait_until("a network namespace", lambda: name.read_text().strip() == "sleep")

    def run(self, *command: str) -> str:
        return run("nsenter", f"--net=/proc/{self.keeper.pid}/ns/net", "--", *command)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Move this thread: sockets that it opens and programs that it starts belong to the namespace."""
        libc = ctypes.CDLL(None, use_errno=True)

        def enter(namespace: int) -> None:
            if libc.setns(namespace, CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "cannot enter a network namespace")

        with open("/proc/thread-self/ns/net") as own, open(f"/proc/{self.keeper.pid}/ns/net") as other:
            enter(other.fileno())
            try:
                yield
            finally:
                enter(own.fileno())

    def end(self) -> None:
        self.keeper.kill()
        self.keeper.wait()


class Web(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    #: Without room, a connection is accepted only when it is tried again, a second later.
    request_queue_size = 1024


class Internet:
    """Answers on its addresses, and records which of them were reached and which names were asked for."""

    def __init__(self) -> None:
        self.reached: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        self.servers: list[socketserver.BaseServer] = []
        self.namespace = Namespace()

    def start(self) -> None:
        for address in {*ADDRESSES}:
            self.namespace.run("ip", "address", "add", f"{address}/32", "dev", "lo")
        with self.namespace.entered():
            self.serve(Web(("0.0.0.0", WEB), self.web()))
            self.serve(socketserver.UDPServer((FORBIDDEN, DISCARD), self.discard()))
            self.serve(socketserver.UDPServer((RESOLVER, DNS), self.dns()))

    def serve(self, server: socketserver.BaseServer) -> None:
        self.servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def web(self) -> type[socketserver.BaseRequestHandler]:
        internet = self

        class Answer(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                internet.reached[self.request.getsockname()[0]] += 1
                with contextlib.suppress(OSError):
                    if self.request.recv(4096):
                        self.request.sendall(ANSWER)

        return Answer

    def discard(self) -> type[socketserver.BaseRequestHandler]:
        internet = self

        class Discard(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                internet.reached[FORBIDDEN] += 1

        return Discard

    def dns(self) -> type[socketserver.BaseRequestHandler]:
        internet = self

        class Dns(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                query, answers = self.request
                name, end = read_name(query)
                internet.asked[name] += 1
                answers.sendto(answer(query, name, end), self.client_address)

        return Dns

    def stop(self) -> None:
        for server in self.servers:
            server.shutdown()
            server.server_close()
        self.namespace.end()


def read_name(query: bytes) -> tuple[str, int]:
    """Read the name that a query is about, and where it ends."""
    labels, at = [], 12
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode())
        at += 1 + length
    return ".".join(labels).lower(), at + 1


def answer(query: bytes, name: str, end: int) -> bytes:
    """Answer a query for A records of a known name; other types are empty, other names unknown."""
    address = NAMES.get(name)
    is_a = query[end : end + 2] == b"\x00\x01"
    found = address is not None and is_a
    flags = 0x8180 if address is not None or not name else 0x8183
    head = query[:2] + struct.pack(">HHHHH", flags, 1, int(found), 0, 0)
    record = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + socket.inet_aton(address) if found else b""
    return head + query[12 : end + 4] + record


class Engine:
    """A Docker engine with a host of its own."""

    def __init__(self, images: list[str]) -> None:
        # The name of a socket has room for 107 characters.
        self.folder = Path(tempfile.mkdtemp(prefix="osb-engine-"))
        # In memory, the files of the images come and go in a moment.
        run("mount", "-t", "tmpfs", "-o", "size=2g", "tmpfs", str(self.folder))
        self.internet = Internet()
        self.namespace = Namespace()
        self.process: subprocess.Popen | None = None
        try:
            self.connect()
            self.internet.start()
            self.start(live_restore=False)
            self.load(images)
        except BaseException:
            self.end()
            raise

    def connect(self) -> None:
        """Give the host a public address, with the internet as its way out."""
        ours, theirs = self.namespace, self.internet.namespace
        ours.run("ip", "link", "add", "out", "type", "veth", "peer", "name", "in", "netns", str(theirs.keeper.pid))
        for namespace, device, address in ((ours, "out", HOST), (theirs, "in", ROUTER)):
            namespace.run("ip", "address", "add", f"{address}/24", "dev", device)
            namespace.run("ip", "link", "set", device, "up")
        ours.run("ip", "route", "add", "default", "via", ROUTER)

    @property
    def address(self) -> str:
        return f"unix://{self.folder}/engine.sock"

    @property
    def log(self) -> Path:
        return self.folder / "engine.log"

    def docker(self, *arguments: str) -> str:
        return run("docker", "--host", self.address, *arguments)

    def load(self, images: list[str]) -> None:
        """Copy images from the machine's engine."""
        saved = subprocess.Popen(["docker", "save", *images], stdout=subprocess.PIPE)
        run("docker", "--host", self.address, "load", stdin=saved.stdout)
        assert saved.wait() == 0, f"{images} cannot be saved"

    def start(self, live_restore: bool) -> None:
        """Start it. With `live_restore`, its containers outlive its end."""
        folder = self.folder
        command = ["dockerd", "--host", self.address, "--data-root", f"{folder}/data", "--exec-root", f"{folder}/run"]
        command += ["--pidfile", f"{folder}/engine.pid", *(["--live-restore"] if live_restore else [])]
        with self.log.open("ab") as log, self.namespace.entered():
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until("the engine answers", self.answers)

    def answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        asked = subprocess.run(["docker", "--host", self.address, "info", "--format", "{{.ID}}"], capture_output=True)
        return asked.returncode == 0

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.end_helper()

    def end_helper(self) -> None:
        """End the helper that a killed engine leaves behind. A new engine would wait for it in vain
        where no init process reaps it."""
        file = self.folder / "run/containerd/containerd.pid"
        if file.exists():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(file.read_text()), signal.SIGKILL)
            file.unlink()

    def container(self, sandbox_id: str, role: str = "") -> str:
        """Id of a container of a sandbox: its main one, or the sidecar with this role."""
        label = f"label=opensandbox.io/id={sandbox_id}"
        listed = self.docker("ps", "--all", "--no-trunc", "--filter", label, "--format", '{{.ID}} {{.Label "opensandbox.io/role"}}')
        found = [line.split() for line in listed.splitlines()]
        [container] = [words[0] for words in found if "".join(words[1:]) in ((role,) if role else ("", "main"))]
        return container

    def end_processes(self) -> None:
        """End what a killed engine left behind: its containers and their keepers."""
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if str(self.folder).encode() in file.read_bytes():
                    process = file.parent.name
                    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
                    # A child that ends meanwhile may be listed as 0, which would be this test's own group.
                    for ended in {int(word) for word in (process, *children)} - {0, os.getpid()}:
                        os.kill(ended, signal.SIGKILL)

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            if containers := self.docker("ps", "--all", "--quiet").split():
                self.docker("rm", "--force", "--volumes", *containers)
            # An orderly end takes seconds, and nothing of it is kept.
            self.kill()
        else:
            self.end_processes()
        self.namespace.end()
        self.internet.stop()
        for mount in reversed(sorted(line.split()[1] for line in Path("/proc/mounts").read_text().splitlines())):
            if Path(mount).is_relative_to(self.folder):
                subprocess.run(["umount", "--lazy", mount], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def egress_image() -> str:
    """Image of the sidecars of the server under test."""
    if missing := [name for name in OF_PROGRAM if name not in os.environ]:
        pytest.skip(f"needs a server program to kill: {' and '.join(missing)}")
    text = Path(os.environ["OPENSANDBOX_TEST_SERVER_CONFIG"]).read_text()
    section = re.search(r'(?m)^\[egress\]\n(?:(?!\[).*\n)*?image = "(.*)"', text)
    if section is None:
        pytest.skip("the server has no network policies: it needs [egress] image")
    return section[1]


def second_engine(image: str) -> Iterator[Engine]:
    """Start an engine that has the machine's images of sandboxes and sidecars."""
    images = [image, egress_image()]
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        pytest.skip(f"needs an engine to kill: there is no {' and no '.join(missing)}")
    if os.geteuid() != 0:
        pytest.skip("needs an engine to kill, and only root can start one")
    engine = Engine(images)
    try:
        yield engine
    finally:
        engine.end()
