//! One command, from its start to its end, timeout or interrupt.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use fdguard_process::pty::{self, Key};
use tokio::time::{Instant, Sleep, sleep_until};

use super::actor::{Actor, Job};
use super::collect::Collector;
use super::end;
use super::escalate::{Escalation, Step};
use super::flow::Flow;
use super::hub::Expected;
use super::keeper::status;
use super::message::End;
use super::program;
use super::running::{Recipe, Running};
use super::text_file::TextFile;
use super::types::{Channel, ExecOutcome, ExecOutput, ExecResult, SessionProgram};
use crate::Error;
use crate::receipt::SessionEndReason;

/// How long a listener may delay the last of a command's output.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// The same, when the whole session is closed or reset.
const LAST_WORDS_AT_CLOSE: Duration = Duration::from_millis(300);

/// How often to check whether an interrupt reached the intended process group.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Result of waiting for a command's end.
#[derive(Debug)]
enum Verdict {
    /// Its end was reported.
    Told(End),
    /// It did not end: the program must be replaced.
    Stuck,
    /// The program ended.
    ProgramEnded,
    /// The session is being reset or closed.
    GivenUp,
}

/// A wait for a command's end.
struct Wait<'w> {
    recipe: &'w Recipe,
    flow: Flow,
    /// Why it must end, and since when.
    ending: Option<(ExecOutcome, Instant, Escalation)>,
    timer: Pin<Box<Sleep>>,
    /// The group that got the last interrupt.
    interrupted: Option<u32>,
}

impl Actor {
    /// Runs a command and answers.
    pub(super) async fn exec(&mut self, mut job: Job) {
        let result = self.run(&mut job).await;
        self.shared.finish();
        let Job { reply, turn, .. } = job;
        drop(turn);
        let _gone = reply.send(result);
    }

    async fn run(&mut self, job: &mut Job) -> Result<ExecResult, Error> {
        let begin = Instant::now();
        if job.command.code.contains('\0') {
            return Err(Error::Bad("the command contains a NUL byte".to_owned()));
        }
        if self.shared.has_ended() {
            return Err(self.ended());
        }
        let mut was_reset = self.replace_dirty().await?;
        self.number += 1;
        let earlier = self.take_earlier();
        // A failure to store the text does not concern the program, which stays as it is.
        let file = self.text_file(&job.command.code)?;
        let expected = self.give_or_replace(job, file.as_ref(), &mut was_reset);
        let expected = expected.await?;
        let Some(running) = &mut self.running else {
            return Err(self.ended());
        };
        let has_stderr = self.recipe.spec.channel == Channel::Pipes;
        let cap = self.recipe.spec.output_cap;
        let mut wait = Wait {
            recipe: &self.recipe,
            flow: Flow::new(cap, has_stderr, job.live.take()),
            ending: None,
            timer: Box::pin(sleep_until(begin + job.command.timeout)),
            interrupted: None,
        };
        let verdict = wait.until_end(running, expected, job, &mut self.room).await;
        let longest = match verdict {
            // A caller waits for the close: a command that does not react delays it only briefly.
            Verdict::GivenUp => LAST_WORDS_AT_CLOSE,
            _ => LAST_WORDS,
        };
        let patience = Instant::now() + longest;
        let Wait {
            mut flow, ending, ..
        } = wait;
        flow.drain(running, &mut self.room, patience).await;
        let wanted = ending.map(|(outcome, ..)| outcome);
        let outcome = match &verdict {
            Verdict::Told(end) => wanted.unwrap_or(ExecOutcome::Exited { status: end.status }),
            Verdict::ProgramEnded => ExecOutcome::ProgramEnded {
                status: running.keeper.exit.map(status),
            },
            Verdict::Stuck | Verdict::GivenUp => wanted.unwrap_or(ExecOutcome::Interrupted),
        };
        self.conclude(&verdict, &mut was_reset).await;
        let (stdout, stderr) = flow.finish();
        Ok(ExecResult {
            number: self.number,
            outcome,
            stdout,
            stderr,
            earlier,
            dir: self
                .dir
                .as_deref()
                .map(|dir| dir.to_string_lossy().into_owned()),
            ms: begin.elapsed().as_secs_f64() * 1000.0,
            was_reset,
        })
    }

