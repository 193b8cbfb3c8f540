//! A login manager that follows the test's script and records its calls.

use std::collections::HashMap;
use std::io::{ErrorKind, PipeReader, Read as _};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use tokio::sync::mpsc;
use tokio::time::Instant;
use winddown_shared::{ScheduledShutdown, ShutdownKind};

use crate::logind::session::{
    KindRead, Listed, LoginCalls, LoginManager, LogindCallError, LogindEvent, Session,
};

/// The behaviour of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// It never answers; the caller's own timeout must end it.
    Hang,
    /// It answers after this time.
    After(Duration),
    /// It does not answer within the timeout of the connection (5 s).
    TimeOut,
    /// An error reply.
    Refuse,
    /// `OperationInProgress`, whatever the property says.
    InProgress,
    /// `ServiceUnknown`.
    Absent,
    /// A shutdown begins, with its signal, right before the answer.
    ShutDownFirst,
}

#[derive(Clone)]
pub(super) struct Scripted(Arc<Mutex<World>>);

struct World {
    /// Whether its name has an owner.
    is_there: bool,
    preparing: bool,
    message: Option<String>,
    kind: ShutdownKind,
    announced: ShutdownKind,
    scheduled: Option<ScheduledShutdown>,
    delay: Duration,
    /// The delay after a reload, and how long the reload takes.
    after_reload: Option<(Duration, Duration)>,
    applies_at: Option<Instant>,
    locks: Vec<PipeReader>,
    listed: Vec<Listed>,
    acts: HashMap<&'static str, Act>,
    /// The behaviour of the next call only.
    once: HashMap<&'static str, Act>,
    trace: Vec<String>,
    times: Vec<(String, Instant)>,
    sessions: Vec<mpsc::Sender<LogindEvent>>,
}

pub(super) struct ScriptedCalls(Scripted);

impl Scripted {
    /// Creates a login manager that gives `delay`, grants every lock and lists it.
    pub(super) fn giving(delay: Duration) -> Self {
        Self(Arc::new(Mutex::new(World {
            is_there: true,
            preparing: false,
            message: None,
            kind: ShutdownKind::Unknown,
            announced: ShutdownKind::Unknown,
            scheduled: None,
            delay,
            after_reload: None,
            applies_at: None,
            locks: Vec::new(),
            listed: Vec::new(),
            acts: HashMap::new(),
            once: HashMap::new(),
            trace: Vec::new(),
            times: Vec::new(),
            sessions: Vec::new(),
        })))
    }

    /// Sets the delay to `delay` once `takes` has passed after a reload.
    pub(super) fn reloading_to(self, delay: Duration, takes: Duration) -> Self {
        self.world().after_reload = Some((delay, takes));
        self
    }

    pub(super) fn act(&self, call: &'static str, act: Act) {
        self.world().acts.insert(call, act);
    }

    pub(super) fn act_once(&self, call: &'static str, act: Act) {
        self.world().once.insert(call, act);
    }

    pub(super) fn behave(&self, call: &'static str) {
        self.world().acts.remove(call);
    }

    pub(super) fn set_there(&self, is_there: bool) {
        self.world().is_there = is_there;
    }

    pub(super) fn set_preparing(&self, preparing: bool) {
        self.world().preparing = preparing;
    }

    pub(super) fn set_message(&self, message: Option<&str>) {
        self.world().message = message.map(str::to_owned);
    }

    /// Sets the kind that logind has for a shutdown at once.
    pub(super) fn set_kind(&self, kind: ShutdownKind) {
        self.world().kind = kind;
    }

    /// Sets the kind that logind announces, as since systemd 256.
    pub(super) fn set_announced(&self, kind: ShutdownKind) {
        self.world().announced = kind;
    }

    pub(super) fn schedule(&self, shutdown: Option<ScheduledShutdown>) {
        self.world().scheduled = shutdown;
    }

    pub(super) fn set_delay(&self, delay: Duration) {
        self.world().delay = delay;
    }

    /// Sets the results of the next calls of `ListInhibitors`, after which it is [`Listed::Ours`] again.
    pub(super) fn list_as(&self, listed: &[Listed]) {
        self.world().listed = listed.to_vec();
    }

    /// Sets the property and sends the signal, as logind does.
    pub(super) async fn prepare(&self, begins: bool) {
        self.set_preparing(begins);
        self.say(begins, ShutdownKind::Unknown).await;
    }

    /// Sends the signal only.
    pub(super) async fn say(&self, begins: bool, kind: ShutdownKind) {
        self.tell(LogindEvent::Prepare { begins, kind, at: Instant::now() }).await;
    }

    /// Sets the property only, and reports the change of a property.
    pub(super) async fn change(&self, preparing: bool) {
        self.set_preparing(preparing);
        self.tell(LogindEvent::Changed { at: Instant::now() }).await;
    }

    pub(super) async fn tell(&self, heard: LogindEvent) {
        let last = self.world().sessions.last().cloned();
        last.expect("a session").send(heard).await.expect("somebody listens");
    }

    /// Closes every connection.
    pub(super) fn hang_up(&self) {
        self.world().sessions.clear();
    }

