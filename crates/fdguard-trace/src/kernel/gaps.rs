//! What a kernel trace did not see, in words.

use std::collections::BTreeSet;

use fdguard_core::Gap;
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

pub(super) fn gaps(all: &Unseen<'_>) -> Vec<Gap> {
    let mut gaps = Vec::new();
    let mut add = |count: u64, what: &str, why: &str, remedy: &str| {
        if count > 0 {
            gaps.push(Gap::new(
                what.replace("{}", &count.to_string()),
                why,
                remedy,
            ));
        }
    };
    add(
        all.unseen.opens,
        "the opening line of {} descriptors",
        "they were opened without a system call (a polled io_uring), or while the kernel's buffer was full",
        "no action needed: their class and target are known",
    );
    add(
        all.unseen.foreign,
        "{} opens and closes of single threads",
        "these threads have a descriptor table of their own (unshare), apart from their process",
        "no action needed: the table of the process itself is complete",
    );
    add(
        all.lost.stacks,
        "the stacks of {} opened descriptors",
        "the program has more distinct stacks than the kernel's buffer could take",
        "no action needed: they are counted, without a line",
    );
    add(
        all.lost.foreign,
        "{} calls of 32-bit programs",
        "the kernel programs read 64-bit calls only",
        "run fdguard watch PID for class, target and rate (without the line)",
    );
    add(
        all.failures.unknown,
        "the lines of {} stacks",
        "the process had ended before fdguard could read which files it had mapped, or the code belongs to no file",
        "start the program with fdguard trace --source launch, if it is dynamically linked",
    );
    add(
        all.unlisted.len() as u64,
        "the descriptors that {} processes held before",
        "they belong to another user, and fdguard may not list them",
        "run fdguard with sudo",
    );
    gaps.extend(python_gaps(all.failures));
    for (module, pid) in &all.failures.unreadable {
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

/// Python frames that could not be read, or not be named.
fn python_gaps(failures: &UnwindFailures) -> Vec<Gap> {
    let refused = failures.python_refused.iter().filter_map(|(pid, refusal)| {
        Some(Gap::new(
            format!("the Python lines of process {pid}"),
            python::explain(*refusal)?,
            "start the program with fdguard trace --source launch, or use Python 3.9 to 3.13",
        ))
    });
    let mut gaps: Vec<Gap> = refused.collect();
    if failures.python_gone > 0 {
        gaps.push(Gap::new(
            format!("the lines of {} Python frames", failures.python_gone),
            "their code was gone before it could be read: the process had ended, or had replaced it",
            "no action needed: the other frames of these stacks are known",
        ));
    }
    gaps
}
