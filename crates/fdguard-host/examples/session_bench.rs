//! What sessions cost, as lines of JSON: medians of repeated runs on the runtime that the host has.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fdguard_host::Error;
use fdguard_host::receipt::Reason;
use fdguard_host::session::{Exec, Hub, Program, Session, Spec};

fn main() -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(Error::io("the runtime"))?;
    runtime.block_on(measure())
}

async fn measure() -> Result<(), Error> {
    let hub = Hub::open()?;
    lives(&hub).await?;
    commands(&hub).await?;
    python(&hub).await
}

/// Start and close, one after the other.
async fn lives(hub: &Arc<Hub>) -> Result<(), Error> {
    let (mut ready, mut close, mut used) = (Vec::new(), Vec::new(), 0);
    let rounds = 100_u32;
    let begin = Instant::now();
    for _ in 0..rounds {
        let before = descriptors();
        let start = Instant::now();
        let session = Session::start("bench", Spec::new(Program::Bash), hub).await?;
        ready.push(start.elapsed());
        used = descriptors() - before;
        let start = Instant::now();
        session.close(Reason::Asked).await;
        close.push(start.elapsed());
    }
    let per_second = f64::from(rounds) / begin.elapsed().as_secs_f64();
    say("bash_ready_ms", median_ms(ready));
    say("close_ms", median_ms(close));
    say("sessions_per_s", per_second);
    say("fds_per_session", used as f64);
    Ok(())
}

async fn commands(hub: &Arc<Hub>) -> Result<(), Error> {
    let session = Session::start("bench", Spec::new(Program::Bash), hub).await?;
    let mut trips = Vec::new();
    for _ in 0..2000 {
        let start = Instant::now();
        session.exec(Exec::new("echo x"), None).await?;
        trips.push(start.elapsed());
    }
    say("round_trip_ms", median_ms(trips));
    let mut rates = Vec::new();
    for _ in 0..5 {
        let start = Instant::now();
        let code = "head -c 10000000 /dev/zero | tr '\\0' x";
        let done = session.exec(Exec::new(code), None).await?;
        rates.push(done.stdout.bytes as f64 / 1e6 / start.elapsed().as_secs_f64());
    }
    rates.sort_by(f64::total_cmp);
    say("mb_per_s", rates.get(2).copied().unwrap_or_default());
    session.close(Reason::Asked).await;
    Ok(())
}

async fn python(hub: &Arc<Hub>) -> Result<(), Error> {
    let (mut cold, mut trips, mut close) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..10 {
        let start = Instant::now();
        let session = Session::start("bench", Spec::new(Program::Python), hub).await?;
        cold.push(start.elapsed());
        for _ in 0..100 {
            let start = Instant::now();
            session.exec(Exec::new("1 + 1"), None).await?;
            trips.push(start.elapsed());
        }
        let start = Instant::now();
        session.close(Reason::Asked).await;
        close.push(start.elapsed());
    }
    say("python_cold_ms", median_ms(cold));
    say("python_round_trip_ms", median_ms(trips));
    say("python_close_ms", median_ms(close));
    Ok(())
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

fn median_ms(mut times: Vec<Duration>) -> f64 {
    times.sort();
    let middle = times.get(times.len() / 2).copied().unwrap_or_default();
    middle.as_secs_f64() * 1000.0
}

#[expect(clippy::print_stdout, reason = "a program that prints figures")]
fn say(name: &str, value: f64) {
    println!("{{\"name\": \"{name}\", \"value\": {value:.3}}}");
}
