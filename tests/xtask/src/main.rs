//! Maintenance tasks of this repository that take more than one command.

#![allow(clippy::disallowed_methods, reason = "it reads the repository")]

mod beyond;
mod growth;
mod inventory;
mod layers;
mod limits;
#[cfg(test)]
mod links;
mod msrv;
mod names;
mod pages;
mod phrases;
mod plugins;
mod promises;
mod published;
mod rooms;
mod texts;
mod trees;
mod ways;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

const USAGE: &str = "usage: cargo run -p xtask -- growth | inventory DIR | limits | map | msrv | names | pages FORM DIR | phrases | plugins | promises | rooms | texts | trees [build] | ways\n\n\
    growth         which types of the published crates can get another field or variant\n\
    inventory DIR  write the licences and the bill of materials of the program into DIR, dated\n\
    \x20              SOURCE_DATE_EPOCH\n\
    limits         which types, traits and functions are large, and why\n\
    map            draw the map of ARCHITECTURE.md\n\
    msrv           build the published crates with the oldest Rust that they name, by rustup\n\
    names          whether each name of a type means one thing, and each constant says what\n\
    pages package|tarball DIR  write the pages, and the files that they name, as they are installed, below DIR\n\
    phrases        whether a text or a page has a phrase that tests/words/phrases refuses\n\
    plugins        which files name the plug-ins that can be deleted; then build a node of each list of plug-ins that\n\
    \x20              makes sense, without the crates of the others\n\
    promises       what the tests promise, and with --since REVISION what is gone or came\n\
    rooms          how large each crate is, which files need each other, and which folders use which\n\
    texts          each text that users read, with its file and line\n\
    trees [build]  how many crates each published crate brings alone, and with build the time that they take\n\
    ways           whether the product does each thing that has one place there only";

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["pages", "package", into] => pages::write(&repository(), &pages::PACKAGE, Path::new(into)),
        ["pages", "tarball", into] => pages::write(&repository(), &pages::TARBALL, Path::new(into)),
        ["growth"] => growth::show(&repository()),
        ["msrv"] => msrv::check(&repository()),
        ["limits"] => limits::show(&repository()),
        ["names"] => names::show(&repository()),
        ["map"] => layers::write_map(&repository()),
        ["texts"] => texts::show(&repository()),
        ["phrases"] => phrases::check(&repository()),
        ["ways"] => ways::check(&repository()),
        ["promises"] => promises::show(&repository()),
        ["promises", "--since", revision] => promises::show_since(&repository(), revision),
        ["plugins"] => {
            beyond::show(&repository())?;
            plugins::build(&repository())
        }
        ["rooms"] => {
            rooms::show(&repository())?;
            layers::show(&repository())
        }
        ["trees"] => trees::show(&repository(), false),
        ["trees", "build"] => trees::show(&repository(), true),
        ["inventory", out] => inventory::write(&repository(), Path::new(out), made_at()?),
        _ => bail!("{USAGE}"),
    }
}

/// The date of generated files, in seconds since 1970: taken from the environment, never from the clock.
fn made_at() -> Result<i64> {
    match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text.parse().with_context(|| format!("SOURCE_DATE_EPOCH is {text:?}")),
        Err(_) => Ok(0),
    }
}

fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}
