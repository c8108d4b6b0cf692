"""The errors of recovery: one tree."""

from recovery import errors


def test_one_tree() -> None:
    kinds = [errors.CheckpointDamaged, errors.NotRecoverable, errors.QueueDamaged]
    assert all(issubclass(kind, errors.RecoveryError) for kind in kinds)
    assert errors.QueueDamaged.amq == "AMQ7472"
