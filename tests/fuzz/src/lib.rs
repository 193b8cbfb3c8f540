//! What must hold of input that comes from outside the agent, whatever it is.
//!
//! A [`Target`] is a reader of such input with the laws that it keeps: not only that it never panics, but
//! what is true of its answer. [`short`] holds them against the target's seeds, against what was once found, and
//! against some thousand mutations of both; `make fuzz` does so for as long as one likes, guided by which code an
//! input reaches.
//!
//! Laws about what a crate keeps to itself are in that crate's `fuzzing` module, beside the code, and its own tests
//! call [`short`]. The others are in `tests/targets`. This library depends on no crate of winddown.
//!
//! What reads something new from outside gets a target and a directory of seeds. `tests/fuzz/run.sh 60 TARGET` runs it for
//! a minute; a finding becomes a seed.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use std::path::PathBuf;

mod mutate;
mod targets;

use mutate::Mutator;

/// A reader of foreign input.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of its folder in `corpus/`.
    pub name: &'static str,
    /// Where such input comes from, and what holds of the answer.
    pub what: &'static str,
    /// Longer input is not made, in bytes.
    pub longest: usize,
    /// How many mutations of each seed the short form makes.
    pub short: u32,
}

/// All of them, by name.
pub fn targets() -> &'static [Target] {
    &targets::ALL
}

/// Holds the laws of a target against its seeds and some thousand mutations of them, the same each time.
///
/// # Panics
/// A law is broken: the input is printed. Or there is no such target, or it has no seeds.
#[allow(clippy::panic, reason = "it is called by tests")]
pub fn short(name: &str, laws: fn(&[u8])) {
    let Some(target) = targets().iter().find(|target| target.name == name) else {
        panic!("{name} is no target");
    };
    let seeds = target.seeds().unwrap_or_default();
    assert!(!seeds.is_empty(), "{name} has no seeds");
    let keeps = |from: &str, input: &[u8]| {
        let _shown = Shown { target: name, from, input };
        laws(input);
    };
    keeps("nothing", &[]);
    let mut mutator = Mutator::new(0x7769_6e64_646f_776e);
    for (index, (from, seed)) in seeds.iter().enumerate() {
        keeps(from, seed);
        let (_, other) = &seeds[(index + 1) % seeds.len()];
        for _ in 0..target.short {
            keeps(from, &mutator.mutate(seed, other, target.longest));
        }
    }
}

/// Shows the input if a law is broken.
struct Shown<'a> {
    target: &'a str,
    from: &'a str,
    input: &'a [u8],
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { target, from, input } = self;
            eprintln!("{target}, made from {from}: {:?}", input.escape_ascii().to_string());
        }
    }
}

impl Target {
    /// Good input, and bad input that was once found to break a law. By name.
    ///
    /// # Errors
    /// The folder cannot be read.
    fn seeds(&self) -> std::io::Result<Vec<(String, Vec<u8>)>> {
        let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "corpus", self.name].iter().collect();
        let mut seeds = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            seeds.push((name, std::fs::read(entry.path())?));
        }
        seeds.sort();
        Ok(seeds)
    }
}
