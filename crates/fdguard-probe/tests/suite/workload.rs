//! Names of units, containers and pods, from trees shaped like those of the runtimes.

use fdguard_core::workload::{PodSelector, ProcessGroup, Workload};
use fdguard_probe::{ContainerImage, Options, Probe, Radar};
use testkit::{FakeProc, PodmanContainer};

const WEB: &str = "3f4c1b2a9d8e7f60514233425160718293a4b5c6d7e8f90a1b2c3d4e5f607182";
const DB: &str = "aa4c1b2a9d8e7f60514233425160718293a4b5c6d7e8f90a1b2c3d4e5f607182";
const CACHE: &str = "bb4c1b2a9d8e7f60514233425160718293a4b5c6d7e8f90a1b2c3d4e5f607182";
const POD: &str = "12345678-90ab-cdef-1234-567890abcdef";

/// A process in this cgroup.
fn add(tree: &mut FakeProc, pid: u32, cgroup: &str) {
    let _process = tree.process(pid).file("cgroup", format!("{cgroup}\n"));
}

fn probe(tree: &FakeProc) -> Probe {
    Probe::at(tree.root()).unwrap()
}

fn label(tree: &FakeProc, pid: u32) -> Option<String> {
    probe(tree).workload(pid).as_ref().and_then(Workload::label)
}

#[test]
fn the_name_of_a_container_is_read_where_its_runtime_keeps_it() {
    let mut tree = FakeProc::new();
    add(
        &mut tree,
        10,
        &format!("0::/system.slice/docker-{WEB}.scope"),
    );
    tree.file(
        &format!("var/lib/docker/containers/{WEB}/config.v2.json"),
        r#"{"Name":"/web"}"#,
    );
    add(
        &mut tree,
        11,
        &format!("0::/machine.slice/libpod-{DB}.scope/container"),
    );
    tree.file(
        "var/lib/containers/storage/overlay-containers/containers.json",
        format!(r#"[{{"id":"{DB}","names":["db"]}}]"#),
    );
    add(
        &mut tree,
        12,
        &format!("0::/user.slice/user-7.slice/libpod-{CACHE}.scope"),
    );
    tree.file(
        "home/ann/.local/share/containers/storage/overlay-containers/containers.json",
        format!(r#"[{{"id":"{CACHE}","names":["cache"]}}]"#),
    );
    assert_eq!(label(&tree, 10).as_deref(), Some("container web"));
    assert_eq!(label(&tree, 11).as_deref(), Some("container db"));
    assert_eq!(label(&tree, 12).as_deref(), Some("container cache"));
    let snapshot = probe(&tree).snapshot(10, Options::default()).unwrap();
    assert_eq!(snapshot.process.container.as_deref(), Some(WEB));
    let workload = snapshot.process.workload.unwrap();
    assert_eq!(
        workload.container.unwrap().runtime.as_deref(),
        Some("docker")
    );
}

#[test]
fn podman_keeps_a_list_of_containers_for_each_storage_driver() {
    for driver in ["overlay", "vfs", "btrfs", "zfs"] {
        let mut tree = FakeProc::new();
        add(&mut tree, 10, &format!("0::/libpod_parent/libpod-{DB}"));
        tree.file(
            &format!("var/lib/containers/storage/{driver}-containers/containers.json"),
            format!(r#"[{{"id":"{DB}","names":["db"]}}]"#),
        );
        assert_eq!(
            label(&tree, 10).as_deref(),
            Some("container db"),
            "{driver}"
        );
    }
}

#[test]
fn cri_o_keeps_a_bundle_of_each_container_for_each_storage_driver() {
    for driver in ["overlay", "vfs", "btrfs", "zfs"] {
        let mut tree = FakeProc::new();
        add(&mut tree, 10, &format!("0::/kubepods/pod{POD}/crio-{WEB}"));
        let dir = format!("run/containers/storage/{driver}-containers/{WEB}/userdata");
        tree.file(
            &format!("{dir}/config.json"),
            r#"{"annotations":{"io.kubernetes.container.name":"nginx",
                "io.kubernetes.pod.name":"cart-0","io.kubernetes.pod.namespace":"shop"}}"#,
        );
        let named = Some("pod shop/cart-0 (nginx)");
        assert_eq!(label(&tree, 10).as_deref(), named, "{driver}");
    }
}

#[test]
fn without_the_state_of_the_runtime_the_id_is_what_is_known() {
    let mut tree = FakeProc::new();
    add(&mut tree, 10, &format!("0::/docker/{WEB}"));
    assert_eq!(label(&tree, 10).as_deref(), Some("container 3f4c1b2a9d8e"));
    let path = format!("var/lib/docker/containers/{WEB}/config.v2.json");
    tree.file(&path, "{\"Name\": half of a fi");
    assert_eq!(label(&tree, 10).as_deref(), Some("container 3f4c1b2a9d8e"));
}

#[test]
fn a_pod_is_named_by_the_directories_of_its_logs() {
    let systemd = POD.replace('-', "_");
    let slice = format!("kubepods-burstable-pod{systemd}.slice");
    for cgroup in [
        format!("0::/kubepods.slice/kubepods-burstable.slice/{slice}/cri-containerd-{WEB}.scope"),
        format!("0::/kubepods.slice/kubepods-burstable.slice/{slice}/crio-{WEB}.scope"),
        format!("0::/kubepods/burstable/pod{POD}/{WEB}"),
        format!("9:pids:/kubepods/pod{POD}/{WEB}\n1:name=systemd:/kubepods/pod{POD}/{WEB}"),
    ] {
        let mut tree = FakeProc::new();
        add(&mut tree, 10, &cgroup);
        assert_eq!(
            label(&tree, 10).as_deref(),
            Some(&*format!("pod {POD}")),
            "{cgroup}"
        );
        tree.file(&format!("var/log/pods/shop_cart-0_{POD}/nginx/0.log"), "");
        assert_eq!(
            label(&tree, 10).as_deref(),
            Some("pod shop/cart-0"),
            "{cgroup}"
        );
        tree.file(
            &format!("var/log/containers/cart-0_shop_nginx-{WEB}.log"),
            "",
        );
        let named = Some("pod shop/cart-0 (nginx)");
        assert_eq!(label(&tree, 10).as_deref(), named, "{cgroup}");
    }
}

#[test]
fn containerd_names_pod_and_container_in_its_bundle() {
    let mut tree = FakeProc::new();
    add(
        &mut tree,
        10,
        &format!("0::/kubepods/besteffort/pod{POD}/{WEB}"),
    );
    tree.file(
        &format!("run/containerd/io.containerd.runtime.v2.task/k8s.io/{WEB}/config.json"),
        r#"{"annotations":{"io.kubernetes.cri.container-name":"nginx",
            "io.kubernetes.cri.sandbox-name":"cart-0",
            "io.kubernetes.cri.sandbox-namespace":"shop"}}"#,
    );
    assert_eq!(label(&tree, 10).as_deref(), Some("pod shop/cart-0 (nginx)"));
}

