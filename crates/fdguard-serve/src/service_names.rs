//! Names a process for the roster: its workload, its supervisor's program, its command.

use std::collections::HashMap;

use fdguard_core::host::{HostRow, HostView};
use fdguard_core::workload::Workload;
use fdguard_core::{Pid, Text};
use fdguard_probe::Probe;

use crate::service::{ServiceKey, command_name, is_interpreter};

/// Ancestors that are looked at for a supervisor.
const GENERATIONS: usize = 8;

/// Finds the service of processes, with the parents of one scan.
pub(crate) struct ServiceNames<'a> {
    probe: &'a Probe,
    rows: HashMap<Pid, (&'a Text, Option<Pid>)>,
}

impl<'a> ServiceNames<'a> {
    pub(crate) fn new(probe: &'a Probe, view: &'a HostView) -> Self {
        let rows = view.rows.iter().map(|row| (row.pid, (&row.comm, row.ppid)));
        Self {
            probe,
            rows: rows.collect(),
        }
    }

    /// The service of a process, and its workload.
    pub(crate) fn find(&self, row: &HostRow) -> (ServiceKey, Option<Workload>) {
        let workload = self.probe.workload(row.pid);
        let is_contained = workload
            .as_ref()
            .is_some_and(|one| one.pod.is_some() || one.container.is_some());
        let program = if is_contained {
            None
        } else {
            self.program(row)
        };
        let command = self.command(row);
        let key = ServiceKey::of(workload.as_ref(), program.as_deref(), &command);
        (key, workload)
    }

    fn command(&self, row: &HostRow) -> String {
        let comm = row.comm.to_lossy();
        if !is_interpreter(&comm) {
            return comm.into_owned();
        }
        let arguments = self.probe.arguments(row.pid).unwrap_or_default();
        let words: Vec<_> = arguments.iter().map(Text::to_lossy).collect();
        let words: Vec<&str> = words.iter().map(|word| &**word).collect();
        command_name(&comm, &words)
    }

    /// The program of the nearest supervisor above a process.
    fn program(&self, row: &HostRow) -> Option<String> {
        let mut below = row.pid;
        let mut above = row.ppid;
        for _ in 0..GENERATIONS {
            let parent = above.filter(|pid| *pid > 1)?;
            let (comm, next) = self.rows.get(&parent)?;
            match &*comm.to_lossy() {
                "supervisord" => return self.of_supervisord(below),
                "runsv" | "s6-supervise" | "supervise" => {
                    let arguments = self.probe.arguments(parent)?;
                    let dir = arguments.get(1)?.to_lossy().into_owned();
                    return dir
                        .trim_end_matches('/')
                        .rsplit('/')
                        .next()
                        .map(str::to_owned);
                }
                _ => {}
            }
            (below, above) = (parent, *next);
        }
        None
    }

    /// supervisord passes the names of group and process to what it starts.
    fn of_supervisord(&self, pid: Pid) -> Option<String> {
        let variable = |name| Some(self.probe.variable(pid, name)?.to_lossy().into_owned());
        let process = variable("SUPERVISOR_PROCESS_NAME")?;
        match variable("SUPERVISOR_GROUP_NAME") {
            Some(group) if group != process => Some(format!("{group}:{process}")),
            _ => Some(process),
        }
    }
}

#[cfg(test)]
mod tests {
    use fdguard_probe::{Probe, Radar};
    use testkit::FakeProc;

    use super::ServiceNames;

    fn service(tree: &FakeProc, pid: u32) -> String {
        let probe = Probe::at(tree.root()).unwrap();
        let view = Radar::new().scan(&probe).unwrap();
        let row = view.rows.iter().find(|row| row.pid == pid).unwrap();
        ServiceNames::new(&probe, &view).find(row).0.to_string()
    }

    #[test]
    fn programs_of_supervisors_are_named_as_their_supervisor_names_them() {
        let mut tree = FakeProc::new();
        let _init = tree.process(20).comm(b"supervisord").parent(1);
        let _web = tree.process(10).comm(b"gunicorn").parent(20).file(
            "environ",
            "A=1\0SUPERVISOR_GROUP_NAME=web\0SUPERVISOR_PROCESS_NAME=web_00\0",
        );
        let _worker = tree.process(11).comm(b"gunicorn").parent(10);
        let _runsv = tree
            .process(30)
            .comm(b"runsv")
            .parent(1)
            .file("cmdline", "runsv\0/etc/service/mail/\0");
        let _mail = tree.process(12).comm(b"postfix").parent(30);
        let _lone = tree.process(13).comm(b"redis").parent(1);
        assert_eq!(service(&tree, 10), "program web:web_00");
        assert_eq!(service(&tree, 11), "program web:web_00");
        assert_eq!(service(&tree, 12), "program mail");
        assert_eq!(service(&tree, 13), "command redis");
    }

    #[test]
    fn a_process_of_a_container_belongs_to_it_whatever_started_it() {
        let id = "3f4c1b2a9d8e7f60514233425160718293a4b5c6d7e8f90a1b2c3d4e5f607182";
        let mut tree = FakeProc::new();
        let _init = tree.process(20).comm(b"supervisord").parent(1);
        let _web = tree
            .process(10)
            .comm(b"nginx")
            .parent(20)
            .file("environ", "SUPERVISOR_PROCESS_NAME=web\0")
            .file("cgroup", format!("0::/docker/{id}\n"));
        assert_eq!(service(&tree, 10), "container 3f4c1b2a9d8e");
    }

    #[test]
    fn an_interpreter_is_named_with_its_program() {
        let mut tree = FakeProc::new();
        let _app = tree
            .process(10)
            .comm(b"python3")
            .file("cmdline", "python3\0-u\0/srv/app.py\0");
        assert_eq!(service(&tree, 10), "command python3 app.py");
    }
}
