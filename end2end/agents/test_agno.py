"""agno-opensandbox-toolkit: the tools that an agent of agno calls."""

import json

import pytest
from agno.agent import Agent
from agno_opensandbox_toolkit import OpenSandboxTools

LIMITS = {"cpu": "500m", "memory": "256Mi"}


@pytest.fixture(scope="session")
def new_tools(target, server, run_id):
    """Make tools with sandboxes of this run."""

    def make(**settings):
        return OpenSandboxTools(
            domain=target.address,
            api_key=target.api_key,
            image=target.image,
            sandbox_metadata={"suite": run_id},
            sandbox_resources=LIMITS,
            sandbox_env={"COLOUR": "grün & blau"},
            **settings,
        )

    yield make
    server.remove(server.ids(suite=run_id))


@pytest.fixture(scope="session")
def tools(new_tools):
    """Tools that share one sandbox, because they keep it."""
    return new_tools()


@pytest.fixture
def agent():
    return Agent(session_state={})


def status(tools, agent):
    return json.loads(tools.get_sandbox_status(agent))


def test_a_command_gives_its_lines(tools, agent):
    assert tools.run_shell_command(agent, "echo one; echo; echo $COLOUR") == "one\n\ngrün & blau"
    assert tools.run_shell_command(agent, "true") == "Command executed successfully with no output."


def test_a_command_that_fails_gives_its_errors_and_code(tools, agent):
    output = tools.run_shell_command(agent, "echo out; echo bad >&2; exit 3")
    assert output.startswith("out\nSTDERR:\nbad\nERROR: "), output
    assert "CommandExecError" in output
    assert "3" in output.rpartition("ERROR: ")[2]


def test_cd_is_kept_for_the_agent(tools, agent):
    assert tools.run_shell_command(agent, "pwd") == "/root"
    assert tools.change_directory(agent, "/usr") == "Changed directory to: /usr"
    assert tools.run_shell_command(agent, "cd lib") == "Changed directory to: /usr/lib"
    assert tools.run_shell_command(agent, "pwd") == "/usr/lib"
    assert tools.change_directory(agent, "/no/such") == "Error: Directory /no/such not found"
    assert tools.run_shell_command(agent, "pwd") == "/usr/lib"
    assert tools.run_shell_command(Agent(session_state={}), "pwd") == "/root"


def test_files_are_made_read_listed_and_deleted(tools, agent):
    text = "first\nzweite Zeile: ünïcödé 日本\n"
    assert tools.create_file(agent, "/tmp/agno/deep/a.txt", text) == "File created/updated: /tmp/agno/deep/a.txt"
    assert tools.read_file(agent, "/tmp/agno/deep/a.txt") == text
    tools.change_directory(agent, "/tmp/agno")
    assert tools.create_file(agent, "deep/a.txt", "other") == "File created/updated: /tmp/agno/deep/a.txt"
    assert tools.read_file(agent, "deep/a.txt") == "other"
    listed = tools.list_files(agent, "deep")
    assert listed.startswith("Contents of /tmp/agno/deep:\ntotal "), listed
    assert listed.endswith(" a.txt")
    assert tools.delete_file(agent, "deep/a.txt") == "Deleted: /tmp/agno/deep/a.txt"
    assert "a.txt" not in tools.list_files(agent, "deep")


def test_a_folder_is_deleted_with_what_is_in_it(tools, agent):
    tools.create_file(agent, "/tmp/folder/inside", "x")
    assert tools.delete_file(agent, "/tmp/folder") == "Deleted: /tmp/folder"
    assert tools.run_shell_command(agent, "ls -d /tmp/folder || echo gone").startswith("gone")


def test_a_missing_file_is_an_error_for_the_agent(tools, agent):
    answer = json.loads(tools.read_file(agent, "/no/such/file"))
    assert answer["status"] == "error"
    assert answer["message"].startswith("Error reading file: "), answer
    assert "No such file" in tools.list_files(agent, "/no/such")
    assert tools.delete_file(agent, "/no/such/file") == "Deleted: /no/such/file"


def test_a_sandbox_is_found_again_by_its_id(tools, agent, new_tools, server, run_id, target):
    found = status(tools, agent)
    assert found | {"sandbox_id": ...} == {
        "status": "success",
        "sandbox_id": ...,
        "image": target.image,
        "working_directory": "/root",
    }
    before = server.ids(suite=run_id)
    assert found["sandbox_id"] in before
    tools.create_file(agent, "/tmp/kept", "kept")

    by_session = new_tools()
    later = Agent(session_state={"opensandbox_id": found["sandbox_id"]})
    assert by_session.read_file(later, "/tmp/kept") == "kept"
    by_setting = new_tools(sandbox_id=found["sandbox_id"])
    assert by_setting.read_file(agent, "/tmp/kept") == "kept"
    assert server.ids(suite=run_id) == before


def test_a_sandbox_that_was_shut_down_is_replaced(new_tools, agent, server):
    first = new_tools()
    ended = status(first, agent)["sandbox_id"]
    assert agent.session_state["opensandbox_id"] == ended
    first.change_directory(agent, "/usr")
    assert json.loads(first.shutdown_sandbox(agent))["status"] == "success"
    assert agent.session_state == {}
    server.await_end(ended)

    agent.session_state["opensandbox_id"] = ended
    second = new_tools()
    assert second.run_shell_command(agent, "pwd") == "/root"
    replaced = status(second, agent)["sandbox_id"]
    assert replaced != ended
    assert agent.session_state["opensandbox_id"] == replaced
