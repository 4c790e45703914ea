//! A descriptor baseline for test suites.
