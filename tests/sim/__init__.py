"""A disk and a clock that live in memory, so that one seed is one whole life of a queue manager."""