    /// Applies the consequences for the program.
    async fn conclude(&mut self, verdict: &Verdict, was_reset: &mut bool) {
        match verdict {
            Verdict::Told(end) => {
                if let Some(dir) = &end.dir {
                    self.dir = Some(PathBuf::from(dir));
                }
            }
            Verdict::ProgramEnded => self.notice_end(),
            Verdict::Stuck => {
                *was_reset = true;
                // If it cannot be restarted, the session has ended, and the next command returns
                // the reason.
                let _noted = self.restart(SessionEndReason::Reset, end::AT_ONCE).await;
            }
            Verdict::GivenUp => {
                *was_reset = true;
                if let Some(running) = &mut self.running {
                    running.is_dirty = true;
                }
            }
        }
    }

    /// Replaces a program in which a command was abandoned; returns true if it did.
    async fn replace_dirty(&mut self) -> Result<bool, Error> {
        match &self.running {
            None => Err(self.ended()),
            Some(running) if running.is_dirty => {
                self.restart(SessionEndReason::Reset, end::AT_ONCE).await?;
                Ok(true)
            }
            Some(_) => Ok(false),
        }
    }

    /// All output before the command starts.
    fn take_earlier(&mut self) -> Option<ExecOutput> {
        if let Some(running) = &self.running {
            let mut backlog = running.streams.backlog();
            while let Some((_, length)) = running.streams.read_backlog(&mut backlog, &mut self.room)
            {
                let bytes = self.room.get(..length).unwrap_or_default();
                self.earlier.push(bytes);
            }
        }
        if self.earlier.bytes() == 0 {
            return None;
        }
        let empty = Collector::new(self.recipe.spec.output_cap);
        Some(std::mem::replace(&mut self.earlier, empty).finish())
    }

    /// Sends the command to a program that listens. If it no longer does, because the last command
    /// replaced the interpreter, it is replaced first.
    async fn give_or_replace(
        &mut self,
        job: &Job,
        file: Option<&TextFile>,
        was_reset: &mut bool,
    ) -> Result<Expected, Error> {
        match self.give(job, file).await {
            Err(Error::Io { .. }) if !*was_reset && !self.shared.has_ended() => {
                *was_reset = true;
                self.restart(SessionEndReason::Reset, end::AT_ONCE).await?;
                self.give(job, file).await
            }
            result => result,
        }
    }

    /// A file for a command that is too long for the channel; it must exist until the command's
    /// end.
    fn text_file(&self, code: &str) -> Result<Option<TextFile>, Error> {
        match &self.running {
            Some(running) if !running.takes_inline(code) => {
                TextFile::write(&self.recipe.id, self.number, code).map(Some)
            }
            _ => Ok(None),
        }
    }

    async fn give(&mut self, job: &Job, file: Option<&TextFile>) -> Result<Expected, Error> {
        let Some(running) = &self.running else {
            return Err(self.ended());
        };
        let expected = self.recipe.hub.expect(&running.address)?;
        let code = &job.command.code;
        let sent = self.recipe.send(running, &expected.nonce, code, file);
        match tokio::time::timeout(job.command.timeout, sent).await {
            Ok(sent) => sent.map(|()| expected),
            Err(_late) => Err(Error::Io {
                what: "cannot send the command",
                source: std::io::ErrorKind::TimedOut.into(),
            }),
        }
    }
}

/// The group in the foreground of the session's terminal.
fn foreground(running: &Running) -> Option<u32> {
    running.streams.master().and_then(pty::foreground)
}

