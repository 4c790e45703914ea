//! A command as a probe: a helper that ends with everything it started, at its deadline at the
//! latest.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fdguard_process::tree::StartError;

use super::dial::Step;
use crate::child::{self, Bounded, Helper, HelperEnd, HelperOutput};
use crate::poll::Readiness;

/// Where commands run.
#[derive(Clone, Debug, Default)]
pub struct CommandContext {
    /// Their whole environment: the service's.
    pub environment: Vec<(OsString, OsString)>,
    /// Their working directory; fdguard's if absent.
    pub dir: Option<PathBuf>,
}

/// A command that is run repeatedly.
#[derive(Debug)]
pub(super) struct Command {
    line: String,
    scene: Arc<CommandContext>,
    /// Kept open for when no file can be opened.
    null: OwnedFd,
}

impl Command {
    pub(super) fn new(line: &str, scene: &Arc<CommandContext>) -> Result<Self, String> {
        Ok(Self {
            line: line.to_owned(),
            scene: Arc::clone(scene),
            null: child::null().map_err(|why| format!("/dev/null: {why}"))?,
        })
    }

    pub(super) fn start(&self, now: Instant, within: Duration) -> Result<Bounded, StartError> {
        let helper = Helper {
            environment: self.scene.environment.clone(),
            dir: self.scene.dir.clone(),
            heard: HelperOutput::All,
            ..Helper::shell(&self.line)
        };
        Bounded::start(helper, &self.null, now, within)
    }
}

/// Continues a running one.
pub(super) fn poll(running: &mut Bounded, now: Instant, ready: &Readiness) -> Step<()> {
    match running.poll(now, ready) {
        None => Step::Waiting,
        Some(HelperEnd::Code(0)) => Step::Done(()),
        Some(ended) => Step::Failed(running.account(ended)),
    }
}
