//! Chores of this repository that are more than one command.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

const USAGE: &str = "usage: cargo run -p xtask -- cri-proto\n\n\
    cri-proto   write runtimes/src/cri/generated from runtimes/proto; commit the result";

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("cri-proto") => generate(&repository().join(GENERATED)),
        _ => bail!("{USAGE}"),
    }
}

/// The generated files' folder, from the repository's root.
const GENERATED: &str = "runtimes/src/cri/generated";

/// The package of the runtime interface, whose server the scripted runtime of the tests needs.
const CRI: &str = "runtime.v1";

/// Compiles the `.proto` files. No protoc: the compiler is a crate.
fn generate(out: &Path) -> Result<()> {
    let protos = repository().join("runtimes/proto");
    let files = protox::compile(["cri.proto", "health.proto"], [&protos])
        .with_context(|| format!("cannot compile {}", protos.display()))?;
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    tonic_prost_build::configure()
        .build_transport(false)
        .server_mod_attribute(CRI, "#[cfg(feature = \"fake-cri\")]")
        .server_mod_attribute("grpc.health.v1", "#[cfg(feature = \"fake-cri\")]")
        .out_dir(out)
        .compile_fds(files)
        .with_context(|| format!("cannot write to {}", out.display()))
}

fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::{GENERATED, generate, repository};

    #[test]
    fn the_committed_protocol_code_is_what_the_proto_files_give() {
        let fresh = tempfile::tempdir().unwrap();
        generate(fresh.path()).unwrap();
        let (fresh, committed) = (read(fresh.path()), read(&repository().join(GENERATED)));
        assert!(
            fresh == committed,
            "{GENERATED} is not up to date: run `cargo run -p xtask -- cri-proto`"
        );
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
