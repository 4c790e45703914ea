//! The text of a hazard: what happened, the calls involved, and the stack at fault.

use std::io::Write;

use fdguard_core::hazard::{Fault, Hazard, Party};
use fdguard_core::rule;

use super::name;
use crate::report::style::{self, DIM, HEADING};
use crate::report::text::paragraph;
use crate::terminal::{sanitize, sanitize_str};

/// How many frames of one stack are shown.
pub const MOST_FRAMES: usize = 12;
/// How many holders of the table are shown.
const MOST_HOLDERS: usize = 5;

/// `fd 9 (pipe) in srv (pid 100), 3 times`.
#[must_use]
pub fn subject(hazard: &Hazard, comm: Option<&str>) -> String {
    let class = hazard.class.as_ref().map(ToString::to_string);
    let mut text = match (hazard.fd, &class) {
        (Some(fd), Some(class)) => format!("fd {fd} ({class}) in "),
        (Some(fd), None) => format!("fd {fd} in "),
        (None, _) => "in ".to_owned(),
    };
    match comm {
        Some(comm) => text.push_str(&format!("{comm} (pid {})", hazard.pid)),
        None => text.push_str(&format!("pid {}", hazard.pid)),
    }
    if hazard.count > 1 {
        text.push_str(&format!(", {} times", hazard.count));
    }
    sanitize_str(&text).into_owned()
}

/// The parties, each with its role.
#[must_use]
pub fn parties(hazard: &Hazard) -> Vec<(&'static str, &Party)> {
    let used = match hazard.rule.as_str() {
        "double-close" => "also closed by",
        "close-retry" => "closed again by",
        _ => "used by",
    };
    let all = [
        ("opened by", &hazard.opener),
        ("closed by", &hazard.closer),
        (used, &hazard.user),
        ("victim opened by", &hazard.victim),
    ];
    all.into_iter()
        .filter_map(|(what, party)| Some((what, party.as_ref()?)))
        .collect()
}

/// `run.py:51 interrupt (thread 123)`.
#[must_use]
pub fn who(party: &Party) -> String {
    let place = name::place(party.culprit.as_ref());
    match party.thread {
        Some(thread) => format!("{place} (thread {thread})"),
        None => place,
    }
}

/// The party whose stack is shown: the one at fault, else the last to act.
#[must_use]
pub fn blamed(hazard: &Hazard) -> Option<(&'static str, &Party)> {
    let at_fault = match hazard.fault {
        Some(Fault::Closer) => ("close at fault", &hazard.closer),
        Some(Fault::User) => ("use at fault", &hazard.user),
        None => ("", &None),
    };
    let in_order = [
        at_fault,
        ("use", &hazard.user),
        ("close", &hazard.closer),
        ("open", &hazard.opener),
    ];
    in_order
        .into_iter()
        .find_map(|(title, party)| Some((title, party.as_ref()?)))
}

/// The fix for its rule.
#[must_use]
pub fn fix(hazard: &Hazard) -> Option<&'static str> {
    rule::find(&hazard.rule)?.fix
}

/// Writes it for people, with sentences wrapped at `width`.
pub fn write(
    out: &mut dyn Write,
    hazard: &Hazard,
    comm: Option<&str>,
    width: usize,
) -> anyhow::Result<()> {
    if let Some(note) = &hazard.cleared {
        return write_cleared(out, hazard, &note.reason, (comm, width));
    }
    let (colour, word) = style::severity(hazard.severity);
    writeln!(
        out,
        "{colour}{word}{colour:#} {HEADING}{}{HEADING:#}  {}{}",
        sanitize_str(&hazard.rule),
        if hazard.prevented { "prevented: " } else { "" },
        subject(hazard, comm),
    )?;
    let message = sanitize_str(&hazard.message);
    paragraph(out, &message, Some(width), (2, 2), anstyle::Style::new())?;
    let parties = parties(hazard);
    let longest = parties.iter().map(|(what, _)| what.len()).max();
    for (what, party) in parties {
        let room = longest.unwrap_or(0);
        writeln!(out, "  {DIM}{what:room$}{DIM:#}  {}", who(party))?;
    }
    for holder in hazard.holders.iter().take(MOST_HOLDERS) {
        let place = name::place(holder.culprit.as_ref());
        let (live, opened) = (holder.live, holder.opened);
        writeln!(out, "  {DIM}held{DIM:#}  {live} live of {opened}: {place}")?;
    }
    if let Some((title, party)) = blamed(hazard).filter(|(_, party)| !party.stack.is_empty()) {
        writeln!(out, "  {DIM}stack of the {title}:{DIM:#}")?;
        for frame in party.stack.iter().take(MOST_FRAMES) {
            writeln!(out, "      {DIM}{}{DIM:#}", name::line(frame))?;
        }
    }
    if let Some(fix) = fix(hazard) {
        paragraph(out, &format!("fix: {fix}"), Some(width), (2, 2), DIM)?;
    }
    Ok(())
}

