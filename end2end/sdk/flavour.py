"""A common interface to both flavours of the SDK, blocking and asyncio."""

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

from opensandbox import Sandbox, SandboxManager, SandboxManagerSync, SandboxSync
from opensandbox.config import ConnectionConfig, ConnectionConfigSync
from opensandbox.models.execd import ExecutionHandlers
from opensandbox.models.execd_sync import ExecutionHandlersSync


class Blocking:
    """The blocking SDK, unchanged."""

    name = "sync"

    def config(self, **settings: Any) -> ConnectionConfigSync:
        return ConnectionConfigSync(**settings)

    def create(self, *arguments: Any, **settings: Any) -> Any:
        return SandboxSync.create(*arguments, **settings)

    def create_from_template(self, *arguments: Any, **settings: Any) -> Any:
        return SandboxSync.create_from_template(*arguments, **settings)

    def connect(self, *arguments: Any, **settings: Any) -> Any:
        return SandboxSync.connect(*arguments, **settings)

    def resume(self, *arguments: Any, **settings: Any) -> Any:
        return SandboxSync.resume(*arguments, **settings)

    def manager(self, config: ConnectionConfigSync) -> Any:
        return SandboxManagerSync.create(config)

    def handlers(self, **callbacks: Callable[[Any], None]) -> ExecutionHandlersSync:
        return ExecutionHandlersSync(**callbacks)

    def stop(self) -> None:
        pass


class Asyncio:
    """The asyncio SDK on its own event loop, with a blocking interface."""

    name = "async"

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def config(self, **settings: Any) -> ConnectionConfig:
        return ConnectionConfig(**settings)

    def create(self, *arguments: Any, **settings: Any) -> Any:
        return Awaited(self, self.run(Sandbox.create(*arguments, **settings)))

    def create_from_template(self, *arguments: Any, **settings: Any) -> Any:
        return Awaited(self, self.run(Sandbox.create_from_template(*arguments, **settings)))

    def connect(self, *arguments: Any, **settings: Any) -> Any:
        return Awaited(self, self.run(Sandbox.connect(*arguments, **settings)))

    def resume(self, *arguments: Any, **settings: Any) -> Any:
        return Awaited(self, self.run(Sandbox.resume(*arguments, **settings)))

    def manager(self, config: ConnectionConfig) -> Any:
        return Awaited(self, self.run(SandboxManager.create(config)))

    def handlers(self, **callbacks: Callable[[Any], None]) -> ExecutionHandlers:
        def asynchronous(callback: Callable[[Any], None]) -> Callable[[Any], Any]:
            async def call(message: Any) -> None:
                callback(message)

            return call

        return ExecutionHandlers(**{name: asynchronous(callback) for name, callback in callbacks.items()})

    def run(self, awaitable: Any) -> Any:
        async def outcome() -> Any:
            return await awaitable

        return asyncio.run_coroutine_threadsafe(outcome(), self.loop).result()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class Awaited:
    """Proxy of an asyncio SDK object whose methods block until they are done."""

    def __init__(self, flavour: Asyncio, inner: Any) -> None:
        self._flavour = flavour
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if callable(value):
            return lambda *arguments, **settings: self._call(value, *arguments, **settings)
        return self._wrap(value)

    def _wrap(self, value: Any) -> Any:
        """Wrap services of the SDK too, whose methods are coroutines."""
        return Awaited(self._flavour, value) if type(value).__module__.startswith("opensandbox.adapters") else value

    def _call(self, method: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
        result = method(*arguments, **settings)
        if inspect.isawaitable(result):
            result = self._flavour.run(result)
        elif hasattr(result, "__aenter__"):
            return self._entered(result)
        if hasattr(result, "__aiter__"):
            return self._drain(result)
        return self._wrap(result)

    @contextlib.contextmanager
    def _entered(self, manager: Any) -> Iterator[Any]:
        value = self._flavour.run(manager.__aenter__())
        try:
            yield self._wrap(value)
        except BaseException as error:
            if not self._flavour.run(manager.__aexit__(type(error), error, error.__traceback__)):
                raise
        else:
            self._flavour.run(manager.__aexit__(None, None, None))

    def _drain(self, stream: Any) -> Any:
        iterator = stream.__aiter__()
        while True:
            try:
                yield self._flavour.run(iterator.__anext__())
            except StopAsyncIteration:
                return
