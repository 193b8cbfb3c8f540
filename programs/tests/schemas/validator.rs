//! Python's jsonschema, which is independent of the library that generates the schemas.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/schemas/validate.py");

/// Whether there is a validator; without one the test is skipped.
pub(crate) fn is_there(test: &str) -> bool {
    let import = Command::new("/usr/bin/python3").args(["-c", "import jsonschema"]).output();
    if import.is_ok_and(|output| output.status.success()) {
        return true;
    }
    println!("SKIPPED: {test}: python3-jsonschema is not installed");
    assert!(std::env::var_os("WINDDOWN_NO_SKIP").is_none(), "python3-jsonschema is missing");
    false
}

/// Returns the error of each instance, in order, or `ok`. An instance of `None` checks the schema itself.
pub(crate) fn judge(cases: &[(&Value, Option<&Value>)]) -> Vec<String> {
    let mut python = Command::new("/usr/bin/python3")
        .arg(SCRIPT)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python runs");
    let lines: String = cases
        .iter()
        .map(|(schema, instance)| match instance {
            Some(instance) => json!({"schema": schema, "instance": instance}).to_string() + "\n",
            None => json!({"schema": schema}).to_string() + "\n",
        })
        .collect();
    let mut input = python.stdin.take().expect("a pipe");
    let writing = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = python.wait_with_output().expect("python ends");
    writing.join().expect("no panic").expect("written");
    let said = String::from_utf8(output.stdout).expect("text");
    let answers: Vec<String> = said.lines().map(str::to_owned).collect();
    assert_eq!(answers.len(), cases.len(), "{said}");
    answers
}
