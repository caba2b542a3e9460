"""The SDK's client-side pool keeps sandboxes ready, and leaves only leased ones behind.

Also the server's pools, from which an ordinary create gets a sandbox (``extensions.poolRef``).
"""

import asyncio
import contextlib
import inspect
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
import pytest
import redis
import redis.asyncio
from opensandbox import (
    InMemoryAsyncPoolStateStore,
    InMemoryPoolStateStore,
    PoolCreationSpec,
    SandboxPoolAsync,
    SandboxPoolSync,
)
from opensandbox.config import ConnectionConfig, ConnectionConfigSync
from opensandbox.pool_redis import AsyncRedisPoolStateStore, RedisPoolStateStore

from conftest import RESOURCES
from target import Target, free_port
from waiting import PATIENCE, patient, wait_until

#: Sandboxes that each pool keeps ready.
IDLE = 3


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed")
    port = free_port()
    folder = tmp_path_factory.mktemp("redis")
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [program, "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", folder],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    url = f"redis://127.0.0.1:{port}/0"

    def answers() -> bool:
        assert server.poll() is None, (folder / "log").read_text()
        with contextlib.suppress(redis.ConnectionError), redis.Redis.from_url(url) as client:
            return client.ping()
        return False

    try:
        wait_until("Redis answers", answers)
        yield url
    finally:
        server.terminate()
        server.wait(patient(60))


@dataclass
class Pools:
    """Pools of one flavour whose state is in one kind of store. Calls may return awaitables."""

    target: Target
    flavour: str
    store: Callable[[], Any]
    mark: str

    def pool(self, **settings: Any) -> Any:
        if self.flavour == "sync":
            kind, config = SandboxPoolSync, ConnectionConfigSync
        else:
            kind, config = SandboxPoolAsync, ConnectionConfig
        if "reconcile_interval" in inspect.signature(kind.__init__).parameters:
            # The generation before waits 30 s between two looks, and makes one sandbox at each.
            settings |= {"reconcile_interval": timedelta(seconds=1), "warmup_concurrency": IDLE}
        defaults = {
            "pool_name": self.mark,
            "max_idle": IDLE,
            "state_store": self.store(),
            "connection_config": config(
                domain=self.target.address,
                api_key=self.target.api_key,
                request_timeout=timedelta(seconds=patient(30)),
            ),
            "creation_spec": PoolCreationSpec(
                image=self.target.image, resource=RESOURCES, metadata={"pool": self.mark}
            ),
            "idle_timeout": timedelta(minutes=10),
        }
        return kind(**(defaults | settings))

    def existing(self) -> set[str]:
        """Ids of the sandboxes that the pool made."""
        reply = httpx.get(
            f"{self.target.url}/v1/sandboxes",
            params={"metadata": f"pool={self.mark}", "pageSize": 200},
            headers={"OPEN-SANDBOX-API-KEY": self.target.api_key},
            timeout=PATIENCE,
        )
        assert reply.status_code == 200, reply.text
        return {item["id"] for item in reply.json()["items"]}


@pytest.fixture(params=["sync-memory", "sync-redis", "async-memory", "async-redis"])
def pools(request: pytest.FixtureRequest, target: Target) -> Iterator[Pools]:
    flavour, store = request.param.split("-")
    if store == "memory":
        kept = InMemoryPoolStateStore() if flavour == "sync" else InMemoryAsyncPoolStateStore()
        opened = lambda: kept  # noqa: E731
    else:
        url = request.getfixturevalue("redis_url")
        opened = lambda: (  # noqa: E731
            RedisPoolStateStore(redis.Redis.from_url(url, decode_responses=True))
            if flavour == "sync"
            else AsyncRedisPoolStateStore(redis.asyncio.Redis.from_url(url, decode_responses=True))
        )
    pools = Pools(target, flavour, opened, f"pool-{uuid.uuid4().hex[:12]}")
    yield pools
    for sandbox in pools.existing():
        httpx.delete(
            f"{target.url}/v1/sandboxes/{sandbox}",
            headers={"OPEN-SANDBOX-API-KEY": target.api_key},
            timeout=PATIENCE,
        )
    wait_until("the pool's sandboxes are gone", lambda: not pools.existing())


