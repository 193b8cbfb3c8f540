//! `winddown report`.

use std::cell::OnceCell;
use std::io::Read;
use std::path::Path;

use super::{
    CommandError, Exit, GlobalArgs, Output, ReportArgs, ReportFormat, ask, config, status,
};
use winddown_config::Config;
use winddown_control::api::{Envelope, ReportEntry, ReportList};
use winddown_control::{Client, ClientError};
use winddown_node::{ordered_start, reports};
use winddown_render::report;
use winddown_shared::display::clean;
use winddown_shutdown::{ReportStore, ShutdownReport};

pub(super) fn run(
    global: &GlobalArgs,
    args: &ReportArgs,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let source =
        ReportSource { client: Client::new(&global.socket), global, config: OnceCell::new() };
    if args.list {
        let list = source.list(out)?;
        return print_list(&list, args.output, out);
    }
    let report = read(&source, args, out)?;
    let named = |error: CommandError| match &args.file {
        Some(file) => {
            CommandError { error: error.error.context(file.display().to_string()), ..error }
        }
        None => error,
    };
    if args.file.is_some() {
        must_be_of(args.start, &report).map_err(named)?;
    }
    if args.start {
        return print_start(&report, args.output, out).map_err(named);
    }
    match args.output {
        ReportFormat::Json => out.json(&report)?,
        ReportFormat::Html => {
            out.bytes(report::html(&typed(&report).map_err(named)?).as_bytes())?;
        }
        ReportFormat::Text => {
            let text = report::text(&typed(&report).map_err(named)?, out.color);
            out.text(&text)?;
            // A report from a file may be of another node, so this node's trend does not apply.
            let list = match args.file {
                Some(_) => None,
                None => source.list(out).ok(),
            };
            if let Some(said) = list.as_ref().and_then(winddown_render::trend) {
                out.line(&format!("\n{said}"))?;
            }
        }
    }
    // An outcome that this version does not know does not count as success.
    let graceful = typed::<ShutdownReport>(&report).is_ok_and(|report| report.is_graceful());
    Ok(if args.check && !graceful { Exit::PodsLeft } else { Exit::Success })
}

/// The report that the arguments choose.
fn read(
    source: &ReportSource<'_>,
    args: &ReportArgs,
    out: &mut Output,
) -> Result<serde_json::Value, CommandError> {
    match (&args.file, &args.id, args.boot) {
        (Some(file), ..) => from_file(file),
        _ if args.start => source.report("start", out),
        (None, Some(id), _) => source.report(checked_id(id)?, out),
        (None, None, Some(boot)) => {
            let this = winddown_host::machine::boot_id();
            let list = source.list(out)?;
            source.note_unreported(&list, out);
            let id = of_boot(&list, &this, boot)?;
            source.report(&id, out)
        }
        (None, None, None) if args.check => {
            let list = source.list(out)?;
            let id = source.last_run(&list, out)?;
            source.report(id, out)
        }
        (None, None, None) => {
            // A later one may be among those that cannot be read, or may be missing.
            if let Ok(list) = source.list(out) {
                note_problems(&list, out);
                source.note_unreported(&list, out);
            }
            source.report("latest", out)
        }
    }
}

/// The source of reports: the running agent, or the state directory when no agent answers.
struct ReportSource<'a> {
    client: Client,
    global: &'a GlobalArgs,
    /// Read only once, so that its warning is printed once.
    config: OnceCell<Config>,
}

