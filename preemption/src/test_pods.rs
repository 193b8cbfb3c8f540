//! Pods for tests.
