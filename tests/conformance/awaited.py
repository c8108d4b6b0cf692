"""Awaited: an asynchronous face driven by ordinary calls, each of which runs on an event loop in another thread."""

import asyncio
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Self

CALLS = {"attributes"}  # what is a property elsewhere has to be awaited here


class Loop:
    """An event loop in a thread of its own, with a task for each thread that uses it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self._tasks: dict[threading.Thread, Task] = {}

    def run(self, work: Callable[[], Any]) -> Any:
        """Call it on the loop, in the task of this thread, and wait for what it gives."""
        for thread in list(self._tasks):
            if not thread.is_alive() and (left := self._tasks.pop(thread, None)) is not None:
                left.end()
        me = threading.current_thread()
        if me not in self._tasks:
            self._tasks[me] = Task(self.loop)
        return self._tasks[me].run(work)

    def close(self) -> None:
        async def rest() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.loop.shutdown_asyncgens()

        asyncio.run_coroutine_threadsafe(rest(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class Task:
    """A task on the loop that makes the calls of one thread, one after the other."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: asyncio.Queue[tuple[Callable[[], Any], Future[Any]] | None] = asyncio.Queue()
        asyncio.run_coroutine_threadsafe(serve(self._calls), loop)

    def run(self, work: Callable[[], Any]) -> Any:
        answer: Future[Any] = Future()
        self._loop.call_soon_threadsafe(self._calls.put_nowait, (work, answer))
        return answer.result()

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._calls.put_nowait, None)


async def serve(calls: "asyncio.Queue[tuple[Callable[[], Any], Future[Any]] | None]") -> None:
    while (call := await calls.get()) is not None:
        work, answer = call
        try:
            result = work()
            answer.set_result(await result if inspect.isawaitable(result) else result)
        except asyncio.CancelledError:
            answer.cancel()
            raise
        except BaseException as exc:
            answer.set_exception(exc)
        del call, work, answer


class Awaited:
    """An object whose methods are awaited, looking as if they were ordinary ones."""

    def __init__(self, target: Any, loop: Loop) -> None:
        self._target = target
        self._loop = loop

    def _wrapped(self, result: Any) -> Any:
        if type(result) is tuple:
            return tuple(self._wrapped(one) for one in result)
        is_face = hasattr(result, "__aenter__") or hasattr(result, "__anext__")
        return Awaited(result, self._loop) if is_face else result

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, "aclose" if name == "close" and hasattr(self._target, "aclose") else name)
        if name in CALLS:
            return self._loop.run(value)
        if not callable(value):
            return value

        def call(*args: Any, **options: Any) -> Any:
            given = [one._target if isinstance(one, Awaited) else one for one in args]
            return self._wrapped(self._loop.run(lambda: value(*given, **options)))

        return call

    def __enter__(self) -> Any:
        return self._wrapped(self._loop.run(self._target.__aenter__))

    def __exit__(self, *exc: Any) -> Any:
        return self._loop.run(lambda: self._target.__aexit__(*exc))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        try:
            return self._wrapped(self._loop.run(self._target.__anext__))
        except StopAsyncIteration:
            raise StopIteration from None
