//! Who holds descriptors in programs as they are usually written, in every version of Python.

use super::why::{MINORS, Victim, text};

#[test]
fn w22_kinds() {
    for minor in MINORS {
        let Some(victim) = Victim::start_script(minor, "why_kinds.py") else {
            continue;
        };
        let names: Vec<&String> = victim.held.keys().collect();
        let groups: Vec<Vec<u32>> = victim.held.values().cloned().collect();
        let answer = victim.target().ask(&groups, None).unwrap();
        println!("== {minor}");
        for (at, name) in names.iter().enumerate() {
            println!("{name} {}: {}", groups[at].len(), text(&answer, at));
        }
    }
}
