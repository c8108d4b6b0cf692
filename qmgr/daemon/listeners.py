"""Which listener belongs to which protocol. Each is imported when there is one: TLS and event loops take long."""

from qmgr import ini
from qmgr.daemon.service import Listener, Makers, Service


def ours(service: Service, config: ini.ListenerConfig | None) -> Listener:
    """Of our own protocol: without a stanza for the clients of this machine, who are always let in."""
    from qmgr.daemon.local import make

    return make(service, config)


def stomp(service: Service, config: ini.ListenerConfig | None) -> Listener:
    from qmgr.daemon.stomp import StompListener

    assert config is not None, "it has a stanza"
    return StompListener(service, config)


def http(service: Service, config: ini.ListenerConfig | None) -> Listener:
    from qmgr.daemon.http import HttpListener

    assert config is not None, "it has a stanza"
    return HttpListener(service, config)


MAKERS: Makers = {
    None: ours,
    ini.Protocol.QMGR: ours,
    ini.Protocol.STOMP: stomp,
    ini.Protocol.HTTP: http,
}
