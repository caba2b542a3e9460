"""The bytes of a command's event stream."""

import json

import httpx
import pytest

from waiting import PATIENCE, wait_until


@pytest.fixture(params=["direct", "proxy"])
def stream(box, request):
    """Opens the stream of a command, directly or through the server."""
    query = {"use_server_proxy": "true"} if request.param == "proxy" else {}
    endpoint = box.endpoint(44772, **query)

    def stream(**body):
        url = f"http://{endpoint['endpoint']}/command"
        return httpx.stream("POST", url, json=body, headers=endpoint.get("headers", {}), timeout=PATIENCE)

    return stream


def test_frames_are_bare_json_each_followed_by_two_newlines(stream):
    with stream(command="echo one; echo; printf two; exit 3") as reply:
        assert reply.status_code == 200
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert reply.headers["cache-control"] == "no-cache"
        text = reply.read()
    assert text.startswith(b"{")
    assert text.endswith(b"\n\n")
    assert b"\r" not in text
    events = [json.loads(frame) for frame in text[:-2].split(b"\n\n")]
    assert all(isinstance(event["timestamp"], int) for event in events)
    kinds = [event["type"] for event in events if event["type"] != "ping"]
    assert kinds == ["init", "stdout", "stdout", "stdout", "error"]
    assert [event["text"] for event in events if event["type"] == "stdout"] == ["one", "\n", "two"]
    error = events[-1]["error"]
    assert (error["ename"], error["evalue"], error["traceback"]) == ("CommandExecError", "3", ["exit status 3"])


def test_the_stream_ends_with_its_last_event(stream):
    with stream(command="true") as reply:
        events = [json.loads(frame) for frame in reply.read().split(b"\n\n") if frame]
    assert events[0]["type"] == "init"
    assert events[-1]["type"] == "execution_complete"
    assert isinstance(events[-1].get("execution_time", 0), int)


def test_events_arrive_one_by_one(stream, box):
    """The second line is only written after the first was received."""
    box.run("rm -f /tmp/received")
    command = "echo first; while [ ! -e /tmp/received ]; do sleep 0.05; done; echo second"
    seen = []
    with stream(command=command, timeout=PATIENCE * 1000) as reply:
        for line in reply.iter_lines():
            if line:
                event = json.loads(line)
                if event["type"] == "stdout":
                    seen.append(event["text"])
                    if event["text"] == "first":
                        box.run("touch /tmp/received")
    assert seen == ["first", "second"]


def test_a_disconnect_does_not_end_a_background_command(stream, box):
    box.run("rm -f /tmp/gone /tmp/finished")
    command = "while [ ! -e /tmp/gone ]; do sleep 0.05; done; touch /tmp/finished"
    with stream(command=command, background=True) as reply:
        next(reply.iter_bytes())
    box.run("touch /tmp/gone")
    wait_until("the command went on", lambda: box.run("test -e /tmp/finished")[1] == 0)


def test_line_separators_of_other_alphabets_do_not_cut_an_event(stream):
    with stream(argv=["printf", "a\u0085b\u2028c\u2029d"]) as reply:
        text = reply.read().decode()
    assert not set("\u0085\u2028\u2029") & set(text)
    events = [json.loads(frame) for frame in text.split("\n\n") if frame]
    assert [event["text"] for event in events if event["type"] == "stdout"] == ["a\u0085b\u2028c\u2029d"]


def test_a_long_line_is_one_event(stream):
    with stream(command="head -c 1000000 /dev/zero | tr '\\0' x") as reply:
        events = [json.loads(frame) for frame in reply.read().split(b"\n\n") if frame]
    assert [len(event["text"]) for event in events if event["type"] == "stdout"] == [1_000_000]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"command": ""},
        {"command": 5},
        {"command": "true", "argv": ["true"]},
        {"argv": []},
        {"argv": [""]},
        {"argv": ["a\u0000b"]},
        {"command": "true", "timeout": -1},
        {"command": "true", "gid": 0},
        {"command": "true", "uid": -1},
        {"command": "true", "cwd": "/no/such/folder"},
        {"command": "true", "cwd": "/etc/passwd"},
        {"command": "true", "cwd": "/$NO_SUCH_VARIABLE"},
    ],
    ids=str,
)
def test_a_bad_command_is_a_400_before_any_event(stream, body):
    with stream(**body) as reply:
        assert reply.status_code == 400
        assert reply.headers["content-type"].startswith("application/json")
        error = json.loads(reply.read())
    assert error["code"] == "INVALID_REQUEST_BODY"
    assert error["message"]


def test_nulls_count_as_absent(stream):
    nulls = dict.fromkeys(("argv", "cwd", "background", "timeout", "uid", "gid", "envs"))
    with stream(command="echo fine", **nulls) as reply:
        assert reply.status_code == 200
        assert b'"fine"' in reply.read()


def test_the_token_is_needed_and_ping_is_open(box):
    endpoint = box.endpoint(44772)
    assert endpoint["headers"]["X-EXECD-ACCESS-TOKEN"]
    base = f"http://{endpoint['endpoint']}"
    assert httpx.get(f"{base}/ping", timeout=PATIENCE).status_code == 200
    for headers in ({}, {"X-EXECD-ACCESS-TOKEN": "wrong"}, {"X-EXECD-ACCESS-TOKEN": ""}):
        assert httpx.post(f"{base}/command", json={"command": "true"}, headers=headers, timeout=PATIENCE).status_code == 401
        assert httpx.get(f"{base}/no/such/route", headers=headers, timeout=PATIENCE).status_code == 401


def test_a_broken_stream_is_resumed(stream, box):
    """Events are numbered; a client can read on after any of them, directly and through the server."""
    with stream(command="seq 1 1000; exit 4") as reply:
        url, headers = str(reply.request.url), reply.request.headers
        whole = reply.read()
    numbered = _numbered(whole)
    assert [event["seq"] for event in numbered] == list(range(1, len(numbered) + 1))
    run = numbered[0]["text"]
    rest = httpx.get(f"{url}/{run}/events", params={"since": 500}, headers=_without_body(headers), timeout=PATIENCE)
    assert rest.status_code == 200
    assert rest.headers["content-type"].startswith("text/event-stream")
    assert _numbered(rest.content) == numbered[500:]
    ahead = httpx.get(f"{url}/{run}/events", params={"since": 5000}, headers=_without_body(headers), timeout=PATIENCE)
    assert ahead.status_code == 400
    assert "since" in ahead.json()["message"]


def test_a_repeated_request_joins_the_first_run(box):
    endpoint = box.endpoint(44772, use_server_proxy="true")
    url = f"http://{endpoint['endpoint']}/command"
    headers = {**endpoint.get("headers", {}), "Idempotency-Key": "test-a-request-that-is-sent-again"}
    body = {"command": "echo x >> /tmp/sent; wc -l < /tmp/sent"}
    first, second = (httpx.post(url, json=body, headers=headers, timeout=PATIENCE) for _ in range(2))
    assert first.status_code == 200
    assert [json.loads(frame)["text"] for frame in first.content.split(b"\n\n") if b'"stdout"' in frame] == ["1"]
    assert _numbered(second.content) == _numbered(first.content)
    other = httpx.post(url, json={"command": "true"}, headers=headers, timeout=PATIENCE)
    assert other.status_code == 422


def _numbered(content):
    """Return the events of a stream without pings, which have no number and depend on timing."""
    frames = [json.loads(frame) for frame in content.split(b"\n\n") if frame]
    return [event for event in frames if "seq" in event]


def _without_body(headers):
    return {name: value for name, value in headers.items() if not name.startswith("content-")}
