"""Secure runtimes that an engine does not have."""

import pytest

from guarded import refused_start


@pytest.fixture(scope="module", autouse=True)
def on_the_engines_host(engine):
    with engine.namespace.entered():
        yield


def test_a_runtime_that_the_engine_lacks_stops_the_start(engine, tmp_path):
    more = '[secure_runtime]\ntype = "gvisor"\ndocker_runtime = "opensandbox-absent"'
    said = refused_start(engine, tmp_path, more, "bridge")
    assert 'secure_runtime.docker_runtime: the engine has no runtime "opensandbox-absent" for gVisor' in said
    assert "runc" in said and "daemon.json" in said
