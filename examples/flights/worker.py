"""The worker: one process that owns the queue manager, puts the flights, moves them on, and expects to be killed.

It goes on where an earlier worker was killed. How many rows have been put is a message itself, replaced in the unit of
work that puts the rows, so it is exact after any crash. Flights go to the queue of their origin, and from there, in the
order they came, to the queue of their carrier. What it has done it says on standard output, a JSON object a line.
"""

import json
import sys
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from itertools import islice
from pathlib import Path

import qmgr
from examples.flights import data

NAME = "FLIGHTS"
UNIT = 100  # messages in a unit of work
MARK = "PUT.SO.FAR"  # holds one message: the number of rows put
FROM, TO = "FROM.", "BY."  # origin queues and carrier queues
REPORT_SECONDS = 0.05


class Worker:
    """One life: from the start of the queue manager until all rows are on the carrier queues, or until the kill."""

    def __init__(self, qm: qmgr.QueueManager, source: Path, rows: int) -> None:
        self.qm = qm
        self.source = source
        self.rows = rows
        depths = {queue.name: queue.depth for queue in qm.queues()}
        self.origins = [name for name in depths if name.startswith(FROM)]
        self.put = int(next(iter(qm.browse(MARK))).body)
        self.moved = sum(depth for name, depth in depths.items() if name.startswith(TO))
        self.units = 0
        self.lock = threading.Lock()  # guards the three counters
        self.all_put = threading.Event()

    def run(self) -> None:
        """Put and move everything that is left, with one thread for the rows and one for each origin."""
        with ThreadPoolExecutor() as pool:
            tasks = [pool.submit(self.put_all), *(pool.submit(self.move_all, origin) for origin in self.origins)]
            while wait(tasks, REPORT_SECONDS, FIRST_EXCEPTION).not_done:
                self.report()
                if any(task.done() and task.exception() for task in tasks):
                    self.all_put.set()  # nothing more will come: let the others end too
            for task in tasks:
                task.result()
        self.report()

    def put_all(self) -> None:
        flights = data.flights(self.source, start=self.put, stop=self.rows)
        while batch := list(islice(flights, UNIT)):
            self.in_unit(partial(self.put_batch, batch))
            with self.lock:
                self.put += len(batch)
        self.all_put.set()

    def put_batch(self, batch: list[data.Flight], unit: qmgr.UnitOfWork) -> int:
        put = int(unit.get(MARK).body)
        assert put == batch[0].number
        for flight in batch:
            unit.put(FROM + flight.origin, flight.body, correlation_id=b"%024d" % flight.number)
        unit.put(MARK, b"%d" % (put + len(batch)))
        return len(batch)

    def move_all(self, origin: str) -> None:
        """Move what comes to one origin queue. One thread for each: two would not keep the order."""
        while True:
            last = self.all_put.is_set()  # asked before the get, so that nothing can come between
            moved = self.in_unit(partial(self.move_batch, origin))
            with self.lock:
                self.moved += moved
            if last and not moved:
                return

    def move_batch(self, origin: str, unit: qmgr.UnitOfWork) -> int:
        batch = unit.get_many(origin, UNIT, wait=REPORT_SECONDS)
        for message in batch:
            unit.put(TO + data.carrier_of(message.body), message.body, correlation_id=message.correlation_id)
        return len(batch)

    def in_unit(self, work: Callable[[qmgr.UnitOfWork], int]) -> int:
        """Do `work` in a unit of work, again if the queue manager rolls it back to free log space."""
        while True:
            try:
                with self.qm.begin() as unit:
                    done = work(unit)
            except (qmgr.BackedOut, qmgr.ResourceProblem):
                continue
            with self.lock:
                self.units += bool(done)
            return done

    def report(self) -> None:
        status = self.qm.status()
        say(
            put=self.put,
            moved=self.moved,
            units=self.units,
            log_writes=status.log.writes.writes,
            log_bytes=status.log.writes.bytes_written,
            write_us=status.log.writes.write_time_long,
            checkpoints=status.checkpoints,
        )


def say(**figures: float) -> None:
    print(json.dumps(figures), flush=True)


def main(data_path: str, source: str, rows: str) -> None:
    """Run one life. Ends with exit code 0 when nothing is left to do."""
    try:
        with qmgr.start(NAME, data_path=data_path) as qm:
            say(replayed=qm.restart_report.records_replayed, seconds=qm.restart_report.seconds)
            Worker(qm, Path(source), int(rows)).run()
    except BrokenPipeError:
        sys.exit("the worker ends, because nobody listens to it any more")
    except (qmgr.MQError, data.NoData) as exc:
        sys.exit(f"the worker failed: {exc}")


if __name__ == "__main__":
    main(*sys.argv[1:])
