//! Makes a test of each example in the READMEs of the libraries and in docs/embedding.md.
//!
//! As tests of documentation they would be compiled anew each time they are run, which took a tenth of what all
//! tests take.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // A new library is a new member.
    println!("cargo::rerun-if-changed={}", repository.join("Cargo.toml").display());
    let mut tests = String::new();
    for page in pages(&repository)? {
        println!("cargo::rerun-if-changed={}", page.display());
        let name = page.strip_prefix(&repository)?.to_string_lossy().replace(['/', '-', '.'], "_");
        for example in examples(&fs::read_to_string(&page)?) {
            let Example { line, runs, code } = example;
            let attribute = if runs { "#[test]" } else { "#[allow(dead_code)]" };
            writeln!(tests, "mod {}_line_{line} {{\n{code}", name.to_lowercase())?;
            writeln!(tests, "{attribute}\nfn ends_well() {{ super::ended_well(main()) }}\n}}")?;
        }
    }
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("examples.rs"), tests)?;
    Ok(())
}

fn pages(repository: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut pages = vec![repository.join("docs/embedding.md")];
    for crates in [repository.to_path_buf(), repository.join("tests")] {
        for entry in fs::read_dir(crates)? {
            pages.push(entry?.path().join("README.md"));
        }
    }
    pages.retain(|page| page.exists());
    pages.sort();
    Ok(pages)
}

/// A block of Rust, as rustdoc takes it.
struct Example {
    line: usize,
    /// It is not only compiled.
    runs: bool,
    code: String,
}

fn examples(page: &str) -> Vec<Example> {
    let mut found: Vec<Example> = Vec::new();
    let mut inside = false;
    for (n, line) in page.lines().enumerate() {
        match (line, found.last_mut()) {
            ("```", _) if inside => inside = false,
            (_, Some(example)) if inside => {
                // Lines that readers are not shown.
                let line = if line == "#" { "" } else { line.strip_prefix("# ").unwrap_or(line) };
                example.code.push_str(line);
                example.code.push('\n');
            }
            ("```rust" | "```rust,no_run", _) => {
                inside = true;
                let runs = line == "```rust";
                found.push(Example { line: n + 1, runs, code: String::new() });
            }
            _ => {}
        }
    }
    found
}
