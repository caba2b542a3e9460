"""Sandboxes of deepagents: langchain-opensandbox, and deepagents-opensandbox-backend.

Both give deepagents a command, an upload and a download; deepagents makes its file tools from these.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync

from waiting import patient

pytest.importorskip("deepagents", reason="deepagents needs Python 3.11 or newer")

#: Every byte, also those that are no text.
BINARY = bytes(range(256)) * 10

#: Errors of langchain-opensandbox do not say more: every download that fails is of a file that is missing.
MISSING = "file_not_found"


@dataclass
class Made:
    """A sandbox of one package."""

    package: str
    backend: Any
    kill: Callable[[], None]


def langchain(target, run_id):
    """A sandbox that its user makes, reached directly."""
    from langchain_opensandbox import OpenSandboxSandbox

    box = SandboxSync.create(
        target.image,
        resource={"cpu": "500m", "memory": "256Mi"},
        metadata={"suite": run_id},
        timeout=timedelta(minutes=10),
        ready_timeout=timedelta(seconds=patient(30)),
        connection_config=ConnectionConfigSync(domain=target.address, api_key=target.api_key),
    )
    return Made("langchain", OpenSandboxSandbox(sandbox=box), box.kill)


def deepagents(target, run_id):
    """A sandbox that the package makes, reached through the server."""
    package = pytest.importorskip(
        "deepagents_opensandbox_backend",
        reason="deepagents-opensandbox-backend needs Python 3.12 or newer",
    )
    backend = package.OpenSandboxBackend.create(
        domain=target.address,
        api_key=target.api_key,
        image=target.image,
        entrypoint=["sleep", "infinity"],
        use_server_proxy=True,
    )
    return Made("deepagents", backend, backend.kill)


@pytest.fixture(scope="session", params=[langchain, deepagents], ids=lambda make: make.__name__)
def made(request, target, server, run_id):
    """One sandbox for the tests that leave it as it was."""
    made = request.param(target, run_id)
    yield made
    server.remove([made.backend.id])


@pytest.fixture
def backend(made):
    return made.backend


@pytest.fixture
def folder(backend, request):
    """A folder for one test, removed afterwards."""
    path = f"/tmp/agents-{abs(hash(request.node.name)) % 10**8}"
    assert backend.execute(f"mkdir {path}").exit_code == 0
    yield path
    assert backend.execute(f"chmod -R u+rwX {path}; rm -r {path}").exit_code == 0


def test_a_command_gives_its_lines_and_code(backend):
    done = backend.execute("echo one; echo ünïcödé; echo bad >&2; exit 3")
    assert (done.output, done.exit_code) == ("one\nünïcödé\nbad", 3)
    # The event of a blank line has its newline, and both packages add another.
    assert backend.execute("echo one; echo; echo three").output == "one\n\n\nthree"
    good = backend.execute("seq 1 5000")
    assert good.output.split("\n") == [str(n) for n in range(1, 5001)]
    assert (good.exit_code, good.truncated) == (0, False)
    assert backend.execute("no-such-command-xyz").exit_code == 127


def test_a_timeout_ends_a_command(backend):
    late = backend.execute("echo early; sleep 600", timeout=1)
    assert late.output.startswith("early")
    assert late.exit_code == -1
    assert backend.execute("pgrep -f '[s]leep 600'").exit_code == 1
    assert backend.execute("echo in time", timeout=patient(60)).output == "in time"


def test_bytes_go_up_and_down_unchanged(backend, folder):
    files = {f"{folder}/{name}": BINARY for name in ("a.bin", "deep/er/b.bin")} | {f"{folder}/empty": b""}
    assert [(up.path, up.error) for up in backend.upload_files(list(files.items()))] == [(path, None) for path in files]
    assert {down.path: down.content for down in backend.download_files(list(files))} == files
    big = random.Random(7).randbytes(3_000_000)
    backend.upload_files([(f"{folder}/a.bin", big)])
    assert backend.download_files([f"{folder}/a.bin"])[0].content == big
    assert backend.execute(f"stat -c %s {folder}/a.bin").output == "3000000"


def test_each_download_has_its_own_error(made, backend, folder):
    backend.upload_files([(f"{folder}/there", b"x")])
    there, missing, directory = backend.download_files([f"{folder}/there", f"{folder}/missing", folder])
    assert (there.content, there.error) == (b"x", None)
    assert (missing.content, missing.error) == (None, MISSING)
    of_directory = {"langchain": MISSING, "deepagents": "is_directory"}
    assert (directory.content, directory.error) == (None, of_directory[made.package])


def test_a_file_without_permissions_is_roots_all_the_same(backend, folder):
    """execd is root, and no permission keeps root from a file."""
    path = f"{folder}/closed"
    backend.upload_files([(path, b"closed")])
    assert backend.execute(f"chmod 000 {path}").exit_code == 0
    assert backend.download_files([path])[0].content == b"closed"
    assert backend.upload_files([(path, b"opened")])[0].error is None
    assert backend.read(path).file_data["content"] == "opened"


def test_an_upload_where_no_file_can_be_is_an_error(made, backend, folder):
    """The kernel has no files there, or the name is that of a folder."""
    for path in ("/proc/no-such-file", folder):
        refused = backend.upload_files([(path, b"x")])[0]
        assert refused.path == path
        if made.package == "langchain":
            assert refused.error == "permission_denied"
        else:
            assert refused.error


def test_files_are_written_once_and_read_by_lines(backend, folder):
    path = f"{folder}/deep/er/note.txt"
    text = "".join(f"line {n}: ünïcödé 日本\n" for n in range(1, 101))
    assert backend.write(path, text).path == path
    assert "already exists" in backend.write(path, "other").error
    assert backend.read(path).file_data["content"] == text.rstrip("\n")
    page = backend.read(path, offset=9, limit=2).file_data
    assert page == {"encoding": "utf-8", "content": "line 10: ünïcödé 日本\nline 11: ünïcödé 日本"}
    assert "exceeds file length (100 lines)" in backend.read(path, offset=100).error
    assert backend.read(f"{folder}/missing").error.endswith("file_not_found")
    assert backend.read(folder).error.endswith("not_a_file")


def test_a_page_of_half_a_megabyte_is_one_line_of_output(backend, folder):
    path = f"{folder}/long.txt"
    backend.upload_files([(path, b"x" * 600_000)])
    content = backend.read(path).file_data["content"]
    assert content.startswith("x" * 500_000)
    assert "Output was truncated" in content


@pytest.mark.parametrize("size", [10, 60_000], ids=["small", "large"])
def test_files_are_edited(backend, folder, size):
    """Texts above 50,000 bytes are uploaded instead of being part of a command."""
    path, old, new = f"{folder}/edited.txt", "ä" * size, "'new'\n$HOME `x`"
    backend.write(path, f"{old}\nkept\n{old}\n")
    assert "multiple times" in backend.edit(path, old, new).error
    edited = backend.edit(path, old, new, replace_all=True)
    assert (edited.error, edited.occurrences) == (None, 2)
    assert backend.download_files([path])[0].content.decode() == f"{new}\nkept\n{new}\n"
    assert "not found in file" in backend.edit(path, old, new).error
    assert "not found" in backend.edit(f"{folder}/missing", old, new).error
    assert backend.execute("ls -a /tmp | grep -c deepagents_edit").output == "0"


def test_files_are_listed_and_found(backend, folder):
    texts = {"a.py": "one\nneedle: [x]\n", "b.txt": "needle: [x]\n", "sub/c.py": "none\n", "sub/d e:f.py": "needle: [x]\n"}
    backend.upload_files([(f"{folder}/{name}", text.encode()) for name, text in texts.items()])
    listed = {entry["path"]: entry["is_dir"] for entry in backend.ls(folder).entries}
    assert listed == {f"{folder}/a.py": False, f"{folder}/b.txt": False, f"{folder}/sub": True}
    assert backend.ls(f"{folder}/missing").error.endswith("path_not_found")

    found = backend.glob("**/*.py", folder).matches
    assert [match["path"] for match in found] == ["a.py", "sub/c.py", "sub/d e:f.py"]
    assert backend.glob("*", f"{folder}/missing").error.endswith("path_not_found")

    def matches(**where):
        found = backend.grep("needle: [x]", folder, **where).matches
        return sorted((match["path"], match["line"], match["text"]) for match in found)

    text = "needle: [x]"
    in_python = [(f"{folder}/a.py", 2, text), (f"{folder}/sub/d e:f.py", 1, text)]
    assert matches(glob="*.py") == in_python
    assert matches() == sorted([*in_python, (f"{folder}/b.txt", 1, text)])
    assert backend.grep("no such text", folder).matches == []


def test_the_same_without_blocking(backend, folder):
    """Each command waits for the others, so that they run side by side."""

    async def steps():
        others = " ".join(f"{folder}/{n}" for n in range(4))
        meet = f"until ls {others} >/dev/null 2>&1; do sleep 0.05; done; echo met"
        commands = [backend.aexecute(f"touch {folder}/{n}; {meet}", timeout=patient(60)) for n in range(4)]
        assert [(done.output, done.exit_code) for done in await asyncio.gather(*commands)] == [("met", 0)] * 4

        path = f"{folder}/note.txt"
        assert (await backend.awrite(path, "old")).error is None
        assert (await backend.aedit(path, "old", "new")).occurrences == 1
        assert (await backend.aread(path)).file_data["content"] == "new"
        assert len((await backend.als(folder)).entries) == 5
        assert (await backend.agrep("new", folder)).matches == [{"path": path, "line": 1, "text": "new"}]
        assert [match["path"] for match in (await backend.aglob("*.txt", folder)).matches] == ["note.txt"]
        assert (await backend.aupload_files([(path, BINARY)]))[0].error is None
        assert (await backend.adownload_files([path]))[0].content == BINARY

    asyncio.run(steps())


@pytest.mark.parametrize("make", [langchain, deepagents], ids=lambda make: make.__name__)
def test_a_sandbox_that_is_killed_is_gone(make, target, server, run_id):
    made = make(target, run_id)
    assert made.backend.execute("echo here").output == "here"
    made.kill()
    server.await_end(made.backend.id)
