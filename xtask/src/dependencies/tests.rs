use serde_json::{Value, json};

use super::{Deny, Metadata, complaints};

const DENY: &str = r#"
[graph]
targets = ["x86_64-unknown-linux-gnu"]
[licenses]
allow = ["MIT"]
[bans]
deny = [{ crate = "tokio", wrappers = ["ours"], reason = "threads" }]
"#;

fn package(name: &str, source: Option<&str>, license: &str, rust: &str) -> Value {
    json!({"id": name, "name": name, "version": "1.0.0", "license": license, "source": source,
           "rust_version": rust, "dependencies": []})
}

fn registry() -> Option<&'static str> {
    Some(super::REGISTRY[0])
}

/// Our package, which uses tokio, and another one.
fn graph(other: Value) -> Value {
    let id = other["id"].clone();
    json!({
        "packages": [package("ours", None, "MIT", "1.88"), package("tokio", registry(), "MIT", "1.71"), other],
        "resolve": {"nodes": [
            {"id": "ours", "dependencies": ["tokio", id]},
            {"id": "tokio", "dependencies": []},
            {"id": id, "dependencies": []},
        ]},
    })
}

fn found(graph: &Value) -> Vec<String> {
    let deny: Deny = toml::from_str(DENY).unwrap();
    let metadata: Metadata = serde_json::from_value(graph.clone()).unwrap();
    complaints(&deny, &metadata)
}

fn found_with(other: Value) -> Vec<String> {
    found(&graph(other))
}

#[test]
fn what_is_allowed_passes() {
    let other = package("serde", registry(), "MIT OR Apache-2.0", "1.88");
    assert_eq!(found_with(other), [] as [&str; 0]);
}

#[test]
fn a_licence_must_be_allowed_and_an_allowed_one_must_be_needed() {
    let complaints = found_with(package("viral", registry(), "GPL-3.0", "1.0"));
    let expected = r#"viral 1.0.0: licence "GPL-3.0" is not allowed by deny.toml"#;
    assert_eq!(complaints, [expected]);
    let mut graph = graph(package("serde", registry(), "Zlib", "1.0"));
    for package in graph["packages"].as_array_mut().unwrap() {
        package["license"] = json!("Zlib");
    }
    let complaints = found(&graph);
    assert_eq!(complaints.len(), 4);
    assert_eq!(complaints[3], "deny.toml: no package has the licence MIT");
}

#[test]
fn who_uses_a_banned_library_must_be_named() {
    let mut graph = graph(package("sneaky", registry(), "MIT", "1.0"));
    graph["resolve"]["nodes"][2]["dependencies"] = json!(["tokio"]);
    assert_eq!(
        found(&graph),
        ["sneaky uses tokio, which deny.toml bans: threads"]
    );
    graph["resolve"]["nodes"][2]["dependencies"] = json!([]);
    graph["resolve"]["nodes"][0]["dependencies"] = json!(["sneaky"]);
    let stale = "deny.toml: ours does not use tokio: delete the wrapper";
    assert_eq!(found(&graph), [stale]);
}

#[test]
fn a_package_comes_from_the_registry_in_a_given_version() {
    let complaints = found_with(package(
        "fork",
        Some("git+https://example.org/x"),
        "MIT",
        "1.0",
    ));
    assert_eq!(
        complaints,
        ["fork comes from git+https://example.org/x, not from the registry"]
    );
    let mut graph = graph(package("serde", registry(), "MIT", "1.0"));
    graph["packages"][0]["dependencies"] = json!([
        {"name": "serde", "req": "*", "path": null},
        {"name": "testkit", "req": "*", "path": "/x"},
        {"name": "tokio", "req": "^1", "path": null},
    ]);
    assert_eq!(
        found(&graph),
        ["ours: any version of serde: give a version"]
    );
}

#[test]
fn no_package_may_need_a_newer_rust_than_we_declare() {
    let complaints = found_with(package("modern", registry(), "MIT", "1.90.1"));
    assert_eq!(complaints.len(), 1);
    assert!(
        complaints[0].starts_with("modern 1.0.0 needs Rust 1.90.1"),
        "{complaints:?}"
    );
    for version in ["1.9", "1.88", "1.88.0"] {
        let other = package("old", registry(), "MIT", version);
        assert_eq!(found_with(other), [] as [&str; 0], "{version}");
    }
}
