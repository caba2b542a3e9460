"""langchain-opensandbox finds the sandbox of a thread by its metadata, or makes one."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

pytest.importorskip("langchain_opensandbox", reason="langchain-opensandbox needs Python 3.11 or newer")

from deepagents import create_deep_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_opensandbox.factory import get_backend, get_sandbox
from langchain_opensandbox.tools import execute_python

#: Calls at the same time.
CALLERS = 5


class Scripted(GenericFakeChatModel):
    """A model that answers as a test says."""

    def bind_tools(self, tools, **settings):
        return self


@pytest.fixture
def threads(target, server, run_id):
    """Make the configuration of a thread, whose sandboxes are removed afterwards."""
    names = []

    def make():
        names.append(f"{run_id}-{len(names)}")
        return {
            "configurable": {
                "thread_id": names[-1],
                "opensandbox_url": target.address,
                "opensandbox_api_key": target.api_key,
                "opensandbox_image": target.image,
            }
        }

    yield make
    for name in names:
        server.remove(server.ids(thread_id=name))


def runtime(config):
    return SimpleNamespace(config=config)


def ids(server, config):
    return server.ids(thread_id=config["configurable"]["thread_id"])


def test_a_thread_has_one_sandbox_and_another_thread_another(threads, server):
    one, other = threads(), threads()
    first, second, third = get_backend(runtime(one)), get_backend(runtime(one)), get_backend(runtime(other))
    assert ids(server, one) == [], "no call has reached the sandbox yet"
    assert first.write("/tmp/note.txt", "kept").error is None
    assert second.read("/tmp/note.txt").file_data["content"] == "kept"
    assert third.read("/tmp/note.txt").error.endswith("file_not_found")
    assert ids(server, one) == [first.id] == [second.id]
    assert ids(server, other) == [third.id] != [first.id]


def test_a_sandbox_that_ended_is_replaced_at_once(threads, server):
    config = threads()
    first = get_sandbox(runtime(config))
    first.kill()
    second = get_sandbox(runtime(config))
    assert second.id != first.id
    assert second.commands.run("echo here").text == "here"
    server.await_end(first.id)


def test_threads_of_the_client_that_come_first_share_one_sandbox(threads, server):
    config = threads()
    with ThreadPoolExecutor(CALLERS) as pool:
        boxes = list(pool.map(get_sandbox, [runtime(config)] * CALLERS))
    assert {box.id for box in boxes} == set(ids(server, config))
    assert len(ids(server, config)) == 1


def test_tasks_that_come_first_share_one_sandbox(threads, server):
    config = threads()

    async def steps():
        backends = [get_backend(runtime(config)) for _ in range(CALLERS)]
        written = [backend.awrite(f"/tmp/tasks/{n}", str(n)) for n, backend in enumerate(backends)]
        assert [done.error for done in await asyncio.gather(*written)] == [None] * CALLERS
        listed = await backends[0].als("/tmp/tasks")
        assert sorted(entry["path"] for entry in listed.entries) == [f"/tmp/tasks/{n}" for n in range(CALLERS)]
        late = await backends[0].aexecute("sleep 600", timeout=1)
        assert late.exit_code == -1
        (down,) = await backends[1].adownload_files(["/tmp/tasks/3"])
        assert down.content == b"3"
        for backend in backends:
            await backend.aclose()

    asyncio.run(steps())
    assert len(ids(server, config)) == 1


def test_code_is_run_in_the_sandbox_of_the_thread(threads, server):
    config = threads()

    def run(code):
        return asyncio.run(execute_python.coroutine(code=code, runtime=runtime(config)))

    assert run("import os\nprint('one')\nprint(len(os.sched_getaffinity(0)) > 0)") == "one\nTrue"
    assert run("x = 1") == "(no output)"
    failed = run("import sys\nprint('bad', file=sys.stderr)\nsys.exit(3)")
    assert failed == "Execution failed (exit 3):\nbad"
    assert len(ids(server, config)) == 1


def test_an_agent_writes_and_reads_in_one_sandbox(threads, server):
    """The first turn of the agent has several calls at once, each with a backend of its own."""
    config = threads()

    def call(number, name, **arguments):
        return {"name": name, "args": arguments, "id": f"call-{number}"}

    files = [f"/work/{n}.txt" for n in range(3)]
    turns = [
        AIMessage("", tool_calls=[call(n, "write_file", file_path=path, content=f"text {n}") for n, path in enumerate(files)]),
        AIMessage("", tool_calls=[call(3, "ls", path="/work"), call(4, "execute", command="cat /work/*; exit 3")]),
        AIMessage("done"),
    ]
    agent = create_deep_agent(model=Scripted(messages=iter(turns)), backend=get_backend)
    state = agent.invoke({"messages": "write three files"}, config)
    answers = {said.tool_call_id: said.text for said in state["messages"] if isinstance(said, ToolMessage)}
    assert state["messages"][-1].text == "done"
    assert all(path in answers["call-3"] for path in files), answers
    assert "text 0\ntext 1\ntext 2" in answers["call-4"] or "text 0text 1text 2" in answers["call-4"], answers
    assert "exit code 3" in answers["call-4"], answers
    assert len(ids(server, config)) == 1
