//! A transient service as the properties that `StartTransientUnit` takes.

use std::time::Duration;

use zbus::Variant;

use super::{ServiceKeep, ServiceOutput, TransientService};

/// Names and values.
pub(super) type Properties = Vec<(&'static str, Variant<'static>)>;

/// The properties, and with them the descriptors.
pub(super) fn properties(service: TransientService) -> Properties {
    let mut all: Properties = vec![
        ("Description", service.description.into()),
        ("Slice", service.slice.into()),
        // Started when the program is executed, failed if it cannot be.
        ("Type", "exec".into()),
        ("ExecStartEx", exec_start(service.argv)),
        ("KillMode", "mixed".into()),
        ("KillSignal", service.stop_signal.into()),
        ("TimeoutStopUSec", micros(service.stop_timeout).into()),
        ("IgnoreSIGPIPE", false.into()),
        // One that the kernel takes memory from ends as a whole.
        ("OOMPolicy", "kill".into()),
        // Not stopped by systemd at a shutdown before those it is ordered before are.
        ("DefaultDependencies", false.into()),
    ];
    for (name, units) in [("Before", service.before), ("After", service.after)] {
        if !units.is_empty() {
            all.push((name, units.into()));
        }
    }
    if let Some(fd) = service.input {
        all.push(("StandardInputFileDescriptor", zbus::Fd::from(fd).into()));
    }
    if matches!(service.output, ServiceOutput::To(_)) {
        // Else systemd takes it for the journal, and gives an error output that is the journal the
        // descriptor of this one.
        all.push(("StandardOutput", "null".into()));
    }
    all.push(output(("StandardOutput", "StandardOutputFileDescriptor"), service.output));
    all.push(output(("StandardError", "StandardErrorFileDescriptor"), service.error));
    let limits = [
        ("MemoryMax", service.memory_max),
        ("CPUQuotaPerSecUSec", service.cpu_milli.map(|milli| milli.saturating_mul(1000))),
        ("CPUWeight", service.cpu_weight),
        ("TasksMax", service.tasks_max),
        ("RuntimeMaxUSec", service.max_runtime.map(micros)),
    ];
    all.extend(limits.into_iter().filter_map(|(name, value)| Some((name, value?.into()))));
    all.extend(kept(service.keep));
    if let Some(identifier) = service.journal_identifier {
        all.push(("SyslogIdentifier", identifier.into()));
        all.push(("LogRateLimitIntervalUSec", 0_u64.into()));
    }
    if !service.journal_fields.is_empty() {
        let fields = service.journal_fields.into_iter();
        let fields: Vec<Vec<u8>> =
            fields.map(|(name, value)| format!("{name}={value}").into_bytes()).collect();
        all.push(("LogExtraFields", fields.into()));
    }
    all
}

fn kept(keep: ServiceKeep) -> Properties {
    match keep {
        ServiceKeep::Result => vec![("RemainAfterExit", true.into())],
        ServiceKeep::Nothing => vec![("CollectMode", "inactive-or-failed".into())],
        ServiceKeep::Alive => vec![
            ("CollectMode", "inactive-or-failed".into()),
            ("Restart", "on-failure".into()),
            ("RestartUSec", micros(Duration::from_millis(100)).into()),
            ("StartLimitIntervalUSec", 0_u64.into()),
        ],
    }
}

fn exec_start(argv: Vec<String>) -> Variant<'static> {
    let program = argv.first().cloned().unwrap_or_default();
    let flags = vec!["no-env-expand".to_owned()];
    vec![(program, argv, flags)].into()
}

fn output(
    (by_name, by_descriptor): (&'static str, &'static str),
    output: ServiceOutput,
) -> (&'static str, Variant<'static>) {
    match output {
        ServiceOutput::Null => (by_name, "null".into()),
        ServiceOutput::Journal => (by_name, "journal".into()),
        ServiceOutput::To(fd) => (by_descriptor, zbus::Fd::from(fd).into()),
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
