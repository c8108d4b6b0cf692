"""Messages are got and gone, and told again from the log: to an audit that keeps a bookmark, over a crash."""

import tempfile
from pathlib import Path

import qmgr


def audit(qm: qmgr.QueueManager, kept: Path) -> list[str]:
    """What was put to ORDERS since the last audit. The bookmark is kept when that is done: nothing is left out."""
    start = kept.read_text() if kept.exists() else "oldest"
    with qm.replay("ORDERS", start) as replay:
        found = [order.message.body.decode() for order in replay]
        kept.write_text(replay.bookmark)
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as data_path:
        kept = Path(data_path, "bookmark")
        qmgr.create("QM1", data_path=data_path, log_type="linear")
        with qmgr.start("QM1", data_path=data_path) as qm:
            qm.define_queue("ORDERS")
            qm.put("ORDERS", b"3 chairs")
            late = qm.begin()
            late.put("ORDERS", b"a wardrobe that took time")
            with qm.begin() as unit:
                unit.put_many("ORDERS", [b"1 table", b"2 lamps"])
            print("audit:", audit(qm, kept))

            late.commit()  # it was put before the audit, and comes with its commit
            print("the worker gets:", [order.body.decode() for order in qm.get_many("ORDERS", 100)])
            print("left on the queue:", qm.queue("ORDERS").depth)
            qm.put("ORDERS", b"4 shelves")
            qm.abandon()  # as a crash would

        with qmgr.start("QM1", data_path=data_path) as qm:
            qm.put("ORDERS", b"1 mirror")
            print("audit:", audit(qm, kept))
            print("audit:", audit(qm, kept))

            history = list(qm.replay("ORDERS", "oldest"))
            since = [order.message.body.decode() for order in qm.replay("ORDERS", history[-2].time)]
            print("since a moment:", since)
            behind = [order.message.body.decode() for order in qm.replay("ORDERS", history[1].bookmark)]
            print("behind the table, in the middle of a unit of work:", behind[0])


if __name__ == "__main__":
    main()
