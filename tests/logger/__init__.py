"""Tests of the modules of logger."""
