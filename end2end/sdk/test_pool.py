"""The SDK's client-side pool keeps sandboxes ready, and leaves only leased ones behind."""

import asyncio
import contextlib
import inspect
import shutil
import socket
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
from target import Target
from waiting import wait_until

#: Sandboxes that each pool keeps ready.
IDLE = 3


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
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
        server.wait(60)


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
            "connection_config": config(domain=self.target.address, api_key=self.target.api_key),
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
            timeout=60,
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
            timeout=60,
        )
    wait_until("the pool's sandboxes are gone", lambda: not pools.existing())


async def value(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


async def until(what: str, condition: Callable[[], Any]) -> None:
    """Wait for a condition without blocking the pool's tasks."""
    try:
        async with asyncio.timeout(120):
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
