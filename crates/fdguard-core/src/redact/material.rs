//! The collected material, with every private name redacted.

use super::Redactor;
use crate::detail::InetDetail;
use crate::evidence::{EvidenceInput, LogFile, ProcessVisit, Relative};
use crate::recording::RecordingEntry;
use crate::select_use::SelectUse;
use crate::snapshot::{Cohort, Process};
use crate::timeline::{Look, LookChange, Sighting};
use crate::workload::{ContainerName, PodName, Workload};
use crate::{Class, Detail, FdEntry, Gap, Snapshot, Text};

impl Redactor {
    /// Everything that was collected.
    pub fn material(&mut self, material: &EvidenceInput) -> EvidenceInput {
        EvidenceInput {
            header: material.header.clone(),
            entries: material
                .entries
                .iter()
                .map(|entry| self.recorded(entry))
                .collect(),
            visits: material
                .visits
                .iter()
                .map(|visit| self.visit(visit))
                .collect(),
            relatives: material
                .relatives
                .iter()
                .map(|one| self.relative(one))
                .collect(),
            relatives_more: material.relatives_more,
            machine: material.machine.clone(),
            logs: material.logs.iter().map(|log| self.log(log)).collect(),
            gaps: self.gaps(&material.gaps),
        }
    }

    fn visit(&mut self, visit: &ProcessVisit) -> ProcessVisit {
        ProcessVisit {
            begin: self.snapshot(&visit.begin),
            end: visit.end.as_ref().map(|end| self.snapshot(end)),
            select: visit.select.as_ref().map(|select| self.select(select)),
            runtime: visit.runtime.clone(),
        }
    }

    /// A snapshot.
    pub fn snapshot(&mut self, snapshot: &Snapshot) -> Snapshot {
        let fds = snapshot.fds.as_ref();
        Snapshot {
            process: self.process(&snapshot.process),
            fds: fds.map(|fds| fds.iter().map(|entry| self.entry(entry)).collect()),
            gaps: self.gaps(&snapshot.gaps),
            ..snapshot.clone()
        }
    }

    /// A process: the program stays, its arguments do not.
    pub fn process(&mut self, process: &Process) -> Process {
        let exe = process.exe.as_ref();
        let cohorts = process.cohorts.iter();
        Process {
            comm: self.command(&process.comm),
            exe: exe.map(|exe| Text::from(self.program(exe.as_bytes()))),
            cmdline: self.arguments(process),
            container: process
                .container
                .as_ref()
                .map(|id| self.word(id.as_bytes())),
            workload: process.workload.as_ref().map(|one| self.workload(one)),
            cohorts: cohorts
                .map(|cohort| Cohort {
                    command: self.command(&cohort.command),
                    ..cohort.clone()
                })
                .collect(),
            ..process.clone()
        }
    }

    /// Names of units, containers and pods say what a company runs; the runtime stays.
    fn workload(&mut self, workload: &Workload) -> Workload {
        let mut word = |name: &String| self.word(name.as_bytes());
        Workload {
            unit: workload.unit.as_ref().map(&mut word),
            container: workload.container.as_ref().map(|container| ContainerName {
                id: word(&container.id),
                name: container.name.as_ref().map(&mut word),
                runtime: container.runtime.clone(),
            }),
            pod: workload.pod.as_ref().map(|pod| PodName {
                uid: word(&pod.uid),
                namespace: pod.namespace.as_ref().map(&mut word),
                name: pod.name.as_ref().map(&mut word),
            }),
        }
    }

    /// The first word is a program's name, or a title that it set itself; one-letter flags reveal
    /// nothing.
    fn arguments(&mut self, process: &Process) -> Vec<Text> {
        let name = |path: &[u8]| path.rsplit(|byte| *byte == b'/').next().map(<[u8]>::to_vec);
        let exe = process.exe.as_ref().and_then(|exe| name(exe.as_bytes()));
        let arguments = process.cmdline.iter().enumerate();
        arguments
            .map(|(index, argument)| {
                let bytes = argument.as_bytes();
                let own = name(bytes);
                let is_program =
                    index == 0 && (own == exe || own.as_deref() == Some(process.comm.as_bytes()));
                match bytes {
                    _ if is_program => Text::from(self.program(bytes)),
                    [] | [b'-', _] => argument.clone(),
                    _ => Text::from(self.word(bytes)),
                }
            })
            .collect()
    }