/// The processes of the containers that people may mean.
fn in_container(probe: &Probe, wanted: &str) -> Vec<u32> {
    let groups = probe.containers(wanted).unwrap();
    let found = groups.iter().map(|group| probe.in_group(group).unwrap());
    found.flatten().collect()
}

#[test]
fn the_name_of_a_container_counts_more_than_ids_that_begin_so() {
    let mut tree = FakeProc::new();
    add(&mut tree, 10, &format!("0::/docker/{DB}"));
    add(&mut tree, 11, &format!("0::/docker/{WEB}"));
    tree.file(
        &format!("var/lib/docker/containers/{WEB}/config.v2.json"),
        r#"{"Name":"/aa"}"#,
    );
    let probe = probe(&tree);
    assert_eq!(in_container(&probe, "aa"), [11]);
    assert_eq!(in_container(&probe, "aa4"), [10]);
}

#[test]
fn processes_are_selected_by_container_unit_and_pod() {
    let mut tree = FakeProc::new();
    add(&mut tree, 10, &format!("0::/docker/{WEB}"));
    add(&mut tree, 11, &format!("0::/docker/{DB}"));
    add(&mut tree, 12, "0::/system.slice/web.service/worker");
    add(&mut tree, 13, &format!("0::/kubepods/pod{POD}/{CACHE}"));
    add(&mut tree, 14, "0::/");
    tree.file(
        &format!("var/lib/docker/containers/{WEB}/config.v2.json"),
        r#"{"Name":"/web"}"#,
    );
    tree.file(&format!("var/log/pods/shop_cart-0_{POD}/x/0.log"), "");
    let probe = probe(&tree);
    assert_eq!(in_container(&probe, "web"), [10]);
    assert_eq!(in_container(&probe, "3f4c"), [10]);
    assert_eq!(in_container(&probe, "aa4c"), [11]);
    assert!(in_container(&probe, "").is_empty());
    assert!(in_container(&probe, "nobody").is_empty());
    let found = |group: ProcessGroup| probe.in_group(&group).unwrap();
    assert_eq!(found(ProcessGroup::Unit("web".to_owned())), [12]);
    let pod = |namespace: &str| {
        ProcessGroup::Pod(PodSelector {
            namespace: namespace.to_owned(),
            name: "cart-0".to_owned(),
        })
    };
    assert_eq!(found(pod("shop")), [13]);
    assert!(found(pod("other")).is_empty());
    let mut view = Radar::new().scan(&probe).unwrap();
    probe.name_rows(&mut view.rows);
    let named = view.rows.iter().filter(|row| row.workload.is_some());
    assert_eq!(
        named.map(|row| row.pid).collect::<Vec<_>>(),
        [10, 11, 12, 13]
    );
}

