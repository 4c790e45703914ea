//! A script that holds something, prints `ready`, and releases it when its input ends.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

/// A running script. It prints `ready` when it holds what it should and ends when its input does.
/// Drop closes the input and waits.
#[derive(Debug)]
pub struct ScriptedProcess(Child);

impl ScriptedProcess {
    /// `python3 -c SCRIPT ARGUMENT`, once it is ready.
    pub fn python(script: &str, argument: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", script]).arg(argument);
        Self::of(&mut command)
    }

    /// This command, once it is ready.
    pub fn of(command: &mut Command) -> Self {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().expect("a script that starts");
        let output = child.stdout.take().expect("its output");
        let mut line = String::new();
        let read = BufReader::new(output).read_line(&mut line);
        read.expect("a line of its output");
        assert_eq!(line, "ready\n", "the script holds what it should");
        Self(child)
    }

    /// Its process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for ScriptedProcess {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // Gone already, then.
        let _ended = self.0.wait();
    }
}
