"""Worker processes: an order that fails three times is put aside, and SIGTERM ends a worker when its order is done."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from threading import Event

import qmgr


def invoice(order: bytes) -> bytes:
    if b"unicorn" in order:
        raise ValueError("there are no unicorns")
    return b"invoice for " + order


def work() -> None:
    """Run by each worker."""
    ending = Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    with qmgr.connect("QM1") as qm:
        print("ready", flush=True)
        while not ending.is_set():
            for order, unit in qm.consume("ORDERS", wait=0.5):  # so that it hears of the end when there are no orders
                with contextlib.suppress(ValueError), unit:  # which backs out: the order is on its queue again,
                    unit.put("INVOICES", invoice(order.body))  # and after the third time on the backout queue
                if ending.is_set():
                    break


def main() -> None:
    with tempfile.TemporaryDirectory() as data_path:
        os.environ["QMGR_DATA_PATH"] = data_path
        qmgr.create("QM1")
        subprocess.run(["strmqm", "QM1"], check=True, stdout=subprocess.PIPE)
        with qmgr.connect("QM1") as qm:
            qm.define_queue("ORDERS", backout_threshold=3, backout_queue="ORDERS.FAILED")
            qm.define_queue("ORDERS.FAILED")
            qm.define_queue("INVOICES")
            command = [sys.executable, __file__, "work"]
            workers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(3)]
            qm.put_many("ORDERS", [b"1 unicorn", *(b"%d chairs" % number for number in range(2, 100))])
            invoices = {qm.get("INVOICES", wait=60.0).body for _ in range(98)}
            print("invoices:", len(invoices))
            print("put aside:", qm.get("ORDERS.FAILED", wait=60.0).body.decode())
            for worker in workers:
                assert worker.stdout is not None and worker.stdout.readline() == b"ready\n"  # it has its handler
                worker.terminate()
            print("workers ended with", [worker.wait() for worker in workers])
            print("left:", sum(queue.depth for queue in qm.queues()))
            qm.end()


if __name__ == "__main__":
    work() if len(sys.argv) > 1 else main()