    /// One descriptor.
    pub fn entry(&mut self, entry: &FdEntry) -> FdEntry {
        FdEntry {
            target: self.target(&entry.class, &entry.target),
            detail: self.detail(&entry.detail),
            ..entry.clone()
        }
    }

    fn target(&mut self, class: &Class, target: &Text) -> Text {
        let bytes = target.as_bytes();
        match class {
            Class::Tcp(_) | Class::Udp | Class::Raw => match target.as_str() {
                Some(text) => Text::from(self.connection(text)),
                None => Text::from(self.path(bytes)),
            },
            Class::Unix => match bytes.strip_prefix(b"-> ") {
                Some(peer) => Text::from([b"-> ", &*self.socket_name(peer)].concat()),
                None => Text::from(self.socket_name(bytes)),
            },
            Class::Pidfd => self.pidfd(target),
            Class::Memfd => match memfd_name(bytes) {
                Some((prefix, name)) => Text::from([prefix, &*self.path(name)].concat()),
                None => Text::from(self.path(bytes)),
            },
            // These values come from the kernel or from fdguard.
            Class::Eventpoll
            | Class::Eventfd
            | Class::Timerfd
            | Class::Signalfd
            | Class::Inotify
            | Class::Fanotify
            | Class::IoUring
            | Class::PerfEvent
            | Class::Netlink
            | Class::Packet
            | Class::Vsock
            | Class::Userfaultfd => target.clone(),
            _ => Text::from(self.path(bytes)),
        }
    }

    /// Abstract names begin with their own marker.
    fn socket_name(&mut self, name: &[u8]) -> Vec<u8> {
        match name.strip_prefix(b"@") {
            Some(name) => [b"@", &*self.path(name)].concat(),
            None => self.path(name),
        }
    }

    /// `pid 12 sh`, or the kernel's text if the process is not known.
    fn pidfd(&mut self, target: &Text) -> Text {
        let known = target.as_str().and_then(|text| {
            let (pid, comm) = text.strip_prefix("pid ")?.split_once(' ')?;
            Some((pid.to_owned(), Text::from(comm)))
        });
        match known {
            Some((pid, comm)) => {
                let comm = self.command(&comm);
                Text::from([b"pid ", pid.as_bytes(), b" ", comm.as_bytes()].concat())
            }
            None if target.as_str().is_some() => target.clone(),
            None => Text::from(self.word(target.as_bytes())),
        }
    }

    fn detail(&mut self, detail: &Detail) -> Detail {
        let mut detail = detail.clone();
        match &mut detail {
            Detail::File(file) => {
                self.redact(&mut file.path);
                let interface = file.interface.as_deref();
                file.interface = interface.map(|name| self.word(name.as_bytes()));
            }
            Detail::Pty(pty) => self.redact(&mut pty.path),
            Detail::Pipe(pipe) => pipe.path.iter_mut().for_each(|path| self.redact(path)),
            Detail::Inet(inet) => self.inet(inet),
            Detail::Unix(unix) => {
                let peer = unix.peer.iter_mut().filter_map(|peer| peer.path.as_mut());
                for path in unix.path.iter_mut().chain(peer) {
                    *path = Text::from(self.socket_name(path.as_bytes()));
                }
            }
            Detail::Pidfd(pidfd) => {
                pidfd.command = pidfd.command.as_ref().map(|comm| self.command(comm));
            }
            Detail::Memfd(memfd) => self.redact(&mut memfd.name),
            Detail::Fields(fields) => {
                for value in fields.fields.values_mut().filter(|value| !is_number(value)) {
                    *value = Text::from(self.word(value.as_bytes()));
                }
            }
            Detail::Socket(socket) => {
                let interface = socket.interface.as_deref();
                socket.interface = interface.map(|name| self.word(name.as_bytes()));
                for address in socket.local.iter_mut().chain(&mut socket.remote) {
                    *address = self.word(address.as_bytes());
                }
            }
            // Numbers and words from the kernel.
            Detail::Eventpoll(_)
            | Detail::Eventfd(_)
            | Detail::Timerfd(_)
            | Detail::Signalfd(_)
            | Detail::Watcher(_)
            | Detail::IoUring(_) => {}
        }
        detail
    }

