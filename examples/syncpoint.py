"""Units of work: what is put and got in one happens wholly or not at all."""

import tempfile

import qmgr


def ship(qm: qmgr.QueueManager) -> None:
    """Move one order to the invoices; on any exception the order is back on its queue."""
    with qm.begin() as unit:  # commits on leaving, backs out on an exception
        order = unit.get("ORDERS")
        unit.put("INVOICES", b"invoice for " + order.body, correlation_id=order.message_id)
        if order.backout_count == 0:
            raise RuntimeError("the printer is out of paper")


def show(qm: qmgr.QueueManager, when: str) -> None:
    depths = {queue.name: queue.depth for queue in qm.queues() if queue.name in ("ORDERS", "INVOICES")}
    print(f"{when}: {depths['ORDERS']} orders, {depths['INVOICES']} invoices")


def main() -> None:
    with tempfile.TemporaryDirectory() as data_path:
        qmgr.create("QM1", data_path=data_path)
        with qmgr.start("QM1", data_path=data_path) as qm:
            qm.define_queue("ORDERS")
            qm.define_queue("INVOICES")
            qm.put("ORDERS", b"3 chairs")
            show(qm, "before")
            try:
                ship(qm)
            except RuntimeError as exc:
                print(f"backed out: {exc}")
            show(qm, "after the backout")
            ship(qm)
            show(qm, "after the commit")
            print(qm.get("INVOICES").body.decode())


if __name__ == "__main__":
    main()
