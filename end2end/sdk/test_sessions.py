"""Shell sessions: the state that outlives a run."""

import threading
from datetime import timedelta

import pytest
from opensandbox.exceptions import SandboxApiException


@pytest.fixture
def session(box):
    session_id = box.commands.create_session(working_directory="/tmp")
    yield session_id
    try:
        box.commands.delete_session(session_id)
    except SandboxApiException as gone:
        assert gone.status_code == 404


def test_directory_and_variables_outlive_a_run(box, session):
    run = box.commands.run_in_session
    assert run(session, "pwd").text == "/tmp"
    value = "it's two\nlines with $HOME and \\ and ünïcödé"
    assert run(session, f"cd /usr; export KEPT={quoted(value)}; seq 1 30000").exit_code == 0
    assert run(session, 'pwd; echo "$KEPT"').text == f"/usr\n{value}"
    assert run(session, "pwd", working_directory="/var").text == "/var"
    assert run(session, "pwd").text == "/var"
    assert box.commands.run("echo [$KEPT]").text == "[]"


def test_the_status_of_a_run_is_its_exit_code(box, session):
    execution = box.commands.run_in_session(session, "export KEPT=1; sh -c 'echo out; echo err >&2; exit 7'")
    assert execution.id == session
    assert execution.exit_code == 7
    assert (execution.error.name, execution.error.value) == ("CommandExecError", "7")
    assert execution.complete is None
    assert [message.text for message in execution.logs.stdout] == ["out", "err"]
    assert box.commands.run_in_session(session, "echo $KEPT").text == "1"
    assert box.commands.run_in_session(session, "export KEPT=2; exit 3").exit_code == 3
    execution = box.commands.run_in_session(session, "echo $KEPT")
    assert (execution.text, execution.exit_code) == ("1", 0)
    assert execution.complete is not None


def test_a_timeout_ends_the_run_and_keeps_the_session(box, session):
    execution = box.commands.run_in_session(session, "sleep 600", timeout=timedelta(seconds=1))
    assert execution.error is not None
    assert execution.exit_code == -1
    assert box.commands.run_in_session(session, "echo still").text == "still"


@pytest.mark.parametrize("end", ["delete_session", "interrupt"])
def test_deleting_and_interrupting_end_what_runs(sdk, box, session, end):
    def when_it_runs(message):
        if message.text == "running":
            # In a separate thread, because the asyncio SDK calls handlers on its event loop.
            threading.Thread(target=getattr(box.commands, end), args=(session,)).start()

    handlers = sdk.handlers(on_stdout=when_it_runs)
    execution = box.commands.run_in_session(session, "echo running; sleep 600", handlers=handlers)
    assert execution.exit_code == -1
    with pytest.raises(SandboxApiException):
        box.commands.run_in_session(session, "true")


def test_sessions_do_not_see_each_other(box, session):
    other = box.commands.create_session()
    try:
        box.commands.run_in_session(session, "export ONLY_HERE=1")
        assert box.commands.run_in_session(other, "echo [$ONLY_HERE]").text == "[]"
    finally:
        box.commands.delete_session(other)


def test_a_missing_directory_is_refused(box, session):
    with pytest.raises(SandboxApiException) as refused:
        box.commands.run_in_session(session, "true", working_directory="/no/such/folder")
    assert refused.value.status_code == 400


def quoted(text):
    """Quote a text as one shell word."""
    return "'" + text.replace("'", "'\\''") + "'"
