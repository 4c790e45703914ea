//! What container runtimes and kubelet write about their containers: names for ids.

use serde::Deserialize;
use serde_json::Value;

/// Names that a runtime's files give to a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeNames {
    /// The container's name.
    pub container: Option<String>,
    /// The namespace and the name of its pod.
    pub pod: Option<(String, String)>,
    /// The id of the container's image.
    pub image: Option<String>,
}

impl RuntimeNames {
    /// A container's name; kubelet with Docker and CRI-O writes the pod into it:
    /// `k8s_CONTAINER_POD_NAMESPACE_UID_ATTEMPT`.
    #[must_use]
    pub fn from_name(name: &str) -> Self {
        let parts: Vec<&str> = name.split('_').collect();
        match parts.as_slice() {
            ["k8s", container, pod, namespace, _uid, _attempt] => Self {
                container: Some((*container).to_owned()),
                pod: Some(((*namespace).to_owned(), (*pod).to_owned())),
                image: None,
            },
            _ => Self {
                container: (!name.is_empty()).then(|| name.to_owned()),
                pod: None,
                image: None,
            },
        }
    }
}

/// `config.v2.json` of Docker.
#[must_use]
pub fn docker_config(bytes: &[u8]) -> Option<RuntimeNames> {
    #[derive(Deserialize)]
    struct Config {
        #[serde(rename = "Name")]
        name: String,
        #[serde(rename = "Image", default)]
        image: Option<String>,
    }
    let config: Config = serde_json::from_slice(bytes).ok()?;
    Some(RuntimeNames {
        image: config.image,
        ..RuntimeNames::from_name(config.name.trim_start_matches('/'))
    })
}

/// `containers.json` of Podman and CRI-O: the names of the container with this id.
#[must_use]
pub fn storage_containers(bytes: &[u8], id: &str) -> Option<RuntimeNames> {
    #[derive(Deserialize)]
    struct Entry {
        id: String,
        #[serde(default)]
        names: Vec<String>,
        #[serde(default)]
        image: Option<String>,
    }
    let entries: Vec<Entry> = serde_json::from_slice(bytes).ok()?;
    let entry = entries.into_iter().find(|entry| entry.id == id)?;
    Some(RuntimeNames {
        image: entry.image.filter(|id| !id.is_empty()),
        ..RuntimeNames::from_name(entry.names.first()?)
    })
}

/// `config.json` of an OCI bundle: containerd, CRI-O and nerdctl write names as annotations.
#[must_use]
pub fn bundle_config(bytes: &[u8]) -> Option<RuntimeNames> {
    let config: Value = serde_json::from_slice(bytes).ok()?;
    let annotations = config.get("annotations")?.as_object()?;
    let first = |keys: &[&str]| {
        let mut values = keys
            .iter()
            .filter_map(|key| annotations.get(*key)?.as_str());
        values.next().map(str::to_owned)
    };
    let namespace = first(&[
        "io.kubernetes.cri.sandbox-namespace",
        "io.kubernetes.pod.namespace",
    ]);
    let pod = first(&["io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name"]);
    let names = RuntimeNames {
        container: first(&[
            "io.kubernetes.cri.container-name",
            "io.kubernetes.container.name",
            "nerdctl/name",
        ]),
        pod: namespace.zip(pod),
        image: first(&["io.kubernetes.cri-o.ImageRef"]),
    };
    (names != RuntimeNames::default()).then_some(names)
}

/// A directory of `/var/log/pods`, `NAMESPACE_NAME_UID`: the namespace and the name of the pod with
/// this UID.
#[must_use]
pub fn pod_log_dir(dir: &str, uid: &str) -> Option<(String, String)> {
    let rest = dir.strip_suffix(uid)?.strip_suffix('_')?;
    let (namespace, name) = rest.split_once('_')?;
    let is_name = !namespace.is_empty() && !name.is_empty() && !name.contains('_');
    is_name.then(|| (namespace.to_owned(), name.to_owned()))
}

