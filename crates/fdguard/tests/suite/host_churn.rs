//! Sessions that are opened, used, interrupted, timed out, killed and abandoned at random points:
//! afterwards the host is exactly as before.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::hosted::{Hosted, LONG, WARM, children, eventually, kill, parent_of, read_answer};

/// Sessions at a time.
const LANES: u64 = 16;

/// The number of sessions; more with `FDGUARD_TEST_CHURN`.
fn sessions() -> usize {
    let asked = std::env::var("FDGUARD_TEST_CHURN").ok();
    asked.map_or(1000, |count| count.parse().unwrap())
}

/// A slow machine starts no more sessions after this time, and prints how many there were.
const LONGEST: Duration = Duration::from_secs(40);

/// Pseudo-random numbers, reproducible by seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    /// Pauses for a random moment.
    fn pause(&mut self) {
        thread::sleep(Duration::from_millis(self.below(25)));
    }
}

/// A random session specification.
fn spec(dice: &mut Dice, client: Option<&str>) -> Value {
    let program = match dice.below(8) {
        0 => "python",
        _ => "bash",
    };
    let mut spec = json!({"program": program, "client": client, "ready_within_ms": 20_000});
    if dice.below(3) == 0 {
        spec["channel"] = json!("pipes");
    }
    spec
}

fn is_python(session: &Value) -> bool {
    session["program"] == "python"
}

/// A slow command in the session's language.
fn long(session: &Value) -> &'static str {
    match is_python(session) {
        true => "import os\nos.system('sleep 100 & sleep 100')",
        false => "sleep 100 & setsid sleep 100 & sleep 100",
    }
}

/// One session and its fate. The host's answers are checked as far as the fate determines them.
fn live(hosted: &Hosted, dice: &mut Dice) {
    match dice.below(12) {
        fate @ 7..=10 => live_with_client(hosted, dice, fate),
        fate => live_alone(hosted, dice, fate),
    }
}

/// An open session.
struct Open {
    session: Value,
    id: String,
    path: String,
    pid: u32,
}

/// Opens a session. A host that is full of abandoned sessions is asked again until one has ended.
fn open(hosted: &Hosted, spec: &Value) -> Open {
    let session = testkit::wait_for("room for a session", || {
        let (status, answer) = hosted.ask_to_open(spec);
        if status == 429 {
            return None;
        }
        assert_eq!(status, 201, "{spec}: {answer}");
        Some(answer)
    });
    let id = session["id"].as_str().unwrap().to_owned();
    Open {
        path: format!("/v1/sessions/{id}"),
        pid: u32::try_from(session["pid"].as_u64().unwrap()).unwrap(),
        id,
        session,
    }
}

/// It ends with its client: by lease, by connection or by the client's end, at any moment.
fn live_with_client(hosted: &Hosted, dice: &mut Dice, fate: u64) {
    let client = client(hosted, if fate == 9 { 1 } else { 60 });
    let spec = spec(dice, Some(&client));
    if fate == 10 {
        // The client disconnects while the session is being opened.
        let stream = hosted.send("POST", "/v1/sessions", &spec.to_string());
        dice.pause();
        drop(stream);
        return end_client(hosted, &client);
    }
    let Open { session, id, .. } = open(hosted, &spec);
    match fate {
        7 => {
            let running = begin(hosted, &id, &session);
            dice.pause();
            drop(running);
            end_client(hosted, &client);
        }
        8 => {
            let attached = hosted.send("GET", &format!("/v1/clients/{client}/attach"), "");
            let running = begin(hosted, &id, &session);
            dice.pause();
            drop(attached);
            dice.pause();
            drop(running);
        }
        // Its lease runs out.
        _ => drop(begin(hosted, &id, &session)),
    }
}

/// It is used, timed out, interrupted, killed, reset or abandoned.
fn live_alone(hosted: &Hosted, dice: &mut Dice, fate: u64) {
    let spec = spec(dice, None);
    let Open {
        session,
        id,
        path,
        pid,
    } = open(hosted, &spec);
    match fate {
        0 | 1 => used(hosted, &session, &id),
        2 => {
            let (status, done) = hosted.exec(&id, long(&session), Duration::from_millis(50));
            let how = &done["outcome"]["how"];
            assert_eq!((status, how), (200, &json!("timed-out")), "{done}");
            assert_clean(&hosted.close(&id));
        }
        3 => {
            let running = begin(hosted, &id, &session);
            dice.pause();
            let (status, told) = hosted.ask("POST", &format!("{path}/interrupt"), "");
            assert_eq!(status, 200, "{told}");
            // The interrupt may have arrived before the command: then the close ends it.
            assert_clean(&hosted.close(&id));
            let (status, _) = read_answer(running).unwrap();
            assert!([200, 410].contains(&status), "{status}");
        }
        4 | 5 => {
            let running = begin(hosted, &id, &session);
            dice.pause();
            // The program, or its keeper.
            let victim = if fate == 4 { Some(pid) } else { parent_of(pid) };
            if let Some(victim) = victim {
                kill(victim);
            }
            dice.pause();
            closed_by_anybody(hosted, &path);
            drop(running);
        }
        6 => {
            let (status, receipt) = hosted.ask("POST", &format!("{path}/reset"), "");
            assert_eq!(status, 200, "{receipt}");
            assert_clean(&receipt);
            used(hosted, &session, &id);
        }
        // Abandon it.
        _ => drop(begin(hosted, &id, &session)),
    }
}

