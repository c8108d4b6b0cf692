"""Two-phase commit: a queue and a database change together, although the process dies between the two.

The row is the decision: after the restart the prepared unit of work is in doubt, until the row resolves it.
"""

import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import qmgr

XID = qmgr.Xid(format_id=1, gtrid=b"order 4711", bqual=b"queue")


def sell(data_path: str) -> None:
    """Run by a child process, which dies when the database has committed and the queue manager has not."""
    qm = qmgr.start("QM1", data_path=data_path)
    unit = qm.begin(XID)
    unit.put("PARCELS", b"3 chairs to Ada")
    unit.prepare()  # durable: from here on the unit of work can be committed, whatever happens
    with sqlite3.connect(Path(data_path) / "shop.db") as database:
        database.execute("INSERT INTO decided VALUES (?)", (XID.gtrid,))
    os._exit(9)


def main() -> None:
    with tempfile.TemporaryDirectory() as data_path:
        qmgr.create("QM1", data_path=data_path)
        with qmgr.start("QM1", data_path=data_path) as qm:
            qm.define_queue("PARCELS")
        database = sqlite3.connect(Path(data_path) / "shop.db")
        database.execute("CREATE TABLE decided (gtrid BLOB PRIMARY KEY)")

        subprocess.run([sys.executable, __file__, data_path], check=False)
        with qmgr.start("QM1", data_path=data_path) as qm:
            print("in doubt:", [xid.gtrid.decode() for xid in qm.in_doubt()])
            for xid in qm.in_doubt():
                decided = database.execute("SELECT 1 FROM decided WHERE gtrid = ?", (xid.gtrid,)).fetchone()
                qm.resolve(xid, commit=decided is not None)
            print("parcel:", qm.get("PARCELS").body.decode())
        database.close()


if __name__ == "__main__":
    sell(sys.argv[1]) if len(sys.argv) > 1 else main()
