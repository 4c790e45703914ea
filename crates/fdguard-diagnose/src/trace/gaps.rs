//! What the tracer did not see of the processes that the watch saw.

use std::collections::{BTreeMap, BTreeSet};

use fdguard_core::blame::{language_of_program, unread_language};
use fdguard_core::origin::{Frame, Language};
use fdguard_core::units::counted;
use fdguard_core::watch::WatchedProcess;
use fdguard_core::{Gap, Pid};
use fdguard_trace::{BlindReason, GO, TraceScope};

use super::{ProcessSites, is_go};

/// The backend that does not depend on the injected library.
const KERNEL: &str = "ebpf";

/// The gaps of a trace about the process `root`; `children` are the watched processes that did not
/// record.
pub(super) fn gaps(
    scope: &TraceScope,
    root: Pid,
    processes: &[ProcessSites],
    children: &[&WatchedProcess],
) -> Vec<Gap> {
    let mut gaps = unseen(scope, root, processes);
    gaps.extend(untraced(scope, root, children));
    gaps.extend(unread_languages(processes));
    if scope.backend == KERNEL {
        gaps.extend(unread_runtimes(processes));
    }
    gaps
}

/// What the tracer did not see.
fn unseen(scope: &TraceScope, root: Pid, processes: &[ProcessSites]) -> Vec<Gap> {
    let mut gaps = Vec::new();
    let is_by_kernel = scope.backend == KERNEL;
    let lacks_table = !scope.recording.contains(&root);
    let became = scope.became.get(&root).map(|became| became.blind);
    if became == Some(BlindReason::Replaced) {
        let comm = scope.became.get(&root).map_or("", |became| &became.comm);
        let what =
            format!("the lines that opened descriptors of process {root} since it became {comm}");
        let blind = BlindReason::Replaced;
        gaps.push(Gap::new(what, blind.why(), blind.remedy()));
    } else if let Some(blind) = scope.blind.or(became.filter(|_| lacks_table)) {
        let what = "the lines that opened descriptors: fdguard cannot trace this program";
        gaps.push(Gap::new(what, blind.why(), blind.remedy()));
    } else if lacks_table && !is_by_kernel {
        gaps.push(Gap::new(
            "the lines that opened descriptors",
            "the program did not load the injected library, or the library could not write its table",
            "raise its limits (ulimit -f, -v) and keep LD_PRELOAD in its environment",
        ));
    }
    let unknown = |is_go: bool| {
        let those = processes.iter().filter(|one| one.is_go == is_go);
        let count: usize = those.map(|one| one.unknown).sum();
        (count > 0).then(|| format!("the opening line of {}", counted(count, "descriptor")))
    };
    let remedy =
        "trace it with --source ebpf (as root); descriptors opened by its C code do have lines";
    if let Some(what) = unknown(true).filter(|_| !is_by_kernel) {
        gaps.push(Gap::new(what, GO, remedy));
    }
    // The kernel's source reports what it did not see itself.
    if let Some(what) = unknown(false).filter(|_| !is_by_kernel) {
        gaps.push(Gap::new(
            what,
            "they were opened inside the C library, or by a direct system call of the program",
            "no action needed: their class and target are known",
        ));
    }
    let lost = scope.lost_stacks;
    if lost > 0 {
        gaps.push(Gap::new(
            format!("the stacks of {}", counted(lost, "opened descriptor")),
            "the program has more distinct stacks than the table can hold",
            "no action needed: they are counted, without a line",
        ));
    }
    gaps
}

/// Gaps for untraced children, by reason.
fn untraced(scope: &TraceScope, root: Pid, children: &[&WatchedProcess]) -> Vec<Gap> {
    const UNSURE: &str = "these child processes did not load the injected library: they are static, privileged, or run in another environment";
    let mut names: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for child in children {
        let (why, name) = match scope.became.get(&child.process.pid) {
            Some(became) => (became.blind.why(), became.comm.clone()),
            None => {
                let why = if is_go(child) { GO } else { UNSURE };
                (why, child.process.comm.to_lossy().into_owned())
            }
        };
        names.entry(why).or_default().insert(name);
    }
    // A short-lived process may have come and gone between two looks.
    let blind = scope.became.iter().filter(|(pid, became)| {
        **pid != root && !became.blind.is_by_exec() && !became.comm.is_empty()
    });
    for (_, became) in blind {
        let known = names.entry(became.blind.why()).or_default();
        known.insert(became.comm.clone());
    }
    let remedy = match scope.backend == KERNEL {
        true => BlindReason::NotFollowed.remedy(),
        false => BlindReason::Static.remedy(),
    };
    let gap = |(why, names): (&str, BTreeSet<String>)| {
        let list = names.into_iter().collect::<Vec<_>>().join(", ");
        Gap::new(
            format!("the lines that opened descriptors of {list}"),
            why,
            remedy,
        )
    };
    names.into_iter().map(gap).collect()
}

