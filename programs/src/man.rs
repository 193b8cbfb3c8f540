//! `winddown man`: the manual pages, generated from the definitions behind `--help` and the configuration.

mod commands;
mod configuration;
mod programs;
mod roff;
mod unit;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{CommandError, Exit, ManArgs, Output};

/// One manual page.
pub struct Page {
    /// Its name without the section, e.g. `winddown-status`.
    pub name: String,
    /// The section: 1, 5 or 8.
    pub section: u8,
    /// The page as man(7) markup, ASCII only.
    pub text: String,
}

/// Generates every page: winddown(1), one for each command, winddown.yaml(5), winddown.service(8), and one for each of
/// the other programs.
pub fn pages() -> Vec<Page> {
    let mut pages = commands::pages();
    pages.push(configuration::page());
    pages.push(unit::page());
    pages.extend(programs::pages());
    pages
}

pub(super) fn run(args: &ManArgs, out: &mut Output) -> Result<Exit, CommandError> {
    let pages = pages();
    if let Some(dir) = &args.dir {
        for page in &pages {
            write(dir, page)?;
        }
        return Ok(Exit::Success);
    }
    let name = args.page.join("-");
    let is_meant = |page: &&Page| page.name == name || page.name == format!("winddown-{name}");
    let Some(page) = pages.iter().find(is_meant) else {
        let names: Vec<&str> = pages.iter().map(|page| page.name.as_str()).collect();
        let what = format!("there is no page {name:?}");
        return Err(CommandError::message(Exit::Usage, what)
            .with_hint(format!("the pages are {}", names.join(", "))));
    };
    if !(out.terminal && shown_by_man(&page.text)) {
        out.bytes(page.text.as_bytes())?;
    }
    Ok(Exit::Success)
}

/// Shows a page with man(1), because the markup is not readable. Returns false if there is no man(1).
fn shown_by_man(text: &str) -> bool {
    let man = Command::new("man").args(["-l", "-"]).stdin(Stdio::piped()).spawn();
    let Ok(mut man) = man else { return false };
    if let Some(mut input) = man.stdin.take() {
        // Ignore a reader that quits before the end.
        let _ = input.write_all(text.as_bytes());
    }
    man.wait().is_ok_and(|ended| ended.success())
}

fn write(dir: &Path, page: &Page) -> Result<(), CommandError> {
    let section = dir.join(format!("man{}", page.section));
    let file = section.join(page.file_name());
    std::fs::create_dir_all(&section).and_then(|()| std::fs::write(&file, &page.text)).map_err(
        |error| {
            let error =
                anyhow::Error::new(error).context(format!("{}: cannot be written", file.display()));
            CommandError::new(Exit::Failure, error)
                .with_hint("name a directory that can be written")
        },
    )
}

impl Page {
    /// Returns the file name, e.g. `winddown-status.1`.
    pub fn file_name(&self) -> String {
        format!("{}.{}", self.name, self.section)
    }
}
