"""Which module a listener comes from. Each is imported when there is such a listener, for they take long to import."""

import importlib

from qmgr import ini
from qmgr.daemon.service import Listener, Make, Makers
from qmgr.session import ServiceFace

MODULES = {
    None: "qmgr.daemon.local",
    ini.Protocol.QMGR: "qmgr.daemon.local",
    ini.Protocol.STOMP: "qmgr.daemon.stomp",
    ini.Protocol.HTTP: "qmgr.daemon.http",
}


def _maker(module: str) -> Make:
    def make(service: ServiceFace, config: ini.ListenerConfig | None) -> Listener:
        found: Make = importlib.import_module(module).make
        return found(service, config)

    return make


def makers() -> Makers:
    """By protocol; None: for the clients of this machine."""
    return {protocol: _maker(module) for protocol, module in MODULES.items() if importlib.util.find_spec(module)}
