"""Terminals: attach, type, resize, detach, reattach with the earlier output."""

import contextlib
import json
import time

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from waiting import PATIENCE, wait_until


class Terminal:
    """One WebSocket to a PTY session."""

    def __init__(self, box, session, query=""):
        endpoint = box.endpoint(44772)
        url = f"ws://{endpoint['endpoint']}/pty/{session}/ws{query}"
        self.open = contextlib.ExitStack()
        self.socket = self.open.enter_context(
            connect(url, additional_headers=endpoint.get("headers", {}), open_timeout=PATIENCE, max_size=None)
        )
        self.output = b""
        self.replayed_from = None
        self.events = []
        self.until(lambda: any(event["type"] == "connected" for event in self.events))

    def until(self, done):
        deadline = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < deadline, (self.output, self.events)
            message = self.socket.recv(PATIENCE)
            if isinstance(message, str):
                self.events.append(json.loads(message))
            elif message[0] == 3:
                self.replayed_from = int.from_bytes(message[1:9], "big")
                self.output += message[9:]
            else:
                assert message[0] in (1, 2), message[:20]
                self.output += message[1:]

    def type(self, text):
        self.socket.send(b"\x00" + text.encode())

    def see(self, text):
        self.until(lambda: text.encode() in self.output)

    def control(self, **message):
        self.socket.send(json.dumps(message))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.open.close()


@pytest.fixture
def session(box):
    reply = box.execd("POST", "/pty", json={"cwd": "/tmp"})
    assert reply.status_code == 201
    session = reply.json()["session_id"]
    yield session
    box.execd("DELETE", f"/pty/{session}")


def test_typing_is_echoed_and_answered(box, session):
    with Terminal(box, session) as terminal:
        assert terminal.events[0]["mode"] == "pty"
        terminal.type("echo $((6 * 7)) $PWD\n")
        terminal.see("42 /tmp")


def test_the_size_follows_the_window(box, session):
    with Terminal(box, session) as terminal:
        terminal.control(type="resize", cols=123, rows=45)
        terminal.type("stty size\n")
        terminal.see("45 123")


def test_the_output_is_replayed_after_a_reconnect(box, session):
    with Terminal(box, session) as terminal:
        terminal.type("echo before-$((1 + 1))\n")
        terminal.see("before-2")
        terminal.type("until [ -e /tmp/detached ]; do sleep 0.05; done; rm /tmp/detached; echo mean-while-$((1 + 2))\n")
    box.write("/tmp/detached", "")
    wait_until("the terminal went on", lambda: box.run("test -e /tmp/detached")[1] == 1)
    with Terminal(box, session) as terminal:
        assert terminal.replayed_from == 0
        terminal.see("before-2")
        terminal.see("mean-while-3")
        offset = len(terminal.output)
        whole = terminal.output
    state = box.execd("GET", f"/pty/{session}").json()
    assert state["running"] is True
    assert state["output_offset"] >= offset
    with Terminal(box, session, f"?since={len(whole) - 10}") as terminal:
        assert terminal.replayed_from == len(whole) - 10
        assert terminal.output.startswith(whole[-10:])


def test_a_second_client_is_refused_unless_it_takes_over(box, session):
    with Terminal(box, session) as first:
        endpoint = box.endpoint(44772)
        url = f"ws://{endpoint['endpoint']}/pty/{session}/ws"
        with pytest.raises(InvalidStatus) as refused, connect(url, additional_headers=endpoint.get("headers", {}), open_timeout=PATIENCE):
            pass
        assert refused.value.response.status_code == 409
        with Terminal(box, session, "?takeover=1") as second:
            with pytest.raises(ConnectionClosed) as evicted:
                first.until(lambda: False)
            assert evicted.value.rcvd.code == 4001
            second.type("echo mine-$((2 + 2))\n")
            second.see("mine-4")


def test_the_end_of_the_shell_is_reported(box, session):
    with Terminal(box, session) as terminal:
        terminal.type("exit 5\n")
        with pytest.raises(ConnectionClosed) as closed:
            terminal.until(lambda: False)
        assert closed.value.rcvd.code == 1000
        assert terminal.events[-1] == {"type": "exit", "exit_code": 5}


def test_bad_frames_do_not_end_a_terminal(box, session):
    with Terminal(box, session) as terminal:
        for frame in (b"", b"\x09junk", "not json", '{"type":"resize","cols":0,"rows":-1}'):
            terminal.socket.send(frame)
        terminal.control(type="nonsense")
        terminal.until(lambda: any(event.get("code") == "INVALID_FRAME" for event in terminal.events))
        terminal.control(type="ping")
        terminal.until(lambda: any(event["type"] == "pong" for event in terminal.events))


def test_an_unknown_session_is_a_404(box):
    for method in ("GET", "DELETE"):
        assert box.execd(method, "/pty/00000000-0000-4000-8000-000000000000").status_code == 404