    fn redact(&mut self, path: &mut Text) {
        *path = Text::from(self.path(path.as_bytes()));
    }

    fn inet(&mut self, inet: &mut InetDetail) {
        for address in inet.local.iter_mut().chain(&mut inet.remote) {
            *address = self.address(address);
        }
    }

    /// One entry of a recording.
    pub fn recorded(&mut self, entry: &RecordingEntry) -> RecordingEntry {
        let mut entry = entry.clone();
        match &mut entry {
            RecordingEntry::Process(appearance) => {
                appearance.process = self.process(&appearance.process);
                appearance.select = appearance.select.as_ref().map(|select| self.select(select));
            }
            RecordingEntry::Look { look, .. } => self.look(look),
            RecordingEntry::Gap(gap) => *gap = self.gap(gap),
            RecordingEntry::Gone { .. } | RecordingEntry::End { .. } => {}
        }
        entry
    }

    fn look(&mut self, look: &mut Look) {
        if let Some(process) = &mut look.process {
            **process = self.process(process);
        }
        if let Some(LookChange {
            opened, changed, ..
        }) = &mut look.table
        {
            for sighting in opened.iter_mut().chain(changed) {
                *sighting = self.sighting(sighting);
            }
        }
    }

    /// Its group is derived again, from the redacted name.
    fn sighting(&mut self, sighting: &Sighting) -> Sighting {
        let target = self.target(&sighting.class, &sighting.target);
        let detail = match (&sighting.class, target.as_str()) {
            (Class::Tcp(_) | Class::Udp | Class::Raw, Some(text)) => {
                let ends = text.split_once("->");
                Detail::Inet(Box::new(InetDetail {
                    local: Some(ends.map_or(text, |(local, _)| local).to_owned()),
                    remote: ends.map(|(_, remote)| remote.to_owned()),
                    ..InetDetail::default()
                }))
            }
            _ => Detail::Fields(crate::detail::OtherDetail::default()),
        };
        Sighting::from(&FdEntry {
            fd: sighting.fd,
            class: sighting.class.clone(),
            target,
            mode: None,
            cloexec: None,
            deleted: false,
            detail,
            id: None,
            shared_with: Vec::new(),
            shared_more: 0,
            open_file: None,
            flags: None,
        })
    }

    fn select(&mut self, select: &SelectUse) -> SelectUse {
        match select {
            SelectUse::Imports { objects } => SelectUse::Imports {
                objects: objects
                    .iter()
                    .map(|object| Text::from(self.program(object.as_bytes())))
                    .collect(),
            },
            SelectUse::Absent => SelectUse::Absent,
            SelectUse::Unknown { why } => SelectUse::unknown(self.prose(why)),
        }
    }

    fn relative(&mut self, relative: &Relative) -> Relative {
        Relative {
            comm: self.command(&relative.comm),
            ..relative.clone()
        }
    }

    /// A log line may contain anything: its meaning stays, the line does not.
    fn log(&mut self, log: &LogFile) -> LogFile {
        let mut log = log.clone();
        log.path = Text::from(self.path(log.path.as_bytes()));
        for symptom in &mut log.symptoms {
            symptom.example = None;
        }
        log
    }

    fn gaps(&mut self, gaps: &[Gap]) -> Vec<Gap> {
        gaps.iter().map(|gap| self.gap(gap)).collect()
    }

    fn gap(&mut self, gap: &Gap) -> Gap {
        Gap::new(
            self.prose(&gap.what),
            self.prose(&gap.why),
            self.prose(&gap.remedy),
        )
    }
}

/// `memfd:NAME` or `/memfd:NAME`.
fn memfd_name(target: &[u8]) -> Option<(&[u8], &[u8])> {
    const MARK: &[u8] = b"memfd:";
    let at = target.windows(MARK.len()).position(|part| part == MARK)?;
    (at <= 1).then(|| target.split_at(at + MARK.len()))
}

fn is_number(text: &Text) -> bool {
    let is_usual = |byte: &u8| byte.is_ascii_hexdigit() || b"x:,.- \t".contains(byte);
    text.as_bytes().iter().all(is_usual)
}