/// Prints an accepted hazard: what it is, why it does not count, and its line.
fn write_cleared(
    out: &mut dyn Write,
    hazard: &Hazard,
    reason: &str,
    (comm, width): (Option<&str>, usize),
) -> anyhow::Result<()> {
    let who = blamed(hazard).map(|(_, party)| format!(", by {}", who(party)));
    let text = format!(
        "cleared by {reason}: {}  {}{}",
        hazard.rule,
        subject(hazard, comm),
        who.unwrap_or_default()
    );
    paragraph(out, &sanitize_str(&text), Some(width), (0, 0), DIM)
}

/// The command of a process, if the diagnosis knows it.
#[must_use]
pub fn comm(diagnosis: &fdguard_core::diagnosis::Diagnosis, pid: u32) -> Option<String> {
    diagnosis.comm_of(pid).map(sanitize)
}

#[cfg(test)]
mod tests {
    use super::{blamed, who, write};
    use crate::report::trace::testing::hazard;

    fn told(hazard: &fdguard_core::hazard::Hazard) -> String {
        let mut out = Vec::new();
        write(&mut out, hazard, Some("srv"), 100).unwrap();
        String::from_utf8(anstream::adapter::strip_bytes(&out).into_vec()).unwrap()
    }

    #[test]
    fn r40_a_hazard_names_everybody_and_shows_the_stack_of_the_one_at_fault() {
        assert_eq!(
            told(&hazard()),
            "critical double-close  fd 9 (pipe) in srv (pid 100), 3 times\n\
             \x20 9 was closed twice, and the second close hit <script>\\u{1b}[2J\n\
             \x20 opened by         run.py:23 begin (thread 12)\n\
             \x20 closed by         run.py:51 interrupt (thread 123)\n\
             \x20 also closed by    run.py:60 finish (thread 12)\n\
             \x20 victim opened by  run.py:70 connect (thread 14)\n\
             \x20 stack of the close at fault:\n\
             \x20     run.py:51 interrupt\n\
             \x20     run.py:80 <module>\n\
             \x20 fix: let one owner close it and forget the number in the same step\n"
        );
    }

    #[test]
    fn r40_without_a_fault_the_last_who_acted_is_shown_and_nobody_is_blamed() {
        let mut hazard = hazard();
        hazard.fault = None;
        hazard.rule = "use-after-close".to_owned();
        let text = told(&hazard);
        assert!(
            text.contains("stack of the use:\n      run.py:60 finish\n"),
            "{text}"
        );
        assert!(
            text.contains("used by ") && !text.contains("fault"),
            "{text}"
        );
        hazard.user = None;
        assert_eq!(
            blamed(&hazard).map(|(_, party)| who(party)).unwrap(),
            "run.py:51 interrupt (thread 123)"
        );
    }

    #[test]
    fn r40_one_that_was_accepted_is_shown_in_short_with_its_reason_and_its_line() {
        let mut hazard = hazard();
        hazard.cleared = Some(fdguard_core::finding::ClearedNote {
            reason: "--allow run.py:51".to_owned(),
            date: "2026-01-01".to_owned(),
        });
        assert_eq!(
            told(&hazard),
            "cleared by --allow run.py:51: double-close  fd 9 (pipe) in srv (pid 100), 3 times, by run.py:51\n\
             interrupt (thread 123)\n"
        );
    }

    #[test]
    fn r40_what_is_not_known_is_left_out() {
        let mut hazard = hazard();
        (hazard.fd, hazard.class, hazard.count) = (None, None, 1);
        (hazard.opener, hazard.closer, hazard.user, hazard.victim) = (None, None, None, None);
        hazard.rule = "made-up".to_owned();
        hazard.message = "gone".to_owned();
        assert_eq!(
            told(&hazard),
            "critical made-up  in srv (pid 100)\n  gone\n"
        );
    }
}
