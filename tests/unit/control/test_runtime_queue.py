"""The queue on a real event loop, without waiting for time to pass."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from disaggpair_operator.queue import WorkQueue
from disaggpair_operator.schedule import Backoff

BOUND_S = 10.0
AT_ONCE = Backoff(first_s=0.0)
Failure = tuple[str, str, int, float]


@asynccontextmanager
async def running(
    work: Callable[[str], Awaitable[float | None]],
    *,
    workers: int = 4,
    backoff: Backoff = AT_ONCE,
    failures: list[Failure] | None = None,
) -> AsyncIterator[WorkQueue[str]]:
    def on_failure(key: str, error: Exception, count: int, delay_s: float) -> None:
        if failures is not None:
            failures.append((key, str(error), count, delay_s))

    queue = WorkQueue(
        work, on_failure=on_failure, workers=workers, backoff=backoff, uniform=lambda: 0.0
    )
    task = asyncio.create_task(queue.run())
    try:
        async with asyncio.timeout(BOUND_S):
            yield queue
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_key_is_worked_on_once_however_often_it_was_added() -> None:
    seen: list[str] = []
    last = asyncio.Event()

    async def work(key: str) -> None:
        seen.append(key)
        if key == "last":
            last.set()

    async with running(work, workers=1) as queue:
        for _ in range(5):
            queue.add("a")
        queue.add("last")
        await last.wait()
    assert seen == ["a", "last"]


async def test_one_key_is_never_worked_on_twice_at_once() -> None:
    active = most = done = 0
    finished = asyncio.Event()

    async def work(key: str) -> None:
        nonlocal active, most, done
        active += 1
        most = max(most, active)
        queue.add("a") if done < 5 else finished.set()
        await asyncio.sleep(0)
        active -= 1
        done += 1

    async with running(work) as queue:
        queue.add("a")
        await finished.wait()
    assert most == 1


async def test_a_slow_key_does_not_hold_up_another() -> None:
    release, other = asyncio.Event(), asyncio.Event()

    async def work(key: str) -> None:
        if key == "slow":
            await release.wait()
        else:
            other.set()

    async with running(work, workers=2) as queue:
        queue.add("slow")
        queue.add("quick")
        await other.wait()
        release.set()


async def test_no_more_keys_than_workers_are_worked_on_at_once() -> None:
    active = most = 0
    left = 6
    finished = asyncio.Event()

    async def work(key: str) -> None:
        nonlocal active, most, left
        active += 1
        most = max(most, active)
        for _ in range(3):
            await asyncio.sleep(0)
        active -= 1
        left -= 1
        if not left:
            finished.set()

    async with running(work, workers=2) as queue:
        for key in "abcdef":
            queue.add(key)
        await finished.wait()
    assert most == 2


async def test_a_failed_key_comes_back_with_a_growing_delay_until_it_succeeds() -> None:
    attempts = 0
    failures: list[Failure] = []
    succeeded = asyncio.Event()

    async def work(key: str) -> None:
        nonlocal attempts
        attempts += 1
        if attempts in (1, 2, 4):
            raise RuntimeError(f"attempt {attempts}")
        if attempts == 5:
            succeeded.set()
        else:
            queue.add(key)

    backoff = Backoff(first_s=0.001, factor=2.0, spread=0.0)
    async with running(work, backoff=backoff, failures=failures) as queue:
        queue.add("a")
        await succeeded.wait()
    # The success in between starts the count again.
    assert failures == [
        ("a", "attempt 1", 1, 0.001),
        ("a", "attempt 2", 2, 0.002),
        ("a", "attempt 4", 1, 0.001),
    ]


async def test_work_that_asks_to_be_repeated_is() -> None:
    attempts = 0
    third = asyncio.Event()

    async def work(key: str) -> float | None:
        nonlocal attempts
        attempts += 1
        if attempts == 3:
            third.set()
            return None
        return 0.001

    async with running(work) as queue:
        queue.add("a")
        await third.wait()
        await asyncio.sleep(0)
        assert len(queue) == 0


async def test_an_event_overtakes_a_long_delay() -> None:
    seen = asyncio.Event()

    async def work(key: str) -> None:
        seen.set()

    async with running(work) as queue:
        queue.add("a", delay_s=3600.0)
        await asyncio.sleep(0)
        queue.add("a")
        await seen.wait()


async def test_cancelling_interrupts_the_work_under_way() -> None:
    begun = asyncio.Event()
    cancelled = False

    async def work(key: str) -> None:
        nonlocal cancelled
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled = True
            raise

    async with running(work) as queue:
        queue.add("a")
        await begun.wait()
    assert cancelled
