//! What a kernel trace did not see, in words.

use std::collections::BTreeSet;

use fdguard_core::Gap;
use fdguard_core::units::counted;
use fdguard_kernel::LostCounts;

use super::python;
use super::records::UnseenCounts;
use super::unwind_thread::UnwindFailures;

/// All of it.
pub(super) struct Unseen<'a> {
    pub(super) unseen: UnseenCounts,
    pub(super) lost: LostCounts,
    pub(super) unlisted: &'a BTreeSet<u32>,
    pub(super) failures: &'a UnwindFailures,
}

/// A count, and what to say if it is not 0: what was not seen, why, and the remedy. The counted
/// noun is in braces.
type Row = (u64, &'static str, &'static str, &'static str);

pub(super) fn gaps(all: &Unseen<'_>) -> Vec<Gap> {
    let rows = events(all).into_iter().chain(stacks(all.failures));
    let rows = rows.filter(|(count, ..)| *count > 0);
    let counted =
        rows.map(|(count, what, why, remedy)| Gap::new(with_count(what, count), why, remedy));
    let mut gaps: Vec<Gap> = counted.collect();
    gaps.extend(failures(all.failures));
    gaps
}

/// `the stacks of {process}` becomes `the stacks of 2 processes`.
fn with_count(what: &str, count: u64) -> String {
    let parts = what
        .split_once('{')
        .and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
    match parts {
        Some((before, (noun, after))) => format!("{before}{}{after}", counted(count, noun)),
        None => what.to_owned(),
    }
}

/// Opens and closes.
fn events(all: &Unseen<'_>) -> [Row; 5] {
    [
        (
            all.unseen.opens,
            "the opening line of {descriptor}",
            "they were opened without a system call (a polled io_uring), or while the kernel's buffer was full",
            "no action needed: their class and target are known",
        ),
        (
            all.unseen.foreign,
            "{call} of single threads that open or close descriptors",
            "these threads have a descriptor table of their own (unshare), apart from their process",
            "no action needed: the table of the process itself is complete",
        ),
        (
            all.lost.stacks,
            "the stacks of {opened descriptor}",
            "the program has more distinct stacks than the kernel's buffer could take",
            "no action needed: they are counted, without a line",
        ),
        (
            all.lost.foreign,
            "{call} of 32-bit programs",
            "the kernel programs read 64-bit calls only",
            "run fdguard watch PID for class, target and rate (without the line)",
        ),
        (
            all.unlisted.len() as u64,
            "the descriptors that {process} held before",
            "they belong to another user, and fdguard may not list them",
            "run fdguard with sudo",
        ),
    ]
}

/// Stacks.
fn stacks(failures: &UnwindFailures) -> [Row; 4] {
    [
        (
            failures.given_up,
            "the lines of {stack} at the end",
            "the machine was too busy to unwind them in time",
            "trace fewer processes at once, or for a shorter time",
        ),
        (
            failures.unknown,
            "the lines of {stack}",
            "the process had ended before fdguard could read which files it had mapped, or the code belongs to no file",
            "start the program with fdguard trace --source launch, if it is dynamically linked",
        ),
        (
            failures.uncreated,
            "who created the goroutines of {stack}",
            "they were created before the trace began, or too many were created since",
            "start the program with fdguard trace -- COMMAND",
        ),
        (
            failures.python_gone,
            "the lines of {Python frame}",
            "their code was gone before it could be read: the process had ended, or had replaced it",
            "no action needed: the other frames of these stacks are known",
        ),
    ]
}

/// What concerns single programs and files.
fn failures(failures: &UnwindFailures) -> Vec<Gap> {
    let mut gaps = Vec::new();
    for reason in &failures.unprobed {
        gaps.push(Gap::new(
            "who created the goroutines of a Go program",
            reason.clone(),
            "no action needed: lines of the opening goroutine itself are known",
        ));
    }
    for (pid, refusal) in &failures.python_refused {
        if let Some(why) = python::explain(*refusal) {
            gaps.push(Gap::new(
                format!("the Python lines of process {pid}"),
                why,
                "start the program with fdguard trace --source launch, or use Python 3.9 to 3.13",
            ));
        }
    }
    for (module, pid) in &failures.unreadable {
        gaps.push(Gap::new(
            format!("the lines in {}", module.display()),
            format!(
                "process {pid} has it mapped, and fdguard cannot open that file: it was replaced, or is in another root"
            ),
            "run fdguard with sudo, or restart the program with the new file",
        ));
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::with_count;

    #[test]
    fn one_is_singular_in_a_gap() {
        let what = "the descriptors that {process} held before";
        assert_eq!(
            with_count(what, 1),
            "the descriptors that 1 process held before"
        );
        assert_eq!(
            with_count(what, 2),
            "the descriptors that 2 processes held before"
        );
        assert_eq!(with_count("{call} of x", 1), "1 call of x");
        assert_eq!(with_count("nothing", 1), "nothing");
    }
}
