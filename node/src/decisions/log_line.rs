//! Writes decisions to the log.

use winddown_shared::{Event, PodRef};

use winddown_control::api::Decision;

/// Logs `event` with the text and fields of `told`: as a warning if an operator has to look at it, as info otherwise.
pub fn log_decision(event: &Event, told: &Decision) {
    let field = |name: &str| told.fields.get(name);
    let word = |name: &str| field(name).and_then(|value| value.as_str());
    let number = |name: &str| field(name).and_then(serde_json::Value::as_f64);
    let pod = (!told.pod.is_empty()).then_some(&*told.pod);
    let forced = match event {
        Event::PodStopped { forced, .. } if !forced.is_empty() => Some(forced.join(",")),
        _ => None,
    };
    // One statement for each level, because tracing fixes the level at the call site.
    macro_rules! write_at {
        ($level:ident) => {
            tracing::$level!(
                log_kind = &*told.kind,
                pod,
                uid = word("uid"),
                container = word("container"),
                exit_code = number("exitCode"),
                reason = word("reason").or_else(|| killed_by(event)),
                signal = word("signal"),
                condition = word("condition"),
                preemptor = preemptor(event).map(tracing::field::display),
                group = number("priority"),
                grace_seconds = number("graceSeconds"),
                took_seconds = number("tookSeconds"),
                still_running = number("stillRunning"),
                forced,
                "{}",
                told.text
            )
        };
    }
    if is_warning(event) { write_at!(warn) } else { write_at!(info) }
}

fn is_warning(event: &Event) -> bool {
    match event {
        Event::SyncFailed { .. }
        | Event::ContainerExited { again_in: Some(_), .. }
        | Event::PodRejected { .. }
        | Event::FieldsIgnored { .. }
        | Event::EvictionStarted { .. }
        | Event::EvictionFailed { .. }
        | Event::PluginChose { .. }
        | Event::PluginWorked { error: Some(_), .. }
        | Event::NodePressure { on: true, .. }
        | Event::ExceededGracePeriod { .. }
        | Event::LastBoot { graceful: Some(false), .. } => true,
        Event::ContainerExited { exit, .. } => exit.exit_code != 0,
        Event::GroupFinished { left, .. } => *left > 0,
        Event::ShutdownFinished { left, unknown, .. } => *left > 0 || *unknown,
        _ => false,
    }
}

fn preemptor(event: &Event) -> Option<&PodRef> {
    match event {
        Event::PodPreempted { by, .. } => Some(by),
        _ => None,
    }
}

fn killed_by(event: &Event) -> Option<&'static str> {
    let Event::KillRequested { by, .. } = event else { return None };
    Some(by.as_str())
}
