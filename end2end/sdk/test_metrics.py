"""Metrics are the sandbox's, not the host's."""

import time

from opensandbox.models.execd import RunCommandOpts

from conftest import RESOURCES
from waiting import wait_until


def test_limits_of_the_sandbox_are_reported(box):
    metrics = box.get_metrics()
    # The test requests 256Mi and 500m; a fraction of a processor counts as one.
    assert metrics.memory_total_in_mib == 256
    assert metrics.cpu_count == 1
    assert 0 < metrics.memory_used_in_mib <= 256
    assert 0 <= metrics.cpu_used_percentage <= 100
    assert abs(metrics.timestamp / 1000 - time.time()) < 120


def test_memory_in_use_is_seen(box):
    before = box.get_metrics().memory_used_in_mib
    script = "import time; held = bytearray(80 << 20); held[::4096] = b'x' * len(held[::4096]); time.sleep(600)"
    execution = box.commands.run(f"exec python3 -c \"{script}\"", opts=RunCommandOpts(background=True))
    try:
        wait_until("80 MiB more are in use", lambda: box.get_metrics().memory_used_in_mib > before + 70)
    finally:
        box.commands.interrupt(execution.id)


def used_by(box, process):
    """Seconds of processor time of a process, which the kernel counts in hundredths."""
    user, system = box.commands.run(f"cut -d ' ' -f 14,15 /proc/{process}/stat").text.split()
    return (int(user) + int(system)) / 100


def test_a_busy_processor_is_seen(box):
    """The metric is what the kernel gave to a loop, which is little on a busy machine."""
    execution = box.commands.run("echo $$; while :; do :; done", opts=RunCommandOpts(background=True))
    try:
        logs = lambda: box.commands.get_background_command_logs(execution.id).content  # noqa: E731
        process = wait_until("the loop runs", lambda: logs().strip())
        begun, before = time.monotonic(), used_by(box, process)

        def is_seen():
            share = box.get_metrics().cpu_used_percentage
            used = used_by(box, process) - before
            possible = (time.monotonic() - begun) * int(RESOURCES["cpu"].removesuffix("m")) / 1000
            # The metric is that of the last seconds, and includes some before the loop at first.
            return used > 0.2 and share <= 100 and 0.5 < share / (100 * used / possible) < 1.5

        wait_until("the metric is what the loop uses", is_seen)
    finally:
        box.commands.interrupt(execution.id)
