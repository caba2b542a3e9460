"""Polling, and how long tests wait."""

import math
import os
import time
from collections.abc import Callable
from typing import Any

import pytest

#: Factor of every deadline, which `cargo xtask test` sets on a machine that is slow or busy.
FACTOR = max(1.0, float(os.environ.get("OSB_TEST_PATIENCE", "1")))


def patient(seconds: float) -> int:
    """Extend a deadline by the factor of this run, to whole seconds."""
    return math.ceil(seconds * FACTOR)


#: Longest wait for an answer. An image may have to be pulled meanwhile.
PATIENCE = patient(120)


def wait_until(what: str, condition: Callable[[], Any], seconds: float = 60) -> Any:
    """Poll until the condition is true. The limit only keeps a broken server from hanging the run."""
    limit = patient(seconds)
    deadline = time.monotonic() + limit
    while not (answer := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"{what}: not true after {limit} s; last result {answer!r}")
        time.sleep(0.05)
    return answer
