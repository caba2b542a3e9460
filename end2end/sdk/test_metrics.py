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
    """Processor time of a process, as the kernel counts it: in hundredths of a second."""
    user, system = box.commands.run(f"cut -d ' ' -f 14,15 /proc/{process}/stat").text.split()
    return (int(user) + int(system)) / 100


def test_a_busy_processor_is_seen(box):
    """On a busy machine the kernel gives less time to the sandbox than it may have."""
    execution = box.commands.run("echo $$; while :; do :; done", opts=RunCommandOpts(background=True))
    try:
        read = lambda: box.commands.get_background_command_logs(execution.id).content  # noqa: E731
        process = wait_until("the loop runs", lambda: read().strip())
        begun, before = time.monotonic(), used_by(box, process)

        def is_seen():
            share = box.get_metrics().cpu_used_percentage
            counted = used_by(box, process) - before
            possible = (time.monotonic() - begun) * int(RESOURCES["cpu"].removesuffix("m")) / 1000
            # The metric is that of the last seconds, and may include some before the loop.
            return counted > 0.1 and share >= 50 * counted / possible and (share, counted, possible)

        share, counted, possible = wait_until("the processor is busy", is_seen)
        assert 0 < share <= 100, (share, counted, possible)
    finally:
        box.commands.interrupt(execution.id)
