//! Processes that leak.

use fdguard_core::Class;

use super::random::Random;
use super::scenarios::{Kind, SPOOL, Scenario, TCP, Truth, drip, of, watched, watched_for};
use super::simulate::Sources;
use super::source::{Pace, Source};

const fn leak(name: &'static str, make: fn(&mut Random) -> Scenario) -> Kind {
    Kind {
        name,
        truth: Truth::Leaks,
        make,
    }
}

pub(crate) const KINDS: &[Kind] = &[
    leak("drip alone", |random| {
        let rate = random.magnitude(0.5, 50.0);
        leaking(random, rate, Vec::new())
    }),
    leak("drip under a tide of its own class", |random| {
        let rate = random.magnitude(0.5, 20.0);
        let tide = of(tide(random, 30.0, 1.0), Class::Regular, SPOOL);
        leaking(random, rate, vec![tide])
    }),
    leak("drip beside a saw-tooth", |random| {
        let rate = random.magnitude(0.5, 10.0);
        let saw = Source::SawTooth {
            rate: random.between(1.0, 10.0),
            period: random.between(2.0, 6.0),
        };
        leaking(random, rate, vec![of(saw, TCP, "*->10.0.0.7:443")])
    }),
    leak("drip after a warm-up", |random| {
        let rate = random.magnitude(1.0, 10.0);
        let pool = Source::Pool {
            cap: random.whole(20, 100),
            fill: random.between(1.0, 5.0),
            drop: f64::INFINITY,
        };
        leaking(random, rate, vec![of(pool, Class::Regular, SPOOL)])
    }),
    leak("drip in batches", |random| {
        let batch = random.whole(2, 8);
        let rate = random.magnitude(1.0, 20.0).max(0.5 * f64::from(batch));
        let source = with(drip(random, rate), |leak| leak.batch = batch);
        watched(random, vec![of(source, Class::Pipe, "pipe:[*]")])
    }),
    leak("slow drip under a tide, long watch", slow_under_a_tide),
    leak("drip under keep-alive connections", |random| {
        let rate = random.magnitude(1.0, 20.0);
        let keep = Source::KeepAlive {
            level: random.whole(3, 20),
            life: random.magnitude(0.5, 2.0),
        };
        let sources = vec![
            of(keep, TCP, "0.0.0.0:80<-*"),
            of(drip(random, rate), TCP, "0.0.0.0:80<-*"),
        ];
        watched(random, sources)
    }),
    leak("drip in one of 100 busy targets", |random| {
        let mut sources: Sources = (0..100)
            .map(|n| (tide(random, 1.0, 0.5), Class::Regular, format!("/srv/{n}")))
            .collect();
        let rate = random.magnitude(1.0, 20.0);
        sources.push(of(drip(random, rate), Class::Regular, "/srv/42"));
        watched(random, sources)
    }),
    leak("several leaks at once", |random| {
        let targets = [
            (TCP, "*->10.0.0.7:443"),
            (Class::Pipe, "pipe:[*]"),
            (Class::Regular, SPOOL),
        ];
        let leaks = targets.map(|(class, target)| {
            let rate = random.magnitude(0.7, 10.0);
            of(drip(random, rate), class, target)
        });
        watched(random, leaks.into())
    }),
    leak("drip with pauses", |random| {
        let rate = random.magnitude(2.0, 20.0);
        let period = random.between(1.0, 4.0);
        let source = with(drip(random, rate), |leak| leak.pace = Pace::Paused(period));
        watched(random, vec![of(source, TCP, "*->10.0.0.7:443")])
    }),
    leak("drip that begins in the middle", |random| {
        let (from, rate) = (random.between(6.0, 12.0), random.magnitude(3.0, 20.0));
        let source = with(drip(random, rate), |leak| leak.from = from);
        let tide = tide(random, 10.0, 0.3);
        let sources = vec![of(source, TCP, "*"), of(tide, TCP, "*")];
        let looks = random.whole(160, 1200);
        watched_for(random, sources, looks, 1.0)
    }),
    leak("drip beneath a collector's saw-tooth", |random| {
        let rate = random.magnitude(3.0, 20.0);
        let saw = Source::SawTooth {
            rate: random.between(0.3, 1.0) * rate,
            period: random.between(1.0, 3.0),
        };
        leaking(random, rate, vec![of(saw, Class::Regular, SPOOL)])
    }),
];

/// Those that leak by the clock, 2 to 20 a second, in 80 looks of 250 ms: none of these may be
/// missed.
pub(crate) const CLOCKWORK: Kind = leak("by the clock, 2 to 20 a second, 20 s", |random| {
    let rate = random.magnitude(2.0, 20.0);
    let beside = match random.whole(0, 3) {
        0 => Vec::new(),
        1 => vec![of(tide(random, 12.0, 1.0), Class::Regular, SPOOL)],
        2 => {
            let saw = Source::SawTooth {
                rate: random.between(1.0, 10.0),
                period: random.between(2.0, 6.0),
            };
            vec![of(saw, TCP, "*->10.0.0.7:443")]
        }
        _ => {
            let pool = Source::Pool {
                cap: random.whole(20, 100),
                fill: random.between(1.0, 5.0),
                drop: f64::INFINITY,
            };
            vec![of(pool, Class::Regular, "/srv/model")]
        }
    };
    let source = with(drip(random, rate), |leak| leak.pace = Pace::Regular);
    let mut sources = beside;
    sources.push(of(source, Class::Regular, SPOOL));
    watched_for(random, sources, 80, 0.25)
});

fn slow_under_a_tide(random: &mut Random) -> Scenario {
    let looks = random.whole(240, 2400);
    let look = super::scenarios::UNITS / f64::from(looks);
    let tide = Source::Tide {
        level: random.between(5.0, 15.0),
        life: look * random.magnitude(0.2, 8.0),
    };
    let sources = vec![
        of(drip(random, 1.5), Class::Regular, SPOOL),
        of(tide, Class::Regular, SPOOL),
    ];
    watched_for(random, sources, looks, 0.25)
}

fn tide(random: &mut Random, most: f64, life: f64) -> Source {
    Source::Tide {
        level: random.between(0.1 * most, most),
        life: random.magnitude(0.05, life),
    }
}

fn leaking(random: &mut Random, rate: f64, mut sources: Sources) -> Scenario {
    sources.push(of(drip(random, rate), Class::Regular, SPOOL));
    watched(random, sources)
}

/// The fields of a leak that most leave alone.
struct Leak {
    batch: u32,
    from: f64,
    pace: Pace,
}

fn with(source: Source, change: impl FnOnce(&mut Leak)) -> Source {
    let Source::Leak {
        rate,
        batch,
        from,
        until,
        pace,
    } = source
    else {
        return source;
    };
    let mut leak = Leak { batch, from, pace };
    change(&mut leak);
    Source::Leak {
        rate,
        batch: leak.batch,
        from: leak.from,
        until,
        pace: leak.pace,
    }
}
