//! Every target accepts its seeds, so that a change that breaks a target, or what it asserts, is
//! noticed without fuzzing.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use fdguard_fuzz::TARGETS;

fn seeds() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds")
}

#[test]
fn every_seed_passes() {
    for (name, run) in TARGETS {
        let mut count = 0;
        for seed in fs::read_dir(seeds().join(name)).unwrap() {
            let bytes = fs::read(seed.unwrap().path()).unwrap();
            run(&bytes);
            // Truncated files and foreign bytes are the usual damage.
            run(&bytes[..bytes.len() / 2]);
            count += 1;
        }
        assert!(count > 0, "{name} has no seed");
    }
}

#[test]
fn every_directory_of_seeds_has_a_target() {
    let dirs = fs::read_dir(seeds()).unwrap();
    let dirs = dirs.map(|dir| dir.unwrap().file_name().into_string().unwrap());
    let targets = TARGETS.iter().map(|(name, _)| (*name).to_owned());
    assert_eq!(dirs.collect::<BTreeSet<_>>(), targets.collect());
}

/// A few hundred damaged inputs for each target, always the same: what libFuzzer would find in its
/// first seconds is found by an ordinary test.
#[test]
fn damaged_seeds_pass() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut failed = Vec::new();
    for (name, run) in TARGETS {
        let seeds = fs::read_dir(seeds().join(name)).unwrap();
        let seeds: BTreeSet<_> = seeds.map(|seed| seed.unwrap().path()).collect();
        for seed in seeds {
            let whole = fs::read(&seed).unwrap();
            for _ in 0..ROUNDS {
                let bytes = random.damaged(&whole);
                if std::panic::catch_unwind(|| run(&bytes)).is_err() {
                    failed.push((name, bytes.escape_ascii().to_string()));
                    break;
                }
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Damaged versions of each seed.
const ROUNDS: usize = 200;

/// A sequence of numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let number = usize::try_from(self.0 >> 11).unwrap_or(usize::MAX);
        number % limit.max(1)
    }

    /// With one to eight changes: a byte, a bit, a number at its limits, a part that is missing or
    /// there twice.
    fn damaged(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..=self.below(8) {
            let at = self.below(bytes.len());
            let end = (at + 1 + self.below(16)).min(bytes.len());
            match self.below(6) {
                0 => bytes
                    .iter_mut()
                    .skip(at)
                    .take(1)
                    .for_each(|byte| *byte ^= 1 << (at % 8)),
                1 => bytes
                    .iter_mut()
                    .skip(at)
                    .take(8)
                    .for_each(|byte| *byte = 0xff),
                2 => bytes.iter_mut().skip(at).take(4).for_each(|byte| *byte = 0),
                3 => bytes.truncate(at),
                4 => drop(bytes.drain(at.min(end)..end)),
                _ => {
                    let part = bytes[at.min(end)..end].to_vec();
                    bytes.splice(at..at, part);
                }
            }
        }
        bytes
    }
}
