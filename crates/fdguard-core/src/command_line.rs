//! A process's own command line, ready to be pasted into a shell: advice names the commands that
//! find the line of code.

use crate::diagnosis::Diagnosis;
use crate::finding::Finding;
use crate::lint::Severity;
use crate::snapshot::Process;
use crate::watch::Watch;
use crate::{Pid, Text};

/// A longer command is cut after the word that exceeds this: a Java class path may have ten
/// thousand bytes.
const LONGEST: usize = 300;
/// The rules whose findings a line of code explains.
const BY_A_LINE: &[&str] = &["leak", "growth", "soft-limit-level", "expected-budget"];

/// These words as a POSIX shell reads them back, `…` in place of what is too long.
#[must_use]
pub fn quoted(words: impl IntoIterator<Item = impl AsRef<[u8]>>) -> String {
    let mut line = String::new();
    for word in words {
        if line.len() > LONGEST {
            line.push_str(" …");
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&quoted_word(&String::from_utf8_lossy(word.as_ref())));
    }
    line
}

fn quoted_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "@%_+=:,./-".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// `fdguard trace -- gunicorn -w 2 app:app`; absent where the command line is not known or was
/// overwritten.
#[must_use]
pub fn trace_command(process: &Process) -> Option<String> {
    if process.cmdline.is_empty() || is_title(&process.cmdline) {
        return None;
    }
    let words = process.cmdline.iter().map(Text::as_bytes);
    Some(format!("fdguard trace -- {}", quoted(words)))
}

/// Whether a program wrote a title over its arguments: `nginx: worker process`,
/// `postgres: checkpointer`.
fn is_title(words: &[Text]) -> bool {
    let first = words.first().map_or(&b""[..], Text::as_bytes);
    let has = |part: &[u8]| first.windows(part.len()).any(|window| window == part);
    // Empty words are leftovers of the arguments behind a title.
    let is_alone = words.iter().skip(1).all(|word| word.as_bytes().is_empty());
    has(b": ") || first.ends_with(b":") || (is_alone && has(b" "))
}

/// The playbook's text with the pid filled in.
#[must_use]
pub fn with_pid(text: &str, pid: Pid) -> String {
    text.replace(" PID", &format!(" {pid}"))
}

/// Adds the command that finds the line to the advice, where the line is not known yet. A process
/// that has ended can only be started again.
pub fn add_trace(findings: &mut [Finding], process: &Process, has_ended: bool) {
    let wants = |finding: &&mut Finding| {
        let is_due = finding.origin.is_none() && finding.cleared.is_none();
        let is_about = finding.pid == process.pid && BY_A_LINE.contains(&finding.rule.as_str());
        is_due && is_about && finding.severity > Severity::Info
    };
    for finding in findings.iter_mut().filter(wants) {
        let line = trace_advice(process, has_ended);
        if !finding.next_step.is_empty() {
            finding.next_step.push(' ');
        }
        finding.next_step.push_str(&format!("Line: {line}."));
    }
}

fn trace_advice(process: &Process, has_ended: bool) -> String {
    let (pid, comm) = (process.pid, process.comm.to_lossy());
    match (trace_command(process), has_ended) {
        (Some(command), true) => format!("`{command}` names the line that opens them"),
        (None, true) => {
            format!("start {comm} with `fdguard trace -- COMMAND` to find the line that opens them")
        }
        (Some(command), false) => format!(
            "`fdguard trace {pid}` names the line that opens them, and `{command}` also those \
             opened at its start"
        ),
        (None, false) => format!("`fdguard trace {pid}` names the line that opens them"),
    }
}

impl Watch {
    /// The same for all findings of a diagnosis. Not for a tracer's, which already have lines.
    pub fn name_traces(&self, diagnosis: &mut Diagnosis) {
        for subject in self.subjects() {
            let (process, has_ended) = (&subject.process, subject.gone.is_some());
            add_trace(&mut diagnosis.findings, process, has_ended);
            for opinion in &mut diagnosis.processes {
                add_trace(&mut opinion.findings, process, has_ended);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{quoted, trace_command, with_pid};
    use crate::snapshot::Process;
    use crate::testing::watch_script::{header, leak, settings};
    use crate::watch::Watch;
    use crate::{Class, Text};

    fn of(words: &[&str]) -> Option<String> {
        trace_command(&Process {
            cmdline: words.iter().map(|word| Text::from(*word)).collect(),
            ..Process::default()
        })
    }

    #[test]
    fn the_command_can_be_pasted() {
        let command = of(&[
            "gunicorn",
            "-w",
            "2",
            "--bind=:80",
            "app:make('x')",
            "a b",
            "",
        ]);
        let expected = r"fdguard trace -- gunicorn -w 2 --bind=:80 'app:make('\''x'\'')' 'a b' ''";
        assert_eq!(command.unwrap(), expected);
    }

    #[test]
    fn a_title_and_nothing_are_no_command() {
        for title in [
            &["nginx: master process /usr/sbin/nginx -g daemon off;"][..],
            &["nginx: worker process", "", ""],
            &["postgres: checkpointer "],
            &["sshd: ann [priv]"],
            &["some title of words"],
            &[],
        ] {
            assert_eq!(of(title), None, "{title:?}");
        }
        assert!(
            of(&["/opt/my app/bin", "-v"]).is_some(),
            "a program in a folder with a space"
        );
    }

    #[test]
    fn a_long_command_is_cut_between_two_words() {
        let words = vec!["-Dsome.property=value"; 100];
        let command = of(&words).unwrap();
        assert!(
            command.ends_with("value …") && command.len() < 400,
            "{command}"
        );
    }

    #[test]
    fn advice_speaks_of_this_process() {
        let text = "`fdguard snap PID --fds`, then `fdguard diff a.json PID`";
        let expected = "`fdguard snap 7 --fds`, then `fdguard diff a.json 7`";
        assert_eq!(with_pid(text, 7), expected);
    }

    #[test]
    fn a_watch_names_the_command_once_for_each_leak() {
        let mut watch = Watch::new(header());
        for entry in leak(&Class::Pipe, "pipe:[7]", 80).entries(0, None) {
            watch.record(&entry);
        }
        let mut diagnosis = watch.diagnosis(&settings()).unwrap();
        watch.name_traces(&mut diagnosis);
        let step = &diagnosis.findings[0].next_step;
        assert_eq!(step.matches("Line: ").count(), 1, "{step}");
        assert_eq!(step.matches("`fdguard trace ").count(), 1, "{step}");
        assert!(!step.contains(" PID"), "{step}");
        let of_process = &diagnosis.processes[0].findings[0].next_step;
        assert_eq!(of_process, step);
    }

    proptest! {
        /// A shell reads back the same words, whatever they are.
        #[test]
        fn a_shell_reads_back_what_was_quoted(words in prop::collection::vec("[^\0]{0,12}", 1..5)) {
            let line = quoted(words.iter().map(String::as_bytes));
            let script = format!("printf '%s\\0' {line}");
            let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            let mut expected: Vec<u8> = Vec::new();
            for word in &words {
                expected.extend(word.as_bytes());
                expected.push(0);
            }
            prop_assert_eq!(output.stdout, expected);
        }
    }
}