/// Gaps for languages whose lines only the injected library reads, one per language.
fn unread_runtimes(processes: &[ProcessSites]) -> Vec<Gap> {
    let by_name = processes
        .iter()
        .filter_map(|one| runtime_of_module(&one.comm));
    let sites = processes.iter().flat_map(|one| &one.sites);
    let by_stack = sites.filter_map(|site| unread_runtime(&site.stack));
    let languages: BTreeSet<&str> = by_name.chain(by_stack).collect();
    let gap = |language| {
        Gap::new(
            format!("the {language} lines that opened descriptors"),
            format!("the kernel sees only the machine code of the {language} runtime"),
            "trace without --source ebpf: the library reads these lines",
        )
    };
    languages.into_iter().map(gap).collect()
}

/// The language of the runtime that is on a stack without its lines.
fn unread_runtime(stack: &[Frame]) -> Option<&'static str> {
    let is_read = |frame: &Frame| {
        frame.line.is_some() && matches!(frame.language, Language::Node | Language::Java)
    };
    if stack.iter().any(is_read) {
        return None;
    }
    let modules = stack.iter().filter_map(|frame| frame.module.as_ref());
    let mut runtimes = modules.filter_map(|module| runtime_of_module(&module.to_lossy()));
    runtimes.next()
}

/// The language whose runtime a program or library is.
fn runtime_of_module(path: &str) -> Option<&'static str> {
    const RUNTIMES: &[(&str, &str)] = &[
        ("node", "Node"),
        ("nodejs", "Node"),
        ("libnode.so", "Node"),
        ("java", "Java"),
        ("libjvm.so", "Java"),
        ("libjava.so", "Java"),
        ("libnio.so", "Java"),
        ("libnet.so", "Java"),
        ("libzip.so", "Java"),
    ];
    let name = path.rsplit('/').next()?;
    let is_it = |known: &str| match known.ends_with(".so") {
        true => name.starts_with(known),
        false => name == known,
    };
    let mut runtimes = RUNTIMES.iter().filter(|(known, _)| is_it(known));
    runtimes.next().map(|(_, language)| *language)
}

/// Gaps for languages whose lines are not read, one per language.
fn unread_languages(processes: &[ProcessSites]) -> Vec<Gap> {
    let name = |process: &ProcessSites| {
        let name = process.comm.rsplit('/').next();
        language_of_program(name.unwrap_or_default())
    };
    let by_name = processes.iter().filter_map(name);
    let sites = processes.iter().flat_map(|one| &one.sites);
    let by_stack = sites.filter_map(|site| unread_language(&site.stack));
    let languages: BTreeSet<&str> = by_name.chain(by_stack).collect();
    let gap = |language| {
        Gap::new(
            format!("the {language} lines that opened descriptors"),
            format!("fdguard does not read {language} stacks yet"),
            "use class, target and count; the stack shows the interpreter's C functions",
        )
    };
    languages.into_iter().map(gap).collect()
}

#[cfg(test)]
mod tests {
    use fdguard_core::Text;
    use fdguard_core::origin::{Frame, Language};

    use super::unread_runtime;

    fn frame(module: &str, language: Language, line: Option<u32>) -> Frame {
        Frame {
            file: None,
            function: Some("open".to_owned()),
            line,
            module: Some(Text::from(module)),
            language,
        }
    }

    #[test]
    fn a_runtime_without_lines_of_its_language_is_noticed() {
        let native = |module| frame(module, Language::Native, None);
        let stack = [native("/lib/libc.so.6"), native("/usr/bin/node")];
        assert_eq!(unread_runtime(&stack), Some("Node"));
        let stack = [native("/usr/lib/jvm/java-17/lib/libnio.so")];
        assert_eq!(unread_runtime(&stack), Some("Java"));
        assert_eq!(unread_runtime(&[native("/usr/bin/nodes")]), None);
        let read = [native("/usr/bin/node"), frame("", Language::Node, Some(3))];
        assert_eq!(unread_runtime(&read), None);
    }
}
