//! Generates the messages of CRI and the clients of its services from `proto`. Needs no protoc, because the compiler is a
//! crate.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["cri.proto", "health.proto"], ["proto"])?;
    tonic_prost_build::configure().build_transport(false).build_server(false).compile_fds(files)?;
    Ok(())
}
