"""Which listener belongs to which protocol. Each is imported only if it is used: ssl and asyncio take long to load."""

from qmgr import ini
from qmgr.daemon.service import Listener, Makers, Service


def ours(service: Service, config: ini.ListenerConfig | None) -> Listener:
    """The client protocol: over TCP as a stanza says, or without one the Unix socket, which is always there."""
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