async def value(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


async def until(what: str, condition: Callable[[], Any]) -> None:
    """Wait for a condition without blocking the pool's tasks."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not await condition():
                await asyncio.sleep(0.1)
    except TimeoutError:
        pytest.fail(f"timed out: {what}")


async def is_full(pool: Any) -> bool:
    return (await value(pool.snapshot())).idle_count == IDLE


def test_after_shutdown_and_release_only_leased_sandboxes_remain(pools):
    asyncio.run(lease_and_release(pools))


async def lease_and_release(pools: Pools) -> None:
    pool = pools.pool()
    await value(pool.start())
    leased = []
    try:
        await until("the pool is full", lambda: is_full(pool))
        for _ in range(2):
            box = await value(pool.acquire(sandbox_timeout=timedelta(minutes=5)))
            leased.append(box.id)
            run = await value(box.commands.run("echo leased"))
            assert run.logs.stdout[0].text == "leased"
            await value(box.close())
        assert len(set(leased)) == 2
        # Leased sandboxes are replaced.
        await until("the pool is full again", lambda: is_full(pool))
    finally:
        await value(pool.shutdown(graceful=True))
    assert len(pools.existing()) >= IDLE + 2
    await value(pool.release_all_idle())
    # Warm-ups that were under way at the shutdown end or are cancelled.
    await until("only leased sandboxes remain", lambda: only(pools, set(leased)))


async def only(pools: Pools, expected: set[str]) -> bool:
    return pools.existing() == expected


def test_a_pool_shrinks_and_grows(pools):
    asyncio.run(shrink_and_grow(pools))


async def shrink_and_grow(pools: Pools) -> None:
    pool = pools.pool()
    await value(pool.start())
    try:
        await until("the pool is full", lambda: is_full(pool))
        await value(pool.resize(0))
        await until("the pool is empty", lambda: only(pools, set()))
        await value(pool.resize(IDLE))
        await until("the pool is full again", lambda: is_full(pool))
    finally:
        await value(pool.shutdown(graceful=False))
        await value(pool.release_all_idle())


@dataclass
class ServerPool:
    """A pool of the server."""

    target: Target
    name: str

    def call(self, method: str, path: str, body: Any = None) -> httpx.Response:
        return httpx.request(
            method,
            f"{self.target.url}/v1/pools{path}",
            json=body,
            headers={"OPEN-SANDBOX-API-KEY": self.target.api_key},
            timeout=PATIENCE,
        )

    def status(self) -> dict[str, Any]:
        reply = self.call("GET", f"/{self.name}")
        assert reply.status_code == 200, reply.text
        return reply.json()["status"]

    def is_full(self) -> bool:
        return self.status()["available"] == 2


@pytest.fixture
def server_pool(target: Target) -> Iterator[ServerPool]:
    pool = ServerPool(target, f"pool-{uuid.uuid4().hex[:12]}")
    reply = pool.call(
        "POST",
        "",
        {
            "name": pool.name,
            "template": {
                "spec": {
                    "containers": [
                        {
                            "name": "sandbox",
                            "image": target.image,
                            "env": [{"name": "OF_POOL", "value": "yes"}],
                            "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}},
                        }
                    ]
                }
            },
            "capacitySpec": {"bufferMin": 2, "bufferMax": 2, "poolMin": 0, "poolMax": 4},
        },
    )
    if reply.status_code == 501:
        pytest.skip("the server has no pools")
    assert reply.status_code == 201, reply.text
    yield pool
    assert pool.call("DELETE", f"/{pool.name}").status_code == 204
    assert pool.call("GET", f"/{pool.name}").status_code == 404


def test_a_create_gets_a_sandbox_of_the_server_s_pool(sdk, server_pool):
    wait_until("the pool is full", server_pool.is_full)
    boxes = [
        sdk.create(
            extensions={"poolRef": server_pool.name},
            env={"OF_CREATE": number},
            metadata={"of-pool": number},
        )
        for number in ("one", "two")
    ]
    assert len({box.id for box in boxes}) == 2
    for box, number in zip(boxes, ("one", "two"), strict=True):
        assert box.is_healthy()
        assert box.commands.run("echo $OF_POOL $OF_CREATE").logs.stdout[0].text == f"yes {number}"
        info = box.get_info()
        assert info.status.state == "Running"
        assert info.metadata["of-pool"] == number
    wait_until("the pool is full again", server_pool.is_full)
    assert server_pool.status()["allocated"] == 2
    for box in boxes:
        box.kill()
    wait_until("both are gone", lambda: server_pool.status()["allocated"] == 0)
