//! `fdguard trace --report PID`, from outside, while the program runs.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use testkit::{Victim, is_root, skip};

use super::tracing::{Tracing, line_of};
use super::{AsNobody, CommandOutput, run};

/// The holder and its child under a tracer.
struct Holder {
    tracing: Tracing,
    parent: String,
    child: String,
}

impl Holder {
    fn start() -> Self {
        let program = testkit::c_variant("holder", "O2", &["-O2", "-g"]).unwrap();
        let mut tracing = Tracing::start(&[], &[program.to_str().unwrap()]);
        let mut pids = BTreeMap::new();
        for _ in 0..2 {
            let line = tracing.line();
            let (who, pid) = line.split_once(' ').unwrap();
            pids.insert(who.to_owned(), pid.to_owned());
        }
        Self {
            tracing,
            parent: pids["parent"].clone(),
            child: pids["child"].clone(),
        }
    }

    /// Ends it and checks that the looks changed nothing.
    fn end(self) {
        let (said, report) = self.tracing.end();
        assert_eq!((said.code, &*said.stderr), (0, ""), "{report}");
        assert!(report.contains("7 live of 7"), "{report}");
    }
}

fn report(pid: &str, more: &[&str]) -> CommandOutput {
    run(["trace", "--report", pid].iter().chain(more))
}

fn is_pid(value: &Value, pid: &str) -> bool {
    value["pid"].as_u64() == pid.parse().ok()
}

fn site<'a>(found: &'a Value, pid: &str, mark: &str) -> Vec<&'a Value> {
    let line = line_of("holder.c", &format!("/* HOLD {mark} */"));
    let sites = found["sites"].as_array().unwrap().iter();
    let wanted = sites.filter(|site| site["culprit"]["line"] == line && is_pid(site, pid));
    wanted.collect()
}

#[test]
fn r18_the_sites_of_a_running_program_and_its_child_are_told_with_class_and_stack() {
    let holder = Holder::start();
    let said = report(&holder.parent, &["--json"]);
    let found = said.good_json();
    assert_eq!(found["schema"], "fdguard.diagnosis/1");
    assert_eq!(found["process"]["pid"].to_string(), holder.parent);
    assert_eq!(found["coverage"]["backend"], "preload");
    let [files] = site(&found, &holder.parent, "files")[..] else {
        panic!("one site: {found}");
    };
    assert_eq!(
        (&files["live"], &files["opened"], &files["class"]),
        (&json!(7), &json!(7), &json!("chardev"))
    );
    assert_eq!(files["target"], "/dev/null");
    assert_eq!(files["culprit"]["function"], "hold_files");
    assert_eq!(files["stack"][1]["function"], "main");
    let fds = files["fds"].as_array().unwrap();
    let listed = testkit::listed(holder.parent.parse().unwrap());
    assert_eq!(fds.len(), 7, "{files}");
    for one in fds {
        let number = u32::try_from(one["fd"].as_u64().unwrap()).unwrap();
        assert!(listed.contains(&number), "{one}");
        assert!(one["generation"].is_u64(), "{one}");
        assert!(one["age_seconds"].as_f64() <= files["oldest_age_seconds"].as_f64());
    }
    let [counters] = site(&found, &holder.child, "counters")[..] else {
        panic!("one site: {found}");
    };
    assert_eq!(
        (&counters["live"], &counters["class"]),
        (&json!(5), &json!("eventfd"))
    );
    // Descriptors that the child inherited keep their line.
    assert_eq!(site(&found, &holder.child, "files")[0]["live"], 7);
    holder.end();
}

