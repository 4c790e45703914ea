//! Interpreters that are forked from a warm one.
