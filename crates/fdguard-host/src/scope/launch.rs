//! A program that somebody asks a scope to start, by words alone.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use fdguard_process::plan::{Group, Limits, Plan};
use rustix::fs::{Mode, OFlags, open};

use super::hold::refused;
use super::{Role, Scope, Taken};
use crate::Error;
use crate::environment::inherited;

/// What is to be started.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program and its words; it is looked for as a shell does.
    pub command: Vec<String>,
    /// Besides the host's own.
    pub environment: BTreeMap<String, String>,
    /// Below the root: what it prints is added there, and archived at the end. Absent: nobody hears it.
    pub log: Option<PathBuf>,
    /// What its end means.
    pub role: Role,
}

impl Scope {
    /// Starts a program in the scope's folder, in a session of its own, without input.
    pub async fn launch(&self, launch: Launch) -> Result<Taken, Error> {
        let has_no_name = launch.command.first().is_none_or(String::is_empty);
        let is_whole = |text: &String| !text.contains('\0');
        let names = launch.environment.keys();
        if has_no_name
            || !launch.command.iter().all(is_whole)
            || !launch.environment.values().all(is_whole)
            || names
                .clone()
                .any(|name| name.is_empty() || name.contains(['=', '\0']))
        {
            let text =
                "a program needs a name, and neither words nor variables may hold a zero byte";
            return Err(Error::Bad(text.to_owned()));
        }
        let null = open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let null = Arc::new(null.map_err(|errno| Error::io("/dev/null")(errno.into()))?);
        let out = match &launch.log {
            Some(path) => self.log(path)?,
            None => Arc::clone(&null),
        };
        let mut environment = inherited();
        environment.retain(|(name, _)| {
            name.to_str()
                .is_none_or(|name| !launch.environment.contains_key(name))
        });
        let more = launch.environment.into_iter();
        environment.extend(more.map(|(name, value)| (OsString::from(name), value.into())));
        let plan = Plan {
            command: launch.command.into_iter().map(OsString::from).collect(),
            environment,
            folder: Some(self.root().path().to_owned()),
            stdio: [Some(null), Some(Arc::clone(&out)), Some(out)],
            handed: Vec::new(),
            soft_limit: None,
            group: Group::Session,
            cgroup: false,
            terminal: false,
            limits: Limits::default(),
        };
        self.start(plan, launch.role).await
    }

    /// Opens a log to be added to, and takes it. It is the scope's before anything can be written to it.
    fn log(&self, path: &std::path::Path) -> Result<Arc<OwnedFd>, Error> {
        let inner = self.root().relative(path).map_err(refused)?;
        let opened = self.root().append(&inner).map_err(refused)?;
        self.take_log(&inner)?;
        Ok(Arc::new(opened))
    }
}
