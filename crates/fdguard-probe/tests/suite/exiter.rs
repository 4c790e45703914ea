//! Processes that exit while they are read: a complete snapshot or an error, nothing in between.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fdguard_probe::{Error, Options, Probe, ProcessWatcher, Radar};
use testkit::Victim;

fn is_about_the_end(error: &Error) -> bool {
    matches!(
        error,
        Error::Vanished(_) | Error::NoSuchProcess(_) | Error::Zombie { .. }
    )
}

/// Takes snapshots until the process is gone; returns how many were complete.
fn look_until_gone(probe: &Probe, pid: u32, held: usize, options: Options) -> usize {
    let mut whole = 0;
    loop {
        match probe.snapshot(pid, options) {
            Ok(snapshot) => {
                let fds = snapshot.fds.expect("a whole list");
                assert_eq!(snapshot.count, Some(fds.len() as u64));
                assert_eq!(fds.len(), held, "half a snapshot of {pid}");
                whole += 1;
            }
            Err(Error::Zombie { .. } | Error::NoSuchProcess(_)) => return whole,
            Err(error) => assert!(is_about_the_end(&error), "{error:?}"),
        }
    }
}

#[test]
fn r6_a_process_that_ends_while_it_is_read_gives_no_half_snapshot() {
    let probe = Probe::new().unwrap();
    let mut whole = 0;
    for (round, amount) in [200, 40, 700].into_iter().cycle().take(45).enumerate() {
        let mut victim = Victim::of("exiter").arg(amount.to_string()).start();
        let (pid, held) = (victim.pid(), victim.holdings().len());
        let options = Options {
            peers: round % 5 == 0,
            threads: 1 + round % 2,
            ..Options::default()
        };
        let looking = AtomicBool::new(false);
        whole += thread::scope(|scope| {
            let looker = scope.spawn(|| {
                looking.store(true, Ordering::Release);
                look_until_gone(&probe, pid, held, options)
            });
            while !looking.load(Ordering::Acquire) {
                thread::yield_now();
            }
            victim.send("go");
            looker.join().unwrap()
        });
        assert!(victim.ended_well());
    }
    assert!(whole > 0, "every process ended before it was looked at");
}

#[test]
fn r6_several_processes_that_end_during_the_look_have_an_outcome_each() {
    let probe = Probe::new().unwrap();
    for _ in 0..5 {
        let mut victims: Vec<Victim> = (0..12)
            .map(|_| Victim::of("exiter").arg("60").start())
            .collect();
        let pids: Vec<u32> = victims.iter().map(Victim::pid).collect();
        let results = thread::scope(|scope| {
            let looker = scope.spawn(|| probe.snapshots(&pids, Options::default()));
            for victim in &mut victims {
                victim.send("go");
            }
            looker.join().unwrap()
        });
        assert_eq!(results.len(), pids.len());
        for (pid, result) in pids.iter().zip(results) {
            match result {
                Ok(snapshot) => {
                    assert_eq!(snapshot.process.pid, *pid, "results in the order asked for");
                    assert_eq!(snapshot.fds.unwrap().len(), 63);
                }
                Err(error) => assert!(is_about_the_end(&error), "{error:?}"),
            }
        }
    }
}

#[test]
fn a_watched_process_that_ends_is_an_error_and_not_a_mass_close() {
    let probe = Probe::new().unwrap();
    for _ in 0..30 {
        let mut victim = Victim::of("exiter").arg("300").start();
        let mut watcher = ProcessWatcher::new(&probe, victim.pid()).unwrap();
        assert_eq!(watcher.tick().unwrap().opened.len(), 303);
        victim.send("go");
        let error = loop {
            match watcher.tick() {
                Ok(tick) => assert_eq!((tick.count, tick.closed.len()), (303, 0)),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::Vanished(_)), "{error:?}");
        assert!(victim.ended_well());
    }
}

#[test]
fn the_radar_survives_processes_that_come_and_go() {
    let probe = Probe::new().unwrap();
    let mut radar = Radar::new();
    for _ in 0..10 {
        let mut victims: Vec<Victim> = (0..6)
            .map(|_| Victim::of("exiter").arg("20").start())
            .collect();
        let pids: Vec<u32> = victims.iter().map(Victim::pid).collect();
        let view = radar.scan(&probe).unwrap();
        for pid in &pids {
            let row = view.rows.iter().find(|row| row.pid == *pid).unwrap();
            assert_eq!(row.count, Some(23));
        }
        for victim in &mut victims {
            victim.send("go");
        }
        // Whatever is seen meanwhile: never more than was held.
        for row in radar.scan(&probe).unwrap().rows {
            assert!(!pids.contains(&row.pid) || row.count <= Some(23), "{row:?}");
        }
        assert!(victims.iter_mut().all(Victim::ended_well));
        let after = radar.scan(&probe).unwrap();
        assert!(after.rows.iter().all(|row| !pids.contains(&row.pid)));
    }
}
