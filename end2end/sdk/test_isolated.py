"""Isolated sessions: their state, their view of the sandbox, and what stays outside."""

import contextlib
import hashlib
import random
import threading

import httpx
import pytest
from opensandbox.exceptions import SandboxApiException
from opensandbox.models import isolated
from opensandbox.models.filesystem import (
    ContentReplaceEntry,
    DirectoryListEntry,
    MoveEntry,
    SearchEntry,
    SetPermissionEntry,
    WriteEntry,
)
from opensandbox.models.isolated import (
    BindMount,
    CreateIsolatedSessionRequest,
    EnvPassthroughSpec,
    IsolatedRunOpts,
    IsolatedWorkspaceSpec,
)

from waiting import PATIENCE, patient, wait_until

needs_overlays = pytest.mark.skipif(
    not hasattr(isolated, "IsolatedOverlaySpec"), reason="the 0.1 SDK knows one workspace and no overlays"
)


def session_request(path, mode=None, **more):
    return CreateIsolatedSessionRequest(workspace=IsolatedWorkspaceSpec(path=path, mode=mode), **more)


def refusal(call, *arguments, **settings):
    """Return the status of the error that a call must raise."""
    with pytest.raises(SandboxApiException) as refused:
        call(*arguments, **settings)
    return refused.value.status_code


@pytest.fixture(scope="session")
def cell(sdk):
    """A sandbox whose execd may create isolated sessions."""
    return sdk.create(
        extensions={"bootstrap.execd.isolation": "enable"},
        env={"PLAIN": "seen", "SOME_API_KEY": "secret"},
    )


@pytest.fixture
def folder(cell, request):
    """A folder with two files, removed afterwards."""
    path = f"/data/isolated-{abs(hash(request.node.name)) % 10**8}"
    made = cell.commands.run(f"mkdir -p {path}/deep && cd {path} && echo old > old.txt && echo deep > deep/f")
    assert made.exit_code == 0
    yield path
    cell.files.delete_directories([path])


@pytest.fixture
def open_session(cell, folder):
    """Create sessions that are deleted afterwards."""

    def forget(session):
        try:
            session.delete()
        except SandboxApiException as gone:
            assert gone.status_code == 404

    with contextlib.ExitStack() as sessions:

        def make(*arguments, **settings):
            session = cell.isolation.create(session_request(*arguments, **settings))
            sessions.callback(forget, session)
            return session

        yield make


@pytest.fixture
def session(open_session, folder):
    """A session with an overlay over the folder."""
    return open_session(folder)


def raw(box, method, path, **settings):
    """Send a request that the SDK has no method for."""
    endpoint = box.get_endpoint(44772)
    url = f"http://{endpoint.endpoint}/v1/isolated/{path}"
    return httpx.request(method, url, headers=endpoint.headers, timeout=PATIENCE, **settings)


def test_capabilities_are_reported(cell):
    capabilities = cell.isolation.capabilities()
    assert (capabilities.available, capabilities.message) == (True, None)
    assert capabilities.setpriv_available and capabilities.diff_supported and capabilities.commit_supported
    assert capabilities.isolator and capabilities.version
    assert (capabilities.hardening.init_mode, capabilities.hardening.seccomp.state) == ("pid1", "active")


def test_without_the_extension_the_reason_is_reported_and_the_sandbox_works(box):
    capabilities = box.isolation.capabilities()
    assert capabilities.available is False
    assert "bootstrap.execd.isolation" in capabilities.message
    assert refusal(box.isolation.create, session_request("/data")) == 503
    assert box.commands.run("echo fine").text == "fine"


@pytest.mark.parametrize("value", ["", "true", "Enable", "disable"])
def test_another_value_of_the_extension_is_refused_by_its_name(sdk, value):
    with pytest.raises(SandboxApiException) as refused:
        sdk.create(extensions={"bootstrap.execd.isolation": value})
    assert refused.value.status_code == 400
    assert "extensions.bootstrap.execd.isolation" in str(refused.value)


