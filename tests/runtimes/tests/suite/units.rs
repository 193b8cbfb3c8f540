//! A small service manager: units are children of the test, and what it says of them is what systemd says.

use std::collections::HashMap;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use rustix::fs::OFlags;
use tokio::sync::broadcast;
use tokio::time::Instant;
use winddown_runtimes::systemd::units::{
    Keep, KillWhom, NewUnit, ServiceUnits, UnitChange, UnitEnd, UnitError, UnitExit, UnitOutput,
    UnitPhase, UnitView,
};

use crate::bed::clock;

/// Units of one test. Clones are the same; it outlives the runtimes opened on it.
#[derive(Clone, Debug)]
pub(crate) struct LocalUnits(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    units: Mutex<HashMap<String, Unit>>,
    /// The slices that were asked for, with their weights.
    slices: Mutex<HashMap<String, u64>>,
    changes: broadcast::Sender<UnitChange>,
    hangs: AtomicBool,
    loses_answers: AtomicBool,
    signals_late: AtomicBool,
    is_mute: AtomicBool,
}

#[derive(Debug)]
struct Unit {
    view: UnitView,
    keep: Keep,
    pid: i32,
}

impl LocalUnits {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Inner {
            units: Mutex::default(),
            slices: Mutex::default(),
            changes: broadcast::Sender::new(64),
            hangs: AtomicBool::new(false),
            loses_answers: AtomicBool::new(false),
            signals_late: AtomicBool::new(false),
            is_mute: AtomicBool::new(false),
        }))
    }

    /// From now on it answers nothing, or answers again.
    pub(crate) fn hang(&self, hangs: bool) {
        self.0.hangs.store(hangs, Ordering::SeqCst);
    }

    /// From now on it does what it is asked to start and does not say so, or says so again.
    pub(crate) fn lose_answers(&self, loses: bool) {
        self.0.loses_answers.store(loses, Ordering::SeqCst);
    }

    /// From now on it takes three seconds to send a signal, as during a reload.
    pub(crate) fn signal_late(&self) {
        self.0.signals_late.store(true, Ordering::SeqCst);
    }

    /// From now on nobody hears of changes; when they are told again, that some were missed.
    pub(crate) fn mute(&self, mute: bool) {
        self.0.is_mute.store(mute, Ordering::SeqCst);
        self.0.tell(UnitChange::Missed);
    }

    /// Says of every unit that it is unloaded, as systemd does when it reloads.
    pub(crate) fn reload(&self) {
        for unit in self.names() {
            self.0.tell(UnitChange::Vanished { unit: unit.as_str().into() });
        }
    }

    /// Unloads a unit and kills what runs of it, without a word of how it ended.
    pub(crate) fn lose(&self, unit: &str) {
        let lost = self.0.units.lock().unwrap().remove(unit);
        if let Some(lost) = lost {
            let _ = killpg(Pid::from_raw(lost.pid), Signal::SIGKILL);
        }
        self.0.tell(UnitChange::Vanished { unit: unit.into() });
    }

    /// All that are loaded, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.0.units.lock().unwrap().keys().cloned().collect();
        names.sort();
        names
    }

    /// The weight of a slice.
    pub(crate) fn weight(&self, slice: &str) -> Option<u64> {
        self.0.slices.lock().unwrap().get(slice).copied()
    }

    /// The main process of a unit.
    pub(crate) fn pid(&self, unit: &str) -> i32 {
        self.0.units.lock().unwrap()[unit].pid
    }

    /// Whether a unit's main process has ended.
    pub(crate) fn has_ended(&self, unit: &str) -> bool {
        let units = self.0.units.lock().unwrap();
        units.get(unit).is_none_or(|unit| unit.view.phase.has_ended())
    }

    fn answer(&self, call: &'static str) -> Result<(), UnitError> {
        if self.0.hangs.load(Ordering::SeqCst) {
            return Err(UnitError::Silent { call, why: "it hangs".to_owned() });
        }
        Ok(())
    }
}

