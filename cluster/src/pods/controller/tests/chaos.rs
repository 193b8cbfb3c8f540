//! Random failures in random order; once they are over, everything must recover.

use std::time::Duration;

use winddown_shared::RuntimeError;

use super::world::{Answer, Running, World, failed, pod};
use winddown_api_client::refusal::Refusal;

const S: Duration = Duration::from_secs(1);

/// Pseudo-random numbers, the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// The UID that has this name in the API now.
fn uid_of(world: &World, name: &str) -> Option<String> {
    world.with(|s| {
        let mut all = s.objects.values();
        let object = all.find(|object| object.metadata.name.as_deref() == Some(name))?;
        object.metadata.uid.clone()
    })
}

fn happen(world: &World, dice: &mut Dice, made: &mut u32) {
    let name = format!("p{}", dice.roll(4));
    let uid = uid_of(world, &name);
    let grace = dice.roll(40);
    match (dice.roll(14), uid) {
        (0..=2, None) => {
            *made += 1;
            let mut new = pod(&name, &format!("{name}-{made}"));
            if dice.roll(2) == 0 {
                new.spec.as_mut().unwrap().restart_policy = Some("Never".into());
            }
            world.apply(new);
        }
        (0..=1, Some(uid)) => world.delete(&uid, grace),
        (2, Some(uid)) => world.vanish(&uid, |_| ()),
        (3, Some(uid)) => world.ends(&uid, 1),
        (4, Some(uid)) => world.edit(&uid, |pod| {
            let image = format!("image:{grace}");
            pod.spec.as_mut().unwrap().containers[0].image = Some(image);
        }),
        (5, _) => world.relist(),
        (6, _) => world.with(|s| s.deaf = true),
        (7, _) => world.acks(dice.roll(2) == 0),
        (8, _) => world.with(|s| s.api_down = !s.api_down),
        (9, _) => world.with(|s| s.runtime_down = !s.runtime_down),
        (10, _) => world.with(|s| s.create.push_back(trouble(grace))),
        (11, _) => world.with(|s| s.delete.push_back(trouble(grace))),
        (12, _) => world.with(|s| s.refusals.push_back(Refusal::Conflict)),
        _ => world.watch_fails(),
    }
}

fn trouble(which: u64) -> Answer {
    match which % 4 {
        0 => Answer::Hangs,
        1 => Answer::Takes(7 * S),
        2 => Answer::Fails(RuntimeError::NotYet { what: "busy".into() }),
        _ => failed("no"),
    }
}

fn heal(world: &World) {
    world.with(|s| {
        s.api_down = false;
        s.runtime_down = false;
        s.create.clear();
        s.delete.clear();
        s.refusals.clear();
        s.empty_lists = false;
    });
    world.acks(true);
    world.relist();
}

/// Whether both sides have the same pods, except terminated ones.
fn agree(world: &World) -> bool {
    world.with(|s| {
        let wanted = s.objects.values().filter(|o| o.metadata.deletion_timestamp.is_none());
        let wanted: Vec<_> = wanted.filter_map(|o| o.metadata.uid.clone()).collect();
        let over = |uid: &String| s.last_words.contains_key(uid);
        s.objects.values().all(|o| o.metadata.deletion_timestamp.is_none())
            && wanted.iter().all(|uid| s.running.contains_key(uid) || over(uid))
            && s.running.keys().all(|uid| wanted.contains(uid))
    })
}

async fn run(seed: u64) {
    let mut dice = Dice(seed);
    let mut made = 0;
    let mut world = World::new();
    let mut controller: Running = world.start();
    for round in 0..3 {
        for _ in 0..30 {
            happen(&world, &mut dice, &mut made);
            let pause = [0, 1, 20, 400, 3000, 15_000][usize::try_from(dice.roll(6)).unwrap()];
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        assert_eq!(
            world.with(|s| s.wrong.clone()),
            Vec::<String>::new(),
            "seed {seed}, round {round}"
        );
        // The agent is killed in the middle of everything, and another one starts.
        controller.kill();
        world = world.after_restart();
        controller = world.start();
    }
    heal(&world);
    controller.ready().await;
    world.until(&format!("seed {seed}: both sides agree"), agree).await;
    assert_eq!(world.with(|s| s.wrong.clone()), Vec::<String>::new(), "seed {seed}");
    controller.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn whatever_happens_no_pod_runs_twice_or_beside_its_namesake_and_both_sides_agree_in_the_end()
{
    for seed in 0..120 {
        run(seed).await;
    }
}
