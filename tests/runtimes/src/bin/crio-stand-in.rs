//! The service that stands in for CRI-O in a node: `crio-stand-in DIRECTORY SOCKET`.

use std::io;
use std::path::Path;

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [directory, socket] = &args[..] else {
        return Err(io::Error::other("name a directory and a socket"));
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(winddown_runtimes_tests::crio::serve(Path::new(directory), Path::new(socket)))
}
