//! The answer at the top of a trace or check report: which line leaks what, its source, the
//! evidence and the fix.

use std::io::Write;
use std::path::{Path, PathBuf};

use fdguard_core::blame::own_frames;
use fdguard_core::diagnosis::Diagnosis;
use fdguard_core::finding::Finding;
use fdguard_core::lifetimes::report::things;
use fdguard_core::lint::Severity;
use fdguard_core::origin::{Culprit, Frame, Origin};
use fdguard_core::units::duration;
use fdguard_core::{Pid, Text};
use fdguard_proc::link::is_nameless;

use super::name;
use crate::report::style::{CRITICAL, DIM, HEADING, WARNING};
use crate::report::text::paragraph;
use crate::terminal::{sanitize, sanitize_str};

/// How many frames of one stack are shown.
const MOST_FRAMES: usize = 12;
/// How many characters of a source line are shown.
const MOST_SOURCE: usize = 120;

/// Children that are never waited for.
const CHILDREN: &str = "unwaited-child";

/// How paths and source lines are shown.
#[derive(Clone, Debug, Default)]
pub struct DisplayOptions {
    /// Paths below this directory are written relative to it.
    pub directory: Option<PathBuf>,
    /// Columns.
    pub width: usize,
}

impl DisplayOptions {
    /// Relative to the current directory.
    #[must_use]
    pub fn here(width: usize) -> Self {
        Self {
            directory: std::env::current_dir().ok(),
            width,
        }
    }

    /// A path that an editor can open from the working directory.
    #[must_use]
    pub fn path(&self, file: &Text) -> String {
        let text = file.to_lossy();
        let text = text.strip_prefix("file://").unwrap_or(&text);
        let relative = self
            .directory
            .as_ref()
            .and_then(|directory| Path::new(text).strip_prefix(directory).ok());
        sanitize_str(&relative.map_or_else(|| text.to_owned(), |path| path.display().to_string()))
            .into_owned()
    }

    /// `src/simple.py:4 in work()`.
    #[must_use]
    pub fn place(&self, culprit: &Culprit) -> String {
        let function = culprit.function.as_deref().map(called);
        match (&culprit.file, culprit.line, function) {
            (Some(file), Some(line), Some(function)) => {
                format!("{}:{line} in {function}", self.path(file))
            }
            (Some(file), Some(line), None) => format!("{}:{line}", self.path(file)),
            (Some(file), None, None) => format!("{} (no debug information)", self.path(file)),
            (_, _, Some(function)) => function,
            (None, _, None) => "?".to_owned(),
        }
    }

    /// A frame of a stack, with its path if it belongs to the application.
    fn frame(&self, frame: &Frame, is_own: bool) -> String {
        match (&frame.file, frame.line) {
            (Some(file), Some(line)) if is_own => {
                let function = frame.function.as_deref().unwrap_or("?");
                format!("{}:{line} {}", self.path(file), sanitize_str(function))
            }
            _ => name::line(frame),
        }
    }
}

/// `work()`, but `<module>`.
fn called(function: &str) -> String {
    let function = sanitize_str(function);
    match function.ends_with(['>', ')']) {
        true => function.into_owned(),
        false => format!("{function}()"),
    }
}

/// The findings of one line, in one or several processes.
#[derive(Debug)]
pub struct LeakAnswer<'a> {
    findings: Vec<&'a Finding>,
    pids: Vec<Pid>,
}

/// Whether an answer covers a finding.
#[must_use]
pub fn is_answered(finding: &Finding) -> bool {
    let rule = finding.rule.as_str();
    let counts = finding.severity >= Severity::Warning || rule == "growth";
    let is_growth = matches!(rule, "leak" | "growth" | CHILDREN);
    is_growth && counts && finding.cleared.is_none() && finding.origin.is_some()
}

/// The answers of a diagnosis, the most severe first.
#[must_use]
pub fn answers(diagnosis: &Diagnosis) -> Vec<LeakAnswer<'_>> {
    let mut answers: Vec<LeakAnswer<'_>> = Vec::new();
    for finding in diagnosis.findings.iter().filter(|one| is_answered(one)) {
        let key = |one: &Finding| {
            let culprit = culprit(one).cloned();
            let pid = culprit.is_none().then_some(one.pid);
            (one.rule.clone(), one.comm.clone(), culprit, pid)
        };
        let same = answers
            .iter_mut()
            .find(|answer| answer.first().is_some_and(|one| key(one) == key(finding)));
        match same {
            Some(answer) => answer.add(finding),
            None => answers.push(LeakAnswer {
                findings: vec![finding],
                pids: vec![finding.pid],
            }),
        }
    }
    answers
}

fn culprit(finding: &Finding) -> Option<&Culprit> {
    finding.origin.as_ref()?.culprit.as_ref()
}

