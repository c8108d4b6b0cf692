"""What can go wrong with checkpoints and restart.

RecoveryError
├── CheckpointDamaged   no checkpoint file can be read
├── NotRecoverable      the checkpoint and the log do not fit together
└── QueueDamaged        one queue's store can't be read: that queue alone is unusable
"""


class RecoveryError(Exception):
    """Restart can't bring the queue manager back as it was."""

    amq = "AMQ7017"


class CheckpointDamaged(RecoveryError):
    pass


class NotRecoverable(RecoveryError):
    pass


class QueueDamaged(RecoveryError):
    amq = "AMQ7472"

    def __init__(self, text: str, path: str = "") -> None:
        """`path`: of the file that is there and can't be believed."""
        super().__init__(text)
        self.path = path
