//! Units written by the command, the recipes of the guide, and traps found in files.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use fdguard::unit::{UnitTarget, lint};
use testkit::{have, skip};

use super::{CommandOutput, fdguard, run};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn example(name: &str) -> PathBuf {
    root().join("docs/examples/supervisors").join(name)
}

/// The arguments that generated the recipes.
const RECIPES: [(&str, &[&str]); 4] = [
    (
        "web.service",
        &[
            "systemd",
            "--name",
            "web",
            "--listen",
            "tcp:8787",
            "--metrics",
            "127.0.0.1:9464",
        ],
    ),
    (
        "org.example.web.plist",
        &["launchd", "--name", "org.example.web"],
    ),
    ("web.conf", &["supervisord", "--name", "web"]),
    (
        "compose.yaml",
        &["compose", "--name", "web", "--image", "example/web"],
    ),
];

fn written(words: &[&str]) -> CommandOutput {
    let mut command = fdguard();
    command.arg("unit").args(words);
    if words[0] != "compose" {
        command.args(["--fdguard", "/usr/local/bin/fdguard"]);
    }
    CommandOutput::of(command.args(["--", "/opt/web/server"]).output().unwrap())
}

#[test]
fn r61_the_recipes_are_what_the_command_writes_and_have_no_traps() {
    for (file, words) in RECIPES {
        let said = written(words);
        assert_eq!((said.code, &*said.stderr), (0, ""));
        let path = example(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), said.text(), "{file}");
        let said = run([Path::new("unit"), Path::new("--lint"), &path]);
        assert_eq!((said.code, &*said.stderr), (0, ""), "{}", said.text());
        assert!(said.text().contains("no problems found"), "{}", said.text());
    }
}

#[test]
fn r61_the_recipe_for_cron_has_a_time_a_user_and_a_command() {
    let text = fs::read_to_string(example("watchdog.cron")).unwrap();
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.contains('='));
    let lines: Vec<Vec<&str>> = lines
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines.len(), 1);
    assert!(
        lines[0][..5]
            .iter()
            .all(|it| it.chars().all(|c| "*/0123456789,-".contains(c)))
    );
    assert_eq!(lines[0][5..7], ["root", "fdguard-watchdog"]);
}

/// Runs the watchdog; returns its exit code, and whether it restarted the service.
fn watchdog(url: &str, dir: &Path) -> (i32, bool) {
    let mark = dir.join("restarted");
    let output = Command::new("sh")
        .arg(example("fdguard-watchdog"))
        .args([url, "touch"])
        .arg(&mark)
        .env("WATCHDOG_PAUSE", "0")
        .env("WATCHDOG_LOCK", dir.join("lock"))
        .env("http_proxy", "http://127.0.0.1:9")
        .output()
        .unwrap();
    (output.status.code().unwrap(), mark.exists())
}

#[test]
fn r61_the_watchdog_restarts_what_does_not_answer_and_nothing_else() {
    if !have("curl") || !have("python3") {
        return skip("needs curl and python3 for the watchdog of cron");
    }
    let dir = tempfile::tempdir().unwrap();
    let checked = Command::new("sh")
        .arg("-n")
        .arg(example("fdguard-watchdog"))
        .status();
    assert!(checked.unwrap().success());
    // A server that answers. The socket is bound here, so the watchdog never finds it closed.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/health", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        let (mut client, _) = listener.accept().unwrap();
        let _length = client.read(&mut [0; 4096]).unwrap();
        client
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .unwrap();
        listener
    });
    assert_eq!(watchdog(&url, dir.path()), (0, false));
    drop(server.join().unwrap());
    // The listener is closed now.
    assert_eq!(watchdog(&url, dir.path()), (0, true));
}

#[test]
fn a_trap_has_its_line_its_reason_and_its_remedy_and_gives_1() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("web.service");
    fs::write(
        &file,
        "[Service]\nType=forking\nExecStart=/opt/web/ctl start\nLimitNOFILE=4096\n",
    )
    .unwrap();
    let path = file.to_str().unwrap();
    let said = run(["unit", "--lint", path]);
    assert_eq!((said.code, &*said.stderr), (1, ""));
    let first = format!("{path}:2: ");
    assert!(
        said.text().starts_with(&first) && said.text().contains("[systemd-forking]"),
        "{}",
        said.text()
    );
    assert!(said.text().contains("\n  instead: "), "{}", said.text());

    let said = run(["unit", "--lint", path, "--json"]);
    assert_eq!(said.code, 1);
    let document = said.json();
    assert_eq!(document["schema"], "fdguard.lint/1");
    assert_eq!(document["target"], "systemd");
    assert_eq!(document["file"], path);
    let found = document["findings"].as_array().unwrap();
    let text = |it: &serde_json::Value, key: &str| it[key].as_str().unwrap().to_owned();
    let rules: Vec<_> = found
        .iter()
        .map(|it| (text(it, "rule"), text(it, "severity"), it["line"].as_u64()))
        .collect();
    let expected = [
        ("systemd-forking", "warning", Some(2)),
        ("systemd-daemonises", "critical", Some(3)),
    ];
    let expected = expected.map(|(rule, level, line)| (rule.to_owned(), level.to_owned(), line));
    assert_eq!(rules, expected);
    assert!(
        found
            .iter()
            .all(|it| it["reason"].is_string() && it["instead"].is_string())
    );
}

