//! Generates the messages of CRI and the server side of its services from the product's `proto`.

const PROTO: &str = "../../runtimes/cri/proto";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed={PROTO}");
    let files = protox::compile(["cri.proto", "health.proto"], [PROTO])?;
    tonic_prost_build::configure().build_transport(false).build_client(false).compile_fds(files)?;
    Ok(())
}
