//! winddown(1) and a page for each command, generated from `--help`.

use clap_mangen::Man;

use super::Page;
use super::roff::RoffWriter;
use crate::definition;

const FILES: [(&str, &str); 5] = [
    ("/etc/winddown/config.yaml", "The configuration, see `winddown.yaml`(5)."),
    ("/etc/winddown/pods", "The manifests of the node's own pods."),
    ("/run/winddown/winddown.sock", "The socket the commands talk to."),
    ("/var/lib/winddown", "What has to survive a restart, and the reports of past shutdowns."),
    ("/var/log/winddown", "The containers' logs."),
];

const ENVIRONMENT: [(&str, &str); 4] = [
    ("WINDDOWN_CONFIG", "The configuration file, in place of `--config`."),
    ("WINDDOWN_SOCKET", "The control socket, in place of `--socket`."),
    ("WINDDOWN_LOG", "What the agent logs: error, warn, info, debug or trace."),
    ("NO_COLOR", "Turns colour off, whatever its value, unless `--color always` is given."),
];

pub(super) fn pages() -> Vec<Page> {
    let mut all = definition().disable_help_subcommand(true);
    all.build();
    let mut pages = Vec::new();
    add(&all, &[], &mut pages);
    pages
}

fn add(command: &clap::Command, others: &[String], pages: &mut Vec<Page>) {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let shown = command.get_subcommands().filter(|below| !below.is_hide_set());
    let below: Vec<&clap::Command> = shown.filter(|below| below.get_name() != "help").collect();
    let mut beside: Vec<String> = others.to_vec();
    beside.extend(below.iter().map(|below| format!("{name}-{}", below.get_name())));
    pages.push(Page { text: page(command, &name, &beside), name: name.clone(), section: 1 });
    for command in below {
        add(command, std::slice::from_ref(&name), pages);
    }
}

fn page(command: &clap::Command, name: &str, beside: &[String]) -> String {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let mut page = RoffWriter::new(name, 1, about.trim_end_matches('.'));
    let own = |arg: clap::Arg| if arg.is_global_set() { arg.hide(true) } else { arg };
    let short = Man::new(command.clone().mut_args(own).subcommand_value_name("command"));
    let man = Man::new(command.clone());
    rendered(&mut page, |to| short.render_synopsis_section(to));
    rendered(&mut page, |to| man.render_description_section(to));
    rendered(&mut page, |to| man.render_options_section(to));
    if command.has_subcommands() {
        rendered(&mut page, |to| man.render_subcommands_section(to));
    }
    if let Some(after) = command.get_after_help() {
        after_help(&mut page, &after.to_string());
    }
    if name == "winddown" {
        for (title, entries) in [("ENVIRONMENT", &ENVIRONMENT[..]), ("FILES", &FILES[..])] {
            page.heading(title);
            for (term, text) in entries {
                page.term(term, text);
            }
        }
    }
    page.heading("SEE ALSO");
    let ones = beside.iter().map(|name| format!("`{name}`(1)"));
    let rest = ["`winddown.yaml`(5)".to_owned(), "`winddown.service`(8)".to_owned()];
    page.text(&ones.chain(rest).collect::<Vec<_>>().join(", "));
    page.finish()
}

/// Adds a section that clap's generator renders.
fn rendered(page: &mut RoffWriter, make: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) {
    let mut bytes = Vec::new();
    // Writing to memory cannot fail.
    let _ = make(&mut bytes);
    // Drop the definition of the apostrophe in each section; our sections do not need it.
    for line in String::from_utf8_lossy(&bytes).lines() {
        if !line.starts_with(".ie ") && !line.starts_with(".el ") {
            page.raw(&line.replace("\\*(Aq", "\\(aq"));
        }
    }
}

/// Adds the text after the options. Examples and exit codes get sections of their own, examples
/// verbatim; other paragraphs become notes.
fn after_help(page: &mut RoffWriter, text: &str) {
    let text = text.replace("\nExit codes: ", "\n\nExit codes: ");
    let mut in_notes = false;
    for paragraph in text.split("\n\n") {
        let (first, rest) = paragraph.split_once('\n').unwrap_or((paragraph, ""));
        let notes = std::mem::replace(&mut in_notes, false);
        if first == "Examples:" {
            page.heading("EXAMPLES");
            let lines = rest.lines().map(|line| line.strip_prefix("  ").unwrap_or(line));
            page.verbatim(&lines.collect::<Vec<_>>().join("\n"));
        } else if first == "Exit codes:" {
            page.heading("EXIT STATUS");
            for line in rest.lines() {
                let (code, what) = line.trim().split_once(' ').unwrap_or((line, ""));
                page.term(code, what.trim());
            }
        } else if let Some(codes) = paragraph.strip_prefix("Exit codes: ") {
            page.heading("EXIT STATUS");
            page.text(codes);
        } else {
            if !notes {
                page.heading("NOTES");
            }
            page.text(paragraph);
            in_notes = true;
        }
    }
}
