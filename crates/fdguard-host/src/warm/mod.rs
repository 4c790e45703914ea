//! Python sessions forked from one warm interpreter, which has imported common modules and runs
//! nothing itself.
//!
//! Each session gets its own keeper, started by an exec (`fdguard __keeper`), and is a process tree
//! like any other. The interpreter is a process tree, too; if it dies, its sessions continue, and
//! the next request starts a new one.

mod request;
mod zygote;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fdguard_process::plan::Plan;
use fdguard_process::tree::{Attach, Offer, Tree};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::Error;
use crate::watched_tree::readable;
use request::Request;
use zygote::{Zygote, ZygoteState};

/// From the host's end to the first KILL in a session.
const ORPHAN_GRACE: Duration = Duration::from_millis(500);
/// A session that has not started after this time never will.
const LONGEST_FORK: Duration = Duration::from_secs(10);
/// After an interpreter that could not be started; doubled with each that follows.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The warm interpreter and what is needed to restart it. It holds two descriptors.
#[derive(Debug)]
pub struct WarmPool {
    python: PathBuf,
    keeper: PathBuf,
    driver: String,
    state: Mutex<State>,
    /// Why sessions are started cold at the moment.
    trouble: std::sync::Mutex<Option<String>>,
}

#[derive(Debug, Default)]
struct State {
    zygote: Option<Zygote>,
    /// Trees of dead interpreters. Their keepers are above those of sessions that are still alive.
    retired: Vec<Tree>,
    failures: u32,
    failed_at: Option<Instant>,
    is_closed: bool,
}

impl WarmPool {
    /// Starts the interpreter and waits until it is warm. `keeper` is the fdguard program, `driver`
    /// the text that defines `_fdguard_drive(channel, ready)`.
    pub async fn start(python: &Path, keeper: &Path, driver: &str) -> Result<Self, Error> {
        let pool = Self {
            python: python.to_owned(),
            keeper: keeper.to_owned(),
            driver: driver.to_owned(),
            state: Mutex::default(),
            trouble: std::sync::Mutex::default(),
        };
        pool.warm(&mut *pool.state.lock().await).await?;
        Ok(pool)
    }

    /// Forks a session according to the plan, except for its command; `ready` is the driver's first
    /// message. The side channel is the plan's only passed descriptor. If this fails, nothing is
    /// left, and a cold start may work.
    pub async fn fork(&self, plan: &Plan, ready: &str) -> Result<Tree, Error> {
        self.serves(plan)?;
        let mut offer = Offer::new(plan.limits, plan.cgroup, ORPHAN_GRACE)?;
        let request = Request::new(plan, ready, &offer)?;
        {
            let mut state = self.state.lock().await;
            self.warm(&mut state).await?;
            let Some(zygote) = &state.zygote else {
                return Err(Error::Closing);
            };
            if let Err(error) = zygote.send(&request, plan, &offer).await {
                // A request that is too long is not a problem of the interpreter.
                if error.kind() == std::io::ErrorKind::BrokenPipe {
                    self.retire(&mut state, "it exited".to_owned());
                }
                return Err(Error::io("cannot reach the warm interpreter")(error));
            }
        }
        offer.sent();
        let forked = timeout(LONGEST_FORK, attached(offer)).await;
        forked.unwrap_or_else(|_late| {
            Err(Error::NotReady {
                after: LONGEST_FORK,
                said: String::new(),
            })
        })
    }

    /// Whether a forked session would equal a cold one: an interpreter reads its path, locale and
    /// Python settings only at startup.
    pub fn serves(&self, plan: &Plan) -> Result<(), Error> {
        let ours = |name: &str| std::env::var_os(name);
        let theirs = |name: &str| {
            let mut variables = plan.environment.iter();
            variables
                .rfind(|(known, _)| known == name)
                .map(|(_, value)| value.clone())
        };
        let names = plan.environment.iter().map(|(name, _)| name.clone());
        let of_python = |name: &OsStr| name.as_encoded_bytes().starts_with(b"PYTHON");
        let mut asked: Vec<_> = names
            .chain(std::env::vars_os().map(|(name, _)| name))
            .collect();
        asked.retain(|name| of_python(name));
        asked.extend(["LANG", "LC_ALL", "LC_CTYPE"].map(Into::into));
        let other = asked
            .iter()
            .filter_map(|name| name.to_str())
            .find(|name| ours(name) != theirs(name));
        if let Some(name) = other {
            return Err(Error::Bad(format!(
                "{name} differs from the warm interpreter's"
            )));
        }
        let path = theirs("PATH").unwrap_or_default();
        if find("python3", &path).as_deref() != Some(&*self.python) {
            return Err(Error::Bad("PATH selects a different python3".to_owned()));
        }
        Ok(())
    }