/// A link of `/var/log/containers`, `POD_NAMESPACE_CONTAINER-ID.log`: the names of the container
/// with this id.
#[must_use]
pub fn container_log_link(link: &str, id: &str) -> Option<RuntimeNames> {
    let stem = link.strip_suffix(".log")?.strip_suffix(id)?;
    let stem = stem.strip_suffix('-')?;
    let parts: Vec<&str> = stem.split('_').collect();
    let [pod, namespace, container] = parts.as_slice() else {
        return None;
    };
    Some(RuntimeNames {
        container: Some((*container).to_owned()),
        pod: Some(((*namespace).to_owned(), (*pod).to_owned())),
        image: None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        RuntimeNames, bundle_config, container_log_link, docker_config, pod_log_dir,
        storage_containers,
    };

    fn names(container: &str, pod: Option<(&str, &str)>) -> RuntimeNames {
        RuntimeNames {
            container: Some(container.to_owned()),
            pod: pod.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())),
            image: None,
        }
    }

    #[test]
    fn docker_writes_a_slash_before_the_name() {
        let config = br#"{"ID":"3f4c","Name":"/web","State":{"Running":true}}"#;
        assert_eq!(docker_config(config), Some(names("web", None)));
        let of_kubelet = br#"{"Name":"/k8s_nginx_web-0_shop_1234-5678_2"}"#;
        let expected = names("nginx", Some(("shop", "web-0")));
        assert_eq!(docker_config(of_kubelet), Some(expected));
        assert_eq!(docker_config(b"{\"Name\":"), None, "cut in the middle");
    }

    #[test]
    fn docker_and_podman_write_the_id_of_the_image() {
        let docker = br#"{"Name":"/web","Image":"sha256:11aa"}"#;
        let image = docker_config(docker).unwrap().image;
        assert_eq!(image.as_deref(), Some("sha256:11aa"));
        let podman = br#"[{"id":"aa","names":["web"],"image":"22bb"},
            {"id":"bb","names":["root"],"image":""}]"#;
        let image = |id| storage_containers(podman, id).unwrap().image;
        assert_eq!(image("aa").as_deref(), Some("22bb"));
        assert_eq!(image("bb"), None, "made from a directory");
    }

    #[test]
    fn podman_and_crio_keep_one_list() {
        let list = br#"[{"id":"aa","names":["web"]},{"id":"bb","names":["k8s_c_p_n_u_0"],
            "metadata":"{}"},{"id":"cc"}]"#;
        assert_eq!(storage_containers(list, "aa"), Some(names("web", None)));
        let of_kubelet = names("c", Some(("n", "p")));
        assert_eq!(storage_containers(list, "bb"), Some(of_kubelet));
        assert_eq!(storage_containers(list, "cc"), None);
        assert_eq!(storage_containers(list, "dd"), None);
    }

    #[test]
    fn containerd_annotates_the_bundle() {
        let bundle = br#"{"ociVersion":"1.1.0","annotations":{
            "io.kubernetes.cri.container-name":"nginx",
            "io.kubernetes.cri.sandbox-name":"web-0",
            "io.kubernetes.cri.sandbox-namespace":"shop"}}"#;
        let expected = names("nginx", Some(("shop", "web-0")));
        assert_eq!(bundle_config(bundle), Some(expected.clone()));
        let crio = br#"{"annotations":{"io.kubernetes.container.name":"nginx",
            "io.kubernetes.pod.name":"web-0","io.kubernetes.pod.namespace":"shop"}}"#;
        assert_eq!(bundle_config(crio), Some(expected));
        let nerdctl = br#"{"annotations":{"nerdctl/name":"db"}}"#;
        assert_eq!(bundle_config(nerdctl), Some(names("db", None)));
        assert_eq!(bundle_config(br#"{"annotations":{}}"#), None);
        assert_eq!(bundle_config(b"{}"), None);
    }

    #[test]
    fn kubelet_names_directories_of_logs() {
        let uid = "12345678-90ab-cdef-1234-567890abcdef";
        let dir = format!("shop_web-0_{uid}");
        let expected = Some(("shop".to_owned(), "web-0".to_owned()));
        assert_eq!(pod_log_dir(&dir, uid), expected);
        for wrong in [format!("shop_{uid}"), uid.to_owned(), format!("_x_{uid}")] {
            assert_eq!(pod_log_dir(&wrong, uid), None, "{wrong}");
        }
        assert_eq!(
            container_log_link("web-0_shop_nginx-3f4c.log", "3f4c"),
            Some(names("nginx", Some(("shop", "web-0"))))
        );
        assert_eq!(container_log_link("web-0_shop_nginx-3f4c.log", "4c"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(bytes: Vec<u8>, text: String) {
            drop((docker_config(&bytes), storage_containers(&bytes, &text)));
            drop((bundle_config(&bytes), RuntimeNames::from_name(&text)));
            drop((pod_log_dir(&text, "u"), container_log_link(&text, "i")));
        }
    }
}
