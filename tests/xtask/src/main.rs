//! Maintenance tasks of this repository that take more than one command.

#![allow(clippy::disallowed_methods, reason = "it reads the repository")]

mod inventory;
mod layers;
mod limits;
#[cfg(test)]
mod links;
mod names;
mod pages;
mod plugins;
#[cfg(test)]
mod published;
mod rooms;
mod ways;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

const USAGE: &str = "usage: cargo run -p xtask -- cri-proto | inventory DIR | limits | map | names | pages FORM DIR | plugins | rooms | ways\n\n\
    cri-proto      write what is generated from runtimes/cri/proto; commit the result\n\
    inventory DIR  write the licences and the bill of materials of the program into DIR, dated\n\
    \x20              SOURCE_DATE_EPOCH\n\
    limits         which types, traits and functions are large, and why\n\
    map            draw the map of ARCHITECTURE.md\n\
    names          whether each name of a type means one thing, and each constant says what\n\
    pages package|tarball DIR  write the pages, and the files that they name, as they are installed, below DIR\n\
    plugins        build a node of each list of plug-ins that makes sense, without the crates of the others\n\
    rooms          how large each crate is, which files need each other, and which folders use which\n\
    ways           whether the product does each thing that has one place there only";

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["cri-proto"] => {
            GENERATED.iter().try_for_each(|(out, side)| generate(&repository().join(out), *side))
        }
        ["pages", "package", into] => pages::write(&repository(), &pages::PACKAGE, Path::new(into)),
        ["pages", "tarball", into] => pages::write(&repository(), &pages::TARBALL, Path::new(into)),
        ["limits"] => limits::show(&repository()),
        ["names"] => names::show(&repository()),
        ["map"] => layers::write_map(&repository()),
        ["ways"] => ways::check(&repository()),
        ["plugins"] => plugins::build(&repository()),
        ["rooms"] => {
            rooms::show(&repository())?;
            layers::show(&repository())
        }
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

/// The side of the calls that generated files implement.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Client,
    Server,
}

/// The folders of generated files, relative to the repository's root: the client for the product, and the server for
/// the scripted runtime of the tests.
const GENERATED: [(&str, Side); 2] =
    [("runtimes/cri/src/generated", Side::Client), ("tests/runtimes/src/generated", Side::Server)];

/// Compiles the `.proto` files. Needs no protoc, because the compiler is a crate.
fn generate(out: &Path, side: Side) -> Result<()> {
    let protos = repository().join("runtimes/cri/proto");
    let files = protox::compile(["cri.proto", "health.proto"], [&protos])
        .with_context(|| format!("cannot compile {}", protos.display()))?;
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    tonic_prost_build::configure()
        .build_transport(false)
        .build_client(side == Side::Client)
        .build_server(side == Side::Server)
        .out_dir(out)
        .compile_fds(files)
        .with_context(|| format!("cannot write to {}", out.display()))
}

fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::{GENERATED, generate, repository};

    #[test]
    fn the_committed_protocol_code_is_what_the_proto_files_give() {
        for (out, side) in GENERATED {
            let fresh = tempfile::tempdir().unwrap();
            generate(fresh.path(), side).unwrap();
            let (fresh, committed) = (read(fresh.path()), read(&repository().join(out)));
            assert!(
                fresh == committed,
                "{out} is not up to date: run `cargo run -p xtask -- cri-proto`"
            );
        }
    }

    fn read(folder: &Path) -> BTreeMap<String, String> {
        std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                let name = entry.file_name().into_string().unwrap();
                (name, std::fs::read_to_string(entry.path()).unwrap())
            })
            .collect()
    }
}