impl<'a> LeakAnswer<'a> {
    fn first(&self) -> Option<&'a Finding> {
        self.findings.first().copied()
    }

    fn add(&mut self, finding: &'a Finding) {
        if !self.pids.contains(&finding.pid) {
            self.pids.push(finding.pid);
        }
        self.findings.push(finding);
    }

    /// Prints it: the line, its source, the reason, the stack, and the fix.
    pub fn write(&self, out: &mut dyn Write, shown: &DisplayOptions) -> anyhow::Result<()> {
        let Some(first) = self.first() else {
            return Ok(());
        };
        let (style, word) = match first.rule.as_str() {
            "growth" => (WARNING, "growing"),
            _ => (CRITICAL, "leaking"),
        };
        let line = self.line(first, shown);
        writeln!(out, "{style}{word}:{style:#} {HEADING}{line}{HEADING:#}")?;
        if let Some(source) = culprit(first).and_then(source_line) {
            writeln!(out, "    {DIM}{source}{DIM:#}")?;
        }
        for finding in self.shown_findings() {
            let why = sanitize_str(&finding.why);
            paragraph(out, &why, Some(shown.width), (2, 2), anstyle::Style::new())?;
        }
        if let Some(origin) = &first.origin {
            write_stack(out, origin, shown)?;
        }
        if let Some(wall) = first.walls.first() {
            let eta = duration(wall.eta_seconds);
            let text = format!("limit: {} reached in {eta} at this rate", wall.name);
            paragraph(out, &text, Some(shown.width), (2, 2), DIM)?;
        }
        let next = format!("fix: {}", sanitize_str(&first.next_step));
        paragraph(out, &next, Some(shown.width), (2, 2), DIM)
    }

    /// One finding of each kind: workers of one program leak the same.
    fn shown_findings(&self) -> impl Iterator<Item = &&'a Finding> {
        let first = self.pids.first().copied();
        let of_first = move |one: &&&Finding| Some(one.pid) == first;
        self.findings.iter().filter(of_first)
    }

    /// `simple.py:4 in work() opened 60 files, closed 0 (/etc/passwd)`.
    fn line(&self, first: &Finding, shown: &DisplayOptions) -> String {
        let origins = || self.findings.iter().filter_map(|one| one.origin.as_ref());
        let target = first
            .target
            .as_ref()
            .filter(|target| says_more(first, target));
        let target = target.map(|target| format!(" ({})", sanitize(target)));
        let what = self.what();
        let who = match self.pids.as_slice() {
            [pid] => format!("{} (pid {pid})", sanitize(&first.comm)),
            pids => format!("{} workers of {}", pids.len(), sanitize(&first.comm)),
        };
        let Some(culprit) = culprit(first) else {
            return format!(
                "{who} opened {what} at an unknown line{}",
                target.unwrap_or_default()
            );
        };
        let place = shown.place(culprit);
        if first.rule == CHILDREN {
            let count = first.count.unwrap_or(0);
            return format!("{place} started {count} child processes and never waited for them");
        }
        if first.rule == "growth" {
            return format!("{place} holds {what} of clients that are still connected, in {who}");
        }
        let mut closed: Vec<(Pid, u64)> = Vec::new();
        for (finding, origin) in self.findings.iter().zip(origins()) {
            if !closed.iter().any(|(pid, _)| *pid == finding.pid) {
                closed.push((finding.pid, origin.closed));
            }
        }
        let closed: u64 = closed.into_iter().map(|(_, closed)| closed).sum();
        let workers = match self.pids.len() {
            1 => String::new(),
            _ => format!(", in {who}"),
        };
        format!(
            "{place} opened {what}, closed {closed}{}{workers}",
            target.unwrap_or_default()
        )
    }

    /// `60 files`, or `80 epoll instances and 160 unix sockets`. Closed descriptors of the same
    /// line count as opened.
    fn what(&self) -> String {
        let mut kinds: Vec<(Option<&fdguard_core::Class>, u64)> = Vec::new();
        for finding in &self.findings {
            let count = finding.count.unwrap_or(0);
            let class = finding.class.as_ref();
            match kinds.iter_mut().find(|(known, _)| *known == class) {
                Some((_, sum)) => *sum += count,
                None => kinds.push((class, count)),
            }
        }
        if let [(_, count)] = kinds.as_mut_slice() {
            let opened = |one: &&Finding| one.origin.as_ref().map_or(0, |origin| origin.opened);
            *count = (*count).max(self.findings.iter().map(opened).sum());
        }
        let kinds = kinds
            .into_iter()
            .map(|(class, count)| format!("{count} {}", things(class, count)));
        kinds.collect::<Vec<_>>().join(" and ")
    }
}

