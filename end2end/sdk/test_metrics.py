"""Metrics are the sandbox's, not the host's."""

import time

from opensandbox.models.execd import RunCommandOpts

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


def test_a_busy_processor_is_seen(box):
    execution = box.commands.run("while :; do :; done", opts=RunCommandOpts(background=True))
    try:
        wait_until("the processor is busy", lambda: box.get_metrics().cpu_used_percentage > 50)
    finally:
        box.commands.interrupt(execution.id)
