"""A process is killed in the middle of its work: what it committed is there after a restart, and no half of a unit."""

import signal
import subprocess
import sys
import tempfile

import qmgr


def work(data_path: str) -> None:
    """Run by a child process until it is killed: say on standard output what has been committed."""
    qm = qmgr.start("QM1", data_path=data_path)
    for number in range(1_000_000):
        with qm.begin() as unit:
            unit.put("LEFT", b"%d" % number)
            unit.put("RIGHT", b"%d" % number)
        print(number, flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as data_path:
        qmgr.create("QM1", data_path=data_path)
        with qmgr.start("QM1", data_path=data_path) as qm:
            qm.define_queue("LEFT")
            qm.define_queue("RIGHT")

        with subprocess.Popen([sys.executable, __file__, data_path], stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            said = [int(next(child.stdout)) for _ in range(200)]
            child.send_signal(signal.SIGKILL)
            said += [int(line) for line in child.stdout]

        with qmgr.start("QM1", data_path=data_path) as qm:
            left = [int(message.body) for message in qm.browse("LEFT")]
            right = [int(message.body) for message in qm.browse("RIGHT")]
            print("killed after 200 units of work, then restarted")
            print("committed units lost:", len(set(said) - set(left)))
            print("half units of work:", len(set(left) ^ set(right)))
            print("in order:", left == sorted(left))
            assert qm.restart_report.records_replayed >= len(left)


if __name__ == "__main__":
    work(sys.argv[1]) if len(sys.argv) > 1 else main()