impl ReportSource<'_> {
    fn config(&self, out: &mut Output) -> Result<&Config, CommandError> {
        if let Some(config) = self.config.get() {
            return Ok(config);
        }
        let config = config::load_config_for_reports(self.global, out)?;
        Ok(self.config.get_or_init(|| config))
    }

    fn store(&self, out: &mut Output) -> Result<ReportStore, CommandError> {
        Ok(reports::store(self.config(out)?))
    }

    fn list(&self, out: &mut Output) -> Result<ReportList, CommandError> {
        match in_runtime(out, self.client.reports())? {
            Err(error) if asks_disk(&error) => Ok(reports::list(&self.store(out)?)?),
            answer => Ok(answer?),
        }
    }

    /// The ID of the last run, for a check.
    ///
    /// # Errors
    /// There may be a later one whose report is missing, so that it is not known how its pods terminated.
    fn last_run<'l>(
        &self,
        list: &'l ReportList,
        out: &mut Output,
    ) -> Result<&'l str, CommandError> {
        if let Some(problem) = list.problems.first() {
            let what = format!("the last run may be one whose report cannot be read: {problem}");
            return Err(CommandError::message(Exit::PodsLeft, what)
                .with_hint("remove that file, or name a report with --id"));
        }
        if let Some(what) = self.unreported(list, out)? {
            return Err(CommandError::message(Exit::PodsLeft, what)
                .with_hint("`winddown report` shows the last report there is"));
        }
        Ok(list.last_run().map_or("latest", |entry| &entry.id))
    }

    /// Says so if the last run has left no report: the one that is shown is of an earlier one.
    fn note_unreported(&self, list: &ReportList, out: &mut Output) {
        if let Ok(Some(what)) = self.unreported(list, out) {
            out.progress(&winddown_render::notice(&what, "", out.error_color));
        }
    }

    /// Why the last run may have left no report.
    fn unreported(
        &self,
        list: &ReportList,
        out: &mut Output,
    ) -> Result<Option<String>, CommandError> {
        let what = match in_runtime(out, self.client.status())? {
            Err(error) if asks_disk(&error) => self.unreported_on_disk(list, out)?,
            answer => answer?.unreported(list.last_run()),
        };
        let said =
            |what: String| format!("no report says how the pods last terminated: {}", clean(&what));
        Ok(what.map(said))
    }

    /// The same by the files of the agent.
    fn unreported_on_disk(
        &self,
        list: &ReportList,
        out: &mut Output,
    ) -> Result<Option<String>, CommandError> {
        let access = &self.config(out)?.access;
        let this = winddown_host::machine::boot_id();
        let this = (&*this, winddown_host::machine::boot_clock().system_start());
        let volatile = access.control_socket.parent();
        reports::unreported(&access.state_directory, volatile, this, list).map_err(|error| {
            let what = "the last run may be one whose record cannot be read";
            CommandError::new(Exit::PodsLeft, anyhow::Error::new(error).context(what))
                .refused_if_unprivileged()
        })
    }

    fn report(&self, id: &str, out: &mut Output) -> Result<serde_json::Value, CommandError> {
        match in_runtime(out, self.client.report(id))? {
            Err(error) if asks_disk(&error) && id == "start" => {
                Ok(ordered_start::last_report(None, &self.config(out)?.access.state_directory)?)
            }
            Err(error) if asks_disk(&error) => Ok(reports::find(&self.store(out)?, id)?),
            answer => Ok(answer?),
        }
    }
}

fn asks_disk(error: &ClientError) -> bool {
    error.may_come_back() || matches!(error, ClientError::Denied { .. })
}

fn in_runtime<T>(
    out: &mut Output,
    answer: impl Future<Output = Result<T, ClientError>>,
) -> Result<Result<T, ClientError>, CommandError> {
    ask::block_on(async { Ok(ask::patiently(out, status::WAITING, answer).await) })
}

fn print_start(
    report: &serde_json::Value,
    form: ReportFormat,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    match form {
        ReportFormat::Html => {
            return Err(CommandError::message(Exit::Usage, "a start has no page")
                .with_hint("`winddown report --start -o json` has all that is known of it"));
        }
        ReportFormat::Json => out.json(report)?,
        ReportFormat::Text => {
            let view = status::view(super::OutputFormat::Text, out);
            out.text(&winddown_render::start_report(&typed(report)?, &view))?;
        }
    }
    Ok(Exit::Success)
}

/// Fails if the report is of the other `kind` than what is asked for.
fn must_be_of(is_start: bool, report: &serde_json::Value) -> Result<(), CommandError> {
    let is_of_start = report["kind"] == "StartReport";
    let (what, hint) = match (is_start, is_of_start) {
        (false, true) => ("this is the report of a start", "add --start"),
        (true, false) => ("this is no report of a start", "leave out --start"),
        (true, true) | (false, false) => return Ok(()),
    };
    Err(CommandError::message(Exit::Failure, what).with_hint(hint))
}

fn typed<T: serde::de::DeserializeOwned>(report: &serde_json::Value) -> Result<T, CommandError> {
    T::deserialize(report).map_err(|error| {
        CommandError::failure(anyhow::Error::new(error).context("not a report of this version"))
            .with_hint(WRITES_ONE)
    })
}