/// Whether a group other than the interrupted one runs now, and it is not the program itself: that
/// one has received the interrupt, or has just reported the end.
fn missed(now: Option<u32>, interrupted: Option<u32>, program: Option<u32>) -> bool {
    now.is_some() && now != interrupted && now != program
}

impl Wait<'_> {
    async fn until_end(
        &mut self,
        running: &mut Running,
        mut expected: Expected,
        job: &mut Job,
        room: &mut [u8],
    ) -> Verdict {
        let mut is_abandoned = false;
        loop {
            let Running {
                streams, keeper, ..
            } = &mut *running;
            tokio::select! {
                end = &mut expected.end => {
                    return end.map_or(Verdict::Stuck, Verdict::Told);
                }
                _told = keeper.told() => {
                    if keeper.exit.is_some() || keeper.over.is_some() {
                        return Verdict::ProgramEnded;
                    }
                }
                (stream, length) = streams.read(room), if !self.flow.is_held_up() => {
                    self.flow.push_bytes(stream, room.get(..length).unwrap_or_default());
                }
                () = self.flow.deliver(), if self.flow.is_held_up() => {}
                () = &mut self.timer => {
                    if self.step(running, &expected.nonce).await {
                        return Verdict::Stuck;
                    }
                }
                changed = job.wishes.changed() => {
                    let wishes = *job.wishes.borrow_and_update();
                    if changed.is_err() || wishes.is_closing || wishes.resets != job.before.resets {
                        return Verdict::GivenUp;
                    }
                    if wishes.interrupts != job.before.interrupts {
                        self.begin_end(ExecOutcome::Interrupted);
                    }
                }
                () = job.reply.closed(), if !is_abandoned => {
                    is_abandoned = true;
                    self.flow.unlisten();
                    self.begin_end(ExecOutcome::Interrupted);
                }
            }
        }
    }

    /// Starts to end it.
    fn begin_end(&mut self, outcome: ExecOutcome) {
        if self.ending.is_none() {
            let now = Instant::now();
            self.ending = Some((outcome, now, Escalation::default()));
            self.timer.as_mut().reset(now);
        }
    }

    /// The timer expired: the command's time is up, or the next step must be taken. True if only
    /// replacing the program is left.
    async fn step(&mut self, running: &Running, nonce: &str) -> bool {
        self.begin_end(ExecOutcome::TimedOut);
        let Some((_, since, escalation)) = &mut self.ending else {
            return false;
        };
        let is_first = escalation.due() == Some(Duration::ZERO);
        let step = escalation.next(since.elapsed());
        let next = escalation.due().map(|due| *since + due);
        match step {
            Some(Step::Interrupt) if !is_first && self.ask_again(running, nonce).await => {}
            Some(Step::Interrupt) => self.interrupt(running),
            Some(Step::Quit) => self.recipe.interrupt(running, Key::Quit),
            Some(Step::KillOthers) => running.kill_others(),
            Some(Step::Reset) => return true,
            // A shell that is about to start a process takes the interrupt itself and then waits
            // for that process, which got none.
            None if missed(foreground(running), self.interrupted, running.keeper.main()) => {
                self.interrupt(running);
            }
            None => {}
        }
        let Some(next) = next else { return true };
        self.timer
            .as_mut()
            .reset(next.min(Instant::now() + LOOK_AGAIN));
        false
    }

    fn interrupt(&mut self, running: &Running) {
        self.interrupted = foreground(running);
        self.recipe.interrupt(running, Key::Interrupt);
    }

    /// An interpreter that drops its whole line on an interrupt would never report the end: it is
    /// asked again. False if there is nothing to ask.
    async fn ask_again(&self, running: &Running, nonce: &str) -> bool {
        let SessionProgram::Repl(repl) = &self.recipe.spec.program else {
            return false;
        };
        let text = program::filled(repl, Path::new("/dev/null"), nonce);
        let written = running.streams.write(text.as_bytes());
        let _unheard = tokio::time::timeout(Duration::from_millis(10), written).await;
        true
    }
}