    /// Returns the number of connections whose other end is still open.
    pub(super) fn open_sessions(&self) -> usize {
        self.world().sessions.iter().filter(|session| !session.is_closed()).count()
    }

    pub(super) fn trace(&self) -> Vec<String> {
        self.world().trace.clone()
    }

    pub(super) fn clear_trace(&self) {
        self.world().trace.clear();
        self.world().times.clear();
    }

    pub(super) fn count(&self, call: &str) -> usize {
        self.world().trace.iter().filter(|entry| *entry == call).count()
    }

    /// Returns the times at which `call` was made.
    pub(super) fn times(&self, call: &str) -> Vec<Instant> {
        let world = self.world();
        world.times.iter().filter(|(made, _)| made == call).map(|(_, at)| *at).collect()
    }

    /// Returns for each lock ever granted whether it is still held.
    pub(super) fn held(&self) -> Vec<bool> {
        self.world().locks.iter_mut().map(is_held).collect()
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().expect("not poisoned")
    }

    fn shut_down(&self) {
        let mut world = self.world();
        world.preparing = true;
        let at = Instant::now();
        for session in &world.sessions {
            let kind = ShutdownKind::Unknown;
            let _ = session.try_send(LogindEvent::Prepare { begins: true, kind, at });
        }
    }

    async fn called(&self, call: &'static str) -> Result<(), LogindCallError> {
        let act = {
            let mut world = self.world();
            world.trace.push(call.to_owned());
            world.times.push((call.to_owned(), Instant::now()));
            let once = world.once.remove(call);
            once.or_else(|| world.acts.get(call).copied())
        };
        let after = Duration::from_secs(5);
        let detail = "as the test says".to_owned();
        match act {
            None => Ok(()),
            Some(Act::Hang) => std::future::pending().await,
            Some(Act::After(time)) => {
                tokio::time::sleep(time).await;
                Ok(())
            }
            Some(Act::TimeOut) => {
                tokio::time::sleep(after).await;
                Err(LogindCallError::Timeout { call, after })
            }
            Some(Act::Refuse) => Err(LogindCallError::Refused { call, detail }),
            Some(Act::InProgress) => Err(LogindCallError::InProgress { call }),
            Some(Act::Absent) => Err(LogindCallError::Absent { call, detail }),
            Some(Act::ShutDownFirst) => {
                self.shut_down();
                Ok(())
            }
        }
    }
}

impl LoginManager for Scripted {
    type Calls = ScriptedCalls;

    async fn connect(&self) -> Result<Session<ScriptedCalls>, LogindCallError> {
        self.called("connect").await?;
        let (tx, heard) = mpsc::channel(64);
        let mut world = self.world();
        world.sessions.push(tx);
        Ok(Session { calls: ScriptedCalls(self.clone()), heard, is_there: world.is_there })
    }
}

impl LoginCalls for ScriptedCalls {
    async fn preparing(&self) -> Result<bool, LogindCallError> {
        self.0.called("get PreparingForShutdown").await?;
        Ok(self.0.world().preparing)
    }

    async fn delay(&self) -> Result<Duration, LogindCallError> {
        self.0.called("get InhibitDelayMaxUSec").await?;
        let mut world = self.0.world();
        if world.applies_at.is_some_and(|at| at <= Instant::now()) {
            world.applies_at = None;
            if let Some((delay, _)) = world.after_reload {
                world.delay = delay;
            }
        }
        Ok(world.delay)
    }

    async fn inhibit(&self, who: &str, why: &str) -> Result<OwnedFd, LogindCallError> {
        assert_eq!(who, "winddown");
        assert!(!why.is_empty());
        self.0.called("inhibit").await?;
        let mut world = self.0.world();
        if world.preparing {
            return Err(LogindCallError::InProgress { call: "inhibit" });
        }
        let (ours, theirs) = std::io::pipe().expect("a pipe");
        fcntl(&ours, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("a pipe that does not block");
        world.locks.push(ours);
        Ok(theirs.into())
    }

    async fn listed(&self, who: &str) -> Result<Listed, LogindCallError> {
        assert_eq!(who, "winddown");
        self.0.called("list").await?;
        let mut world = self.0.world();
        if world.listed.is_empty() { Ok(Listed::Ours) } else { Ok(world.listed.remove(0)) }
    }

    async fn request(&self) -> (Option<String>, KindRead) {
        let world = self.0.world();
        let kind = match world.announced {
            ShutdownKind::Unknown => KindRead::Scheduled(world.kind),
            announced => KindRead::Announced(announced),
        };
        (world.message.clone(), kind)
    }

    // Not in the trace: nothing depends on when it is read.
    async fn scheduled(&self) -> (Option<ScheduledShutdown>, ShutdownKind) {
        let world = self.0.world();
        (world.scheduled.clone(), world.kind)
    }

    async fn reload(&self) -> Result<(), LogindCallError> {
        self.0.called("reload").await?;
        let mut world = self.0.world();
        world.applies_at = world.after_reload.map(|(_, takes)| Instant::now() + takes);
        Ok(())
    }
}

fn is_held(lock: &mut PipeReader) -> bool {
    match lock.read(&mut [0]) {
        Ok(read) => read > 0,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}
