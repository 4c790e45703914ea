//! One run of a service: from the start of its program until no process of it is left.

use std::time::{Duration, Instant};

use fdguard_process::notify::{Access, NotifyMessage};
use fdguard_process::tree::{Exit, StopPlan, Tree, TreeEvent};

use super::{Survivors, chance, listening};
use crate::lifecycle::{Input, LeftProcesses, RunEnd};
use crate::poll::{Interest, Readiness};

/// After the program exited with 0, a descendant has this long to start listening.
const SETTLE: Duration = Duration::from_secs(3);
/// The interval between checks meanwhile.
const LOOK: Duration = Duration::from_millis(100);

/// A run.
#[derive(Debug)]
pub(super) struct Run {
    tree: Tree,
    pub(super) started: Instant,
    /// The program's own process; another one after `MAINPID=`.
    pub(super) main: u32,
    /// The last status that it reported.
    pub(super) status: Option<String>,
    is_stopping: bool,
    /// The program exited with 0 and left processes; they are examined until then.
    settle: Option<Settle>,
    /// A process that it left is now the service.
    is_adopted: bool,
    /// Its keeper was killed, or was stopped or traced until fdguard killed it.
    pub(super) lost: Option<Survivors>,
}

/// The time after the program exited and left processes.
#[derive(Clone, Copy, Debug)]
struct Settle {
    until: Instant,
    next: Instant,
}

impl Run {
    pub(super) fn new(tree: Tree, now: Instant) -> Self {
        Self {
            main: tree.main(),
            tree,
            started: now,
            status: None,
            is_stopping: false,
            settle: None,
            is_adopted: false,
            lost: None,
        }
    }

    /// Its processes, the main one first.
    pub(super) fn members(&self) -> Vec<u32> {
        let mut members = self.tree.members();
        members.sort_by_key(|pid| *pid != self.main);
        members
    }

    pub(super) fn uptime(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    /// Whether its health and usage matter: it is not ending.
    pub(super) fn is_watched(&self) -> bool {
        !self.is_stopping && self.settle.is_none()
    }

    pub(super) fn signal(&mut self, signal: i32) {
        self.tree.signal(signal);
    }

    pub(super) fn stop(&mut self, plan: StopPlan) {
        self.is_stopping = true;
        self.settle = None;
        self.tree.stop(plan);
    }

    /// The first process that the program left is the service from now on. Returns how many there
    /// are.
    pub(super) fn adopt(&mut self) -> usize {
        let members = self.members();
        self.is_adopted = true;
        self.main = members.first().copied().unwrap_or(self.main);
        members.len()
    }

    pub(super) fn may_notify(&self, access: Access, pid: u32) -> bool {
        match access {
            Access::None => false,
            Access::Main => pid == self.main,
            Access::Exec | Access::All => self.tree.members().contains(&pid),
        }
    }

    /// Takes what a notification says about its processes.
    pub(super) fn hear(&mut self, message: &NotifyMessage) {
        if let Some(status) = &message.status {
            self.status = Some(status.clone());
        }
        let is_member = |pid: &u32| self.tree.members().contains(pid);
        if let Some(main) = message.main_pid.filter(is_member) {
            self.main = main;
        }
    }

    /// Registers its descriptors and deadline.
    pub(super) fn wants<'f>(&'f self, wants: &mut Interest<'f>) {
        wants.tree(&self.tree);
        if let Some(settle) = &self.settle {
            wants.until(settle.next);
        }
    }

    /// Reads events from the keeper, and examines what the program left. The last input is its end.
    pub(super) fn poll(&mut self, now: Instant, ready: &Readiness, once: bool) -> Vec<Input> {
        let has_news = ready.has_tree(&self.tree, now);
        let mut inputs = Vec::new();
        while let Some(told) = has_news.then(|| self.tree.told()).flatten() {
            match told {
                TreeEvent::MainEnded { exit, left } if left > 0 && !self.is_stopping => {
                    if exit == Exit::Code(0) && !once {
                        let until = now + SETTLE;
                        self.settle = Some(Settle { until, next: now });
                    } else {
                        inputs.push(Input::Left(LeftProcesses::default()));
                    }
                }
                TreeEvent::Empty {
                    exit,
                    killed,
                    reaped,
                } => inputs.push(self.end(now, Some(exit), killed, reaped)),
                TreeEvent::Lost => {
                    self.lost = Some(Survivors(self.tree.orphans_left().map(u64::from)));
                    inputs.push(self.end(now, None, 0, 0));
                }
                _ => {}
            }
        }
        inputs.extend(self.examine(now).map(Input::Left));
        inputs
    }

    fn end(&mut self, now: Instant, exit: Option<Exit>, killed: u32, reaped: u32) -> Input {
        self.settle = None;
        Input::Exited {
            end: RunEnd {
                pid: self.tree.main(),
                // The exit status of an adopted process is not known.
                exit: exit.filter(|_| !self.is_adopted),
                up: self.uptime(now),
                killed,
                reaped,
            },
            chance: chance(),
        }
    }

    /// Finds out whether one of the remaining processes is the service itself.
    fn examine(&mut self, now: Instant) -> Option<LeftProcesses> {
        let settle = self.settle.filter(|settle| settle.next <= now)?;
        let pids = self.tree.members();
        let listening = listening::places(&pids);
        if listening.is_empty() && now < settle.until {
            let next = now + LOOK;
            self.settle = Some(Settle { next, ..settle });
            return None;
        }
        self.settle = None;
        Some(LeftProcesses { pids, listening })
    }
}
