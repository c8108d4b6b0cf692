"""The configuration that qm.ini gives, as frozen classes: `ini.py` makes them once, with all defaults filled in."""

import enum

import attrs

from logger.archive_plan import ArchivePolicy
from logger.config import LogConfig, within


class LogManagement(enum.Enum):
    """Who removes the extents of a linear log that nothing needs any more."""

    MANUAL = "Manual"
    AUTOMATIC = "Automatic"
    ARCHIVE = "Archive"


class ErrorLogFormat(enum.Enum):
    TEXT = "text"
    JSON = "json"


@attrs.frozen(kw_only=True)
class Tuning:
    """The TuningParameters stanza. Sizes are bytes."""

    checkpoint_log_records_max: int = attrs.field(default=50_000, validator=within(1, 999_999_999))
    checkpoint_log_records_min: int = attrs.field(default=100, validator=within(0, 2000))
    checkpoint_wait_minutes: int = attrs.field(default=30, validator=within(5, 60))
    default_q_buffer_size: int = attrs.field(default=131_072, validator=within(1, 104_857_600))
    default_pq_buffer_size: int = attrs.field(default=262_144, validator=within(1, 104_857_600))
    expiry_interval: int = attrs.field(default=300, validator=within(1, 999_999_999))  # seconds
    implicit_sync_open_output: int = attrs.field(default=2, validator=within(0, 999_999_999))  # 0: OFF
    max_uncommitted_messages: int = attrs.field(default=10_000, validator=within(1, 999_999_999))
    max_handles: int = attrs.field(default=256, validator=within(1, 999_999_999))


@attrs.frozen(kw_only=True)
class ErrorLogConfig:
    """The QMErrorLog stanza."""

    size: int = attrs.field(default=33_554_432, validator=within(32_768, 2_147_483_648))  # bytes of each of three files
    format: ErrorLogFormat = ErrorLogFormat.TEXT


class Protocol(enum.Enum):
    """What a listener speaks."""

    QMGR = "QMGR"  # ours: docs/protocol.md
    STOMP = "STOMP"
    HTTP = "HTTP"


MECHANISMS = ("NONE", "PLAIN", "SCRAM-SHA-256", "EXTERNAL")


class Clash(ValueError):
    """Attributes that do not go together; `field` is the one to change."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


def is_loopback(address: str) -> bool:
    """Whether an address can be reached from this machine only."""
    import ipaddress  # takes longer than all of this module, and few have a listener

    try:
        return address == "localhost" or ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


@attrs.frozen(kw_only=True)
class ListenerConfig:
    """A Listener stanza: one TCP address that clients connect to. Raises Clash, a ValueError."""

    name: str
    protocol: Protocol
    address: str = "127.0.0.1"
    port: int = attrs.field(validator=within(0, 65_535))  # 0: any that is free
    tls_certificate: str | None = None  # paths of PEM files
    tls_key: str | None = None
    tls_client_ca: str | None = None
    authentication: tuple[str, ...] = attrs.field()
    metrics: bool = False  # HTTP only

    @authentication.default
    def _authentication(self) -> tuple[str, ...]:
        return ("SCRAM-SHA-256", "PLAIN") if self.tls_certificate else ("SCRAM-SHA-256",)

    @property
    def tls(self) -> bool:
        return self.tls_certificate is not None

    def __attrs_post_init__(self) -> None:
        if (self.tls_certificate is None) != (self.tls_key is None):
            given, missing = ("key", "certificate") if self.tls_certificate is None else ("certificate", "key")
            names = {"key": "TLSKey", "certificate": "TLSCertificate"}
            raise Clash(f"tls_{given}", f"{names[given]} needs {names[missing]}; give both or neither")
        if self.tls_client_ca is not None and not self.tls:
            raise Clash("tls_client_ca", "TLSClientCA needs TLS; give TLSCertificate and TLSKey too")
        if self.metrics and self.protocol is not Protocol.HTTP:
            raise Clash("metrics", "Metrics=YES goes with Protocol=HTTP only")
        self._check_authentication()

    def _check_authentication(self) -> None:
        mechanisms = self.authentication
        if not mechanisms or not set(mechanisms) <= set(MECHANISMS):
            raise Clash("authentication", f"Authentication is one or more of {', '.join(MECHANISMS)}")
        wrong = ""
        if "NONE" in mechanisms:
            if len(mechanisms) > 1:
                wrong = "NONE lets in whoever comes, so it stands alone or not at all"
            elif not is_loopback(self.address):
                wrong = (
                    f"NONE is allowed with a loopback address only, such as 127.0.0.1, and Address is {self.address}"
                )
        elif "PLAIN" in mechanisms and not self.tls:
            wrong = "PLAIN sends passwords, so it needs TLS; give TLSCertificate and TLSKey, or use SCRAM-SHA-256"
        elif "EXTERNAL" in mechanisms and self.tls_client_ca is None:
            wrong = "EXTERNAL asks clients for certificates, so it needs TLSClientCA, which says whose are good"
        elif mechanisms == ("SCRAM-SHA-256",) and self.protocol is not Protocol.QMGR:
            wrong = (
                f"Protocol={self.protocol.value} has no way for SCRAM-SHA-256; give TLSCertificate and TLSKey, and "
                f"PLAIN or EXTERNAL, or NONE on a loopback address"
            )
        if wrong:
            raise Clash("authentication", f"Authentication={','.join(mechanisms)}: {wrong}")


@attrs.frozen(kw_only=True)
class ChannelsConfig:
    """The Channels stanza: limits of the connections that come over TCP. Raises Clash, a ValueError."""

    max_channels: int = attrs.field(default=100, validator=within(1, 65_535))
    max_active_channels: int | None = attrs.field(default=None, validator=attrs.validators.optional(within(1, 65_535)))
    max_frame_length: int = attrs.field(default=104_923_136, validator=within(65_536, 1_073_741_824))  # bytes
    connect_timeout: int = attrs.field(default=10, validator=within(1, 3600))  # seconds until authenticated
    idle_timeout: int = attrs.field(default=60, validator=within(1, 86_400))  # seconds that one frame may take

    @property
    def limit(self) -> int:
        """Connections at one time."""
        return self.max_channels if self.max_active_channels is None else self.max_active_channels

    def __attrs_post_init__(self) -> None:
        if self.limit > self.max_channels:
            raise Clash(
                "max_active_channels", f"MaxActiveChannels={self.limit} is more than MaxChannels={self.max_channels}"
            )


@attrs.frozen(kw_only=True)
class AutoConfig:
    """The AutoConfig stanza: files, or directories of them, that are applied at each start. None: nothing is."""

    mqsc_config: str | None = None
    ini_config: str | None = None


@attrs.frozen(kw_only=True)
class Config:
    """Everything that qm.ini says. A change takes effect when the queue manager is next started."""

    log: LogConfig
    log_management: LogManagement = LogManagement.MANUAL
    log_archive: ArchivePolicy = attrs.field(factory=ArchivePolicy)
    tuning: Tuning = Tuning()
    error_log: ErrorLogConfig = ErrorLogConfig()
    listeners: tuple[ListenerConfig, ...] = ()
    channels: ChannelsConfig = ChannelsConfig()
    auto_config: AutoConfig = AutoConfig()
    ignored: tuple[str, ...] = attrs.field(default=(), eq=False)  # known to IBM MQ, without effect here: what and where
    idle: tuple[str, ...] = attrs.field(default=(), eq=False)  # sentences: what has no effect with this LogType
    complaints: tuple[str, ...] = attrs.field(default=(), eq=False)  # what is wrong with the files of AutoConfig
