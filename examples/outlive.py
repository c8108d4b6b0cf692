"""A producer and a consumer that outlive the daemon: it is killed under them, and no order is lost or put twice."""

import os
import subprocess
import tempfile
import time
from threading import Thread

import qmgr


def consume() -> None:
    while True:
        try:
            with qmgr.connect("QM1") as qm:
                for order, unit in qm.consume("ORDERS"):
                    with unit:
                        unit.put("INVOICES", order.body)
        except (qmgr.Unavailable, qmgr.BackedOut, qmgr.TryAgain):
            time.sleep(1)  # the order is on its queue again; where log, disk or queue is full this counts as a backout


def put_once(qm: qmgr.Connection, body: bytes) -> None:
    number, state = 0, None  # of the last unit of work: its commit may be without an answer
    while state is not qmgr.UowState.COMMITTED:
        try:
            state = qm.outcome(number) if number else qmgr.UowState.BACKED_OUT
            if state is None:
                raise LookupError(f"the log has unit of work {number} no more; look for what it has put")
            if state is qmgr.UowState.BACKED_OUT:
                with qm.begin() as unit:
                    unit.put("ORDERS", body)
                    number = unit.id
                return
        except (qmgr.Unavailable, qmgr.BackedOut, qmgr.TryAgain):
            time.sleep(0.1)  # the next call connects again, or finds room


def main() -> None:
    with tempfile.TemporaryDirectory() as data_path:
        os.environ["QMGR_DATA_PATH"] = data_path
        qmgr.create("QM1")
        subprocess.run(["strmqm", "QM1"], check=True, stdout=subprocess.PIPE)
        with qmgr.connect("QM1") as qm:
            qm.define_queue("ORDERS")
            qm.define_queue("INVOICES")
            Thread(target=consume, daemon=True).start()
            put = list[bytes]()
            with subprocess.Popen("endmqm -p QM1; strmqm QM1", shell=True, stdout=subprocess.PIPE) as killer:
                while killer.poll() is None:
                    put_once(qm, body := b"order %d" % len(put))
                    put.append(body)
            print("an invoice for each order, in order:", [qm.get("INVOICES", wait=60.0).body for _ in put] == put)
            print("left:", qm.queue("ORDERS").depth + qm.queue("INVOICES").depth)
            qm.end()


if __name__ == "__main__":
    main()
