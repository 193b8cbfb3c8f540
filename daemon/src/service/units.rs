//! The service manager of this machine, as the runtime of transient services asks for it.

use std::time::Duration;
use winddown_shared::critical;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use winddown_runtimes::systemd::units::{
    Keep, NewUnit, ServiceUnits, UnitChange, UnitEnd, UnitError, UnitExit, UnitOutput, UnitPhase,
    UnitView, Whom,
};
use winddown_systemd::Bus;
use winddown_systemd::units::{
    ServiceChange, ServiceEnd, ServiceError, ServiceKeep, ServiceOutput, ServicePhase,
    ServiceState, TransientService, UnitsClient,
};

/// What the units of pods begin with.
const PREFIX: &str = "winddown-pod";
/// Pods' services are stopped after the agent, whose stop ends them in order.
const AGENT: &str = "winddown.service";
/// How long systemd may take to answer: as long as a reload of it lasts on a slow machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// Changes that the runtime may fall behind before it has to list the units again.
const CHANGES: usize = 4096;

/// systemd, over the bus.
#[derive(Debug)]
pub struct SystemdUnits {
    client: UnitsClient,
    changes: broadcast::Sender<UnitChange>,
}

impl SystemdUnits {
    /// Begins to connect. Must be called inside a tokio runtime.
    pub fn start(bus: Bus) -> Self {
        let client = UnitsClient::start(bus, PREFIX, PATIENCE);
        let changes = broadcast::Sender::new(CHANGES);
        critical::spawn("changes of units", pass_on(client.changes(), changes.clone()));
        Self { client, changes }
    }

    /// Whether systemd can be reached.
    pub fn is_connected(&self) -> bool {
        self.client.is_connected()
    }
}

/// Ends with the client.
async fn pass_on(mut from: broadcast::Receiver<ServiceChange>, to: broadcast::Sender<UnitChange>) {
    loop {
        let change = match from.recv().await {
            Ok(ServiceChange::Seen { unit, state }) => {
                UnitChange::Seen { unit, view: view(&state) }
            }
            Ok(ServiceChange::Removed { unit }) => UnitChange::Vanished { unit },
            Ok(ServiceChange::Missed) | Err(RecvError::Lagged(_)) => UnitChange::Missed,
            Err(RecvError::Closed) => return,
        };
        // No receiver: the runtime is being opened, and lists them then.
        let _ = to.send(change);
    }
}

impl ServiceUnits for SystemdUnits {
    async fn start(&self, unit: NewUnit) -> Result<(), UnitError> {
        let name = unit.name.clone();
        self.client.start_service(service(unit)).await.map_err(|error| sorted(error, &name))
    }

    async fn make_slice(
        &self,
        slice: &str,
        description: &str,
        cpu_weight: u64,
    ) -> Result<(), UnitError> {
        let made = self.client.make_slice(slice, description, cpu_weight).await;
        made.map_err(|error| sorted(error, slice))
    }

    async fn signal(&self, unit: &str, whom: Whom, signal: i32) -> Result<(), UnitError> {
        let killed = self.client.kill(unit, whom == Whom::All, signal).await;
        killed.map_err(|error| sorted(error, unit))
    }

    async fn stop(&self, unit: &str) -> Result<(), UnitError> {
        self.client.stop(unit).await.map_err(|error| sorted(error, unit))
    }

    async fn forget_failure(&self, unit: &str) -> Result<(), UnitError> {
        self.client.reset_failed(unit).await.map_err(|error| sorted(error, unit))
    }

    async fn look(&self, unit: &str) -> Result<Option<UnitView>, UnitError> {
        let state = self.client.state(unit).await.map_err(|error| sorted(error, unit))?;
        Ok(state.as_ref().map(view))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(String, UnitView)>, UnitError> {
        let all = self.client.list(prefix).await.map_err(|error| sorted(error, prefix))?;
        Ok(all.into_iter().map(|(unit, state)| (unit, view(&state))).collect())
    }

    fn changes(&self) -> broadcast::Receiver<UnitChange> {
        self.changes.subscribe()
    }
}

fn service(unit: NewUnit) -> TransientService {
    let journal = unit.journal.unwrap_or_default();
    let fields = journal.fields.into_iter();
    TransientService {
        name: unit.name,
        slice: unit.slice,
        description: unit.description,
        argv: unit.argv,
        input: unit.input,
        output: output(unit.output),
        error: output(unit.error),
        memory_max: unit.limits.memory_max,
        cpu_milli: unit.limits.cpu_milli,
        cpu_weight: unit.limits.cpu_weight,
        tasks_max: unit.limits.tasks_max,
        keep: match unit.keep {
            Keep::Result => ServiceKeep::Result,
            Keep::Nothing => ServiceKeep::Nothing,
            Keep::Alive => ServiceKeep::Alive,
        },
        stop_signal: unit.stop_signal,
        stop_timeout: unit.stop_timeout,
        max_runtime: unit.max_runtime,
        before: vec![AGENT.to_owned()],
        after: unit.after.into_iter().collect(),
        journal_identifier: Some(journal.identifier).filter(|text| !text.is_empty()),
        journal_fields: fields.map(|(name, value)| (name.to_owned(), value)).collect(),
    }
}

fn output(output: UnitOutput) -> ServiceOutput {
    match output {
        UnitOutput::Null => ServiceOutput::Null,
        UnitOutput::Journal => ServiceOutput::Journal,
        UnitOutput::To(fd) => ServiceOutput::To(fd),
    }
}

fn view(state: &ServiceState) -> UnitView {
    UnitView {
        phase: match state.phase {
            ServicePhase::Starting => UnitPhase::Starting,
            ServicePhase::Running => UnitPhase::Running,
            ServicePhase::Exited => UnitPhase::Exited,
            ServicePhase::Stopping => UnitPhase::Stopping,
            ServicePhase::Over => UnitPhase::Over,
        },
        end: state.end.as_ref().map(end),
        main_pid: state.main_pid,
    }
}

fn end(end: &ServiceEnd) -> UnitEnd {
    let code = UnitExit::Code(end.exit_code.unwrap_or_default());
    UnitEnd {
        status: end.signal.map_or(code, UnitExit::Signal),
        out_of_memory: end.out_of_memory,
        started_at: end.started_at,
        finished_at: end.finished_at,
        ran: end.ran,
    }
}

fn sorted(error: ServiceError, unit: &str) -> UnitError {
    match error {
        ServiceError::Exists { .. } => UnitError::Exists { unit: unit.to_owned() },
        ServiceError::Silent { call, detail } => UnitError::Silent { call, why: detail },
        ServiceError::Refused { call, detail } => UnitError::Refused { call, why: detail },
        ServiceError::Absent { call } => {
            UnitError::Refused { call, why: format!("{unit} is not loaded") }
        }
        error => UnitError::Refused { call: "systemd", why: error.to_string() },
    }
}