#[test]
fn r61_the_exit_code_of_a_lint_follows_its_severity_and_fail_on() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("web.service");
    let path = file.to_str().unwrap();
    let code = |unit: &str, level: Option<&str>| {
        fs::write(&file, unit).unwrap();
        let level = level.map(|level| format!("--fail-on={level}"));
        let words = ["unit", "--lint", path].into_iter().map(str::to_owned);
        run(words.chain(level).collect::<Vec<_>>()).code
    };
    // Nearly every unit of a distribution is like this.
    let plain = "[Service]\nExecStart=/usr/sbin/server\n";
    assert_eq!(code(plain, None), 0);
    assert_eq!(code(plain, Some("info")), 1);
    assert_eq!(code(&format!("{plain}Type=oneshot\n"), Some("info")), 0);
    let forking = format!("{plain}Type=forking\n");
    assert_eq!(code(&forking, None), 1);
    assert_eq!(code(&forking, Some("critical")), 0);
    let loops = "[Service]\nExecStart=/bin/sh -c 'server &'\n";
    assert_eq!(code(loops, Some("critical")), 1);
    assert_eq!(
        run(["unit", "systemd", "--fail-on", "info", "--", "sh"]).code,
        2
    );
}

#[test]
fn what_cannot_be_read_gives_3_and_wrong_usage_2() {
    let dir = tempfile::tempdir().unwrap();
    let broken = dir.path().join("broken.service");
    fs::write(&broken, "[Service]\nnonsense\n").unwrap();
    let said = run(["unit", "--lint", broken.to_str().unwrap()]);
    assert_eq!((said.code, said.text()), (3, ""));
    assert!(
        said.stderr.contains("broken.service:2: "),
        "{}",
        said.stderr
    );

    let unknown = dir.path().join("notes.txt");
    fs::write(&unknown, "hello\n").unwrap();
    let said = run(["unit", "--lint", unknown.to_str().unwrap()]);
    assert_eq!((said.code, said.text()), (3, ""));
    assert!(
        said.stderr.contains("cannot determine the supervisor"),
        "{}",
        said.stderr
    );

    let said = run(["unit", "--lint", "no/such/file.service"]);
    assert_eq!((said.code, said.text()), (3, ""));

    for words in [
        &["unit"][..],
        &["unit", "systemd"],
        &["unit", "upstart", "--", "a"],
        &["unit", "systemd", "--name", "a b", "--", "sh"],
        &["unit", "systemd", "--", "no-such-program-anywhere"],
        &[
            "unit",
            "supervisord",
            "--name",
            "x",
            "--",
            "/bin/a",
            "two\nlines",
        ],
        &["unit", "systemd", "--listen", "udp:53", "--", "sh"],
        &["unit", "--lint", "x.service", "--", "sh"],
    ] {
        let said = run(words);
        assert_eq!(
            (said.code, said.text()),
            (2, ""),
            "{words:?}: {}",
            said.stderr
        );
        assert!(!said.stderr.is_empty());
    }
}

#[test]
fn the_program_is_found_as_the_shell_would_and_written_absolute() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("out.service");
    let mut command = fdguard();
    command.args(["unit", "systemd", "--user", "-o"]).arg(&file);
    let said = CommandOutput::of(
        command
            .args(["--", "sh", "-c", "exec sleep 100%"])
            .output()
            .unwrap(),
    );
    assert_eq!((said.code, said.text(), &*said.stderr), (0, "", ""));
    let text = fs::read_to_string(&file).unwrap();
    let start = text
        .lines()
        .find(|line| line.starts_with("ExecStart=/"))
        .unwrap();
    assert!(
        start.contains("/fdguard run --name sh --restart on-failure --stop-grace 10s -- /"),
        "{start}"
    );
    assert!(start.ends_with("/sh -c \"exec sleep 100%%\""), "{start}");
    assert!(text.contains("WantedBy=default.target"));
}

#[test]
fn a_unit_as_a_document_is_the_same_text() {
    let words = ["unit", "launchd", "--name", "x", "--", "/bin/a"];
    let text = run(words);
    let document = run(["unit", "launchd", "--json", "--name", "x", "--", "/bin/a"]).good_json();
    assert_eq!(document["schema"], "fdguard.unit/1");
    assert_eq!(
        (&document["target"], &document["name"]),
        (&"launchd".into(), &"x".into())
    );
    assert_eq!(document["text"], text.text());
}

#[test]
fn a_unit_comes_from_standard_input_when_the_target_is_named() {
    let mut command = fdguard();
    command
        .args(["unit", "compose", "--lint", "-"])
        .stdin(fs::File::open(example("compose.yaml")).unwrap());
    let said = CommandOutput::of(command.output().unwrap());
    assert_eq!(said.code, 0, "{}{}", said.text(), said.stderr);
}

#[test]
fn the_page_names_every_trap() {
    let page = fs::read_to_string(root().join("docs/guide/unit.md")).unwrap();
    for target in [
        UnitTarget::Systemd,
        UnitTarget::Launchd,
        UnitTarget::Supervisord,
        UnitTarget::Compose,
    ] {
        for rule in lint::rules(target) {
            assert!(
                page.contains(&format!("`{}`", rule.id)),
                "{} is not on the page",
                rule.id
            );
        }
    }
}
