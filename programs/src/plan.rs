//! `winddown plan`.

pub(super) mod pods;

use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;
use std::time::Duration;

use pods::RunningAgent;

use super::args::TextFormat;
use super::{
    CommandError, Exit, GlobalArgs, Output, OutputFormat, PlanShutdownArgs, PlanStartArgs, ask,
    cases, config, status,
};
use winddown_config::Config;
use winddown_control::Client;
use winddown_control::api::{ApiAnswer, Envelope, ShutdownPlan, StartPlan};
use winddown_host::path_word;
use winddown_node::ordered_start::{start_plan, start_view};
use winddown_node::policy_of;
use winddown_shared::Pod;
use winddown_shared::display::duration;
use winddown_shutdown::{Policy, plan, plan_within};

/// The warning for a disabled shutdown: a plan without groups does not mean that there is no pod to stop.
const OFF: &str = "graceful shutdown is off: a shutdown would terminate all pods at once; set \
                   shutdownGracePeriod to protect them";

/// How long the agent may take to say who it is: without its answer, manifests are planned all the same.
const AGENT_PATIENCE: Duration = Duration::from_secs(2);

pub(super) fn run(
    global: &GlobalArgs,
    args: &PlanShutdownArgs,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    if let Some(stray) = &args.stray {
        let what = format!("{}: give the manifests with -f", stray.display());
        return Err(CommandError::message(Exit::Usage, what)
            .with_hint(format!("`winddown plan shutdown -f {}`", path_word(stray))));
    }
    let Some(file) = args.file.as_deref() else {
        let client = Client::new(&global.socket);
        return ask::block_on(async {
            let asked = client.shutdown_plan(args.deadline);
            let mut plan = ask::patiently(out, status::WAITING, asked).await?;
            let config = config::loaded(global).ok().map(|loaded| loaded.config);
            if let Some((cloud, time)) = config.and_then(|config| notice(&config, args)) {
                warn(&mut plan, cloud, time, &client.shutdown_plan(Some(time)).await?);
            }
            status::print(&plan, args.output, winddown_render::plan, out)?;
            Ok(Exit::Success)
        });
    };
    let manifest = match input(file)? {
        PlanInput::Cases(cases) => return cases::shutdown((file, cases), args.output, out),
        PlanInput::Manifests(manifest) => manifest,
    };
    let (config, notes) = config::load_config(global, out)?;
    let policy: Policy = policy_of(&config.shutdown);
    let given = pods::read(file, manifest, &config, running_agent(global, &config)?)?;
    let mut plan = planned(&given.pods, &policy, args.deadline);
    if !policy.is_enabled() {
        plan.warnings.extend(notes.iter().map(ToString::to_string));
        plan.warnings.push(OFF.to_owned());
    }
    if let Some((cloud, time)) = notice(&config, args) {
        warn(&mut plan, cloud, time, &planned(&given.pods, &policy, Some(time)));
    }
    plan.warnings.extend(given.left_out.iter().map(|why| format!("left out: {why}")));
    status::print(&plan, args.output, winddown_render::plan, out)?;
    Ok(given.exit())
}

/// Runs `winddown plan start`.
pub(super) fn start(
    global: &GlobalArgs,
    args: &PlanStartArgs,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let show = |plan: &StartPlan, out: &mut Output| {
        show(plan, args.output, false, winddown_render::start_plan, out)
    };
    let Some(file) = args.file.as_deref() else {
        let client = Client::new(&global.socket);
        return ask::block_on(async {
            let plan = ask::patiently(out, status::WAITING, client.start_plan()).await?;
            show(&plan, out)?;
            Ok(Exit::Success)
        });
    };
    let (config, _) = config::load_config(global, out)?;
    let agent = running_agent(global, &config)?;
    let given = pods::read(file, io::stdin().lock(), &config, agent)?;
    let plan = start_plan(&given.pods, &policy_of(&config.shutdown));
    let mut plan = start_view(&plan, config.shutdown.start_group_timeout);
    plan.warnings.extend(given.left_out.iter().map(|why| format!("left out: {why}")));
    show(&plan, out)?;
    Ok(given.exit())
}

/// The agent of this machine, if one answers that has the configured runtime.
fn running_agent(
    global: &GlobalArgs,
    config: &Config,
) -> Result<Option<RunningAgent>, CommandError> {
    let asked = ask::block_on(async {
        let client = Client::new(&global.socket);
        Ok(tokio::time::timeout(AGENT_PATIENCE, client.status()).await)
    });
    let Ok(Ok(status)) = asked? else { return Ok(None) };
    let runtime = config.node.runtime;
    let is_its = runtime.to_string() == status.runtime.name;
    Ok(is_its.then_some(RunningAgent { pid: status.node.pid, runtime }))
}

/// Plans the shutdown of `pods`; with `within`, for a node that goes away after that time.
fn planned(pods: &[Pod], policy: &Policy, within: Option<Duration>) -> ShutdownPlan {
    let planned = match within {
        Some(within) => plan_within(pods, policy, &[], within),
        None => plan(pods, policy, None),
    };
    let within_seconds = within.map(|within| within.as_secs_f64());
    ShutdownPlan { within_seconds, ..ShutdownPlan::of(&planned, None) }
}

/// Returns the cloud whose notices the configuration enables, and the shortest time that a notice leaves; `None` with
/// `--deadline`.
fn notice(config: &Config, args: &PlanShutdownArgs) -> Option<(&'static str, Duration)> {
    let cloud = config.shutdown.notices.cloud.filter(|_| args.deadline.is_none());
    cloud.map(|cloud| (cloud.as_str(), cloud.notice()))
}

