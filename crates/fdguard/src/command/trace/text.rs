//! A trace for people: the hazards, the verdict, then every site with its stack, the largest first.

use std::io::Write;

use fdguard_core::through::through;

use super::joined::{Joined, Origins};
use super::seen::{holder, seen};
use crate::report::diagnosis;
use crate::report::style::{DIM, HEADING};
use crate::report::table::class_name;
use crate::report::trace::{Holder, Place, Seen, hazard, name};
use crate::terminal::{sanitize, sanitize_str};

/// Sites that are shown of one process, and frames of one stack.
const MOST_SITES: usize = 20;
const MOST_FRAMES: usize = hazard::MOST_FRAMES;
/// Hazards that are shown: the others are in the JSON.
const MOST_HAZARDS: usize = 20;

pub(super) fn write(
    out: &mut dyn Write,
    joined: &Joined,
    width: Option<usize>,
) -> anyhow::Result<()> {
    write_seen(out, &seen(joined), width)
}

fn write_seen(out: &mut dyn Write, seen: &Seen<'_>, width: Option<usize>) -> anyhow::Result<()> {
    let found = seen.diagnosis;
    for one in found.hazards.iter().take(MOST_HAZARDS) {
        let comm = hazard::comm(found, one.pid);
        hazard::write(out, one, comm.as_deref(), diagnosis::columns(width))?;
    }
    let more = found.hazards.len().saturating_sub(MOST_HAZARDS);
    if more > 0 {
        writeln!(out, "{DIM}and {more} more hazards{DIM:#}")?;
    }
    diagnosis::write(out, found, width)?;
    for holder in &seen.holders {
        write_holder(out, holder)?;
    }
    Ok(())
}

fn write_holder(out: &mut dyn Write, holder: &Holder<'_>) -> anyhow::Result<()> {
    if holder.places.is_empty() {
        return Ok(());
    }
    let comm = sanitize_str(holder.comm);
    writeln!(
        out,
        "{HEADING}still open{HEADING:#} in {comm} (pid {}):",
        holder.pid
    )?;
    write_places(out, holder)
}

/// The sites of a process.
pub(super) fn write_sites(out: &mut dyn Write, process: &Origins) -> anyhow::Result<()> {
    write_places(out, &holder(process))
}

fn write_places(out: &mut dyn Write, holder: &Holder<'_>) -> anyhow::Result<()> {
    for place in holder.places.iter().take(MOST_SITES) {
        write_place(out, place)?;
    }
    let more = holder.places.len().saturating_sub(MOST_SITES);
    if more > 0 {
        writeln!(out, "  {DIM}and {more} more sites{DIM:#}")?;
    }
    Ok(())
}

/// `+4.0/s, 312 live of 312, oldest 5.0 min: main.c:23 begin`, what they are, then the stack.
fn write_place(out: &mut dyn Write, place: &Place<'_>) -> anyhow::Result<()> {
    let rate = place.per_second.map(|rate| format!("+{rate:.1}/s, "));
    let oldest = place.oldest.map(diagnosis::duration);
    let oldest = oldest.map(|age| format!(", oldest {age}"));
    let through = through(place.stack).join(" → ");
    let through = match through.is_empty() {
        true => String::new(),
        false => format!(" … {}", sanitize_str(&through)),
    };
    writeln!(
        out,
        "  {}{HEADING}{} live{HEADING:#} of {}{}: {HEADING}{}{HEADING:#}{through} ({}{})",
        rate.unwrap_or_default(),
        place.live,
        place.opened,
        oldest.unwrap_or_default(),
        name::site(place.culprit, place.stack),
        place.how,
        what(place),
    )?;
    if let Some(telling) = place.telling {
        let caller = name::culprit(telling);
        writeln!(
            out,
            "    called from {HEADING}{caller}{HEADING:#}: only there it leaks"
        )?;
    }
    for frame in place.stack.iter().take(MOST_FRAMES) {
        writeln!(out, "      {DIM}{}{DIM:#}", name::line(frame))?;
    }
    Ok(())
}

/// `, pipe`, and where they all point to the same, `, regular /srv/a.log`.
fn what(place: &Place<'_>) -> String {
    match (place.class, place.target) {
        (Some(class), Some(target)) => format!(", {} {}", class_name(class), sanitize(target)),
        (Some(class), None) => format!(", {}", class_name(class)),
        (None, _) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use fdguard_core::origin::Language;

    use super::write_seen;
    use crate::report::trace::testing::{Made, frame, hazard};

    fn told(made: &Made) -> String {
        let mut out = Vec::new();
        write_seen(&mut out, &made.seen(), Some(100)).unwrap();
        String::from_utf8(anstream::adapter::strip_bytes(&out).into_vec()).unwrap()
    }

    #[test]
    fn r40_hazards_come_before_everything_and_sites_last() {
        let stack = [frame("arm\x1b[2J", Some(("/srv/main.c", 3)), Language::C)];
        let mut made = Made::default().site("srv", &stack, 312);
        made.diagnosis.hazards = vec![hazard(); 22];
        let text = told(&made);
        assert!(
            text.starts_with("critical double-close  fd 9 (pipe) in srv (pid 100), 3 times\n"),
            "{text}"
        );
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
        let order = [
            at("and 2 more hazards\n"),
            at("The process ended"),
            at("still open in srv"),
        ];
        assert!(order.is_sorted(), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
        let line = "  +4.0/s, 312 live of 624, oldest 5.0 min: main.c:3 arm\\u{1b}[2J (open, regular /srv/<script>alert(1)</script>.log)\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn a_stack_that_was_lost_is_said_so() {
        let text = told(&Made::default().site("srv", &[], 2));
        assert!(
            text.contains("2 live of 4, oldest 5.0 min: a stack that was lost (open"),
            "{text}"
        );
    }
}
