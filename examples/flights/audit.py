"""The audit: what is on the queues against what is in the file. It trusts nothing that the worker said."""

from collections import Counter
from pathlib import Path

import qmgr
from examples.flights import data
from examples.flights.worker import FROM, MARK, TO


def audit(qm: qmgr.QueueManager, source: Path, rows: int) -> list[str]:
    """Return what is wrong, a sentence for each: nothing, if every flight is on its carrier's queue, once, in order.

    The order that must hold is the file's, among the flights of one origin and one carrier.
    """
    wrong = []
    file = {flight.number: flight for flight in data.flights(source, stop=rows)}
    seen: Counter[int] = Counter()
    for queue in qm.queues():
        if queue.name.startswith(FROM) and queue.depth:
            wrong.append(f"{queue.depth} flights are still on {queue.name}")
        if not queue.name.startswith(TO):
            continue
        latest: dict[str, int] = {}
        for message in qm.browse(queue.name):
            number = int(message.correlation_id)
            flight = file.get(number)
            seen[number] += 1
            if flight is None or TO + flight.carrier != queue.name or flight.body != message.body:
                wrong.append(f"the message on {queue.name} with number {number} is not that row of the file")
                continue
            if number < latest.get(flight.origin, -1):
                wrong.append(
                    f"on {queue.name} flight {number} from {flight.origin} comes after {latest[flight.origin]}"
                )
            latest[flight.origin] = number
    wrong += [f"flight {number} is there {count} times" for number, count in seen.items() if count > 1]
    wrong += [f"flight {number} is on no carrier queue" for number in file if number not in seen]
    marks = [message.body for message in qm.browse(MARK)]
    if marks != [b"%d" % rows]:
        wrong.append(f"the mark says {marks}, where {rows} rows were put")
    return wrong
