//! A runtime that breaks one promise.

use std::collections::{HashMap, HashSet};
use std::future::pending;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::time::{Instant, sleep, sleep_until};
use winddown_shared::testing::FakeRuntime;
use winddown_shared::{
    ContainerExit, ContainerState, ContainerStatus, Grace, Pod, PodRuntimeStatus, PodStopped,
    PodUid, Runtime, RuntimeError, RuntimePod, SyncedPod, WallTime,
};

/// How a runtime breaks its promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    AnswersWithAnotherContainer,
    StartsWhatRuns,
    StartsLate,
    StartsNoneAgain,
    OneCallAtATime,
    NeverRestarts,
    CountsNoRestart,
    ShowsBackOffAsExited,
    LosesExitCodes,
    LosesTimes,
    AnnouncesNothing,
    RestartsWhatHasEnded,
    RestartsWhatHasEndedAfterAWhile,
    RestartsWhatHasEndedAfterAStop,
    SendsNoSigterm,
    KillsEarly,
    NeverKills,
    KeepsTheFirstGrace,
    WaitsTheWholeGrace,
    StillShownAsRunning,
    StopsOnce,
    StopsOnlyWhatIsConfigured,
    RefusesTheNextStop,
    KnowsNoUnknownPod,
    ListsOnlyWhatRuns,
    CleansTooMuch,
    CleansOnce,
    ForgetsNothing,
    ForgetsWhatRuns,
    StartsWithNothing,
    SaysNothingForUnknown,
}

/// Each fault with the case that fails for it.
pub(crate) const ALL: &[(Fault, &str)] = &[
    (Fault::AnswersWithAnotherContainer, "a_sync_answers_with_the_state_afterwards"),
    (Fault::StartsWhatRuns, "what_runs_is_not_started_again"),
    (Fault::StartsLate, "a_sync_that_was_dropped_starts_nothing_after_the_stop"),
    (Fault::StartsNoneAgain, "a_pod_that_was_stopped_starts_again"),
    (Fault::OneCallAtATime, "calls_for_one_pod_do_not_wait_for_another"),
    (Fault::NeverRestarts, "a_crashed_container_is_restarted"),
    (Fault::CountsNoRestart, "a_restart_is_counted"),
    (Fault::ShowsBackOffAsExited, "a_container_in_back_off_waits"),
    (Fault::LosesExitCodes, "an_exit_is_shown_with_its_code"),
    (Fault::LosesTimes, "an_exit_has_its_times"),
    (Fault::AnnouncesNothing, "an_exit_is_announced"),
    (Fault::RestartsWhatHasEnded, "a_pod_that_has_ended_for_good_is_not_started_again"),
    (Fault::RestartsWhatHasEndedAfterAWhile, "a_pod_that_has_ended_for_good_is_not_started_again"),
    (Fault::RestartsWhatHasEndedAfterAStop, "a_pod_that_has_ended_for_good_is_not_started_again"),
    (Fault::SendsNoSigterm, "a_container_gets_sigterm_and_its_time"),
    (Fault::KillsEarly, "a_container_that_ignores_sigterm_keeps_its_whole_grace"),
    (Fault::NeverKills, "a_container_that_outlasts_its_grace_is_killed"),
    (Fault::KeepsTheFirstGrace, "a_grace_that_is_shortened_holds_at_once"),
    (Fault::WaitsTheWholeGrace, "a_stop_does_not_wait_for_the_rest_of_the_grace"),
    (Fault::StillShownAsRunning, "nothing_runs_when_a_stop_has_resolved"),
    (Fault::StopsOnce, "a_stopped_pod_can_be_stopped_again"),
    (Fault::StopsOnlyWhatIsConfigured, "a_pod_can_be_stopped_by_its_uid_alone"),
    (Fault::RefusesTheNextStop, "an_abandoned_stop_is_joined_by_the_next"),
    (Fault::KnowsNoUnknownPod, "an_unknown_pod_is_stopped_and_empty"),
    (Fault::ListsOnlyWhatRuns, "a_stopped_pod_is_listed_until_it_is_forgotten"),
    (Fault::CleansTooMuch, "a_clean_up_keeps_how_the_pod_exited"),
    (Fault::CleansOnce, "a_clean_up_can_be_repeated"),
    (Fault::ForgetsNothing, "a_forgotten_pod_is_gone"),
    (Fault::ForgetsWhatRuns, "a_pod_that_runs_is_not_forgotten"),
    (Fault::StartsWithNothing, "the_next_agent_finds_what_runs"),
    (Fault::SaysNothingForUnknown, "a_runtime_that_is_away_says_so"),
];

