//! Generates the messages of CRI and the client of its service from the product's `proto`, for the floor of a start.

const PROTO: &str = "../../runtimes/cri/proto";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed={PROTO}");
    let files = protox::compile(["cri.proto"], [PROTO])?;
    tonic_prost_build::configure().build_transport(false).build_server(false).compile_fds(files)?;
    Ok(())
}
