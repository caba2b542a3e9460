"""A second server, which tests may kill."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from conftest import KEY, Api
from target import OF_PROGRAM, Target, free_port
from waiting import PATIENCE, patient, wait_until

#: Address of the store, in the settings of a server on PostgreSQL.
DSN = re.compile(r'(?m)^dsn = "(.*)"')


@contextlib.contextmanager
def database_beside(url: str) -> Iterator[str]:
    """Make a database on the same PostgreSQL for a while, because a database has room for one server."""
    if shutil.which("psql") is None:
        pytest.skip("needs a database of its own: there is no psql")
    name = f"second_{uuid.uuid4().hex}"

    def run(statement: str) -> None:
        subprocess.run(["psql", "--no-psqlrc", "--quiet", url, "--command", statement], check=True, timeout=PATIENCE)

    run(f"CREATE DATABASE {name}")
    try:
        yield urlsplit(url)._replace(path=f"/{name}").geturl()
    finally:
        run(f"DROP DATABASE {name} WITH (FORCE)")


@contextlib.contextmanager
def settings(folder: Path) -> Iterator[str]:
    """Give the settings of the server under test a store of the same kind that is not its own."""
    text = Path(os.environ["OPENSANDBOX_TEST_SERVER_CONFIG"]).read_text()
    text = re.sub(r'(?m)^path = ".*"', f'path = "{folder}/store.db"', text)
    dsn = DSN.search(text)
    if dsn is None:
        yield text
        return
    with database_beside(dsn[1]) as own:
        yield DSN.sub(f'dsn = "{own}"', text)


class Server:
    """Same program and settings as the one under test, other port and store."""

    def __init__(self, folder: Path, text: str, image: str, run_id: str):
        self.port = free_port()
        text = re.sub(r"(?m)^port = \d+", f"port = {self.port}", text)
        #: Whether its store is in a database, not in a file.
        self.has_database = DSN.search(text) is not None
        self.key = re.search(r'(?m)^api_key = "(.*)"', text)[1]
        self.config = folder / "config.toml"
        self.config.write_text(text)
        self.log = folder / "server.log"
        self.process: subprocess.Popen | None = None
        url = f"http://127.0.0.1:{self.port}"
        http = httpx.Client(base_url=url, headers={KEY: self.key}, timeout=PATIENCE)
        self.api = Api(http, Target(url, self.key, image), run_id)

    def start(self, **settings: Any) -> None:
        program = os.environ["OPENSANDBOX_TEST_SERVER_BINARY"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([program, "--config", self.config], stdin=subprocess.DEVNULL, stdout=log, stderr=log, **settings)
        wait_until("the server is ready", self.ready)

    def ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        try:
            return self.api.http.get("/ready").status_code == 200
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(patient(60))
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise


@pytest.fixture
def server(tmp_path: Path, target: Target, run_id: str) -> Iterator[Server]:
    missing = [name for name in OF_PROGRAM if name not in os.environ]
    if missing:
        pytest.skip(f"needs a server program to kill: {' and '.join(missing)}")
    with settings(tmp_path) as text:
        server = Server(tmp_path, text, target.image, run_id)
        try:
            server.start()
            yield server
            if server.process.poll() is not None:
                server.start()
            for sandbox in server.api.http.get("/v1/sandboxes", params={"pageSize": 200}).json()["items"]:
                server.api.delete(sandbox["id"])
        finally:
            server.stop()