/// The fake runtime with a fault.
pub(crate) struct Faulty {
    runtime: FakeRuntime,
    fault: Option<Fault>,
    memory: Mutex<Memory>,
    turn: tokio::sync::Mutex<()>,
    silence: broadcast::Sender<PodUid>,
}

/// What the faults remember of this runtime.
#[derive(Default)]
struct Memory {
    syncs: u32,
    stops: HashMap<PodUid, u32>,
    cleaned: HashSet<PodUid>,
    crashes: HashMap<PodUid, Crash>,
    is_stopping: bool,
}

/// What is known of a pod that has crashed.
#[derive(Clone, Default)]
struct Crash {
    exit: Option<ContainerExit>,
    restarts: u32,
    /// When the restart backoff is over, while it lasts.
    until: Option<Instant>,
}

impl Faulty {
    pub(crate) fn new(runtime: FakeRuntime, fault: Option<Fault>) -> Self {
        let (turn, silence) = (tokio::sync::Mutex::default(), broadcast::channel(1).0);
        Self { runtime, fault, memory: Mutex::default(), turn, silence }
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap()
    }

    fn was_stopped(&self, uid: &PodUid) -> bool {
        self.memory().stops.contains_key(uid)
    }

    /// Restarts a pod that has exited by itself after a backoff, of which nothing is left to the fake runtime.
    async fn restart(&self, uid: &PodUid) {
        let status = self.runtime.pod_status(uid).await.unwrap_or_default();
        let exit = status.containers.iter().find_map(|one| match &one.state {
            ContainerState::Exited(exit) => Some(exit.clone()),
            _ => None,
        });
        let Some(exit) = exit else { return };
        let backoff = if self.has(Fault::NeverRestarts) { 24 * 60 * 60 } else { 2 };
        let mut memory = self.memory();
        let crash = memory.crashes.entry(uid.clone()).or_default();
        crash.exit = Some(exit);
        let over = Instant::now() + Duration::from_secs(backoff);
        if *crash.until.get_or_insert(over) <= Instant::now() {
            crash.restarts += 1;
            crash.until = None;
            self.runtime.revive(uid);
        }
    }

    /// Shows the containers with their restarts, and otherwise than they are.
    fn shown(&self, uid: &PodUid, status: &mut PodRuntimeStatus) {
        let was_stopped = self.was_stopped(uid);
        let crash = self.memory().crashes.get(uid).cloned().unwrap_or_default();
        for one in &mut status.containers {
            (one.restart_count, one.last_exit) = (crash.restarts, crash.exit.clone());
            if crash.until.is_some() && !was_stopped {
                let (reason, message) = ("CrashLoopBackOff".into(), String::new());
                one.state = ContainerState::Waiting { reason, message };
            }
            self.spoil(one);
        }
    }

    /// Shows a container otherwise than it is.
    fn spoil(&self, one: &mut ContainerStatus) {
        match (self.fault, &mut one.state) {
            (Some(Fault::LosesExitCodes), ContainerState::Exited(exit)) => exit.exit_code = 0,
            (Some(Fault::LosesTimes), ContainerState::Exited(exit)) => exit.finished_at = None,
            (Some(Fault::CountsNoRestart), _) => one.restart_count = 0,
            (Some(Fault::ShowsBackOffAsExited), state @ ContainerState::Waiting { .. }) => {
                if let Some(exit) = one.last_exit.clone() {
                    *state = ContainerState::Exited(exit);
                }
            }
            _ => {}
        }
    }

