//! The `winddown` binary.

fn main() {}
