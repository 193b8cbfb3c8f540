//! Restarts of the agent in the middle of all that it does: each has to leave the pods where it would have left them
//! without a restart.
//!
//! A node first does each deed ([`Deed`]) undisturbed, then again and again with a strike against the agent
//! ([`Strike`]) at a random moment of it, and goes down at the end of each boot, with a strike as well. The judge
//! compares the pods' own logs and the kernel's word on their processes with the undisturbed deed: the same
//! pods were asked, exited or were killed and run again, and none had more than [`TOLERANCE`] more or less time.

mod deed;
mod judge;
mod seen;
mod stage;
mod table;

use std::time::Duration;

use tokio::time::Instant;

use crate::SeededRng;
use crate::scenario::TestResult;

pub use deed::Deed;
pub use judge::TOLERANCE;
pub(crate) use judge::judge;
pub(crate) use seen::Seen;
pub(crate) use stage::Stage;
pub use table::table;

/// How pods run on the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    /// As processes.
    Process,
    /// As systemd services.
    Systemd,
    /// In containers.
    Containerd,
}

/// What happens to the agent in a round, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strike {
    /// The agent is killed, or else restarted in good order.
    pub kills: bool,
    /// The time since the deed began, in thousandths of what the deed takes undisturbed.
    pub at: u32,
}

/// A deed that was done with a strike.
#[derive(Debug, Clone)]
pub struct Round {
    /// The deed.
    pub deed: Deed,
    /// The strike.
    pub strike: Strike,
    /// The differences from the undisturbed deed; none if all went well.
    pub differences: Vec<String>,
}

/// How many rounds one boot has before it ends with a shutdown.
const ROUNDS_OF_A_BOOT: usize = 12;

// === impl Runtime ===

impl Runtime {
    /// Each runtime.
    pub const ALL: [Self; 3] = [Self::Process, Self::Systemd, Self::Containerd];

    /// Its name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Systemd => "systemd",
            Self::Containerd => "cri",
        }
    }
}

// === impl Strike ===

impl Strike {
    fn draw(rng: &mut SeededRng) -> Self {
        Self { kills: rng.one_in(2), at: rng.between(0, 999) }
    }

    /// When it strikes in a deed that takes `took`.
    fn after(self, took: Duration) -> Duration {
        took * self.at / 1000
    }
}

/// Does every deed of `deeds` undisturbed, then `rounds` times one of them with a strike. Calls `told` with each round,
/// and with the node's journal if the round differs. Returns none, after reporting why, if no node can be booted.
///
/// # Errors
/// An undisturbed deed did not come to its end, or the node does not boot.
pub async fn run(
    test: &str,
    runtime: Runtime,
    deeds: &[Deed],
    rounds: usize,
    seed: u64,
    mut told: impl FnMut(&Round, &str),
) -> TestResult<Option<Vec<Round>>> {
    let Some(mut stage) = Stage::set(test, runtime, None).await? else { return Ok(None) };
    let mut rng = SeededRng::new(seed);
    let mut undisturbed = Vec::new();
    for deed in deeds.iter().copied().chain([Deed::Shutdown]) {
        let seen = stage.play(deed, None).await?;
        undisturbed.push((deed, seen));
    }
    // Each deed has its turn, however few the rounds.
    let first = usize::try_from(seed % 64)? % deeds.len().max(1);
    let mut turns = deeds.iter().copied().cycle().skip(first);
    let (mut all, mut in_this_boot) = (Vec::new(), 0);
    stage.boot().await?;
    while all.len() < rounds {
        in_this_boot += 1;
        let is_last = in_this_boot == ROUNDS_OF_A_BOOT || all.len() + 1 == rounds;
        let deed = if is_last { None } else { turns.next() }.unwrap_or(Deed::Shutdown);
        let expected = undisturbed.iter().find(|(other, _)| *other == deed);
        let (_, expected) = expected.ok_or_else(|| format!("{deed} was never undisturbed"))?;
        let strike = Strike::draw(&mut rng);
        let begun = Instant::now();
        let played = stage.play(deed, Some((strike.kills, strike.after(expected.took)))).await;
        let is_lost = played.is_err();
        let differences = match played {
            Ok(seen) => judge(expected, &seen),
            Err(error) => vec![error.to_string()],
        };
        let journal = match differences.is_empty() {
            true => String::new(),
            false => stage.journal_since(begun).await,
        };
        let round = Round { deed, strike, differences };
        told(&round, &journal);
        all.push(round);
        if is_last || is_lost {
            in_this_boot = 0;
        }
        if is_lost {
            // What the next round would begin with on this node is not known.
            match Stage::set(test, runtime, None).await? {
                Some(another) => stage = another,
                None => break,
            }
        } else if is_last && all.len() < rounds {
            stage.boot().await?;
        }
    }
    Ok(Some(all))
}
