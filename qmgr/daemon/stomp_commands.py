"""What the frames of a STOMP client mean: CONNECT, then puts, deliveries and units of work of one session."""

import asyncio
from collections.abc import Callable

import attrs

from qmgr import __version__
from qmgr.daemon.stomp_connection import Connection
from qmgr.daemon.stomp_frames import DIALECTS, V10, Frame
from qmgr.daemon.stomp_login import Login, Credentials
from qmgr.daemon.stomp_messages import put_options, queue_of
from qmgr.daemon.stomp_subscriptions import Subscriptions
from qmgr.daemon.stomp_transactions import Transactions
from qmgr.errors import Mistake, MQError, Reason, Unavailable
from qmgr.session import Peer, Rights, Session, Sessions
