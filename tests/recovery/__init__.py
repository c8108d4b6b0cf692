"""Tests of the modules of recovery."""
