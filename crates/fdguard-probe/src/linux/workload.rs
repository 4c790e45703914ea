//! Names of units, containers and pods: the cgroup shows ids, the state of the runtimes the names.
//!
//! Nothing is asked of a daemon or an API server: the files are those that Docker, Podman,
//! containerd, CRI-O and kubelet keep on disk. Most of them are readable by root only; then the id
//! is all that is known.

use std::collections::HashMap;
use std::fs;
use std::io::Read as _;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use fdguard_core::host::HostRow;
use fdguard_core::workload::{ContainerName, PodName, PodSelector, ProcessGroup, Workload};
use fdguard_core::{Pid, Text};
use fdguard_proc::cgroup::{self, CgroupContainer, CgroupNames};
use fdguard_proc::{cmdline, environ};

use super::program::ContainerImage;
use super::{Probe, files};
use crate::parse::runtime_state::{self, RuntimeNames};
use crate::{Error, workers};

/// The largest file of a runtime that is read.
const LARGEST: u64 = 16 << 20;
/// Home directories that are searched for containers of users.
const MOST_HOMES: usize = 64;
/// Containers and pods that are remembered; a host that has seen more starts again.
const REMEMBERED: usize = 4096;
/// Rows that a worker names before it takes more.
const CHUNK: usize = 64;

/// The storage drivers of Podman and CRI-O; each has its own list of containers.
const STORAGE_DRIVERS: [&str; 4] = ["overlay", "vfs", "btrfs", "zfs"];

/// Reads names, and remembers those that it found: they do not change while a container exists.
#[derive(Debug)]
pub(super) struct NameReader {
    root: PathBuf,
    known: Mutex<KnownNames>,
}

#[derive(Debug, Default)]
struct KnownNames {
    containers: HashMap<String, RuntimeNames>,
    pods: HashMap<String, (String, String)>,
}

impl NameReader {
    /// Below this directory: `/`, or that of a test.
    pub(super) fn new(root: PathBuf) -> Self {
        Self {
            root,
            known: Mutex::default(),
        }
    }

    /// The names for the content of a `cgroup` file.
    fn workload(&self, cgroup: &[u8]) -> Option<Workload> {
        let names = CgroupNames::parse(cgroup);
        let mut pod = names.pod.map(|uid| {
            let (namespace, name) = self.pod(&uid).unzip();
            PodName {
                uid,
                namespace,
                name,
            }
        });
        let container = names.container.map(|found| {
            let runtime = found.runtime.map(str::to_owned);
            let known = self.container(&found);
            if let (Some(pod), Some((namespace, name))) = (&mut pod, known.pod) {
                pod.namespace.get_or_insert(namespace);
                pod.name.get_or_insert(name);
            }
            ContainerName {
                id: found.id,
                name: known.container,
                runtime,
            }
        });
        let workload = Workload {
            unit: names.unit,
            container,
            pod,
        };
        (!workload.is_empty()).then_some(workload)
    }

    fn pod(&self, uid: &str) -> Option<(String, String)> {
        if let Some(known) = self.lock().pods.get(uid) {
            return Some(known.clone());
        }
        let dirs = names_in(&self.root.join("var/log/pods"));
        let found = dirs
            .iter()
            .find_map(|dir| runtime_state::pod_log_dir(dir, uid))?;
        let mut known = self.lock();
        if known.pods.len() >= REMEMBERED {
            known.pods.clear();
        }
        known.pods.insert(uid.to_owned(), found.clone());
        Some(found)
    }

    fn container(&self, container: &CgroupContainer) -> RuntimeNames {
        if matches!(container.runtime, Some("lxc" | "systemd-nspawn")) {
            return RuntimeNames::from_name(&container.id);
        }
        if let Some(known) = self.lock().containers.get(&container.id) {
            return known.clone();
        }
        let Some(found) = self.look_up(&container.id) else {
            return RuntimeNames::default();
        };
        let mut known = self.lock();
        if known.containers.len() >= REMEMBERED {
            known.containers.clear();
        }
        known.containers.insert(container.id.clone(), found.clone());
        found
    }

