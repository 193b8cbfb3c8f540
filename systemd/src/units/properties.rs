//! Converts a transient service to the properties that `StartTransientUnit` takes.

use std::time::Duration;

use winddown_host::service_units::{Keep, NewUnit, UnitOutput};
use zbus::Variant;

/// Names and values of properties.
pub(super) type Properties = Vec<(&'static str, Variant<'static>)>;

/// Returns the properties, which include the file descriptors.
pub(super) fn properties(service: NewUnit) -> Properties {
    let mut all: Properties = vec![
        ("Description", service.description.into()),
        ("Slice", service.slice.into()),
        // Started once the program is executed, and failed if it cannot be.
        ("Type", "exec".into()),
        ("ExecStart", exec_start(&service.argv)),
        ("KillMode", "mixed".into()),
        ("KillSignal", service.stop_signal.into()),
        ("TimeoutStopUSec", micros(service.stop_timeout).into()),
        ("IgnoreSIGPIPE", false.into()),
        // If the kernel OOM-kills one of its processes, systemd kills the whole service.
        ("OOMPolicy", "kill".into()),
        // `<0>` before a container's line is no level: journald shows emergencies on every terminal.
        ("SyslogLevelPrefix", false.into()),
        // At a shutdown, or a change to another target, systemd must not stop it by itself.
        ("DefaultDependencies", false.into()),
        ("IgnoreOnIsolate", true.into()),
    ];
    if service.survives {
        all.push(("SurviveFinalKillSignal", true.into()));
    }
    let order = [("After", service.after), ("Before", service.before)];
    all.extend(order.into_iter().filter_map(|(name, unit)| Some((name, vec![unit?].into()))));
    if let Some(fd) = service.input {
        all.push(("StandardInputFileDescriptor", zbus::Fd::from(fd).into()));
    }
    if matches!(service.output, UnitOutput::To(_)) {
        // Otherwise systemd takes the output for the journal, and gives an error output to the journal the descriptor
        // of this one.
        all.push(("StandardOutput", "null".into()));
    }
    all.push(output(("StandardOutput", "StandardOutputFileDescriptor"), service.output));
    all.push(output(("StandardError", "StandardErrorFileDescriptor"), service.error));
    let limits = [
        ("MemoryMax", service.limits.memory_max),
        // Otherwise the excess over the limit is swapped to disk, which slows down the whole node. cgroup v2 only.
        ("MemorySwapMax", service.limits.memory_max.map(|_| 0)),
        ("CPUQuotaPerSecUSec", service.limits.cpu_milli.map(|milli| milli.saturating_mul(1000))),
        ("CPUWeight", service.limits.cpu_weight),
        ("TasksMax", service.limits.tasks_max),
        ("RuntimeMaxUSec", service.max_runtime.map(micros)),
    ];
    all.extend(limits.into_iter().filter_map(|(name, value)| Some((name, value?.into()))));
    all.extend(kept(service.keep));
    let journal = service.journal.unwrap_or_default();
    if !journal.identifier.is_empty() {
        all.push(("SyslogIdentifier", journal.identifier.into()));
    }
    if !journal.fields.is_empty() {
        let fields = journal.fields.into_iter();
        let fields: Vec<Vec<u8>> =
            fields.map(|(name, value)| format!("{name}={value}").into_bytes()).collect();
        all.push(("LogExtraFields", fields.into()));
    }
    all
}

fn kept(keep: Keep) -> Properties {
    match keep {
        Keep::Result => vec![("RemainAfterExit", true.into())],
        Keep::Nothing => vec![("CollectMode", "inactive-or-failed".into())],
        Keep::Alive => vec![
            ("CollectMode", "inactive-or-failed".into()),
            ("Restart", "on-failure".into()),
            ("RestartUSec", micros(Duration::from_millis(100)).into()),
            ("StartLimitIntervalUSec", 0_u64.into()),
        ],
    }
}

/// `ExecStart` and not `ExecStartEx`, although only that has a flag against the expansion of variables: systemd 252 writes
/// the name of the property into the unit's file, where it knows no `ExecStartEx`, and refuses the unit after a reload.
fn exec_start(argv: &[String]) -> Variant<'static> {
    let program = argv.first().cloned().unwrap_or_default();
    let argv: Vec<String> = argv.iter().map(|word| word.replace('$', "$$")).collect();
    let ignore_failure = false;
    vec![(program, argv, ignore_failure)].into()
}

fn output(
    (by_name, by_descriptor): (&'static str, &'static str),
    output: UnitOutput,
) -> (&'static str, Variant<'static>) {
    match output {
        UnitOutput::Null => (by_name, "null".into()),
        UnitOutput::Journal => (by_name, "journal".into()),
        UnitOutput::To(fd) => (by_descriptor, zbus::Fd::from(fd).into()),
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