impl Inner {
    fn tell(&self, change: UnitChange) {
        if !self.is_mute.load(Ordering::SeqCst) {
            let _ = self.changes.send(change);
        }
    }

    fn show(&self, name: &str, change: impl FnOnce(&mut UnitView)) {
        let view = {
            let mut units = self.units.lock().unwrap();
            let Some(unit) = units.get_mut(name) else { return };
            change(&mut unit.view);
            unit.view
        };
        self.tell(UnitChange::Seen { unit: name.into(), view });
    }

    fn unload(&self, name: &str) {
        if self.units.lock().unwrap().remove(name).is_some() {
            self.tell(UnitChange::Vanished { unit: name.into() });
        }
    }

    fn ended(
        &self,
        name: &str,
        status: ExitStatus,
        (began, started_at): (Instant, jiff::Timestamp),
    ) {
        let status = match status.code() {
            Some(code) => UnitExit::Code(code),
            None => UnitExit::Signal(status.signal().unwrap()),
        };
        let end = UnitEnd {
            status,
            out_of_memory: false,
            stopped: false,
            started_at: Some(started_at),
            finished_at: Some(clock().now()),
            ran: began.elapsed(),
        };
        let Some((keep, pid)) = self.units.lock().unwrap().get(name).map(|u| (u.keep, u.pid))
        else {
            return;
        };
        // These count as good, as they do for systemd.
        let is_well = matches!(status, UnitExit::Code(0) | UnitExit::Signal(1 | 2 | 13 | 15));
        let stays = is_well && keep == Keep::Result;
        if !stays {
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
        self.show(name, |view| {
            view.phase = if stays { UnitPhase::Exited } else { UnitPhase::Over };
            (view.end, view.main_pid) = (Some(end), None);
        });
        if keep != Keep::Result {
            self.unload(name);
        }
    }
}

impl ServiceUnits for LocalUnits {
    async fn start(&self, unit: NewUnit) -> Result<(), UnitError> {
        let call = "StartTransientUnit";
        self.answer(call)?;
        assert_eq!(unit.survives, unit.slice == "winddown-survivors.slice");
        let of_pod = unit.slice.starts_with("winddown-pod") && unit.slice.ends_with(".slice");
        let is_command = unit.name.contains("-hook-");
        assert_eq!(
            unit.slice == "winddown.slice",
            is_command,
            "{} is in {}",
            unit.name,
            unit.slice
        );
        assert!(of_pod || unit.survives || is_command);
        assert!(unit.slice.matches('-').count() <= 1, "{}", unit.slice);
        if self.0.units.lock().unwrap().contains_key(&unit.name) {
            return Err(UnitError::Exists { unit: unit.name });
        }
        let stdio = |output| match output {
            UnitOutput::To(fd) => {
                // systemd 262 refuses others.
                let mode = rustix::fs::fcntl_getfl(&fd).unwrap() & OFlags::RWMODE;
                assert_ne!(mode, OFlags::RDONLY);
                Stdio::from(fd)
            }
            UnitOutput::Null | UnitOutput::Journal => Stdio::null(),
        };
        let mut command = Command::new(&unit.argv[0]);
        command.args(&unit.argv[1..]).process_group(0).current_dir("/");
        command.stdin(unit.input.map_or_else(Stdio::null, Stdio::from));
        command.stdout(stdio(unit.output)).stderr(stdio(unit.error));
        let (began, started_at) = (Instant::now(), clock().now());
        let refused = |e: std::io::Error| UnitError::Refused { call, why: e.to_string() };
        let mut child = command.spawn().map_err(refused)?;
        drop(command);
        let pid = i32::try_from(child.id()).unwrap();
        let view = UnitView {
            phase: UnitPhase::Running,
            main_pid: Some(pid),
            stop_timeout: Some(unit.stop_timeout),
            ..UnitView::default()
        };
        let loaded = Unit { view, keep: unit.keep, pid };
        self.0.units.lock().unwrap().insert(unit.name.clone(), loaded);
        self.0.show(&unit.name, |_| {});
        let (inner, name) = (Arc::clone(&self.0), unit.name);
        std::thread::spawn(move || {
            let status = child.wait().unwrap();
            inner.ended(&name, status, (began, started_at));
        });
        if self.0.loses_answers.load(Ordering::SeqCst) {
            return Err(UnitError::Silent { call, why: "the answer was lost".to_owned() });
        }
        Ok(())
    }

