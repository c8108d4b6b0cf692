"""Records, units of work, checkpoints and restart; not queues as a user sees them."""
