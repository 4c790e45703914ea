//! Writes the recording of a made-up month to stdout: one look a second at a process with 10,000
//! descriptors, two of them replaced every second, one lost every ten minutes.
//!
//! `month [DAYS] | fdguard watch --from -` shows what a long watch costs.

use std::io::{BufWriter, Write as _};

use fdguard_core::recording::{Appearance, RecordingEntry, RecordingHeader};
use fdguard_core::snapshot::{Limits, Process};
use fdguard_core::timeline::{Look, LookChange, Sighting};
use fdguard_core::{Class, Fd, Tier};
use jiff::Timestamp;

/// Held from the beginning.
const HELD: Fd = 10_000;
/// Targets that they are spread over.
const TARGETS: u64 = 400;

fn sighting(fd: Fd, number: u64) -> Sighting {
    let dir = number % TARGETS;
    let letter = |at: u64| char::from(b'a' + u8::try_from(at % 26).unwrap_or(0));
    let name: String = [dir / 676, dir / 26, dir].map(letter).iter().collect();
    Sighting {
        fd,
        class: Class::Regular,
        target: format!("/srv/{name}/part-{number}.log").into(),
        group: Some(format!("/srv/{name}/part-*.log").into()),
    }
}

fn look(second: u32) -> Look {
    let number = u64::from(second);
    let mut change = LookChange::default();
    if second == 0 {
        change.opened = (0..HELD).map(|fd| sighting(fd, u64::from(fd))).collect();
    } else {
        for replaced in [2 * second, 2 * second + 1] {
            let fd = replaced % HELD;
            change.closed.push(fd);
            change.opened.push(sighting(fd, number));
        }
        if second.is_multiple_of(600) {
            change.opened.push(sighting(HELD + second / 600, 7));
        }
    }
    Look {
        at: f64::from(second),
        count: Some(u64::from(HELD + second / 600)),
        table: Some(change),
        limits: (second == 0).then_some(Limits {
            soft: Some(65_536),
            hard: Some(65_536),
        }),
        ..Look::default()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let days: u32 = std::env::args()
        .nth(1)
        .map_or(Ok(30), |days| days.parse())?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut write = |value: String| writeln!(out, "{value}");
    write(serde_json::to_string(&RecordingHeader::new(
        Timestamp::UNIX_EPOCH,
        1.0,
    ))?)?;
    let process = Process {
        pid: 4242,
        comm: "month".into(),
        ..Process::default()
    };
    let appearance = Appearance {
        id: 0,
        at: 0.0,
        process,
        tier: Tier::Full,
        select: None,
        successor_of: None,
    };
    write(serde_json::to_string(&RecordingEntry::Process(Box::new(
        appearance,
    )))?)?;
    for second in 0..days * 86_400 {
        let entry = RecordingEntry::Look {
            id: 0,
            look: Box::new(look(second)),
        };
        write(serde_json::to_string(&entry)?)?;
    }
    Ok(())
}
