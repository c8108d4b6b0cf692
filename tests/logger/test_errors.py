"""The errors of the log: one tree, each with its AMQ number."""

from logger import errors


def test_one_tree_with_numbers() -> None:
    kinds: list[type[errors.LogError]] = [errors.LogDamaged, errors.LogFailed, errors.LogClosed, errors.LogInUse]
    assert all(issubclass(kind, errors.LogError) for kind in kinds)
    assert [kind.amq for kind in kinds] == ["AMQ6767", "AMQ6708", "AMQ7017", "AMQ7017"]
    damaged = errors.LogDamaged("text", path="/f", lsn=8)
    assert (str(damaged), damaged.path, damaged.lsn) == ("text", "/f", 8)
    assert errors.LogInUse("text", holder="pid 1").holder == "pid 1"
