"""The queue manager as a process of its own, which serves many: its life, and the listeners that clients connect to."""
