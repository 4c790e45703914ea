//! Completion in the shell, with the real bash.

use std::process::{Child, Command};

use tempfile::TempDir;
use testkit::Victim;

use super::run;

/// What bash offers for the last of these words, as bash splits them: it reads the script, and
/// calls the function as it does after a tab. It asks with 9 to complete and with 63 to list.
fn answer(words: &[&str], asks: u8) -> Vec<String> {
    let script = run(["completions", "bash"]).text().to_owned();
    let program = env!("CARGO_BIN_EXE_fdguard");
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let call = format!(
        "{script}\nCOMP_WORDS=('{program}' {}) COMP_CWORD={} COMP_TYPE={asks}\n\
         _fdguard fdguard '{}' ''\n\
         [ \"${{#COMPREPLY[@]}}\" = 0 ] || printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        quoted.join(" "),
        words.len(),
        words.last().unwrap(),
    );
    let done = Command::new("bash").args(["-c", &call]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&done.stderr), "", "{call}");
    let lines = String::from_utf8(done.stdout).unwrap();
    lines.lines().map(str::to_owned).collect()
}

fn offers(words: &[&str]) -> Vec<String> {
    answer(words, 9)
}

/// A process with a name of its own: a copy of sleep.
struct NamedProcess {
    child: Child,
    _dir: TempDir,
}

impl NamedProcess {
    fn start(name: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join(name);
        std::fs::copy("/bin/sleep", &program).unwrap();
        // When it returns, the program runs: the name is there.
        let child = Command::new(program).arg("1000").spawn().unwrap();
        Self { child, _dir: dir }
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for NamedProcess {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn can_run() -> bool {
    let has_bash = testkit::have("bash");
    if !has_bash {
        testkit::skip("needs bash");
    }
    has_bash
}

#[test]
fn every_shell_has_its_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = run(["completions", shell]);
        assert_eq!((said.code, &*said.stderr), (0, ""), "{shell}");
        let asks_or_knows = ["__complete", "snap"];
        let known = asks_or_knows.iter().any(|word| said.text().contains(word));
        assert!(known && said.text().contains("fdguard"), "{shell}");
    }
}

#[test]
fn bash_offers_commands_options_and_values() {
    if !can_run() {
        return;
    }
    assert_eq!(offers(&["sn"]), ["snap"]);
    let all = offers(&[""]);
    assert!(all.contains(&"trace".to_owned()) && !all.contains(&"--color".to_owned()));
    assert_eq!(offers(&["snap", "--cou"]), ["--counts"]);
    assert_eq!(offers(&["top", "--color", "al"]), ["always"]);
    assert_eq!(offers(&["top", "--color", "=", "al"]), ["always"]);
    // Behind `--` is the command line of another program.
    assert_eq!(offers(&["trace", "--", "1"]), [] as [&str; 0]);
    assert!(offers(&["trace", "--", "bas"]).contains(&"bash".to_owned()));
}

#[test]
fn bash_offers_processes_by_number() {
    if !can_run() {
        return;
    }
    let victim = Victim::start("leaker");
    let pid = victim.pid().to_string();
    let most = &pid[..pid.len() - 1];
    for words in [
        &["snap", ""] as &[&str],
        &["watch", most],
        &["trace", most],
        &["doctor", "--pid", most],
        &["snap", "-p", most],
        &["explain", "--pid", &pid],
        &["check", "--pid", "=", most],
        &["check", "--pid", "="],
    ] {
        assert!(
            offers(words).contains(&pid),
            "{words:?} does not offer {pid}"
        );
    }
    let several = format!("1,{most}");
    assert!(offers(&["snap", "-p", &several]).contains(&format!("1,{pid}")));
}

#[test]
fn bash_offers_processes_by_name() {
    if !can_run() {
        return;
    }
    // Nothing else on this machine has this name.
    let name = format!("fdg-{}", std::process::id());
    let process = NamedProcess::start(&name);
    let pid = process.pid();
    let most = &name[..name.len() - 1];
    assert!(offers(&["snap", "--name", most]).contains(&name));
    assert!(offers(&["snap", "--name", "=", most]).contains(&name));
    // Only one process has this name: the number is meant.
    assert_eq!(offers(&["snap", &name]), [pid.as_str()]);
    // A list says what each number is.
    let line = format!("{pid}  ({name})");
    assert!(answer(&["snap", ""], 63).contains(&line), "no {line}");
}

#[test]
fn a_name_with_control_characters_stays_on_its_line() {
    let process = NamedProcess::start("a\tb\nc\x1b[31m");
    let said = run(["__complete", "fdguard", "snap", &process.pid()]);
    assert_eq!(said.text(), format!("{}\ta b c [31m\n", process.pid()));
}
