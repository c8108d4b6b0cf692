"""The stanzas and attributes of qm.ini: where each goes in Config, what it may be, and what it does.

The reader, the example file and the manual page are made from these tables.
"""

import attrs

from logger.compressed import Compression
from logger.config import LogSync, LogType, WriteIntegrity
from qmgr.configuration import MECHANISMS, ErrorLogFormat, LogManagement, Protocol
from qmgr.ini_values import (
    Address,
    Age,
    Choice,
    Directory,
    FileOrDirectory,
    Several,
    Unless,
    Values,
    Whole,
    Word,
    YesNo,
)


@attrs.frozen
class Attribute:
    """One attribute: its name in the file, its field in Config, what it may be, and what it does."""

    name: str
    field: str  # dotted, from Config; `listener` is one of `listeners`
    values: Values
    about: str
    required: bool = False


STANZAS: dict[str, tuple[Attribute, ...]] = {
    "Log": (
        Attribute("LogPrimaryFiles", "log.primary_files", Whole(2, 510),
                  "Extents that are formatted when the queue manager is created."),
        Attribute("LogSecondaryFiles", "log.secondary_files", Whole(1, 509),
                  "Further extents while the primaries are not enough; 3 to 511 together."),
        Attribute("LogFilePages", "log.file_pages", Whole(64, 65_535),
                  "Size of an extent in pages of 4 KiB; never changes after creation."),
        Attribute("LogType", "log.log_type", Choice(LogType),
                  "CIRCULAR reuses extents; LINEAR keeps them for media recovery."),
        Attribute("LogBufferPages", "log.buffer_pages", Whole(0, 4096),
                  "Log buffer in pages of 4 KiB; 0 means 512, and 1 to 17 mean 18."),
        Attribute("LogPath", "log.path", Directory(),
                  "Log directory of this queue manager: the control file and active/.", required=True),
        Attribute("LogWriteIntegrity", "log.write_integrity", Choice(WriteIntegrity),
                  "SingleWrite rewrites a partial page in place; the others never do."),
        Attribute("LogManagement", "log_management", Choice(LogManagement),
                  "Who frees extents of a linear log that nothing needs."),
        Attribute("LogSync", "log.sync", Choice(LogSync),
                  "When a commit is on disk: always (as it returns), interval or os; ours."),
        Attribute("LogSyncInterval", "log.sync_interval_ms", Whole(1, 3_600_000),
                  "LogSync=interval: milliseconds that a crash may lose; ours."),
    ),
    "LogArchive": (
        Attribute("ArchivePath", "log.archive_path", Unless("default", Directory()),
                  "Where archived extents of a linear log go; default: archive/ in LogPath; ours."),
        Attribute("ArchiveAfter", "log_archive.archive_after", Unless("never", Age()),
                  "Age at which an extent that no restart needs goes to the archive; ours."),
        Attribute("CompressAfter", "log_archive.compress_after", Unless("never", Age()),
                  "Age at which it is compressed, wherever it lies; ours."),
        Attribute("RemoveAfter", "log_archive.remove_after", Unless("never", Age()),
                  "Age at which it is removed if nothing needs it, the oldest first; ours."),
        Attribute("Compression", "log_archive.compression", Choice(Compression),
                  "zstd is quicker, and needs the package zstandard (the extra `zstd`); ours."),
    ),
    "TuningParameters": (
        Attribute("CheckPointLogRecdMax", "tuning.checkpoint_log_records_max", Whole(1, 999_999_999),
                  "A checkpoint is taken after this many log records, or three times as many messages."),
        Attribute("CheckPointLogRecdMin", "tuning.checkpoint_log_records_min", Whole(0, 2000),
                  "The timed checkpoint is left out after fewer log records than this; 0: after none."),
        Attribute("CheckPointWaitLen", "tuning.checkpoint_wait_minutes", Whole(5, 60),
                  "Minutes between timed checkpoints."),
        Attribute("DefaultQBufferSize", "tuning.default_q_buffer_size", Whole(1, 104_857_600),
                  "Bytes of a queue's non-persistent messages that stay in memory after a checkpoint."),
        Attribute("DefaultPQBufferSize", "tuning.default_pq_buffer_size", Whole(1, 104_857_600),
                  "Bytes of a queue's persistent messages that stay in memory after a checkpoint."),
        Attribute("ExpiryInterval", "tuning.expiry_interval", Whole(1, 999_999_999),
                  "Seconds between removals of expired messages."),
        Attribute("ImplSyncOpenOutput", "tuning.implicit_sync_open_output", Whole(1, 999_999_999, OFF=0),
                  "No effect: no queue is locked while the log is forced."),
        Attribute("MaxUncommittedMsgs", "tuning.max_uncommitted_messages", Whole(1, 999_999_999),
                  "Puts and gets that one unit of work may have (MAXUMSGS, crtmqm -x); ours."),
        Attribute("MaxHandles", "tuning.max_handles", Whole(1, 999_999_999),
                  "No effect: MAXHANDS of ALTER QMGR counts; ours."),
    ),
    "QMErrorLog": (
        Attribute("ErrorLogSize", "error_log.size", Whole(32_768, 2_147_483_648),
                  "Bytes of AMQERR01.LOG at which it becomes AMQERR02.LOG."),
        Attribute("ErrorLogFormat", "error_log.format", Choice(ErrorLogFormat),
                  "text for people, json for programs: one object a line; ours."),
    ),
    "Listener": (
        Attribute("Name", "listener.name", Word(),
                  "Tells the listeners apart, also in messages.", required=True),
        Attribute("Protocol", "listener.protocol", Choice(Protocol),
                  "QMGR: our own; STOMP: STOMP 1.2; HTTP: messages and metrics.", required=True),
        Attribute("Address", "listener.address", Address(),
                  "Where it listens; 0.0.0.0 or :: is every address of the machine."),
        Attribute("Port", "listener.port", Whole(0, 65_535),
                  "TCP port; 0: any that is free, which the error log names.", required=True),
        Attribute("TLSCertificate", "listener.tls_certificate", Unless("none", FileOrDirectory()),
                  "PEM file with the certificate and those up to its authority; it turns TLS on."),
        Attribute("TLSKey", "listener.tls_key", Unless("none", FileOrDirectory()),
                  "PEM file with the key of the certificate."),
        Attribute("TLSClientCA", "listener.tls_client_ca", Unless("none", FileOrDirectory()),
                  "PEM file with the authorities whose client certificates are good."),
        Attribute("Authentication", "listener.authentication", Several(*MECHANISMS),
                  "How a client says who it is; with TLS the default is SCRAM-SHA-256,PLAIN."),
        Attribute("Metrics", "listener.metrics", YesNo(),
                  "Protocol=HTTP: whether /metrics is served, for Prometheus."),
    ),
    "Channels": (
        Attribute("MaxChannels", "channels.max_channels", Whole(1, 65_535),
                  "The most that MaxActiveChannels may say."),
        Attribute("MaxActiveChannels", "channels.max_active_channels", Unless("MaxChannels", Whole(1, 65_535)),
                  "Connections over TCP at one time; one more is refused with 2025."),
        Attribute("MaxFrameLength", "channels.max_frame_length", Whole(65_536, 1_073_741_824),
                  "Bytes of the longest frame that is read; the largest message and 64 KiB; ours."),
        Attribute("ConnectTimeout", "channels.connect_timeout", Whole(1, 3600),
                  "Seconds from the connection until the client has said who it is; ours."),
        Attribute("IdleTimeout", "channels.idle_timeout", Whole(1, 86_400),
                  "Seconds in which a frame that has begun must be complete; ours."),
    ),
    "AutoConfig": (
        Attribute("MQSCConfig", "auto_config.mqsc_config", Unless("none", FileOrDirectory()),
                  "A file of MQSC commands, or a directory of *.mqsc, that are run at each start."),
        Attribute("IniConfig", "auto_config.ini_config", Unless("none", FileOrDirectory()),
                  "An ini file, or a directory of *.ini, laid over this one at each start."),
    ),
}  # fmt: skip

