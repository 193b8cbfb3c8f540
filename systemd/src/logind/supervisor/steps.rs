//! The calls of each step.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use winddown_host::{OneThread, regular};
use winddown_shared::{ScheduledShutdown, ShutdownKind, ShutdownRequest, WallTime};

use super::super::InhibitorConfig;
use super::super::plan::{LogindFacts, LogindStep};
use super::super::raise_inhibit_delay::{Raised, raise_inhibit_delay};
use super::super::session::{KindRead, Listed, LoginCalls, LogindCallError};

pub(super) enum StepResult {
    Preparing(bool),
    Delay(Duration),
    Lock(OwnedFd),
    Listed(Listed),
    /// `None` if nothing changed since the last attempt.
    Raised(Option<Raised>),
    Request(ShutdownRequest, KindRead),
    /// With the kind of a shutdown at once.
    Scheduled(Option<ScheduledShutdown>, ShutdownKind),
}

/// Makes the calls of a step; without a step it never resolves.
pub(super) async fn carry_out(
    step: Option<LogindStep>,
    calls: &impl LoginCalls,
    config: &InhibitorConfig,
    facts: &LogindFacts,
    disk: &OneThread,
) -> (LogindStep, Result<StepResult, LogindCallError>) {
    let Some(step) = step else { return std::future::pending().await };
    let outcome = match step {
        LogindStep::ReadPreparing => calls.preparing().await.map(StepResult::Preparing),
        LogindStep::ReadDelay => calls.delay().await.map(StepResult::Delay),
        LogindStep::Inhibit => calls.inhibit(&config.who, &config.why).await.map(StepResult::Lock),
        LogindStep::VerifyNew | LogindStep::VerifyHeld => {
            calls.listed(&config.who).await.map(StepResult::Listed)
        }
        LogindStep::RaiseDelay => {
            let current = facts.delay.unwrap_or_default();
            let root = config.configuration_root().map(|root| (root, disk));
            let wanted = (facts.wanted, facts.raised);
            let outcome = raise_inhibit_delay(calls, root, &config.who, current, wanted);
            outcome.await.map(StepResult::Raised)
        }
        LogindStep::ReadRequest => {
            let (message, kind) = calls.request().await;
            let request = config.configuration_root().and_then(scheduled).unwrap_or_default();
            let request = ShutdownRequest { message: message.map(Into::into), ..request };
            Ok(StepResult::Request(request, kind))
        }
        LogindStep::ReadScheduled => {
            let (scheduled, at_once) = calls.scheduled().await;
            Ok(StepResult::Scheduled(scheduled, at_once))
        }
    };
    (step, outcome)
}

/// Reads the scheduled shutdown from the file in which logind keeps it across its restarts.
fn scheduled(root: &Path) -> Option<ShutdownRequest> {
    let text = regular::read_to_string(
        &root.join("run/systemd/shutdown/scheduled"),
        regular::MAX_CONFIGURATION_BYTES,
    )
    .ok()?;
    let value = |name| text.lines().find_map(|line| line.strip_prefix(name));
    let micros = value("USEC=").and_then(|text| text.parse().ok())?;
    Some(ShutdownRequest {
        message: None,
        scheduled_for: WallTime::from_microsecond(micros).ok(),
        scheduled_by: value("UID=").and_then(|text| text.parse().ok()),
    })
}
