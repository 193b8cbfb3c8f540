//! A pod for the pressure tests: uses a resource, and records when it is asked to stop.
//!
//! `pressure-pod LOG MODE [NUMBER [DIRECTORY]]`. The log gets a line `start` and, at SIGTERM, a line `term NS` with the
//! time on the monotonic clock. Then it exits.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use std::error::Error;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval, sleep};

const MIB: usize = 1 << 20;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let log = args.next().ok_or("usage: pressure-pod LOG MODE [NUMBER [DIRECTORY]]")?;
    let mode = args.next().ok_or("no mode")?;
    let number: usize = args.next().map_or(Ok(0), |n| n.parse())?;
    let directory = args.next().unwrap_or_else(|| "/tmp".to_owned());
    let mut asked = signal(SignalKind::terminate())?;
    append(&log, "start")?;
    tokio::select! {
        done = take(&mode, number, Path::new(&log), Path::new(&directory)) => done?,
        _ = asked.recv() => {}
    }
    let now = clock_gettime(ClockId::Monotonic);
    append(
        &log,
        &format!("term {}", i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)),
    )
}

fn append(log: &str, line: &str) -> Result<(), Box<dyn Error>> {
    let mut file = std::fs::File::options().create(true).append(true).open(log)?;
    Ok(writeln!(file, "{line}")?)
}

/// Runs forever, unless a resource cannot be obtained.
async fn take(
    mode: &str,
    number: usize,
    log: &Path,
    directory: &Path,
) -> Result<(), Box<dyn Error>> {
    match mode {
        "hold" => {
            let held = vec![1_u8; number * MIB];
            loop {
                sleep(Duration::from_secs(3600)).await;
                std::hint::black_box(&held);
            }
        }
        // NUMBER MiB per second.
        "memory" => {
            let mut held = Vec::new();
            let mut tick = interval(Duration::from_millis(10));
            tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
            loop {
                tick.tick().await;
                held.push(vec![1_u8; (number * MIB / 100).max(4096)]);
            }
        }
        // NUMBER MiB for two seconds, then nothing for eleven.
        "pulse" => loop {
            let held = vec![1_u8; number * MIB];
            sleep(Duration::from_secs(2)).await;
            drop(std::hint::black_box(held));
            sleep(Duration::from_secs(11)).await;
        },
        // NUMBER children per second.
        "fork" => {
            let mut tick = interval(Duration::from_secs(1) / u32::try_from(number)?);
            loop {
                tick.tick().await;
                // A failed fork is retried at the next tick: a bomb does not give up.
                let _ = std::process::Command::new("sleep").arg("3600").spawn();
            }
        }
        // NUMBER MiB per second on standard output.
        "log" => {
            let line = [&[b'x'; 1023][..], b"\n"].concat();
            let mut tick = interval(Duration::from_millis(10));
            tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
            loop {
                tick.tick().await;
                for _ in 0..(number * 1024 / 100) {
                    // A full disk must not stop it.
                    let _ = std::io::stdout().write_all(&line);
                }
            }
        }
        // A file of NUMBER MiB, written, then read again and again: page cache. Each MiB is read twice in a row,
        // because the kernel counts a wait as one for memory only if it evicted a page that was in use, and it
        // considers a page that was read once as unused.
        "cache" => {
            let path = log.with_extension("cache");
            let chunk = vec![1_u8; MIB];
            let mut file = std::fs::File::create(&path)?;
            for _ in 0..number {
                file.write_all(&chunk)?;
                tokio::task::yield_now().await;
            }
            file.sync_all()?;
            let file = std::fs::File::open(&path)?;
            let mut buffer = chunk;
            for mib in (0..number).cycle() {
                let offset = u64::try_from(mib * MIB)?;
                file.read_exact_at(&mut buffer, offset)?;
                file.read_exact_at(&mut buffer, offset)?;
                tokio::task::yield_now().await;
            }
            Ok(())
        }
        // NUMBER MiB per second in a file in DIRECTORY, once a file `go` exists next to the log.
        "fill-later" => {
            while !log.with_file_name("go").exists() {
                sleep(Duration::from_millis(100)).await;
            }
            let chunk = vec![1_u8; number * MIB / 10];
            let mut file = std::fs::File::create(directory.join("fill"))?;
            let mut tick = interval(Duration::from_millis(100));
            loop {
                tick.tick().await;
                // A full disk must not stop it.
                let _ = file.write_all(&chunk);
            }
        }
        // A file of NUMBER MiB in DIRECTORY, then nothing more.
        "put" => {
            std::fs::write(directory.join("put"), vec![1_u8; number * MIB])?;
            std::future::pending().await
        }
        // The same, but the first start exits afterwards: the file remains with the dead container.
        "leave" => {
            if std::fs::read_to_string(log)?.lines().count() > 1 {
                std::future::pending::<()>().await;
            }
            std::fs::write(directory.join("left"), vec![1_u8; number * MIB])?;
            std::process::exit(1)
        }
        // NUMBER empty files per second in DIRECTORY.
        "files" => {
            let mut tick = interval(Duration::from_millis(10));
            let mut names = 0_u64..;
            loop {
                tick.tick().await;
                for name in names.by_ref().take(number / 100) {
                    let _ = std::fs::File::create(directory.join(name.to_string()));
                }
            }
        }
        // Writes that wait for the disk.
        "io" => loop {
            let mut file = std::fs::File::create(log.with_extension("io"))?;
            for _ in 0..number {
                file.write_all(&vec![1_u8; MIB])?;
                file.sync_data()?;
                tokio::task::yield_now().await;
            }
        },
        other => Err(format!("unknown mode {other}").into()),
    }
}