ATTRIBUTES = {stanza.upper(): {a.name.upper(): a for a in listed} for stanza, listed in STANZAS.items()}

REPEATED = "LISTENER"  # each stanza of this name stands for itself; those of any other name count as one

# What an overlay can't say: the commands look for the log where qm.ini says it is, whatever is laid over it.
NOT_OVERLAID = ("log.path", "log.log_type", "log.file_pages", "log.archive_path")

FOR_LINEAR = (  # stanza, field, and the value that asks for nothing
    ("Log", "log_management", LogManagement.MANUAL),
    ("LogArchive", "log_archive.archive_after", None),
    ("LogArchive", "log_archive.compress_after", None),
    ("LogArchive", "log_archive.remove_after", None),
)
NOT_AUTOMATIC = ("log_archive.archive_after", "log_archive.remove_after")

IGNORED_ATTRIBUTES = {
    "TUNINGPARAMETERS": {"SUPPRESSDSPAUTHFAIL", "UNIFORMCLUSTERNAME", "OAMLDAPCONNECTTIMEOUT"},
    "CHANNELS": {
        "ADOPTNEWMCA",
        "ADOPTNEWMCACHECK",
        "ADOPTNEWMCATIMEOUT",
        "CHLAUTHEARLYADOPT",
        "MAXINITIATORS",
        "MQIBINDTYPE",
        "PIPELINELENGTH",
    },
    "QMERRORLOG": {"EXCLUDEMESSAGE", "SUPPRESSMESSAGE", "SUPPRESSINTERVAL"},
}
_FOR_IBM_MQ = """
    ACCESSMODE APIEXITCOMMON APIEXITLOCAL APIEXITTEMPLATE AUTHTOKEN AUTOCLUSTER BROKER DIAGNOSTICMESSAGES EXITPATH
    EXITPROPERTIESLOCAL FILESYSTEM INSTANCEDATA LU62 NATIVEHAINSTANCE NATIVEHALOCALINSTANCE NETBIOS
    QUEUEMANAGERSTARTUP RESTRICTEDMODE SECURITY SERVICE SERVICECOMPONENT SPX SSL SUBPOOL TCP VARIABLES
    XARESOURCEMANAGER
"""
IGNORED_STANZAS = frozenset(_FOR_IBM_MQ.split())
