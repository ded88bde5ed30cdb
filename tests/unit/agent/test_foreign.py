"""Workers that a launcher starts: who of them is taken for the cause when several have ended."""

from __future__ import annotations

import asyncio
import subprocess

from petctl.agent.workers.workers import Launch, Worker, Workers


def launch(rank: int) -> Launch:
    return Launch(rank, rank, ["true"], {}, None, "", "", round=1, foreign=True)


def test_the_one_whose_process_ended_first_is_told_of_first() -> None:
    async def run() -> list[tuple[int, int | None]]:
        loop = asyncio.get_running_loop()
        ended: list[Worker] = []
        both = loop.create_future()

        def take(worker: Worker) -> None:
            ended.append(worker)
            if len(ended) == 2:
                both.set_result(None)

        workers = Workers("key", 0, take, lambda: None)
        workers.start([launch(0), launch(1)])
        sleepers = [subprocess.Popen(["sleep", "60"], start_new_session=True) for _ in range(2)]
        try:
            for rank, process in enumerate(sleepers):
                workers.foreign_began(launch(rank), process.pid)
            sleepers[1].kill()
            while not workers._gone:
                await asyncio.sleep(0)
            workers.foreign_ended(0, 14)  # a consequence, but its end is told sooner
            workers.foreign_ended(1, 7)
            await asyncio.wait_for(both, 10)
        finally:
            for process in sleepers:
                process.kill()
                process.wait()
        return [(worker.launch.rank, worker.code) for worker in ended]

    assert asyncio.run(run()) == [(1, 7), (0, 14)]