#[test]
fn every_descriptor_is_accounted_for() {
    let holder = Holder::start();
    let found = report(&holder.parent, &["--json"]).good_json();
    for (pid, traced) in [(&holder.parent, 7), (&holder.child, 12)] {
        let listed = testkit::listed(pid.parse().unwrap()).len();
        let accounts = found["accounts"].as_array().unwrap();
        let account = accounts.iter().find(|one| is_pid(one, pid));
        let account = account.unwrap_or_else(|| panic!("{pid}: {found}"));
        assert_eq!(account["live"], listed, "{account}");
        assert_eq!(account["traced"], traced, "{account}");
        assert_eq!(account["unseen"], 2, "{account}");
        assert_eq!(account["inherited"], listed - traced - 2, "{account}");
    }
    let gaps = found["gaps"].to_string();
    assert!(gaps.contains("the opening line of 4 descriptors"), "{gaps}");
    holder.end();
}

#[test]
fn the_tracer_a_child_and_a_bare_number_are_as_good() {
    let holder = Holder::start();
    let tracer = holder.tracing.pid().to_string();
    let of_tracer = report(&tracer, &["--json"]).good_json();
    assert_eq!(of_tracer["process"]["pid"].to_string(), holder.parent);
    let of_child = report(&holder.child, &["--json"]).good_json();
    assert_eq!(of_child["process"]["pid"].to_string(), holder.child);
    assert_eq!(site(&of_child, &holder.child, "counters").len(), 1);
    assert_eq!(
        site(&of_child, &holder.parent, "files").len(),
        0,
        "its parent is not its own"
    );
    let bare = run(["trace", &holder.parent]);
    assert_eq!((bare.code, &*bare.stderr), (0, ""));
    let place = format!(
        " s: holder.c:{} hold_files (open, chardev /dev/null)",
        line_of("holder.c", "/* HOLD files */")
    );
    let text = bare.text();
    let site = text.lines().find(|line| line.ends_with(&place));
    let site = site.unwrap_or_else(|| panic!("{text}"));
    assert!(site.starts_with("  7 live of 7, oldest "), "{site}");
    let head = format!("open now in holder-O2 (pid {}):", holder.child);
    assert!(text.contains(&head), "{text}");
    holder.end();
}

#[test]
fn with_a_time_the_report_has_a_verdict() {
    let holder = Holder::start();
    let said = report(
        &holder.parent,
        &["--json", "--for", "2s", "--every", "20ms"],
    );
    let found = said.good_json();
    assert!(found["samples"].as_u64().unwrap() > 2, "{found}");
    assert_eq!(found["ended"], "time-up");
    holder.end();
}

#[test]
fn who_is_not_traced_is_told_in_one_line_with_a_hint() {
    let victim = Victim::start("leaker");
    let pid = victim.pid().to_string();
    let said = report(&pid, &[]);
    assert_eq!((said.code, said.text()), (3, ""));
    let first = format!("fdguard: process {pid} is not traced\nhint: attach to it with ");
    assert!(said.stderr.starts_with(&first), "{}", said.stderr);
    victim.finish();
    let gone = report(&pid, &[]);
    assert_eq!(gone.code, 3);
    assert!(
        gone.stderr
            .starts_with(&format!("fdguard: no process {pid}\nhint: "))
    );
}

#[test]
fn another_users_program_is_told_as_such() {
    if !is_root() {
        return skip("needs root, to be somebody else");
    }
    let holder = Holder::start();
    let nobody = AsNobody::new();
    let said = nobody.run(&["trace", "--report", &holder.parent]);
    assert_eq!((said.code, said.text()), (3, ""));
    let first = format!(
        "fdguard: process {}: permission denied\nhint: ",
        holder.parent
    );
    assert!(said.stderr.starts_with(&first), "{}", said.stderr);
    holder.end();
}

#[test]
fn a_report_and_a_command_are_one_too_many() {
    for words in [
        &["trace", "--report", "1", "--", "true"][..],
        &["trace", "1", "--", "true"],
        &["trace", "./server"],
        &["trace"],
    ] {
        let said = run(words);
        assert_eq!((said.code, said.text()), (2, ""), "{words:?}");
    }
    let forgot = run(["trace", "./server"]);
    assert!(
        forgot.stderr.contains("fdguard trace -- ./server"),
        "{}",
        forgot.stderr
    );
}
