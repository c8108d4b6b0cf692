"""The daemon: a queue manager with its listeners, in a process of its own."""