/// Whether a target adds information to the class: `eventfd` and `pipe:[7]` do not.
fn says_more(finding: &Finding, target: &Text) -> bool {
    let bytes = target.as_bytes();
    let class = finding.class.as_ref().map(ToString::to_string);
    let is_class = class.is_some_and(|class| class.as_bytes() == bytes);
    !is_class && !bytes.is_empty() && !is_nameless(bytes)
}

fn write_stack(out: &mut dyn Write, origin: &Origin, shown: &DisplayOptions) -> anyhow::Result<()> {
    if let Some(caller) = &origin.leaking_caller {
        let caller = shown.place(caller);
        writeln!(
            out,
            "  called from {HEADING}{caller}{HEADING:#}: the only caller that leaks"
        )?;
    }
    let own: Vec<&Frame> = own_frames(&origin.stack).collect();
    for frame in origin.stack.iter().take(MOST_FRAMES) {
        let is_own = own.contains(&frame);
        let text = shown.frame(frame, is_own);
        match is_own {
            true => writeln!(out, "    > {text}")?,
            false => writeln!(out, "      {DIM}{text}{DIM:#}")?,
        }
    }
    let more = origin.stack.len().saturating_sub(MOST_FRAMES);
    if more > 0 {
        writeln!(out, "      {DIM}and {more} more frames{DIM:#}")?;
    }
    Ok(())
}

/// `4 | held.append(open("/etc/passwd"))`, if the file can be read.
fn source_line(culprit: &Culprit) -> Option<String> {
    let file = culprit.file.as_ref()?.to_lossy().into_owned();
    let file = file.strip_prefix("file://").unwrap_or(&file).to_owned();
    let number = culprit.line?;
    let path = Path::new(&file);
    // A pipe or a device must not block the report.
    if !path.metadata().is_ok_and(|meta| meta.is_file()) {
        return None;
    }
    let text = std::fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&text);
    let line = text
        .lines()
        .nth(usize::try_from(number).ok()?.checked_sub(1)?)?;
    let line: String = line.trim().chars().take(MOST_SOURCE).collect();
    (!line.is_empty()).then(|| format!("{number} | {}", sanitize_str(&line)))
}

#[cfg(test)]
mod tests {
    use fdguard_core::origin::Language;

    use super::{DisplayOptions, answers};
    use crate::report::trace::testing::{MadeReport, frame, leak};

    fn told(made: &MadeReport, shown: &DisplayOptions) -> String {
        let mut out = Vec::new();
        for answer in answers(&made.diagnosis) {
            answer.write(&mut out, shown).unwrap();
        }
        String::from_utf8(anstream::adapter::strip_bytes(&out).into_vec()).unwrap()
    }

    #[test]
    fn the_answer_names_the_line_and_shows_it_relative_to_where_one_is() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("simple.py");
        std::fs::write(
            &file,
            "import time\n\ndef work():\n    held.append(open(path))\n",
        )
        .unwrap();
        let name = file.to_str().unwrap();
        let stack = [
            frame(
                "open",
                Some(("/usr/lib/python3.11/io.py", 7)),
                Language::Python,
            ),
            frame("work", Some((name, 4)), Language::Python),
        ];
        let mut made = MadeReport::default();
        made.diagnosis.findings = vec![leak(100, &stack, 60)];
        let shown = DisplayOptions {
            directory: Some(dir.path().to_owned()),
            width: 100,
        };
        let text = told(&made, &shown);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "leaking: simple.py:4 in work() opened 60 files, closed 0 (/srv/a.log)"
        );
        assert_eq!(lines[1], "    4 | held.append(open(path))");
        assert!(text.contains("\n    > simple.py:4 work\n"), "{text}");
        assert!(text.contains("\n      io.py:7 open\n"), "{text}");
    }

    #[test]
    fn workers_of_one_program_are_one_answer() {
        let stack = [frame("index", Some(("/srv/app.py", 25)), Language::Python)];
        let mut made = MadeReport::default();
        made.diagnosis.findings = [100, 101, 102].map(|pid| leak(pid, &stack, 10)).to_vec();
        let text = told(&made, &DisplayOptions::default());
        let line = "leaking: /srv/app.py:25 in index() opened 30 files, closed 0 (/srv/a.log), in 3 workers of srv\n";
        assert!(text.starts_with(line), "{text}");
        assert_eq!(text.matches("leaking:").count(), 1);
    }

    #[test]
    fn a_leak_without_a_line_says_so() {
        let mut made = MadeReport::default();
        made.diagnosis.findings = vec![leak(100, &[], 9)];
        let text = told(&made, &DisplayOptions::default());
        let line = "leaking: srv (pid 100) opened 9 files at an unknown line (/srv/a.log)\n";
        assert!(text.starts_with(line), "{text}");
    }
}
