"""The log: bytes, frames, extents, LSNs, and forcing them to disk; not what a record means."""
