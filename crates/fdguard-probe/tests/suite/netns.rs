//! Sockets of another network namespace, with and without privilege.

use serde_json::{Value, json};
use testkit::{NOBODY, Victim, is_root, skip};

use super::nobody::{Nobody, answer, asked, pid_of};
use super::{assert_exact, assert_says_the_same, document, look, record};

fn sockets(document: &Value) -> impl Iterator<Item = &Value> {
    let fds = document["fds"].as_array().unwrap().iter();
    fds.filter(|fd| !fd["detail"]["netns"].is_null())
}

fn gaps_about<'d>(document: &'d Value, word: &str) -> Vec<&'d Value> {
    let gaps = document["gaps"].as_array().unwrap().iter();
    gaps.filter(|gap| gap["what"].as_str().unwrap().contains(word))
        .collect()
}

#[test]
fn sockets_of_another_network_namespace_are_told_as_in_their_own() {
    if !is_root() {
        return skip("needs root");
    }
    let victim = Victim::start("outsider");
    let document = assert_exact(&victim);
    let namespace = &victim.line()["namespace"];
    assert_eq!(sockets(&document).count(), victim.holdings().len() - 3);
    for socket in sockets(&document) {
        assert_eq!(&socket["detail"]["netns"], namespace, "{socket}");
    }
    // What only the tables of that namespace have: queues and the other end of a pair.
    let listener = victim.holding("listener").unwrap().fd;
    assert_eq!(record(&document, listener)["detail"]["rx_queue"], 0);
    let one = victim.holding("one end").unwrap().fd;
    let other = victim.holding("other end").unwrap().fd;
    let holders = &record(&document, one)["detail"]["peer"]["holders"];
    assert_eq!(holders, &json!([{"pid": victim.pid(), "fd": other}]));
    assert_eq!(document["gaps"], json!([]));
    let lints = document["lints"].to_string();
    assert!(!lints.contains("unbound-socket-pile"), "{lints}");
    victim.finish();
}

#[test]
fn nobody_is_told_by_the_sockets_themselves_and_what_is_missing() {
    if let Some(pid) = asked() {
        return answer(&document(&look(pid_of(&pid))));
    }
    if !is_root() {
        return skip("needs root");
    }
    let victim = Victim::of("outsider").arg(NOBODY.to_string()).start();
    let test = "nobody_is_told_by_the_sockets_themselves_and_what_is_missing";
    let document = Nobody::run_in("netns", test, &victim.pid().into()).hear();
    assert_says_the_same(&document, victim.holdings());
    let gaps = gaps_about(&document, "queues and peers of");
    assert_eq!(gaps.len(), 1, "{}", document["gaps"]);
    let listener = victim.holding("listener").unwrap().fd;
    assert_eq!(
        record(&document, listener)["detail"]["rx_queue"],
        json!(null)
    );
    victim.finish();
}