/// The hint for a file that is not a report.
const WRITES_ONE: &str =
    "`winddown report -o json > FILE` writes one, on the node that it is about";

/// The maximum size of a report in bytes.
const MAX_REPORT_BYTES: u64 = 64 << 20;

fn from_file(path: &Path) -> Result<serde_json::Value, CommandError> {
    let named = |what: &str| format!("{}: {what}", path.display());
    let unreadable = |error| CommandError::unreadable(path, error);
    let mut bytes = Vec::new();
    // Limit the bytes read instead of checking the file's size: it may be a pipe.
    let file = std::fs::File::options().read(true).open(path).map_err(unreadable)?;
    file.take(MAX_REPORT_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_REPORT_BYTES {
        return Err(CommandError::message(Exit::Failure, named("is too large for a report"))
            .with_hint(WRITES_ONE));
    }
    serde_json::from_slice(&bytes).map_err(|error| {
        let error = anyhow::Error::new(error).context(named("is not a report"));
        CommandError::new(Exit::Failure, error).with_hint(WRITES_ONE)
    })
}

/// Validates an ID, which becomes part of paths: it must not contain a slash or begin with a dot.
fn checked_id(id: &str) -> Result<&str, CommandError> {
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':');
    if !id.is_empty() && id.len() <= 128 && id.bytes().all(plain) && !id.starts_with('.') {
        return Ok(id);
    }
    Err(CommandError::message(Exit::Usage, format!("{id:?} is no report's id"))
        .with_hint("`winddown report --list` shows them"))
}

/// Returns the ID of the newest shutdown of a boot: 0 is `this` boot, -1 the one before it, and so on. Boots without a
/// report do not count.
fn of_boot(list: &ReportList, this: &str, boot: i32) -> Result<String, CommandError> {
    let back = usize::try_from(boot.unsigned_abs()).unwrap_or(usize::MAX);
    let mut newest: Vec<&ReportEntry> = Vec::new();
    // Drains and rehearsals are no shutdowns; they are selected by ID.
    let shutdown = |entry: &&ReportEntry| !matches!(entry.trigger.as_str(), "drain" | "drill");
    for entry in list.reports.iter().filter(shutdown) {
        if newest.last().is_none_or(|last| last.boot_id != entry.boot_id) {
            newest.push(entry);
        }
    }
    let went_down = newest.first().is_some_and(|first| first.boot_id == this);
    let found = match (back, went_down) {
        (0, false) => None,
        (back, false) => newest.get(back - 1),
        (back, true) => newest.get(back),
    };
    found.map(|entry| entry.id.clone()).ok_or_else(|| {
        let message = match (newest.len(), back) {
            (0, _) if !list.reports.is_empty() => {
                "no shutdown has left a report yet: those there are tell of drains and rehearsals"
                    .to_owned()
            }
            (0, _) => "no shutdown has left a report yet".to_owned(),
            (_, 0) => "this boot has not been shut down; -b -1 is the one before it".to_owned(),
            (1, _) => format!("no report of boot {boot}: only 1 boot left reports"),
            (boots, _) => format!("no report of boot {boot}: only {boots} boots left reports"),
        };
        let hint = match list.reports.len() {
            0 => "`winddown plan shutdown` shows what one would do, `winddown drill` rehearses one",
            _ => "`winddown report --list` lists those there are",
        };
        CommandError::message(Exit::Failure, message).with_hint(hint)
    })
}

fn print_list(
    list: &ReportList,
    form: ReportFormat,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    match form {
        ReportFormat::Html => {
            return Err(CommandError::message(Exit::Usage, "a list has no page")
                .with_hint("`winddown report --id ID` with the same -o shows one report"));
        }
        ReportFormat::Json => out.json(&Envelope::new(list))?,
        ReportFormat::Text => {
            let text =
                winddown_render::reports(list, &status::view(super::OutputFormat::Text, out));
            out.text(&text)?;
        }
    }
    note_problems(list, out);
    Ok(Exit::Success)
}

/// Says which reports cannot be read.
fn note_problems(list: &ReportList, out: &mut Output) {
    for problem in &list.problems {
        out.progress(&winddown_render::notice(problem, "", out.error_color));
    }
}
