//! What a kernel trace did not see, in words.

use std::collections::BTreeSet;

use fdguard_core::Gap;
use fdguard_kernel::LostCounts;

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
        all.failures.given_up,
        "the lines of {} stacks at the end",
        "the machine was too busy to unwind them in time",
        "trace fewer processes at once, or for a shorter time",
    );
    add(
        all.unlisted.len() as u64,
        "the descriptors that {} processes held before",
        "they belong to another user, and fdguard may not list them",
        "run fdguard with sudo",
    );
    add(
        all.failures.uncreated,
        "who created the goroutines of {} stacks",
        "they were created before the trace began, or too many were created since",
        "start the program with fdguard trace -- COMMAND",
    );
    for reason in &all.failures.unprobed {
        gaps.push(Gap::new(
            "who created the goroutines of a Go program",
            reason.clone(),
            "no action needed: lines of the opening goroutine itself are known",
        ));
    }
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
