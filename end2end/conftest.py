"""Fixtures and options that every suite shares."""

import os
import tempfile
import uuid
from pathlib import Path

import certifi
import pytest

from target import Target

# No test uses TLS, but each client reads the certificates of all authorities first, which takes longer than
# most requests. It also reads a file with one of them.
authority = tempfile.NamedTemporaryFile("w", suffix=".pem")


def pytest_configure() -> None:
    end = "-----END CERTIFICATE-----\n"
    first, _, _ = Path(certifi.where()).read_text().partition(end)
    authority.write(first + end)
    authority.flush()
    os.environ["SSL_CERT_FILE"] = authority.name


def pytest_addoption(parser: pytest.Parser) -> None:
    # -k takes an expression, in which spaces and words such as "not" have a meaning.
    parser.addoption("--containing", metavar="TEXT", help="only tests whose name contains this")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    text = config.getoption("--containing")
    if text is not None:
        config.hook.pytest_deselected(items=[item for item in items if text not in item.name])
        items[:] = [item for item in items if text in item.name]


@pytest.fixture(scope="session")
def target() -> Target:
    return Target.from_environment()


@pytest.fixture(scope="session")
def run_id() -> str:
    """Mark of this run's sandboxes, which distinguishes them from those of other users of the server."""
    return uuid.uuid4().hex[:12]