#[test]
fn each_of_many_rows_has_the_name_of_its_own_process() {
    let mut tree = FakeProc::new();
    // Neighbours are alike, and those after them are not.
    let unit = |pid: u32| format!("unit-{}.service", pid / 3);
    for pid in 1000..1500 {
        add(&mut tree, pid, &format!("0::/system.slice/{}", unit(pid)));
    }
    let probe = probe(&tree);
    let mut view = Radar::new().scan(&probe).unwrap();
    probe.name_rows(&mut view.rows);
    assert_eq!(view.rows.len(), 500);
    for row in &view.rows {
        let found = row.workload.as_ref().and_then(|one| one.unit.clone());
        assert_eq!(found, Some(unit(row.pid)), "{}", row.pid);
    }
}

#[test]
fn files_are_found_where_the_process_sees_them() {
    let mut tree = FakeProc::new();
    add(&mut tree, 10, &format!("0::/docker/{WEB}"));
    tree.file("inside/srv/v1/app.py", "1");
    let at = |path: &str| tree.root().join(path);
    std::os::unix::fs::symlink("/srv/v1", at("inside/srv/current")).unwrap();
    std::os::unix::fs::symlink(at("inside"), at("10/root")).unwrap();
    std::os::unix::fs::symlink(at("inside/srv"), at("10/cwd")).unwrap();
    let probe = probe(&tree);
    let found = probe.file_of(10, "/srv/v1/app.py").unwrap();
    assert_eq!(found.size, 1);
    assert_eq!(probe.file_of(10, "/srv/current/app.py"), Some(found));
    assert_eq!(probe.file_of(10, "v1/app.py"), Some(found));
    assert_eq!(probe.file_of(10, "/srv"), None, "a directory");
    assert_eq!(
        probe.file_of(10, "/etc/hostname"),
        None,
        "outside of its root"
    );
}

#[test]
fn the_image_of_a_container_is_known_where_its_runtime_says() {
    let mut tree = FakeProc::new();
    add(&mut tree, 10, &format!("0::/docker/{WEB}"));
    add(&mut tree, 11, &format!("0::/docker/{DB}"));
    add(&mut tree, 12, "0::/system.slice/web.service");
    tree.file(
        &format!("var/lib/docker/containers/{WEB}/config.v2.json"),
        r#"{"Name":"/web","Image":"sha256:11aa"}"#,
    );
    let probe = probe(&tree);
    assert_eq!(
        probe.image(10),
        ContainerImage::Id("sha256:11aa".to_owned())
    );
    assert_eq!(probe.image(11), ContainerImage::Unknown);
    assert_eq!(probe.image(12), ContainerImage::Outside);
}

#[test]
fn a_container_of_podman_has_the_name_that_podman_gave_it() {
    let name = format!("fdguard-names-{}", std::process::id());
    let container = match PodmanContainer::start(&name) {
        Ok(container) => container,
        Err(why) => return testkit::skip(&why),
    };
    let probe = Probe::new().unwrap();
    let pid = container.pid();
    assert_eq!(in_container(&probe, &name), [pid]);
    assert_eq!(in_container(&probe, &container.id()[..12]), [pid]);
    let workload = probe.workload(pid).unwrap().container.unwrap();
    assert_eq!(workload.id, container.id());
    assert_eq!(workload.name, Some(name));
    assert!(matches!(probe.image(pid), ContainerImage::Id(_)));
}
