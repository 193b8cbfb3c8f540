//! Properties of reading the kernel's files, for any input. Called by tests/fuzz.

use crate::{capacity, psi, usage};

/// Parses the text as each kind of kernel file. Panics if a property is violated.
pub fn kernel_file(text: &[u8]) {
    if let Some(pressure) = psi::parse_pressure(text) {
        for share in [pressure.some_avg10, pressure.full_avg10] {
            assert!((0.0..=100.0).contains(&share), "a share of time is 0 % to 100 %: {share}");
        }
    }
    usage::fuzzing::laws(text);
    capacity::fuzzing::laws(text);
}

#[test]
fn any_file_of_the_kernel_keeps_the_laws() {
    winddown_fuzz::short("kernel_files", kernel_file);
}
