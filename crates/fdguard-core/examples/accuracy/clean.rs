//! Processes that do not leak but look as if they do.

use fdguard_core::Class;

use super::random::Random;
use super::scenarios::{Kind, SPOOL, Scenario, TCP, Truth, drip, of, watched};
use super::source::Source;

const fn bounded(name: &'static str, make: fn(&mut Random) -> Scenario) -> Kind {
    Kind {
        name,
        truth: Truth::Bounded,
        make,
    }
}

const FOR_EVER: f64 = f64::INFINITY;
const DATABASE: &str = "*->10.0.0.7:5432";
const SEGMENT: &str = "/srv/segment-*";
const VISITORS: &str = "0.0.0.0:80<-*";

pub(crate) const KINDS: &[Kind] = &[
    bounded("log rotation", |random| {
        let files = random.whole(1, 6);
        let rotations = (0..files).map(|file| {
            let period = random.between(0.5, 10.0);
            let target = format!("/var/log/app-{file}.log");
            (Source::Rotation { period }, Class::Regular, target)
        });
        let rotations = rotations.collect();
        watched(random, rotations)
    }),
    bounded("high churn", |random| {
        let tide = Source::Tide {
            level: random.magnitude(3.0, 200.0),
            life: random.magnitude(0.01, 3.0),
        };
        watched(random, vec![of(tide, Class::Regular, SPOOL)])
    }),
    bounded("long-poll connections", |random| {
        let tide = Source::Tide {
            level: random.magnitude(5.0, 100.0),
            life: random.between(1.0, 5.0),
        };
        watched(random, vec![of(tide, TCP, VISITORS)])
    }),
    bounded("keep-alive connections", |random| {
        let source = Source::KeepAlive {
            level: random.whole(5, 65),
            life: random.magnitude(1.0, 60.0),
        };
        watched(random, vec![of(source, TCP, VISITORS)])
    }),
    bounded("pool that fills in the first half", |random| {
        let fill = random.between(1.0, 10.0);
        pool_under_a_tide(random, fill)
    }),
    bounded("pool that fills until 30 to 75 %", |random| {
        let fill = random.between(6.0, 15.0);
        pool_under_a_tide(random, fill)
    }),
    bounded("pool of threads, by chance", |random| {
        let cap = random.whole(8, 200);
        let rate = f64::from(cap) / random.between(1.0, 12.0);
        let pool = Source::Threads { cap, rate };
        watched(random, vec![of(pool, Class::Eventpoll, "[eventpoll]")])
    }),
    bounded("pool that closes what is idle", |random| {
        let pool = Source::IdlePool {
            min: random.whole(2, 5),
            max: random.whole(8, 100),
            idle: random.between(0.5, 3.0),
            period: random.between(2.0, 7.0),
        };
        watched(random, vec![of(pool, TCP, DATABASE)])
    }),
    bounded("LRU that fills in the first half", |random| {
        let fill = random.between(1.0, 10.0);
        lru(random, fill)
    }),
    bounded("LRU that fills until 30 to 75 %", |random| {
        let fill = random.between(6.0, 15.0);
        lru(random, fill)
    }),
    bounded("cache of random keys", |random| {
        let keys = random.whole(20, 220);
        let seconds = random.between(1.5, 5.0);
        let cache = Source::Cache {
            keys,
            rate: f64::from(keys) / seconds,
        };
        watched(random, vec![of(cache, Class::Regular, SEGMENT)])
    }),
    // Each key is requested ten to a hundred times in the watch, on average; the last ones hardly
    // ever.
    bounded("cache of keys by popularity", |random| {
        let keys = random.whole(20, 220);
        let cache = Source::Popular {
            keys,
            rate: f64::from(keys) * random.magnitude(0.5, 5.0),
        };
        watched(random, vec![of(cache, Class::Regular, SEGMENT)])
    }),
    bounded("collector's saw-tooth", |random| {
        let saw = Source::SawTooth {
            rate: random.magnitude(0.5, 30.0),
            period: random.between(1.0, 7.0),
        };
        watched(random, vec![of(saw, TCP, "*->10.0.0.7:443")])
    }),
    bounded("burst of work", |random| {
        let from = random.between(0.5, 12.0);
        let burst = Source::Burst {
            size: random.whole(5, 105),
            from,
            until: from + random.between(1.0, 6.0),
        };
        watched(random, vec![of(burst, Class::Pipe, "pipe:[*]")])
    }),
    bounded("batches by the clock", |random| {
        let period = random.between(1.5, 7.0);
        let batches = Source::Batches {
            size: random.whole(5, 40),
            period,
            stay: random.between(0.1, 0.8) * period,
        };
        watched(random, vec![of(batches, Class::Pipe, "pipe:[*]")])
    }),
    bounded("step", |random| {
        let burst = Source::Burst {
            size: random.whole(5, 105),
            from: random.between(0.5, 18.0),
            until: FOR_EVER,
        };
        watched(random, vec![of(burst, Class::Regular, "/srv/model")])
    }),
    bounded("load in waves", |random| {
        let wave = Source::Wave {
            level: random.between(5.0, 100.0),
            life: random.magnitude(0.05, 1.0),
            period: random.between(2.0, 8.0),
        };
        watched(random, vec![of(wave, TCP, VISITORS)])
    }),
    bounded("drop and filling again", |random| {
        let pool = Source::Pool {
            cap: random.whole(10, 200),
            fill: random.between(1.0, 5.0),
            drop: random.between(5.0, 10.0),
        };
        watched(random, vec![of(pool, TCP, DATABASE)])
    }),
    bounded("leak that stopped", |random| {
        let rate = random.magnitude(1.0, 20.0);
        let mut source = drip(random, rate);
        if let Source::Leak { until, .. } = &mut source {
            *until = random.between(4.0, 12.0);
        }
        watched(random, vec![of(source, Class::Regular, SPOOL)])
    }),
    Kind {
        name: "load that rises to the end",
        truth: Truth::MayGrow,
        make: |random| {
            let ramp = Source::Ramp {
                level: random.between(20.0, 300.0),
                life: random.magnitude(0.05, 1.0),
                over: 20.0,
            };
            watched(random, vec![of(ramp, TCP, VISITORS)])
        },
    },
];

fn pool_under_a_tide(random: &mut Random, fill: f64) -> Scenario {
    let pool = Source::Pool {
        cap: random.whole(10, 300),
        fill,
        drop: FOR_EVER,
    };
    let tide = Source::Tide {
        level: random.between(0.0, 10.0),
        life: random.magnitude(0.05, 1.0),
    };
    let sources = vec![of(pool, TCP, DATABASE), of(tide, TCP, DATABASE)];
    watched(random, sources)
}

fn lru(random: &mut Random, fill: f64) -> Scenario {
    let cap = random.whole(10, 300);
    let rate = f64::from(cap) / fill;
    let lru = Source::Lru { cap, rate };
    watched(random, vec![of(lru, Class::Regular, SEGMENT)])
}
