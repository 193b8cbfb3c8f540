//! `make pages`: prints the table of platforms on which winddown is tested.
//!
//!     platforms [--into FILE]...
//!
//! With --into the table in each of these documents is replaced.

use std::error::Error;
use std::path::Path;

use winddown_node_tests::document::replace_between;
use winddown_node_tests::platforms::{END_OF_TABLE, START_OF_TABLE, table};

const USAGE: &str = "usage: platforms [--into FILE]...";

fn main() -> Result<(), Box<dyn Error>> {
    let table = table();
    print!("{table}");
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let into = arguments.next().filter(|_| argument == "--into").ok_or(USAGE)?;
        replace_between(Path::new(&into), [START_OF_TABLE, END_OF_TABLE], &table)?;
    }
    Ok(())
}