def test_the_extension_is_not_returned(cell):
    info = cell.get_info()
    assert "isolation" not in info.model_dump_json()


def test_output_arrives_while_the_code_runs(sdk, cell, session):
    """The code continues only after it sees that its first line was received."""
    lines, errors, ids, completions = [], [], [], []

    def on_stdout(message):
        lines.append(message.text)
        if message.text == "first":
            # In a separate thread, because the asyncio SDK calls handlers on its event loop.
            threading.Thread(target=lambda: again.files.write_file("go-on", "x")).start()

    other = sdk.connect(cell.id)
    try:
        again = other.isolation.attach(session.session_id)
        execution = session.run(
            "echo first; while [ ! -e go-on ]; do sleep 0.05; done; echo second; echo bad >&2",
            opts=IsolatedRunOpts(timeout_seconds=PATIENCE),
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


@pytest.mark.parametrize("code", [1, 3, 127, 255])
def test_exit_codes(session, code):
    execution = session.run(f"echo out; echo err >&2; exit {code}")
    assert execution.exit_code == code
    assert (execution.error.name, execution.error.value) == ("ExitError", str(code))
    assert execution.complete is None
    assert [message.text for message in execution.logs.stdout] == ["out"]
    assert [message.text for message in execution.logs.stderr] == ["err"]
    assert session.run("echo still").text == "still"


def test_much_output_is_complete_and_in_order(session):
    execution = session.run("seq 1 20000; head -c 300000 /dev/zero | tr '\\0' x; printf '\\n\u2028 \u0085 日本\\n'")
    lines = [message.text for message in execution.logs.stdout]
    assert lines[:20000] == [str(n) for n in range(1, 20001)]
    assert lines[20000:] == ["x" * 300000, "\u2028 \u0085 日本"]


def test_the_state_of_the_shell_outlives_runs(open_session, session, folder):
    kept = "export KEPT=\"it's two\nlines\"; PLAIN=p; greet() { echo \"hello $1\"; }; cd /usr; sh -c 'exit 7'"
    assert session.run(kept).exit_code == 7
    ask = 'pwd; echo "$KEPT, $PLAIN"; greet you'
    want = "/usr\nit's two\nlines, p\nhello you"
    assert session.run(ask).text == want
    # A run that does not complete leaves the state unchanged.
    assert session.run("KEPT=lost; cd /; exit 3").exit_code == 3
    assert session.run(ask).text == want
    other = open_session(folder)
    assert other.run('pwd; echo "[$KEPT]"').text == f"{folder}\n[]"


def test_variables_of_one_run_do_not_outlive_it(session):
    once = IsolatedRunOpts(envs={"ONCE": "it's grün\nand two lines", "PLAIN": "other"})
    assert session.run('echo "$ONCE"; echo $PLAIN; KEPT=$ONCE', opts=once).text == "it's grün\nand two lines\nother"
    assert session.run('echo "[$ONCE] $PLAIN"; echo "$KEPT"').text == "[] seen\nit's grün\nand two lines"


def test_a_timeout_ends_the_run_and_keeps_the_session(session):
    session.run("KEPT=1")
    execution = session.run("KEPT=2; echo begun; sleep 600", opts=IsolatedRunOpts(timeout_seconds=patient(1)))
    assert [message.text for message in execution.logs.stdout] == ["begun"]
    assert (execution.exit_code, execution.error.name) == (None, "TimeoutError")
    assert session.run("echo $KEPT").text == "1"


def test_runs_of_a_session_wait_for_each_other_and_sessions_do_not(open_session, session, folder):
    """Two sessions wait for each other in a shared directory; sequential ones would never end."""
    shared = f"{folder}/deep"
    first, second = open_session(shared, "rw"), open_session(shared, "rw")
    results = {}

    def meet(who, mine, other):
        code = f"touch met-{mine}; while [ ! -e met-{other} ]; do sleep 0.05; done; echo {mine}"
        results[mine] = who.run(code, opts=IsolatedRunOpts(timeout_seconds=PATIENCE)).text

    threads = [threading.Thread(target=meet, args=pair) for pair in ((first, "a", "b"), (second, "b", "a"))]
    # Overlapping runs would lose increments.
    count = "n=$(cat count 2> /dev/null || echo 0); sleep 0.1; echo $((n + 1)) > count"
    threads += [threading.Thread(target=session.run, args=(count,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {"a": "a", "b": "b"}
    assert session.run("cat count").text == "3"


def collected(session, run):
    """Return all output of a background run, and the last cursor."""
    text, cursor, done = "", 0, False
    while not done:
        done = not session.run_status(run.run_id).running
        logs = session.run_logs(run.run_id, cursor)
        text, cursor = text + logs.text, logs.cursor
    return text, cursor


def test_a_background_run_has_status_and_logs(session, folder):
    session.run("cd deep; export KEPT=kept")
    code = "for n in 1 2 3; do echo $n $KEPT $ONCE; sleep 0.1; done; pwd >&2; exit 7"
    run = session.run_background(code, opts=IsolatedRunOpts(envs={"ONCE": "ünce"}))
    assert run.session_id == session.session_id
    text, cursor = collected(session, run)
    assert text == f"1 kept ünce\n2 kept ünce\n3 kept ünce\n{folder}/deep\n"
    status = session.run_status(run.run_id)
    assert (status.running, status.exit_code, status.error) == (False, 7, None)
    assert run.started_at == status.started_at <= status.finished_at
    for beyond in (cursor, cursor + 10**6):
        logs = session.run_logs(run.run_id, beyond)
        assert (logs.text, logs.cursor) == ("", cursor)
    assert session.run_logs(run.run_id, cursor - 5).text == "deep\n"


def test_a_background_run_goes_on_beside_others(session):
    run = session.run_background("while [ ! -e go-on ]; do sleep 0.05; done; echo went on; KEPT=no")
    busy = session.run("echo busy")
    assert [message.text for message in busy.logs.stdout] == ["busy"]
    status = session.run_status(run.run_id)
    assert (status.running, status.exit_code, status.finished_at) == (True, None, None)
    session.run("touch go-on")
    assert collected(session, run)[0] == "went on\n"
    assert session.run_status(run.run_id).exit_code == 0
    assert session.run("echo [$KEPT]").text == "[]"
    assert session.run("ls -A").text == "deep\ngo-on\nold.txt", "nothing of ours lies in the workspace"


def test_a_background_run_belongs_to_its_session(open_session, session, folder):
    run = session.run_background("echo mine; exec sleep 600")
    other = open_session(folder, "ro")
    assert refusal(other.run_status, run.run_id) == 404
    assert refusal(other.run_logs, run.run_id) == 404
    assert refusal(other.run_background, "true") == 400
    session.delete()
    assert refusal(session.run_status, run.run_id) == 404


def test_files_are_the_same_from_inside_and_outside(cell, session, folder):
    data = random.Random(7).randbytes(8_000_000)
    session.files.write_files(
        [
            WriteEntry(path=f"{folder}/note.txt", data="ünïcödé\nsecond\nthird\n", mode=640),
            WriteEntry(path="new/er/big", data=data),
        ]
    )
    inside = session.run("head -1 note.txt; stat -c %a note.txt; sha256sum new/er/big | cut -c-64").text
    assert inside == f"ünïcödé\n640\n{hashlib.sha256(data).hexdigest()}"
    session.run("echo changed > old.txt; rm -r deep; echo made > made.txt")
    assert session.files.read_file(f"{folder}/old.txt") == "changed\n"
    assert session.files.read_file("made.txt") == "made\n"
    assert session.files.read_file(f"{folder}/note.txt", offset=2, limit=1) == "second"
    assert session.files.read_bytes("new/er/big") == data
    assert session.files.read_bytes("new/er/big", range_header="bytes=1-3") == data[1:4]
    assert b"".join(session.files.read_bytes_stream("new/er/big")) == data
    assert refusal(session.files.read_file, f"{folder}/deep/f") == 404
    # None of the changes reached the sandbox.
    assert cell.commands.run(f"cd {folder}; find . -type f | sort; cat old.txt").text == "./deep/f\n./old.txt\nold"


def test_every_call_of_files(session, folder):
    files = session.files
    files.create_directories([WriteEntry(path=f"{folder}/made", mode=700)])
    files.write_file(f"{folder}/made/a.txt", "old old")
    detailed = files.replace_contents_detailed(
        [ContentReplaceEntry(path=f"{folder}/made/a.txt", old_content="old", new_content="new")]
    )
    assert [result.replaced_count for result in detailed] == [2]
    files.replace_contents([ContentReplaceEntry(path=f"{folder}/made/a.txt", old_content="new new", new_content="ok")])
    files.set_permissions([SetPermissionEntry(path=f"{folder}/made/a.txt", mode=600)])
    files.move_files([MoveEntry(source=f"{folder}/made/a.txt", destination=f"{folder}/made/b.txt")])
    info = files.get_file_info([f"{folder}/made/b.txt"])[f"{folder}/made/b.txt"]
    assert (info.path, info.mode, info.size, info.owner) == (f"{folder}/made/b.txt", 600, 2, "root")
    found = files.search(SearchEntry(path=folder, pattern="*.txt"))
    assert sorted(entry.path for entry in found) == [f"{folder}/made/b.txt", f"{folder}/old.txt"]
    listed = files.list_directory(DirectoryListEntry(path=folder, depth=2))
    want = ["deep", "deep/f", "made", "made/b.txt", "old.txt"]
    assert [entry.path for entry in listed] == [f"{folder}/{name}" for name in want]
    files.delete_files([f"{folder}/made/b.txt"])
    files.delete_directories([f"{folder}/deep"])
    assert session.run("find . -type f").text == "./old.txt"


def test_paths_outside_the_workspace_are_refused(session, folder):
    session.run("ln -s /etc/passwd out; ln -s .. up")
    for path in ("/etc/passwd", f"{folder}/../x", "out", "up/x"):
        assert refusal(session.files.read_file, path) == 400, path
        assert refusal(session.files.write_file, path, "x") == 400, path


@pytest.mark.parametrize(("mode", "outside"), [("overlay", "old"), ("rw", "new")])
def test_writes_stay_in_an_overlay_and_go_through_a_bind(cell, open_session, folder, mode, outside):
    session = open_session(folder, mode)
    session.run("echo new > old.txt")
    session.files.write_file(f"{folder}/more.txt", "more")
    assert session.run("cat old.txt more.txt").text == "new\nmore"
    assert cell.commands.run(f"cat {folder}/old.txt").text == outside
    session.delete()
    assert cell.commands.run(f"cat {folder}/old.txt").text == outside
    assert cell.commands.run(f"test -e {folder}/more.txt").exit_code == (1 if mode == "overlay" else 0)


def test_nothing_is_written_to_a_read_only_workspace(open_session, folder):
    session = open_session(folder, "ro")
    assert session.run("cat old.txt; echo new > old.txt").exit_code != 0
    assert session.files.read_file("old.txt") == "old\n"
    assert refusal(session.files.write_file, "old.txt", "new") == 403


@needs_overlays
def test_overlays_of_every_kind_in_one_session(cell, folder):
    kinds = {
        "disk": {"mode": "overlay", "persist": True},
        "memory": {"mode": "overlay", "persist": False},
        "through": {"mode": "rw"},
        "fixed": {"mode": "ro"},
        "through/over": {"mode": "overlay"},
    }
    cell.commands.run(f"cd {folder}; for d in {' '.join(kinds)}; do mkdir $d; echo old > $d/f; done")
    overlays = [isolated.IsolatedOverlaySpec(path=f"{folder}/{name}", **kind) for name, kind in kinds.items()]
    with cell.isolation.session(CreateIsolatedSessionRequest(overlays=overlays)) as session:
        info = cell.isolation.attach(session.session_id).info
        assert info.workspace is None
        assert [(overlay.path, overlay.mode, overlay.persist) for overlay in info.overlays] == [
            (f"{folder}/{name}", kind["mode"], kind.get("persist", True if kind["mode"] == "overlay" else None))
            for name, kind in kinds.items()
        ]
        session.run(f"cd {folder}; for d in {' '.join(kinds)}; do echo new > $d/f; done 2> /dev/null")
        for name in kinds:
            want = "old\n" if name == "fixed" else "new\n"
            assert session.files.read_file(f"{folder}/{name}/f") == want, name
        session.files.write_file(f"{folder}/memory/g", "made by a call")
        assert session.run(f"cat {folder}/memory/g").text == "made by a call"
        assert session.run("pwd").text == folder
        assert refusal(session.files.write_file, f"{folder}/old.txt", "x") == 400
    seen = cell.commands.run(f"cd {folder}; for d in {' '.join(kinds)}; do cat $d/f; done; ls memory").text
    assert seen.split() == ["old", "old", "new", "old", "old", "f"]


def test_written_programs_can_be_run(session):
    session.files.write_file("by-call", "#!/bin/sh\necho by call\n", mode=755)
    assert session.run("printf '#!/bin/sh\\necho by code\\n' > by-code; chmod +x by-code; ./by-call; ./by-code").text == (
        "by call\nby code"
    )


def test_changes_are_listed_and_applied(cell, session, folder):
    path = f"session/{session.session_id}"
    assert raw(cell, "GET", f"{path}/diff").json() == {"changes": [], "truncated": False}
    session.run("KEPT=1; echo newer > old.txt; rm deep/f; mkdir more; echo x > more/y")
    diff = raw(cell, "GET", f"{path}/diff").json()
    assert [(change["change"], change["path"], change.get("type")) for change in diff["changes"]] == [
        ("deleted", f"{folder}/deep/f", None),
        ("added", f"{folder}/more", "directory"),
        ("added", f"{folder}/more/y", "file"),
        ("modified", f"{folder}/old.txt", "file"),
    ]
    assert cell.files.read_file(f"{folder}/old.txt") == "old\n"
    assert raw(cell, "POST", f"{path}/commit").json() == {"changes": 4}
    seen = cell.commands.run(f"cd {folder}; find . -type f | sort; cat old.txt").text
    assert seen == "./more/y\n./old.txt\nnewer"
    assert raw(cell, "GET", f"{path}/diff").json()["changes"] == []
    assert session.run("echo $KEPT; cat old.txt").text == "1\nnewer"


def test_changes_are_discarded(cell, session, folder):
    path = f"session/{session.session_id}"
    session.run("KEPT=1; echo newer > old.txt; rm -r deep")
    assert raw(cell, "POST", f"{path}/discard").json()["changes"] >= 2
    assert session.run("echo $KEPT; cat old.txt deep/f").text == "1\nold\ndeep"
    assert cell.files.read_file(f"{folder}/old.txt") == "old\n"


def test_sessions_are_listed_found_again_and_deleted(cell, open_session, folder):
    first, second = open_session(folder, idle_timeout_seconds=300), open_session(folder)
    listed = {entry.session_id: entry for entry in cell.isolation.list()}
    assert {first.session_id, second.session_id} <= listed.keys()
    entry = listed[first.session_id]
    assert (entry.status, entry.created_at) == ("active", entry.last_run_at)
    assert 0 < entry.idle_remaining_seconds <= 300
    assert listed[second.session_id].idle_remaining_seconds is None
    first.run("KEPT=1")
    again = cell.isolation.attach(first.session_id)
    assert again.run("echo $KEPT").text == "1"
    assert (again.info.workspace.path, again.info.workspace.mode) == (folder, "overlay")
    assert (again.info.profile, again.info.uid, again.info.uid_mode) == ("strict", 0, "setpriv")
    assert again.info.idle_timeout_seconds == 300
    state = first.get()
    assert state.status == "active"
    assert state.created_at < state.last_run_at
    first.delete()
    assert first.session_id not in {entry.session_id for entry in cell.isolation.list()}
    for call in (
        first.get,
        first.delete,
        lambda: first.run("true"),
        lambda: first.run_background("true"),
        lambda: first.files.read_file("old.txt"),
        lambda: first.files.get_file_info(["old.txt"]),
        lambda: cell.isolation.attach(first.session_id),
    ):
        assert refusal(call) == 404
    assert second.run("cat old.txt").text == "old"


def test_the_sdk_s_helpers_leave_no_session_behind(cell, folder):
    before = {entry.session_id for entry in cell.isolation.list()}
    once = cell.isolation.run_once("cat old.txt; exit 4", workspace=folder, workspace_mode="ro", profile="balanced")
    assert (once.exit_code, once.logs.stdout[0].text) == (4, "old")
    with cell.isolation.session(session_request(folder)) as session:
        assert session.run("pwd").text == folder
    assert {entry.session_id for entry in cell.isolation.list()} == before


def test_an_idle_session_expires(cell, open_session, folder):
    idle = open_session(folder, idle_timeout_seconds=1)
    known = lambda: idle.session_id in {entry.session_id for entry in cell.isolation.list()}  # noqa: E731
    wait_until("the session expires", lambda: not known())
    assert refusal(idle.get) == 404


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("workspace", IsolatedWorkspaceSpec(path="relative")),
        ("workspace", IsolatedWorkspaceSpec(path="/data/../etc")),
        ("workspace", IsolatedWorkspaceSpec(path="/data/")),
        ("workspace", IsolatedWorkspaceSpec(path="/proc/x")),
        ("workspace", IsolatedWorkspaceSpec(path="/data", mode="w")),
        ("profile", "loose"),
        ("uid_mode", "sudo"),
        ("idle_timeout_seconds", -1),
        ("extra_writable", ["/etc"]),
        ("extra_writable", ["/data/no/such"]),
        ("binds", [BindMount(source="/etc", dest="/mnt")]),
        ("binds", [BindMount(source="")]),
        ("env_passthrough", EnvPassthroughSpec(mode="some")),
    ],
)
def test_requests_that_break_a_rule_are_refused(cell, member, value):
    request = session_request("/data").model_copy(update={member: value})
    assert refusal(cell.isolation.create, request) == 400


@needs_overlays
def test_overlays_that_break_a_rule_are_refused(cell):
    overlay = isolated.IsolatedOverlaySpec
    for overlays in (
        None,
        [],
        [overlay(path="/data"), overlay(path="/data", mode="ro")],
        [overlay(path="/data", mode="rw", persist=True)],
        [overlay(path=f"/data/{n}") for n in range(17)],
    ):
        assert refusal(cell.isolation.create, CreateIsolatedSessionRequest(overlays=overlays)) == 400, overlays


def test_runs_that_break_a_rule_are_refused(cell, session):
    path = f"session/{session.session_id}/run"
    for body in ({}, {"code": ""}, {"code": "true", "timeout_seconds": -1}, {"code": "true", "envs": {"A=B": "1"}}, []):
        assert raw(cell, "POST", path, json=body).status_code == 400, body
    run = session.run_background("true")
    for cursor in ("abc", "-1"):
        answer = raw(cell, "GET", f"session/{session.session_id}/runs/{run.run_id}/logs?cursor={cursor}")
        assert answer.status_code == 400


def test_a_session_has_few_rights(cell, session):
    sleeper = cell.commands.run("sleep 98765 > /dev/null 2>&1 & echo $!")
    assert session.run("ps -e -o args= | grep -c '[s]leep 98765'").text == "0"
    assert session.run("hostname").text == "sandbox"
    cell.commands.run(f"kill {sleeper.text}")
    status = "sed -n 's/^\\(CapEff\\|CapBnd\\|NoNewPrivs\\|Seccomp\\):\\s*//p' /proc/self/status"
    assert session.run(status).text == f"{0:016x}\n{0:016x}\n1\n2"
    for forbidden in (
        "touch /usr/x",
        "mount -t tmpfs none /mnt",
        "unshare --mount true",
        "[ -w /proc/sys/kernel/core_pattern ]",
        "[ -w /proc/sysrq-trigger ]",
        "ls /var/lib/execd/isolation/*",
    ):
        assert session.run(forbidden).exit_code != 0, forbidden
    # Paths that are writable in the sandbox are read-only in the session.
    assert cell.commands.run("[ -w /proc/sys/kernel/core_pattern ]").exit_code == 0
    # Set-uid programs have no effect anywhere in the sandbox.
    assert cell.commands.run("sed -n 's/^NoNewPrivs:\\s*//p' /proc/self/status").text == "1"


def test_secrets_stay_outside(open_session, session, folder):
    assert session.run('echo "[$SOME_API_KEY] $PLAIN"; env | grep -c ^EXECD').text == "[] seen\n0"
    allowed = open_session(folder, env_passthrough=EnvPassthroughSpec(mode="allow", keys=["PATH", "SOME_API_KEY"]))
    assert allowed.run('echo "$SOME_API_KEY [$PLAIN]"').text == "secret []"


def test_a_session_runs_as_the_requested_user(cell, open_session, folder):
    session = open_session(folder, uid=4242, gid=4243)
    session.files.write_file("by-call", "x")
    assert session.run("touch by-code; id -u; id -g; stat -c %u:%g by-call by-code").text == (
        "4242\n4243\n4242:4243\n4242:4243"
    )
    assert session.run("cat /etc/shadow").exit_code == 1
    assert cell.isolation.attach(session.session_id).info.uid == 4242


def test_a_user_namespace_gives_an_identity_too(cell, open_session, folder):
    capabilities = cell.isolation.capabilities()
    if not capabilities.userns_available:
        pytest.skip(f"no user namespaces here: {capabilities.message}")
    session = open_session(folder, uid=1000, gid=1000, uid_mode="userns")
    assert session.run("id -u; echo x > new; stat -c %u new; cat old.txt").text == "1000\n1000\nold"


def test_networks(open_session, folder):
    interfaces = "sed -n 's/ *\\([^ :]*\\):.*/\\1/p' /proc/net/dev | sort"
    assert open_session(folder, share_net=False).run(interfaces).text == "lo"
    assert "eth0" in open_session(folder).run(interfaces).text


def test_profiles_differ_in_the_temporary_directory(cell, open_session, folder):
    cell.commands.run("echo outside > /tmp/isolated-profile")
    try:
        assert open_session(folder).run("ls -A /tmp; touch /tmp/mine").text == ""
        balanced = open_session(folder, profile="balanced")
        assert balanced.run("cat /tmp/isolated-profile; ls /tmp/mine").text == "outside"
    finally:
        cell.files.delete_files(["/tmp/isolated-profile"])


def test_paths_of_the_sandbox_are_shown_as_asked(cell, open_session, folder):
    cell.commands.run(f"mkdir {folder}/work {folder}/out")
    session = open_session(
        f"{folder}/work",
        extra_writable=[f"{folder}/out"],
        binds=[BindMount(source=f"{folder}/deep", dest="/mnt", readonly=True)],
    )
    assert session.run(f"cat /mnt/f; echo x > {folder}/out/x; echo y > {folder}/y").exit_code != 0
    assert session.run("echo z > /mnt/z").exit_code != 0
    assert cell.commands.run(f"cd {folder}; ls deep; ls out; ls y").text == "f\nx"