    /// In the files of every runtime: the path of a cgroup does not always name it.
    fn look_up(&self, id: &str) -> Option<RuntimeNames> {
        let docker = format!("var/lib/docker/containers/{id}/config.v2.json");
        let by_docker = || runtime_state::docker_config(&self.read(&docker)?);
        let bundle = |path: String| runtime_state::bundle_config(&self.read(&path)?);
        let by_containerd = || {
            let tasks = "run/containerd/io.containerd.runtime.v2.task";
            let namespaces = names_in(&self.root.join(tasks));
            let bundles = namespaces.iter();
            let mut bundles = bundles.map(|one| format!("{tasks}/{one}/{id}/config.json"));
            bundles.find_map(bundle)
        };
        let by_crio = || {
            STORAGE_DRIVERS.iter().find_map(|driver| {
                let dir = format!("run/containers/storage/{driver}-containers");
                bundle(format!("{dir}/{id}/userdata/config.json"))
            })
        };
        let by_kubelet = || {
            let links = names_in(&self.root.join("var/log/containers"));
            let mut links = links.iter();
            links.find_map(|link| runtime_state::container_log_link(link, id))
        };
        by_docker()
            .or_else(by_containerd)
            .or_else(by_crio)
            .or_else(|| self.in_storage(id))
            .or_else(by_kubelet)
    }

    /// In the lists of Podman and CRI-O: of the system, and of each user.
    fn in_storage(&self, id: &str) -> Option<RuntimeNames> {
        let homes = names_in(&self.root.join("home"));
        let homes = homes.iter().take(MOST_HOMES);
        let users = homes.map(|user| format!("home/{user}/.local/share/containers/storage"));
        let mut places = ["var/lib/containers/storage", "run/containers/storage"]
            .map(str::to_owned)
            .into_iter()
            .chain(["root/.local/share/containers/storage".to_owned()])
            .chain(users);
        places.find_map(|place| {
            let drivers = STORAGE_DRIVERS.iter();
            let files = drivers.flat_map(|driver| {
                ["containers.json", "volatile-containers.json"]
                    .map(|file| format!("{place}/{driver}-containers/{file}"))
            });
            let mut lists = files.filter_map(|file| {
                let list = self.read(&file)?;
                runtime_state::storage_containers(&list, id)
            });
            lists.next()
        })
    }

    fn read(&self, path: &str) -> Option<Vec<u8>> {
        let file = fs::File::open(self.root.join(path)).ok()?;
        let mut bytes = Vec::new();
        file.take(LARGEST).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, KnownNames> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The workload of the last process: neighbours mostly have the same.
#[derive(Debug, Default)]
struct LastWorkload {
    cgroup: Vec<u8>,
    workload: Option<Box<Workload>>,
}

impl LastWorkload {
    fn find(&mut self, names: &NameReader, cgroup: &[u8]) -> Option<Box<Workload>> {
        if self.cgroup != cgroup {
            self.workload = names.workload(cgroup).map(Box::new);
            cgroup.clone_into(&mut self.cgroup);
        }
        self.workload.clone()
    }
}

/// The names in a directory; none if it cannot be listed.
fn names_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().into_string());
    names.filter_map(Result::ok).collect()
}

impl Probe {
    /// The systemd unit, the container and the pod of a process; `None` where its cgroup shows
    /// none.
    #[must_use]
    pub fn workload(&self, pid: Pid) -> Option<Workload> {
        let cgroup = files::read(&self.proc, format!("{pid}/cgroup")).ok()?;
        self.names.workload(&cgroup)
    }

    /// The same through the open directory of a process.
    pub(super) fn workload_at(&self, base: BorrowedFd<'_>) -> Option<Workload> {
        let cgroup = files::read(base, c"cgroup").ok()?;
        self.names.workload(&cgroup)
    }

