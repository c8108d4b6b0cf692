"""The daemon: a queue manager as a process of its own, and the listeners by which others reach it."""
