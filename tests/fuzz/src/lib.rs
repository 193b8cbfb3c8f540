//! What must hold of input that comes from outside the agent, whatever it is.
//!
//! A [`Target`] is a reader of such input with the laws that it keeps: not only that it never panics, but
//! what is true of its answer. `tests/short.rs` holds every target against its seeds, against what was
//! once found, and against some thousand mutations of both; `make fuzz` does so for as long as one likes,
//! guided by which code an input reaches.
//!
//! Laws about what a crate keeps to itself are in that crate's `fuzzing` module, beside the code.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use std::path::PathBuf;

mod mutate;
mod targets;

pub use mutate::Mutator;

/// A reader of foreign input.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of its folder in `corpus/`.
    pub name: &'static str,
    /// Where such input comes from, and what holds of the answer.
    pub what: &'static str,
    /// Reads the input. Panics if a law is broken.
    pub laws: fn(&[u8]),
    /// Longer input is not made, in bytes.
    pub longest: usize,
    /// How many mutations of each seed the short form makes.
    pub short: u32,
}

/// All of them, by name.
pub fn targets() -> &'static [Target] {
    &targets::ALL
}

impl Target {
    /// The one of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        targets().iter().find(|target| target.name == name)
    }

    /// Good input, and bad input that was once found to break a law. By name.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn seeds(&self) -> std::io::Result<Vec<(String, Vec<u8>)>> {
        let mut seeds = Vec::new();
        for entry in std::fs::read_dir(self.folder())? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            seeds.push((name, std::fs::read(entry.path())?));
        }
        seeds.sort();
        Ok(seeds)
    }

    /// The folder of its seeds.
    pub fn folder(&self) -> PathBuf {
        [env!("CARGO_MANIFEST_DIR"), "corpus", self.name].iter().collect()
    }
}