    /// The image of a process's container, where the runtime's files have its id.
    #[must_use]
    pub fn image(&self, pid: Pid) -> ContainerImage {
        let Ok(cgroup) = files::read(&self.proc, format!("{pid}/cgroup")) else {
            return ContainerImage::Unknown;
        };
        match CgroupNames::parse(&cgroup).container {
            None => ContainerImage::Outside,
            Some(container) => match self.names.container(&container).image {
                None => ContainerImage::Unknown,
                Some(id) => ContainerImage::Id(id),
            },
        }
    }

    /// Adds names to the rows of a scan. One more file is read for each, on every core.
    pub fn name_rows(&self, rows: &mut [HostRow]) {
        let threads = workers::cores().min(rows.len() / CHUNK + 1);
        let chunks = Mutex::new(rows.chunks_mut(CHUNK));
        let next = || chunks.lock().unwrap_or_else(PoisonError::into_inner).next();
        workers::run(threads, || {
            let mut last = LastWorkload::default();
            let mut buffer = Vec::new();
            while let Some(rows) = next() {
                for row in rows {
                    row.workload =
                        files::read_into(&self.proc, format!("{}/cgroup", row.pid), &mut buffer)
                            .ok()
                            .and_then(|cgroup| last.find(&self.names, cgroup));
                }
            }
        });
    }

    /// The containers that people may mean: the one with this name or id, else those whose id
    /// begins so. None if no process is in such a container.
    pub fn containers(&self, wanted: &str) -> Result<Vec<ProcessGroup>, Error> {
        let mut beginnings = Vec::new();
        for pid in self.pids()? {
            let container = self.workload(pid).and_then(|one| one.container);
            let Some(container) = container else { continue };
            if container.is(wanted) {
                return Ok(vec![ProcessGroup::Container(wanted.to_owned())]);
            }
            if container.begins_with(wanted) {
                let group = ProcessGroup::Container(container.id);
                if !beginnings.contains(&group) {
                    beginnings.push(group);
                }
            }
        }
        Ok(beginnings)
    }

    /// Processes of a group, without fdguard itself.
    pub fn in_group(&self, group: &ProcessGroup) -> Result<Vec<Pid>, Error> {
        let own = std::process::id();
        let is_in = |pid: &Pid| *pid != own && self.is_in_group(*pid, group);
        Ok(self.pids()?.into_iter().filter(is_in).collect())
    }

    /// Whether a process belongs to a group.
    #[must_use]
    pub fn is_in_group(&self, pid: Pid, group: &ProcessGroup) -> bool {
        match group {
            ProcessGroup::Unit(unit) => {
                let cgroups = files::read(&self.proc, format!("{pid}/cgroup"));
                cgroup::is_of_unit(&cgroups.unwrap_or_default(), unit)
            }
            ProcessGroup::Container(wanted) => {
                let container = self.workload(pid).and_then(|one| one.container);
                container.is_some_and(|one| one.is(wanted))
            }
            ProcessGroup::Pod(PodSelector { namespace, name }) => {
                let pod = self.workload(pid).and_then(|one| one.pod);
                pod.is_some_and(|pod| {
                    pod.namespace.as_ref() == Some(namespace) && pod.name.as_ref() == Some(name)
                })
            }
        }
    }
}

impl Probe {
    /// The arguments of a process; `None` if they cannot be read.
    #[must_use]
    pub fn arguments(&self, pid: Pid) -> Option<Vec<Text>> {
        let bytes = files::read(&self.proc, format!("{pid}/cmdline")).ok()?;
        Some(cmdline::arguments(&bytes).map(Text::from).collect())
    }

    /// A variable of the environment that a process was started with; `None` if it is not set or
    /// cannot be read.
    #[must_use]
    pub fn variable(&self, pid: Pid, name: &str) -> Option<Text> {
        let bytes = files::read_pieces(&self.proc, format!("{pid}/environ")).ok()?;
        environ::values(&bytes, name).next().map(Text::from)
    }
}
