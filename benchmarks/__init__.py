"""How fast the queue manager is, as ratios to the disk and to sqlite3, measured in the same run."""
