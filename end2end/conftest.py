"""What every suite shares."""

import uuid

import pytest

from target import Target


@pytest.fixture(scope="session")
def target() -> Target:
    return Target.from_environment()


@pytest.fixture(scope="session")
def run_id() -> str:
    """Marks the sandboxes of this run, so that other users of the server do not disturb it."""
    return uuid.uuid4().hex[:12]
