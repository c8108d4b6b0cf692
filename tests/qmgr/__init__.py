"""Tests of the modules of qmgr, and for qmgr of its public interface."""
