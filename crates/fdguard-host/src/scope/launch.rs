//! Request to start a program in a scope.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use fdguard_process::plan::Plan;
use rustix::fs::{Mode, OFlags, open};

use super::acquire::refused;
use super::{AcquiredResource, ResourceRole, Scope};
use crate::Error;
use crate::environment::{inherited, is_fit};

/// What to start.
#[derive(Clone, Debug)]
pub struct ProgramLaunch {
    /// The program and its arguments; it is looked up in `PATH`, as a shell does.
    pub command: Vec<String>,
    /// In addition to the host's own.
    pub environment: BTreeMap<String, String>,
    /// File below the root that its output is appended to, archived at the end. Absent: output is
    /// discarded.
    pub log: Option<PathBuf>,
    /// What its end means for the agent.
    pub role: ResourceRole,
}

impl Scope {
    /// Starts a program in the scope's directory, in its own session, without input.
    pub async fn launch(&self, launch: ProgramLaunch) -> Result<AcquiredResource, Error> {
        let has_no_name = launch.command.first().is_none_or(String::is_empty);
        let mut variables = launch.environment.iter();
        if has_no_name
            || launch.command.iter().any(|word| word.contains('\0'))
            || variables.any(|(name, value)| !is_fit(name, value))
        {
            let text = "invalid program: it needs a name, and arguments and environment must not contain NUL bytes";
            return Err(Error::Bad(text.to_owned()));
        }
        let null = open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let null = Arc::new(null.map_err(|errno| Error::io("/dev/null")(errno.into()))?);
        let out = match &launch.log {
            Some(path) => self.log(path)?,
            None => Arc::clone(&null),
        };
        let mut environment: BTreeMap<OsString, OsString> = inherited().into_iter().collect();
        let more = launch.environment.into_iter();
        environment.extend(more.map(|(name, value)| (name.into(), value.into())));
        let command = launch.command.into_iter().map(OsString::from).collect();
        // Another directory may have replaced it by now.
        drop(self.root().dir().map_err(refused)?);
        let plan = Plan {
            dir: Some(self.root().path().to_owned()),
            stdio: [Some(null), Some(Arc::clone(&out)), Some(out)],
            ..Plan::new(command, environment.into_iter().collect())
        };
        self.start(plan, launch.role).await
    }

    /// Opens a log for appending, and adds it to the scope before anything can be written to it.
    fn log(&self, path: &std::path::Path) -> Result<Arc<OwnedFd>, Error> {
        let inner = self.root().relative(path).map_err(refused)?;
        let opened = self.root().append(&inner).map_err(refused)?;
        self.take_log(&inner)?;
        Ok(Arc::new(opened))
    }
}
