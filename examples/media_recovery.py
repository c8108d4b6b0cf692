"""A queue's file is lost while the queue manager runs; the queue comes back from its media image and the log."""

import pathlib
import sys
import tempfile

import qmgr


def main(data: str) -> None:
    qmgr.create("QM1", data_path=data, log_type="linear")
    with qmgr.start("QM1", data_path=data) as qm:
        qm.define_queue("ORDERS", buffer_size=1)  # keep no more than a byte of it in memory, so that files matter
        qm.put_many("ORDERS", [b"order %d" % n for n in range(1000)])
        qm.record_image("ORDERS")  # rcdmqimg: it lies in the log now
        unit = qm.begin()
        taken = unit.get("ORDERS").body  # a unit of work that goes on while the disaster happens
        qm.put("ORDERS", b"one more, after the image")

        for file in pathlib.Path(data, "qmgrs/QM1/queues/ORDERS").iterdir():
            file.unlink()
        try:
            print(len(list(qm.browse("ORDERS"))), "messages")
        except qmgr.MQError as exc:
            print(exc.reason.name)  # OBJECT_DAMAGED, 2101

        print(qm.recreate("ORDERS").depth, "messages are back")  # rcrmqobj; the one that the unit has taken is locked
        unit.backout()
        first, *_, last = (message.body for message in qm.browse("ORDERS"))
        print(first == taken, last)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as directory:
            main(directory)
