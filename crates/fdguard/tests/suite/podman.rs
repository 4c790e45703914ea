//! A real container under its name: in every table, and under `serve`.

use serde_json::Value;
use testkit::PodmanContainer;

use super::run;
use super::serve::ServeProcess;
use super::serve_series::assert_one_series;

#[test]
fn a_podman_container_is_selected_by_name_and_served() {
    let name = format!("fdguard-podman-{}", std::process::id());
    let mut container = match PodmanContainer::start(&name) {
        Ok(container) => container,
        Err(why) => return testkit::skip(&why),
    };
    let pid = Value::from(container.pid());
    let selected = ["--json", "--container", &name];
    let snap = run([&["snap"], &selected[..]].concat()).good_json();
    assert_eq!(snap["process"]["pid"], pid);
    assert_eq!(
        snap["process"]["workload"]["container"]["name"],
        name.as_str()
    );
    let watch = ["watch", "--for", "500ms", "--every", "50ms"];
    let watch = run([&watch[..], &selected].concat()).json();
    assert_eq!(watch["process"]["pid"], pid);
    let top = run([&["top"], &selected[..]].concat()).json();
    let pids = top["processes"].as_array().unwrap().iter();
    let pids: Vec<&Value> = pids.map(|row| &row["pid"]).collect();
    assert_eq!(pids, [&pid]);
    let served = ServeProcess::start();
    let service = testkit::wait_for("the container as a service", || {
        let overview = served.overview();
        let mut services = overview["services"].as_array()?.iter();
        services.find(|one| one["name"] == name.as_str()).cloned()
    });
    assert_eq!(service["kind"], "container");
    assert_eq!(service["processes"], 1);
    assert_eq!(service["workload"]["container"]["id"], container.id());
    // A new process is asked for its service twice.
    let ticks = || served.overview()["own"]["ticks"].as_u64().unwrap();
    let before = ticks();
    testkit::wait_until("its second scan", || ticks() >= before + 3);
    // Another container under the same name continues its series.
    let id = container.id().to_owned();
    container.replace().unwrap();
    assert_ne!(container.id(), id);
    let (next, all) = testkit::wait_for("the next container", || {
        let overview = served.overview();
        let all = overview["services"].as_array()?;
        let own = |one: &&Value| one["name"].as_str().is_some_and(|it| it.contains(&name));
        let all: Vec<Value> = all.iter().filter(own).cloned().collect();
        let is_it = |one: &&Value| one["workload"]["container"]["id"] == container.id();
        let next = all.iter().find(is_it)?.clone();
        Some((next, all.len()))
    });
    assert_eq!((next["name"].as_str(), all), (Some(&*name), 1), "{next}");
    assert_eq!(next["restarts"], 1, "{next}");
    assert_one_series(served, &name, "container");
}
