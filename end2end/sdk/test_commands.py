"""Commands: streamed output, exit codes, background runs, interruption."""

import threading
from datetime import timedelta

import opensandbox
import pytest
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.execd import RunCommandOpts

from waiting import patient, wait_until


def test_output_arrives_while_the_command_runs(sdk, box):
    """The command continues only after it sees that its first line was received."""
    lines, errors, ids, completions = [], [], [], []

    def on_stdout(message):
        lines.append(message.text)
        if message.text == "first":
            # In a separate thread, because the asyncio SDK calls handlers on its event loop.
            threading.Thread(target=lambda: other.files.write_file("/tmp/go-on", "x")).start()

    other = sdk.connect(box.id)
    try:
        box.files.delete_files(["/tmp/go-on"])
        execution = box.commands.run(
            "echo first; while [ ! -e /tmp/go-on ]; do sleep 0.05; done; echo second; echo bad >&2",
            opts=RunCommandOpts(timeout=timedelta(seconds=patient(120))),
            handlers=sdk.handlers(
                on_stdout=on_stdout,
                on_stderr=lambda message: errors.append(message.text),
                on_init=lambda init: ids.append(init.id),
                on_execution_complete=completions.append,
            ),
        )
    finally:
        other.close()
    assert lines == ["first", "second"]
    assert errors == ["bad"]
    assert ids == [execution.id]
    assert len(completions) == 1
    assert execution.exit_code == 0


def test_a_line_is_one_event_without_its_newline(box):
    execution = box.commands.run("echo hello")
    assert [message.text for message in execution.logs.stdout] == ["hello"]
    assert execution.logs.stderr == []
    assert execution.error is None
    assert execution.complete.execution_time_in_millis >= 0


@pytest.mark.parametrize("code", [1, 2, 127, 255])
def test_exit_codes(box, code):
    execution = box.commands.run(f"echo out; echo err >&2; exit {code}")
    assert execution.exit_code == code
    assert execution.error.name == "CommandExecError"
    assert execution.error.value == str(code)
    assert execution.complete is None
    assert [message.text for message in execution.logs.stderr] == ["err"]


def test_an_unknown_command_is_named_on_stderr(box):
    execution = box.commands.run("no-such-command-xyz")
    assert execution.exit_code == 127
    assert "no-such-command-xyz" in execution.logs.stderr[0].text


def test_working_directory_and_environment_of_one_command(box):
    opts = RunCommandOpts(working_directory="/usr/lib", envs={"COLOUR": "grün & blau"})
    assert box.commands.run("pwd; echo $COLOUR", opts=opts).text == "/usr/lib\ngrün & blau"
    assert box.commands.run("echo [$COLOUR]").text == "[]"


def test_a_timeout_ends_the_command(box):
    execution = box.commands.run("sleep 600", opts=RunCommandOpts(timeout=timedelta(seconds=1)))
    assert execution.exit_code == -1
    assert execution.error is not None


def test_another_user_runs_the_command(box):
    execution = box.commands.run("id -u; id -g", opts=RunCommandOpts(uid=65534, gid=65534))
    assert execution.text == "65534\n65534"


def test_text_of_every_kind_survives(box):
    text = "tab\there “quotes” ünïcödé 日本 \\backslash \u2028 end"
    assert box.commands.run(f"printf '%s\\n' '{text}'").logs.stdout[0].text == text


def test_much_output_is_complete_and_in_order(box):
    execution = box.commands.run("seq 1 50000")
    assert [message.text for message in execution.logs.stdout] == [str(n) for n in range(1, 50001)]


def test_a_background_command_has_status_and_logs(box):
    script = "for n in 1 2 3; do echo line $n; sleep 0.2; done; exit 4"
    execution = box.commands.run(script, opts=RunCommandOpts(background=True))
    assert execution.id
    assert execution.exit_code is None
    status = box.commands.get_command_status(execution.id)
    assert status.content == script
    assert status.started_at is not None

    collected, cursor = "", None
    done = False
    while not done:
        done = not box.commands.get_command_status(execution.id).running
        logs = box.commands.get_background_command_logs(execution.id, cursor)
        collected, cursor = collected + logs.content, logs.cursor
    assert collected == "line 1\nline 2\nline 3\n"
    status = box.commands.get_command_status(execution.id)
    assert (status.exit_code, status.running) == (4, False)
    assert status.finished_at >= status.started_at
    assert box.commands.get_background_command_logs(execution.id, cursor).content == ""


def test_interrupting_ends_the_stream_with_an_error(sdk, box):
    ids: list[str] = []
    started = threading.Event()

    def interrupt():
        started.wait(patient(60))
        box.commands.interrupt(ids[0])

    thread = threading.Thread(target=interrupt)
    thread.start()

    def on_init(init):
        ids.append(init.id)
        started.set()

    execution = box.commands.run("sleep 600", handlers=sdk.handlers(on_init=on_init))
    thread.join()
    assert execution.id == ids[0]
    assert execution.error.name
    assert execution.error.value


def test_a_daemon_that_keeps_the_pipe_open_does_not_hold_the_stream(box):
    execution = box.commands.run("echo started; sleep 600 &")
    assert execution.exit_code == 0
    assert execution.text == "started"


def test_commands_run_side_by_side(sdk, box):
    """Each command waits for the other, so that sequential ones would never end."""
    results: dict[str, str] = {}

    def meet(mine: str, other: str):
        script = f"touch /tmp/met-{mine}; while [ ! -e /tmp/met-{other} ]; do sleep 0.05; done; echo {mine}"
        results[mine] = box.commands.run(script, opts=RunCommandOpts(timeout=timedelta(seconds=patient(120)))).text

    threads = [threading.Thread(target=meet, args=pair) for pair in (("a", "b"), ("b", "a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {"a": "a", "b": "b"}
    box.files.delete_files(["/tmp/met-a", "/tmp/met-b"])


def test_native_arguments_reach_the_program_unchanged(box):
    if opensandbox.__version__.startswith("0."):
        pytest.skip("the 0.1 SDK has no argv commands")
    execution = box.commands.run(["printf", "%s|", "$HOME", "", "it's \"quoted\"", "*"])
    assert execution.text == "$HOME||it's \"quoted\"|*|"


def test_set_variables_reach_later_commands(box):
    if not hasattr(box.commands, "set_env"):
        pytest.skip("the 0.1 SDK has no set_env")
    box.commands.set_env("STICKY", "it's here\nand there")
    assert box.commands.run("echo \"$STICKY\"").text == "it's here\nand there"


def test_status_of_an_unknown_command_is_an_error(box):
    with pytest.raises(SandboxApiException) as unknown:
        box.commands.get_command_status("0" * 32)
    assert unknown.value.status_code == 404


def test_a_working_directory_that_does_not_exist_is_refused(box):
    with pytest.raises(SandboxApiException) as refused:
        box.commands.run("true", opts=RunCommandOpts(working_directory="/no/such/folder"))
    assert refused.value.status_code == 400
    wait_until("the sandbox still answers", box.is_healthy)