    async fn turn(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        if self.has(Fault::OneCallAtATime) { Some(self.turn.lock().await) } else { None }
    }

    /// Stops with a grace that ends when `over` resolves.
    async fn stop_at(
        &self,
        uid: &PodUid,
        pod: Option<&Pod>,
        over: impl Future<Output = ()>,
    ) -> Result<PodStopped, RuntimeError> {
        let (sender, grace) = Grace::until(Instant::now() + Duration::from_secs(24 * 60 * 60));
        let shorten = async {
            over.await;
            sender.shorten_to(Instant::now());
            pending::<()>().await;
        };
        tokio::select! {
            stopped = self.runtime.stop_pod(uid, pod, grace) => stopped,
            () = shorten => unreachable!(),
        }
    }
}

/// Starts a pod later if it is dropped.
struct Late(Option<(FakeRuntime, Pod)>);

impl Drop for Late {
    fn drop(&mut self) {
        if let Some((runtime, pod)) = self.0.take() {
            tokio::spawn(async move {
                sleep(Duration::from_millis(200)).await;
                runtime.sync_pod(&pod).await
            });
        }
    }
}

fn failure(what: &str) -> RuntimeError {
    RuntimeError::Failed { what: what.to_owned(), source: None }
}

fn shown_as_running(status: &mut PodRuntimeStatus) {
    for one in &mut status.containers {
        one.state = ContainerState::Running { started_at: WallTime::UNIX_EPOCH };
    }
}

impl Runtime for Faulty {
    async fn sync_pod(&self, pod: &Pod) -> Result<SyncedPod, RuntimeError> {
        let _turn = self.turn().await;
        if self.has(Fault::StartsLate) {
            let mut late = Late(Some((self.runtime.clone(), pod.clone())));
            sleep(Duration::from_millis(50)).await;
            late.0 = None;
        }
        let mut synced = SyncedPod::default();
        if self.has(Fault::StartsNoneAgain) && self.was_stopped(pod.uid()) {
            synced.status = self.runtime.pod_status(pod.uid()).await?;
            return Ok(synced);
        }
        let policy = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
        if policy == Some("Always") && !self.was_stopped(pod.uid()) {
            self.restart(pod.uid()).await;
        }
        synced = self.runtime.sync_pod(pod).await?;
        self.shown(pod.uid(), &mut synced.status);
        let before = self.memory().syncs;
        self.memory().syncs += 1;
        let is_restarted = match self.fault {
            Some(Fault::RestartsWhatHasEnded) => true,
            // The first sync starts it, and the second finds that it has exited.
            Some(Fault::RestartsWhatHasEndedAfterAWhile) => {
                synced.again_in = Some(Duration::from_millis(100));
                before > 1
            }
            Some(Fault::RestartsWhatHasEndedAfterAStop) => self.was_stopped(pod.uid()),
            _ => false,
        };
        if is_restarted && policy == Some("Never") {
            shown_as_running(&mut synced.status);
        }
        for one in &mut synced.status.containers {
            match self.fault {
                Some(Fault::AnswersWithAnotherContainer) => one.id = "fake://another".to_owned(),
                Some(Fault::StartsWhatRuns) => one.restart_count = before,
                _ => {}
            }
        }
        Ok(synced)
    }

