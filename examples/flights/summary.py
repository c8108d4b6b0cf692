"""The table at the end: what all lives of the worker did together."""

from rich.table import Table

from examples.flights.supervise import Life


def summary(lives: list[Life], rows: int, carriers: int, seconds: float) -> Table:
    """Sum up the workers' reports. What a worker did after its last report before a kill is not in the sums."""
    writes = sum(life.log_writes for life in lives)
    size = sum(life.log_bytes for life in lives) / max(1, writes)
    time = sum(life.write_seconds for life in lives) / max(1, writes)
    early = sum(life.replayed is None for life in lives)
    restarts = [life for life in lives[1:] if life.replayed is not None]
    table = Table(title=f"{rows:,} flights", show_header=False)
    for name, value in {
        "messages": f"{rows:,} put on origin queues, then moved to {carriers} carrier queues",
        "units of work": f"{sum(life.units for life in lives):,}",
        "log writes": f"{writes:,}",
        "mean write": f"{size / 1024:.1f} KiB in {time * 1e3:.2f} ms",
        "checkpoints": f"{sum(life.checkpoints for life in lives):,}",
        "kills": f"{sum(life.killed for life in lives)}"
        + f", {early} of them before the restart was over" * bool(early),
        "log records replayed": "  ".join(f"{life.replayed:,}" for life in restarts) or "-",
        "seconds per restart": "  ".join(f"{life.seconds:.2f}" for life in restarts) or "-",
        "seconds in all": f"{seconds:.0f}",
    }.items():
        table.add_row(name, value)
    return table
