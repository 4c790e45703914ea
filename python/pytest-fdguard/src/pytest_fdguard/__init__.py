"""Fails a test that leaves descriptors or child processes behind, with the line that opened them."""

__version__ = "0.1.0"
