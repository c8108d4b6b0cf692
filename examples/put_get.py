"""Put messages, look at them, get them: by priority, by correlation id, and all of the rest at once."""

import tempfile

import qmgr


def main() -> None:
    with tempfile.TemporaryDirectory() as data_path:
        qmgr.create("QM1", data_path=data_path)
        with qmgr.start("QM1", data_path=data_path) as qm:
            qm.define_queue("ORDERS", description="Orders that wait for the warehouse")

            qm.put("ORDERS", b"3 chairs")
            qm.put("ORDERS", b"1 table", priority=9, properties={"customer": "Ada", "express": True})
            question = qm.put("ORDERS", b"do you have lamps?", reply_to="ANSWERS")
            qm.put_many("ORDERS", [b"2 shelves", b"4 shelves"])

            print("waiting:", [message.body.decode() for message in qm.browse("ORDERS")])

            first = qm.get("ORDERS")
            print("first:", first.body.decode(), "for", first.properties["customer"])

            asked = qm.get("ORDERS", message_id=question.message_id)
            print("asked:", asked.body.decode(), "answer to", asked.reply_to)

            print("rest:", [message.body.decode() for message in qm.get_many("ORDERS", 100)])

            try:
                qm.get("ORDERS", wait=0.1)
            except qmgr.NoMessageAvailable as exc:
                print("nothing left:", exc.reason.name)


if __name__ == "__main__":
    main()
