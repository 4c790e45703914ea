//! Kinds of process, made up at random, with the answer that is right for each.

use fdguard_core::{Class, TcpState};

use super::simulate::{Process, Random, Source};

/// One made-up process, and how it is watched.
#[derive(Debug)]
pub struct Scenario {
    pub process: Process,
    pub every: f64,
    pub looks: u32,
    /// Descriptors a second that are lost; none where it does not leak.
    pub leak: Option<f64>,
}

/// A kind of process.
#[derive(Debug)]
pub struct Kind {
    pub name: &'static str,
    pub leaks: bool,
    pub make: fn(&mut Random) -> Scenario,
}

const TCP: Class = Class::Tcp(TcpState::Established);

/// Every kind: those that leak, and those that only look like it.
pub const KINDS: &[Kind] = &[
    Kind {
        name: "drip alone",
        leaks: true,
        make: |random| {
            let rate = random.magnitude(0.5, 50.0);
            leaking(random, rate, Vec::new())
        },
    },
    Kind {
        name: "drip under a tide of its own class",
        leaks: true,
        make: |random| {
            let (rate, level) = (random.magnitude(0.5, 20.0), random.between(3.0, 30.0));
            let life = random.magnitude(0.05, 2.0);
            let tide = (Source::Tide { level, life }, Class::Regular, "/srv/spool/a");
            leaking(random, rate, vec![tide])
        },
    },
    Kind {
        name: "drip beside a saw-tooth",
        leaks: true,
        make: |random| {
            let rate = random.magnitude(0.5, 10.0);
            let saw = Source::SawTooth {
                rate: random.between(1.0, 10.0),
                period: random.between(2.0, 6.0),
            };
            leaking(random, rate, vec![(saw, TCP, "*->10.0.0.7:443")])
        },
    },
    Kind {
        name: "drip after a warm-up",
        leaks: true,
        make: |random| {
            let rate = random.magnitude(1.0, 10.0);
            let pool = Source::Pool {
                cap: 20 + random.below(80) as u32,
                fill: random.between(1.0, 5.0),
            };
            leaking(random, rate, vec![(pool, Class::Regular, "/srv/spool/a")])
        },
    },
    Kind {
        name: "drip of batches",
        leaks: true,
        make: |random| {
            let batch = 2 + random.below(6) as u32;
            let source = Source::Leak {
                rate: random.magnitude(1.0, 20.0),
                batch,
                from: 1.0,
                regular: random.unit() < 0.5,
            };
            let rate = match source {
                Source::Leak { rate, .. } => rate.max(0.5 * f64::from(batch)),
                _ => 1.0,
            };
            let source = Source::Leak {
                rate,
                batch,
                from: 1.0,
                regular: random.unit() < 0.5,
            };
            watched(
                random,
                vec![(source, Class::Pipe, "pipe:[*]")],
                Some(rate),
                20.0,
            )
        },
    },
    Kind {
        name: "slow drip under a tide",
        leaks: true,
        make: |random| {
            let rate = random.magnitude(0.05, 0.5);
            let tide = Source::Tide {
                level: random.between(5.0, 15.0),
                life: random.magnitude(0.05, 2.0),
            };
            let sources = vec![
                (drip(random, rate), Class::Regular, "/srv/spool/a"),
                (tide, Class::Regular, "/srv/spool/a"),
            ];
            let seconds = (30.0 / rate).max(60.0);
            watched(random, sources, Some(rate), seconds)
        },
    },
    Kind {
        name: "steady",
        leaks: false,
        make: |random| {
            let rotation = Source::Rotation {
                period: random.between(0.5, 10.0),
            };
            quiet(random, vec![(rotation, Class::Regular, "/var/log/app.log")])
        },
    },
    Kind {
        name: "high churn",
        leaks: false,
        make: |random| {
            let tide = Source::Tide {
                level: random.magnitude(3.0, 200.0),
                life: random.magnitude(0.01, 3.0),
            };
            quiet(random, vec![(tide, Class::Regular, "/srv/spool/a")])
        },
    },
    Kind {
        name: "keep-alive connections",
        leaks: false,
        make: |random| {
            let source = Source::KeepAlive {
                level: 5 + random.below(60) as u32,
                life: random.magnitude(1.0, 60.0),
            };
            quiet(random, vec![(source, TCP, "0.0.0.0:80<-*")])
        },
    },
    Kind {
        name: "pool that fills",
        leaks: false,
        make: |random| {
            let fill = random.between(1.0, 11.0);
            let pool = Source::Pool {
                cap: 10 + random.below(300) as u32,
                fill,
            };
            let tide = Source::Tide {
                level: random.between(0.0, 10.0),
                life: random.magnitude(0.05, 1.0),
            };
            quiet(
                random,
                vec![
                    (pool, TCP, "*->10.0.0.7:5432"),
                    (tide, TCP, "*->10.0.0.7:5432"),
                ],
            )
        },
    },
    Kind {
        name: "LRU that fills to its cap",
        leaks: false,
        make: |random| {
            let fill = random.between(1.0, 11.0);
            let cap = 10 + random.below(300);
            let lru = Source::Lru {
                cap,
                rate: cap as f64 / fill,
            };
            quiet(random, vec![(lru, Class::Regular, "/srv/segment-*")])
        },
    },
    Kind {
        name: "cache of random keys",
        leaks: false,
        make: |random| {
            let keys = 20 + random.below(200);
            let seconds = random.between(1.5, 5.0);
            let cache = Source::Cache {
                keys,
                rate: keys as f64 / seconds,
            };
            quiet(random, vec![(cache, Class::Regular, "/srv/segment-*")])
        },
    },
    Kind {
        name: "collector's saw-tooth",
        leaks: false,
        make: |random| {
            let saw = Source::SawTooth {
                rate: random.magnitude(0.5, 30.0),
                period: random.between(1.0, 7.0),
            };
            quiet(random, vec![(saw, TCP, "*->10.0.0.7:443")])
        },
    },
    Kind {
        name: "burst of work",
        leaks: false,
        make: |random| {
            let from = random.between(0.5, 12.0);
            let burst = Source::Burst {
                size: 5 + random.below(100) as u32,
                from,
                until: from + random.between(1.0, 6.0),
            };
            quiet(random, vec![(burst, Class::Pipe, "pipe:[*]")])
        },
    },
    Kind {
        name: "step",
        leaks: false,
        make: |random| {
            let burst = Source::Burst {
                size: 5 + random.below(100) as u32,
                from: random.between(0.5, 18.0),
                until: f64::INFINITY,
            };
            quiet(random, vec![(burst, Class::Regular, "/srv/model")])
        },
    },
    Kind {
        name: "load in waves",
        leaks: false,
        make: |random| {
            let wave = Source::Wave {
                level: random.between(5.0, 100.0),
                life: random.magnitude(0.05, 1.0),
                period: random.between(2.0, 8.0),
            };
            quiet(random, vec![(wave, TCP, "0.0.0.0:80<-*")])
        },
    },
];

fn drip(random: &mut Random, rate: f64) -> Source {
    Source::Leak {
        rate,
        batch: 1,
        from: 1.0,
        regular: random.unit() < 0.5,
    }
}

type Sources = Vec<(Source, Class, &'static str)>;

fn leaking(random: &mut Random, rate: f64, mut sources: Sources) -> Scenario {
    sources.push((drip(random, rate), Class::Regular, "/srv/spool/a"));
    let seconds = if rate < 1.0 { 60.0 } else { 20.0 };
    watched(random, sources, Some(rate), seconds)
}

fn quiet(random: &mut Random, sources: Sources) -> Scenario {
    watched(random, sources, None, 20.0)
}

fn watched(random: &mut Random, mut sources: Sources, leak: Option<f64>, seconds: f64) -> Scenario {
    let stdio = Source::Pool { cap: 3, fill: 0.01 };
    sources.push((stdio, Class::Tty, "/dev/pts/*"));
    let mut process = Process::new(random.next(), sources);
    process.run_unseen(random.between(0.1, 0.6));
    let every = 0.25;
    Scenario {
        process,
        every,
        looks: (seconds / every) as u32,
        leak,
    }
}