fn client(hosted: &Hosted, lease: u64) -> String {
    let body = json!({"name": "churn", "lease_seconds": lease});
    let (status, client) = hosted.ask("POST", "/v1/clients", &body.to_string());
    assert_eq!(status, 201, "{client}");
    client["id"].as_str().unwrap().to_owned()
}

fn end_client(hosted: &Hosted, client: &str) {
    let (status, ended) = hosted.ask("DELETE", &format!("/v1/clients/{client}"), "");
    assert_eq!(status, 200, "{ended}");
}

fn begin(hosted: &Hosted, id: &str, session: &Value) -> Box<dyn super::hosted::Stream> {
    let body = json!({"code": long(session)}).to_string();
    hosted.send("POST", &format!("/v1/sessions/{id}/exec"), &body)
}

fn used(hosted: &Hosted, session: &Value, id: &str) {
    let (status, done) = hosted.exec(
        id,
        if is_python(session) {
            "print(6 * 7)"
        } else {
            "echo $((6 * 7))"
        },
        LONG,
    );
    assert_eq!(
        (status, done["stdout"]["text"].as_str().map(str::trim)),
        (200, Some("42")),
        "{done}"
    );
    assert_clean(&hosted.close(id));
}

/// It may be closed already, because its program ended.
fn closed_by_anybody(hosted: &Hosted, path: &str) {
    let (status, receipt) = hosted.ask("DELETE", path, "");
    assert!([200, 404, 410].contains(&status), "{receipt}");
    if status == 200 {
        assert_clean(&receipt);
    }
}

fn assert_clean(receipt: &Value) {
    let left = (
        &receipt["clean"],
        &receipt["survivors"],
        &receipt["zombies"],
        &receipt["descriptors_left"],
    );
    assert_eq!(
        left,
        (&json!(true), &json!(0), &json!(0), &json!(0)),
        "{receipt}"
    );
}

#[test]
fn r44_sessions_with_every_fate_leave_the_host_exactly_at_its_baseline() {
    let hosted = Hosted::on_socket(ARGUMENTS);
    churn(&hosted, sessions());
    assert_eq!(children(hosted.pid()), [0; 0]);
}

#[test]
fn sessions_from_the_warm_interpreter_leave_the_host_exactly_at_its_baseline() {
    let hosted = Hosted::on_socket(&[ARGUMENTS, &[WARM]].concat());
    hosted.wait_until_warm();
    churn(&hosted, sessions() / 5);
}

/// Times that are short enough for a test.
const ARGUMENTS: &[&str] = &[
    "--max-sessions",
    "64",
    "--idle",
    "8s",
    "--reap-every",
    "500ms",
];

/// Opens and ends this many sessions, then compares the host with its state before.
#[expect(
    clippy::print_stderr,
    reason = "the seed of a failure is needed to see it again"
)]
fn churn(hosted: &Hosted, count: usize) {
    eventually("nobody is there yet", LONG, || {
        hosted.ask("GET", "/v1/health", "").1["sessions"]["open"] == 0
    });
    let before = hosted.settled_baseline();
    // With the warm interpreter there are three, and one of them changes after each session: the
    // next session, which is forked ahead.
    let others = hosted.others().len();
    let seed = std::env::var("FDGUARD_TEST_SEED").ok();
    let seed = seed.map_or(0x5EED, |seed| seed.parse().unwrap());
    eprintln!("FDGUARD_TEST_SEED={seed} FDGUARD_TEST_CHURN={count}");
    let begun = AtomicUsize::new(0);
    let since = Instant::now();
    let longest = if count > 1000 { Duration::MAX } else { LONGEST };
    thread::scope(|scope| {
        for lane in 0..LANES {
            let begun = &begun;
            scope.spawn(move || {
                let mut dice = Dice((lane + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ seed);
                while since.elapsed() < longest && begun.fetch_add(1, Ordering::Relaxed) < count {
                    live(hosted, &mut dice);
                }
            });
        }
    });
    let lived = begun.into_inner().min(count);
    eprintln!("{lived} sessions in {:?}", since.elapsed());
    assert!(lived >= 100, "{lived}");
    eventually("all sessions are closed", LONG, || {
        hosted.ask("GET", "/v1/health", "").1["sessions"]["open"] == 0
    });
    eventually("no process of it is left", LONG, || {
        hosted.others().len() == others
    });
    hosted.assert_back_at(&before);
}