    async fn make_slice(&self, slice: &str, _: &str, cpu_weight: u64) -> Result<(), UnitError> {
        self.answer("StartTransientUnit")?;
        self.0.slices.lock().unwrap().insert(slice.to_owned(), cpu_weight);
        Ok(())
    }

    async fn weigh_slice(&self, slice: &str, cpu_weight: u64) -> Result<(), UnitError> {
        self.answer("SetUnitProperties")?;
        self.0.slices.lock().unwrap().insert(slice.to_owned(), cpu_weight);
        Ok(())
    }

    async fn signal(&self, unit: &str, whom: KillWhom, signal: i32) -> Result<(), UnitError> {
        self.answer("KillUnit")?;
        if self.0.signals_late.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
        let found = self.0.units.lock().unwrap().get(unit).map(|u| (u.pid, u.view.main_pid));
        let Some((group, main)) = found else { return Ok(()) };
        let signal = Signal::try_from(signal).unwrap();
        let _ = match (whom, main) {
            (KillWhom::Main, Some(main)) => kill(Pid::from_raw(main), signal),
            (KillWhom::Main, None) => Ok(()),
            (KillWhom::All, _) => killpg(Pid::from_raw(group), signal),
        };
        Ok(())
    }

    async fn stop(&self, unit: &str) -> Result<(), UnitError> {
        self.answer("StopUnit")?;
        let found = self.0.units.lock().unwrap().get(unit).map(|u| (u.pid, u.view.phase));
        let Some((pid, phase)) = found else { return Ok(()) };
        match phase {
            UnitPhase::Exited => {
                let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
                self.0.show(unit, |view| view.phase = UnitPhase::Over);
                self.0.unload(unit);
            }
            UnitPhase::Over => {}
            _ => drop(kill(Pid::from_raw(pid), Signal::SIGTERM)),
        }
        Ok(())
    }

    async fn forget_failure(&self, unit: &str) -> Result<(), UnitError> {
        self.answer("ResetFailedUnit")?;
        let phase = self.0.units.lock().unwrap().get(unit).map(|u| u.view.phase);
        if phase == Some(UnitPhase::Over) {
            self.0.unload(unit);
        }
        Ok(())
    }

    async fn look(&self, unit: &str) -> Result<Option<UnitView>, UnitError> {
        self.answer("GetUnit")?;
        Ok(self.0.units.lock().unwrap().get(unit).map(|u| u.view))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(String, UnitView)>, UnitError> {
        self.answer("ListUnitsByPatterns")?;
        let units = self.0.units.lock().unwrap();
        let ours = units.iter().filter(|(name, _)| name.starts_with(prefix));
        Ok(ours.map(|(name, unit)| (name.clone(), unit.view)).collect())
    }

    fn changes(&self) -> broadcast::Receiver<UnitChange> {
        self.0.changes.subscribe()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for unit in self.units.lock().unwrap().values() {
            let _ = killpg(Pid::from_raw(unit.pid), Signal::SIGKILL);
        }
    }
}

/// Waits until nothing is loaded any more.
pub(crate) async fn nothing_loaded(units: &LocalUnits) {
    let deadline = Instant::now() + crate::bed::PATIENCE;
    while !units.names().is_empty() {
        assert!(Instant::now() < deadline, "left: {:?}", units.names());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