/// Adds the warnings of the `short` plan that an ordinary shutdown does not have.
fn warn(plan: &mut ShutdownPlan, cloud: &str, time: Duration, short: &ShutdownPlan) {
    let more: Vec<String> = short
        .warnings
        .iter()
        .filter(|warning| !plan.warnings.contains(warning))
        .map(|warning| format!("after a notice of {cloud}, {}: {warning}", duration(time)))
        .collect();
    plan.warnings.extend(more);
}

/// Prints a plan of any kind; `explain` also shows the pods that stay.
pub(super) fn show<P: ApiAnswer + serde::Serialize>(
    plan: &P,
    form: TextFormat,
    explain: bool,
    text: impl FnOnce(&P, &winddown_render::View) -> String,
    out: &mut Output,
) -> Result<(), CommandError> {
    match form {
        TextFormat::Json => out.json(&Envelope::new(plan)),
        TextFormat::Yaml => out.yaml(&Envelope::new(plan)),
        TextFormat::Text => {
            let view = status::view(OutputFormat::Text, out);
            out.text(&text(plan, &winddown_render::View { wide: explain, ..view }))
        }
    }
}

/// The input given with `-f`.
pub(super) enum PlanInput {
    /// A manifest, which is read from here only, because a pipe is read once; or a directory of manifests.
    Manifests(Box<dyn Read>),
    Cases(Box<dyn BufRead>),
}

/// Opens `file`, and determines its kind from its beginning: cases are JSON objects, each with its pods.
pub(super) fn input(file: &Path) -> Result<PlanInput, CommandError> {
    let unreadable = |error| CommandError::unreadable(file, error);
    if file == Path::new("-") {
        return stream(io::stdin().lock()).map_err(unreadable)?.ok_or_else(|| {
            CommandError::message(Exit::Failure, "standard input is empty")
                .with_hint("look at the command before the pipe: it printed nothing")
        });
    }
    // A pipe is as good as a file: whoever named it waits for it.
    let opened = std::fs::File::options().read(true).open(file).map_err(unreadable)?;
    if opened.metadata().map_err(unreadable)?.is_dir() {
        return Ok(PlanInput::Manifests(Box::new(opened)));
    }
    let read = stream(BufReader::new(opened)).map_err(unreadable)?;
    // Who reads manifests says that there is none.
    Ok(read.unwrap_or_else(|| PlanInput::Manifests(Box::new(io::empty()))))
}

/// Determines the kind of an input that may be endless: what has arrived after blanks decides. `None` if there is
/// nothing.
fn stream(mut input: impl BufRead + 'static) -> io::Result<Option<PlanInput>> {
    let mut blanks = Vec::new();
    let of_cases = loop {
        let ahead = input.fill_buf()?;
        if ahead.is_empty() {
            return Ok(None);
        }
        match ahead.trim_ascii_start() {
            // No manifest is that long.
            [] if blanks.len() > winddown_yaml::MAX_BYTES => break true,
            [] => {
                let read = ahead.len();
                blanks.extend_from_slice(ahead);
                input.consume(read);
            }
            text => break begins_a_case(text),
        }
    };
    // The blanks are kept for the line numbers of errors.
    let whole = Box::new(Cursor::new(blanks).chain(input));
    Ok(Some(if of_cases { PlanInput::Cases(whole) } else { PlanInput::Manifests(whole) }))
}

/// Whether the text begins a JSON object, and not one whose first field is a manifest's.
fn begins_a_case(text: &[u8]) -> bool {
    let Some(inside) = text.strip_prefix(b"{") else { return false };
    let inside = inside.trim_ascii_start();
    let of_manifests: [&[u8]; 5] =
        [b"\"apiVersion\"", b"\"kind\"", b"\"metadata\"", b"\"spec\"", b"\"status\""];
    !of_manifests.iter().any(|field| inside.starts_with(field))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_that_begins_with_blanks_is_not_empty() {
        for (text, of_cases) in [("\n \n{}\n", true), ("\n\nkind: Pod\n", false)] {
            // Each read gets one byte.
            let input = stream(BufReader::with_capacity(1, text.as_bytes())).unwrap().unwrap();
            let (mut whole, is_cases): (Box<dyn Read>, bool) = match input {
                PlanInput::Cases(whole) => (Box::new(whole), true),
                PlanInput::Manifests(whole) => (whole, false),
            };
            let mut read = String::new();
            whole.read_to_string(&mut read).unwrap();
            assert_eq!((read.as_str(), is_cases), (text, of_cases));
        }
        assert!(stream(&b" \n "[..]).unwrap().is_none());
    }

    #[test]
    fn a_manifest_in_json_is_no_case() {
        for (text, of_cases) in [
            ("\n{\n  \"apiVersion\": \"v1\",\n  \"kind\": \"Pod\"\n}\n", false),
            ("{\"kind\":\"Pod\",\"spec\":{}}", false),
            ("{\"id\":1,\"preemptor\":{\"kind\":\"Pod\"},\"pods\":[]}", true),
            ("{\"kind\":\"Pod\",\"spec\":{\"containers\":[{\"args\":[\"get\",\"pods\"]}]}}", false),
            ("{\"metadata\":{\"name\":\"pods\"},\"kind\":\"Pod\"}", false),
        ] {
            let read = stream(text.as_bytes()).unwrap().unwrap();
            assert_eq!(matches!(read, PlanInput::Cases(_)), of_cases, "{text}");
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(&file, text).unwrap();
            let read = input(file.path()).unwrap();
            assert_eq!(matches!(read, PlanInput::Cases(_)), of_cases, "of a file: {text}");
        }
    }
}
