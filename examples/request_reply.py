"""Questions and answers: each who asks gets the answer to its own question, and none that comes too late stays."""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import qmgr

PRICES = {b"chair": b"40", b"table": b"120", b"shelf": b"65"}


def serve(qm: qmgr.QueueManager) -> None:
    try:
        for question, unit in qm.consume("QUESTIONS"):
            with unit:  # the question is gone when its answer is there, whatever crashes
                if price := PRICES.get(question.body):
                    unit.put(question.reply_to, price, correlation_id=question.message_id, expiry=question.expiry)
    except qmgr.Unavailable:
        return  # the queue manager has ended


def ask(qm: qmgr.QueueManager, what: bytes, seconds: float) -> bytes:
    # Outside of a unit of work: nobody could answer what has not been committed.
    question = qm.put("QUESTIONS", what, reply_to="ANSWERS", expiry=seconds, persistent=False)
    return qm.get("ANSWERS", correlation_id=question.message_id, wait=seconds).body


def main() -> None:
    with tempfile.TemporaryDirectory() as data_path:
        qmgr.create("QM1", data_path=data_path)
        with qmgr.start("QM1", data_path=data_path) as qm:
            qm.define_queue("QUESTIONS")
            qm.define_queue("ANSWERS")
            server = Thread(target=serve, args=[qm])
            server.start()
            with ThreadPoolExecutor() as pool:  # all at once
                for what, price in zip(PRICES, pool.map(lambda what: ask(qm, what, 60.0), PRICES), strict=True):
                    print(f"a {what.decode()} is {price.decode()}")
            try:
                ask(qm, b"unicorn", 0.2)
            except qmgr.NoMessageAvailable:
                print("nobody knows what a unicorn is")
            print("left:", qm.queue("QUESTIONS").depth + qm.queue("ANSWERS").depth)
        server.join()


if __name__ == "__main__":
    main()
