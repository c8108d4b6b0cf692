"""Which listener belongs to which protocol. Each is imported when there is one: TLS and event loops take long."""

from qmgr import ini
from qmgr.daemon.service import Listener, Makers, Service


def local(service: Service, config: ini.ListenerConfig | None) -> Listener:
    """For the clients of this machine: always there."""
    from qmgr.daemon.local import make_local

    return make_local(service, service.location.socket, service.disk)


def ours(service: Service, config: ini.ListenerConfig | None) -> Listener:
    from qmgr.daemon.local import make

    return make(service, config, service.disk)


def stomp(service: Service, config: ini.ListenerConfig | None) -> Listener:
    from qmgr.daemon.stomp import make

    assert config is not None, "it has a stanza"
    return make(service, config)


def http(service: Service, config: ini.ListenerConfig | None) -> Listener:
    from qmgr.daemon.http import make

    assert config is not None, "it has a stanza"
    return make(service, config)


MAKERS: Makers = {
    None: local,
    ini.Protocol.QMGR: ours,
    ini.Protocol.STOMP: stomp,
    ini.Protocol.HTTP: http,
}
