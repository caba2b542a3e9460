"""Polling."""

import time
from collections.abc import Callable
from typing import Any

import pytest


def wait_until(what: str, condition: Callable[[], Any], seconds: float = 60) -> Any:
    """Poll until the condition is true. The limit only keeps a broken server from hanging the run."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"{what}: not true after {seconds:.0f} s; last result {answer!r}")
        time.sleep(0.05)
    return answer
