"""The commands: a file each, every one of them a thin reader of words and writer of lines over `qmgr`."""
