//! Who a process belongs to, in the words that people use: a systemd unit, a container, a pod.

use serde::{Deserialize, Serialize};

/// The owner of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// Its systemd unit.
    #[serde(default)]
    pub unit: Option<String>,
    /// Its container.
    #[serde(default)]
    pub container: Option<ContainerName>,
    /// Its Kubernetes pod.
    #[serde(default)]
    pub pod: Option<PodName>,
}

/// A container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerName {
    /// Its id.
    pub id: String,
    /// Its name; absent where the state of the runtime could not be read.
    pub name: Option<String>,
    /// `docker`, `podman`, `containerd`, `cri-o`, `lxc`, `systemd-nspawn`; absent where unknown.
    pub runtime: Option<String>,
}

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodName {
    /// Its UID.
    pub uid: String,
    /// Its namespace; absent where the logs of pods could not be listed.
    pub namespace: Option<String>,
    /// Its name; absent likewise.
    pub name: Option<String>,
}

/// Digits of an id that people type.
const SHORT: usize = 12;

impl ContainerName {
    /// The name, or the beginning of the id.
    #[must_use]
    pub fn label(&self) -> &str {
        let short = || self.id.get(..SHORT).unwrap_or(&self.id);
        self.name.as_deref().unwrap_or_else(short)
    }

    /// Whether `wanted` is its name or its whole id.
    #[must_use]
    pub fn is(&self, wanted: &str) -> bool {
        self.id == wanted || self.name.as_deref() == Some(wanted)
    }

    /// Whether its id begins with `digits`.
    #[must_use]
    pub fn begins_with(&self, digits: &str) -> bool {
        !digits.is_empty() && self.id.starts_with(digits)
    }
}

/// Processes that people select together. A restart replaces the processes, not the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessGroup {
    /// A container, by its name or its whole id.
    Container(String),
    /// A systemd unit; the suffix `.service` may be left out.
    Unit(String),
    /// A pod.
    Pod(PodSelector),
}

/// A pod, as `NAMESPACE/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSelector {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl PodName {
    /// `NAMESPACE/NAME`, or the UID.
    #[must_use]
    pub fn label(&self) -> String {
        match (&self.namespace, &self.name) {
            (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
            _ => format!("pod {}", self.uid),
        }
    }
}

impl Workload {
    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The most telling name: `pod default/web-0 (nginx)`, `container web`, `web.service`.
    #[must_use]
    pub fn label(&self) -> Option<String> {
        match (&self.pod, &self.container, &self.unit) {
            (Some(pod), container, _) => {
                let name = container.as_ref().and_then(|one| one.name.as_deref());
                let inside = name.map_or_else(String::new, |name| format!(" ({name})"));
                Some(format!(
                    "pod {}{inside}",
                    pod.label().trim_start_matches("pod ")
                ))
            }
            (None, Some(container), _) => Some(format!("container {}", container.label())),
            // A login session says nothing about what runs in it.
            (None, None, unit) => unit.clone().filter(|unit| !unit.starts_with("session-")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ContainerName, PodName, Workload};

    fn container(name: Option<&str>) -> ContainerName {
        ContainerName {
            id: "3f4c1b2a9d8e7f60514233425160718293a4b5c6d7e8f90a1b2c3d4e5f607182".to_owned(),
            name: name.map(str::to_owned),
            runtime: Some("docker".to_owned()),
        }
    }

    #[test]
    fn the_pod_counts_more_than_the_container_and_that_more_than_the_unit() {
        let unit = Some("web.service".to_owned());
        let mut workload = Workload {
            unit,
            ..Workload::default()
        };
        assert_eq!(workload.label().as_deref(), Some("web.service"));
        workload.container = Some(container(None));
        assert_eq!(workload.label().as_deref(), Some("container 3f4c1b2a9d8e"));
        workload.container = Some(container(Some("web")));
        assert_eq!(workload.label().as_deref(), Some("container web"));
        workload.pod = Some(PodName {
            uid: "1234".to_owned(),
            namespace: Some("shop".to_owned()),
            name: Some("cart-0".to_owned()),
        });
        assert_eq!(workload.label().as_deref(), Some("pod shop/cart-0 (web)"));
        workload.pod = Some(PodName {
            uid: "1234".to_owned(),
            ..PodName::default()
        });
        assert_eq!(workload.label().as_deref(), Some("pod 1234 (web)"));
        assert_eq!(Workload::default().label(), None);
        let session = Workload {
            unit: Some("session-4.scope".to_owned()),
            ..Workload::default()
        };
        assert_eq!(session.label(), None);
    }

    #[test]
    fn a_container_is_known_by_its_name_and_by_the_beginning_of_its_id() {
        let web = container(Some("web"));
        assert!(web.is("web") && web.is(&web.id) && web.begins_with("3f4c1b"));
        assert!(!web.is("") && !web.is("we") && !web.is("3f4c1b"));
        assert!(!web.begins_with("") && !web.begins_with("4c1b"));
    }
}