    async fn stop_pod(
        &self,
        uid: &PodUid,
        pod: Option<&Pod>,
        mut grace: Grace,
    ) -> Result<PodStopped, RuntimeError> {
        let _turn = self.turn().await;
        let known = self.runtime.list_pods().await?.into_iter().find(|known| known.uid == *uid);
        let runs = known.as_ref().is_some_and(|known| known.running);
        let is_first = !self.was_stopped(uid);
        *self.memory().stops.entry(uid.clone()).or_default() += 1;
        match self.fault {
            Some(Fault::KnowsNoUnknownPod) if known.is_none() => Err(failure("no such pod")),
            Some(Fault::StopsOnlyWhatIsConfigured) if pod.is_none() && runs => {
                Err(failure("the pod has no configuration"))
            }
            Some(Fault::StopsOnce) if known.is_some() && !runs => Err(failure("nothing runs")),
            Some(Fault::SendsNoSigterm) => {
                self.runtime.stop_takes(uid, Duration::from_secs(24 * 60 * 60));
                self.runtime.stop_pod(uid, pod, grace).await
            }
            Some(Fault::KillsEarly) => {
                let half = Instant::now() + grace.remaining() / 2;
                let over = async {
                    tokio::select! {
                        () = sleep_until(half) => {}
                        () = grace.expired() => {}
                    }
                };
                self.stop_at(uid, pod, over).await
            }
            Some(Fault::NeverKills) if is_first => {
                let end = Instant::now() + grace.remaining();
                let over = async {
                    grace.expired().await;
                    if Instant::now() >= end {
                        pending::<()>().await;
                    }
                };
                self.stop_at(uid, pod, over).await
            }
            Some(Fault::KeepsTheFirstGrace) => {
                self.runtime.stop_pod(uid, pod, Grace::fixed(grace.remaining())).await
            }
            Some(Fault::WaitsTheWholeGrace) if runs => {
                let stopped = self.runtime.stop_pod(uid, pod, grace.clone()).await;
                grace.expired().await;
                stopped
            }
            Some(Fault::RefusesTheNextStop) => {
                if std::mem::replace(&mut self.memory().is_stopping, true) {
                    return Err(failure("a stop is under way"));
                }
                let stopped = self.runtime.stop_pod(uid, pod, grace).await;
                self.memory().is_stopping = false;
                stopped
            }
            _ => self.runtime.stop_pod(uid, pod, grace).await,
        }
    }

    async fn pod_status(&self, uid: &PodUid) -> Result<PodRuntimeStatus, RuntimeError> {
        let mut status = self.runtime.pod_status(uid).await?;
        self.shown(uid, &mut status);
        let was_cleaned = self.memory().cleaned.contains(uid);
        if self.has(Fault::StillShownAsRunning) && self.was_stopped(uid) && !was_cleaned {
            let was_killed = |one: &ContainerStatus| matches!(&one.state, ContainerState::Exited(exit) if exit.exit_code == 137);
            if !status.containers.iter().any(was_killed) {
                shown_as_running(&mut status);
            }
        }
        Ok(status)
    }

    async fn list_pods(&self) -> Result<Vec<RuntimePod>, RuntimeError> {
        let mut pods = match self.runtime.list_pods().await {
            Err(_) if self.has(Fault::SaysNothingForUnknown) => Vec::new(),
            listed => listed?,
        };
        if self.has(Fault::ListsOnlyWhatRuns) {
            pods.retain(|pod| pod.running);
        }
        if self.has(Fault::StartsWithNothing) && self.memory().syncs == 0 {
            pods.clear();
        }
        Ok(pods)
    }

    async fn clean_pod(&self, uid: &PodUid) -> Result<(), RuntimeError> {
        let is_again = !self.memory().cleaned.insert(uid.clone());
        match self.fault {
            Some(Fault::CleansTooMuch) => self.runtime.forget_pod(uid).await,
            Some(Fault::CleansOnce) if is_again => Err(failure("there is nothing to clean up")),
            _ => self.runtime.clean_pod(uid).await,
        }
    }

    async fn forget_pod(&self, uid: &PodUid) -> Result<(), RuntimeError> {
        match self.fault {
            Some(Fault::ForgetsNothing) if !self.runtime.runs(uid) => Ok(()),
            Some(Fault::ForgetsWhatRuns) if self.runtime.runs(uid) => Ok(()),
            _ => self.runtime.forget_pod(uid).await,
        }
    }

    fn changes(&self) -> broadcast::Receiver<PodUid> {
        match self.has(Fault::AnnouncesNothing) {
            true => self.silence.subscribe(),
            false => self.runtime.changes(),
        }
    }
}