    /// Why sessions start cold, if they do: the interpreter's startup error, or why it ended.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let trouble = self.trouble.lock();
        trouble
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone()
    }

    /// The processes of the pool itself: the interpreter and its keeper; `None` while there is
    /// none.
    pub async fn processes(&self) -> Option<[u32; 2]> {
        let state = self.state.lock().await;
        let zygote = state.zygote.as_ref();
        zygote.map(|zygote| [zygote.tree.main(), zygote.tree.keeper()])
    }

    /// Ends processes of sessions whose keepers were killed: they became children of the
    /// interpreter's keeper. Returns how many are left, if known.
    pub async fn end_strays(&self) -> Option<u32> {
        let state = self.state.lock().await;
        let strays = state.zygote.as_ref()?.tree.strays();
        drop(state);
        // Fails only when the runtime ends.
        let ended = tokio::task::spawn_blocking(move || strays.end()).await;
        ended.ok().flatten()
    }

    /// Ends the interpreter, and every live session that was forked from it.
    pub async fn close(&self) {
        let mut state = self.state.lock().await;
        state.is_closed = true;
        let zygote = state.zygote.take().map(|zygote| zygote.tree);
        let trees: Vec<_> = state.retired.drain(..).chain(zygote).collect();
        for tree in trees {
            zygote::end(tree).await;
        }
    }

    /// Sees to it that there is an interpreter.
    async fn warm(&self, state: &mut State) -> Result<(), Error> {
        if state.is_closed {
            return Err(Error::Closing);
        }
        state.retired.retain_mut(|tree| !zygote::is_over(tree));
        if let Some(zygote) = &mut state.zygote
            && let ZygoteState::Ended(how) = zygote.told()
        {
            self.retire(state, how);
        }
        if state.zygote.is_some() {
            return Ok(());
        }
        if state
            .failed_at
            .is_some_and(|at| at.elapsed() < pause(state.failures))
        {
            let why = self.trouble().unwrap_or_default();
            return Err(Error::Bad(format!("warm interpreter not available: {why}")));
        }
        match Zygote::start(&self.python, &self.keeper, &self.driver).await {
            Ok(zygote) => {
                state.zygote = Some(zygote);
                (state.failures, state.failed_at) = (0, None);
                self.note(None);
                Ok(())
            }
            Err(error) => {
                state.failures = state.failures.saturating_add(1);
                state.failed_at = Some(Instant::now());
                self.note(Some(error.to_string()));
                Err(error)
            }
        }
    }

    fn retire(&self, state: &mut State, why: String) {
        if let Some(zygote) = state.zygote.take() {
            state.retired.push(zygote.tree);
        }
        self.note(Some(format!("warm interpreter ended: {why}")));
    }

    fn note(&self, trouble: Option<String>) {
        let mut noted = self
            .trouble
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        *noted = trouble;
    }
}

/// The program that this name means with this `PATH`. Links are not followed: a virtual environment
/// is a link.
#[must_use]
pub fn find(program: &str, path: &OsStr) -> Option<PathBuf> {
    let mut places = std::env::split_paths(path).map(|dir| dir.join(program));
    places.find(|place| {
        rustix::fs::access(place, rustix::fs::Access::EXEC_OK).is_ok() && place.is_file()
    })
}

fn pause(failures: u32) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(8));
    doubled.min(LONGEST_PAUSE)
}

/// Waits for the keeper's first message.
async fn attached(mut offer: Offer) -> Result<Tree, Error> {
    loop {
        readable(offer.fd())
            .await
            .map_err(Error::io("cannot read from the keeper"))?;
        match offer.attach() {
            Ok(Attach::Done(tree)) => return Ok(tree),
            Ok(Attach::NotYet(again)) => offer = again,
            Err(error) => return Err(Error::Start(error)),
        }
    }
}
