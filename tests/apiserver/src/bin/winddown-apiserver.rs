//! The API server as a program, for tests in which the client is another machine.
//!
//! ```text
//! winddown-apiserver [--listen ADDRESS:PORT] [--name NAME]... [--user NAME] [--group GROUP]...
//!                    [--kubeconfig FILE] [--apply FILE]... [--restrict-nodes]
//! ```
//!
//! It listens on 127.0.0.1 and a free port. `--name` adds names and addresses to its certificate; the first one appears
//! in the kubeconfig. The kubeconfig goes to the standard output, followed by the line `ready`. Each line of the
//! standard input is a command in JSON (see `Command`), answered by `done` or `not done: WHY`. A POST to `/faults`
//! accepts the same commands, and a GET of `/requests` returns the journal. At the end of its input the program keeps
//! running until it is killed.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use std::net::SocketAddr;
use std::process::ExitCode;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use winddown_apiserver::{ApiServer, Command};

type Failed = Box<dyn std::error::Error>;

struct Arguments {
    listen: Option<SocketAddr>,
    names: Vec<String>,
    user: String,
    groups: Vec<String>,
    kubeconfig: Option<String>,
    apply: Vec<String>,
    restrict_nodes: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("winddown-apiserver: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Failed> {
    let arguments = read(std::env::args().skip(1))?;
    let groups: Vec<&str> = arguments.groups.iter().map(String::as_str).collect();
    let mut builder = ApiServer::builder().user(&arguments.user, &groups);
    if let Some(address) = arguments.listen {
        builder = builder.bind(address);
    }
    for name in &arguments.names {
        builder = builder.name(name);
    }
    let server = builder.start().await?;
    server.restrict_nodes(arguments.restrict_nodes);
    for file in &arguments.apply {
        server.apply(object(file)?)?;
    }
    match &arguments.kubeconfig {
        Some(file) => std::fs::write(file, server.kubeconfig())?,
        None => println!("{}", server.kubeconfig()),
    }
    println!("ready");
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        match command(&line, &server).await {
            Ok(()) => println!("done"),
            Err(why) => println!("not done: {why}"),
        }
    }
    std::future::pending().await
}

async fn command(line: &str, server: &ApiServer) -> Result<(), String> {
    let command: Command = serde_json::from_str(line).map_err(|e| e.to_string())?;
    command.run(server).await
}

fn read(mut words: impl Iterator<Item = String>) -> Result<Arguments, Failed> {
    let mut arguments = Arguments {
        listen: None,
        names: Vec::new(),
        user: "test-admin".to_owned(),
        groups: vec!["system:masters".to_owned()],
        kubeconfig: None,
        apply: Vec::new(),
        restrict_nodes: false,
    };
    let mut first_group = true;
    while let Some(word) = words.next() {
        if word == "--restrict-nodes" {
            arguments.restrict_nodes = true;
            continue;
        }
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--listen" => arguments.listen = Some(value.parse()?),
            "--name" => arguments.names.push(value),
            "--user" => arguments.user = value,
            "--group" => {
                if std::mem::take(&mut first_group) {
                    arguments.groups.clear();
                }
                arguments.groups.push(value);
            }
            "--kubeconfig" => arguments.kubeconfig = Some(value),
            "--apply" => arguments.apply.push(value),
            other => return Err(format!("unknown argument {other}").into()),
        }
    }
    Ok(arguments)
}

fn object(file: &str) -> Result<Value, Failed> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
    Ok(serde_json::from_str(&text).map_err(|e| format!("{file}: {e}"))?)
}
