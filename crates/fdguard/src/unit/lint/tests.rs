use super::{UnitFinding, lint, rules};
use crate::unit::UnitTarget;
use crate::unit::read::read;

fn findings(target: UnitTarget, text: &str) -> Vec<UnitFinding> {
    lint(target, &read(target, text).unwrap())
}

fn has(target: UnitTarget, text: &str, rule: &str) -> Option<usize> {
    let all = findings(target, text);
    all.iter().find(|it| it.rule == rule).map(|it| it.line)
}

const ALL: [UnitTarget; 4] = [
    UnitTarget::Systemd,
    UnitTarget::Launchd,
    UnitTarget::Supervisord,
    UnitTarget::Compose,
];

/// A rule, a text in which it fires and the line, and the nearest text in which it does not.
type Case = (&'static str, &'static str, usize, &'static str);

fn plist(body: &str) -> String {
    format!("<plist><dict>\n{body}\n</dict></plist>")
}

const SYSTEMD: &[Case] = &[
    (
        "systemd-forking",
        "[Service]\nType=forking\n",
        2,
        "[Service]\nType=forking\nType=exec\n",
    ),
    (
        "systemd-pidfile",
        "[Service]\nPIDFile=/run/x.pid\n",
        2,
        "[Service]\n#PIDFile=/run/x.pid\n",
    ),
    (
        "systemd-daemonises",
        "[Service]\nExecStart=/bin/sh -c 'server &'\n",
        2,
        "[Service]\nExecStart=/bin/sh -c 'exec server'\n",
    ),
    (
        "systemd-relative-program",
        "[Service]\nExecStart=-bin/server\n",
        2,
        "[Service]\nExecStart=-/bin/server\n",
    ),
    (
        "systemd-no-file-limit",
        "[Service]\nExecStart=/bin/a\n",
        1,
        "[Service]\nExecStart=/bin/a\nLimitNOFILE=4096\n",
    ),
    (
        "systemd-kill-mode",
        "[Service]\nKillMode=process\n",
        2,
        "[Service]\nKillMode=mixed\n",
    ),
    (
        "systemd-endless-restart",
        "[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestart=always\n",
        2,
        "[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestart=no\n",
    ),
    (
        "systemd-restart-at-once",
        "[Service]\nRestart=always\nRestartSec=0\n",
        3,
        "[Service]\nRestart=always\nRestartSec=100ms\n",
    ),
    (
        "systemd-restart-of-no-use",
        "[Service]\nExecStart=/bin/fdguard run -- a\nRestart=always\n",
        3,
        "[Service]\nExecStart=/bin/fdguard run -- a\nRestart=always\nRestartPreventExitStatus=78\n",
    ),
    (
        "systemd-stop-too-soon",
        "[Service]\nExecStart=/bin/fdguard run --stop-grace 30s -- a\nTimeoutStopSec=30\n",
        3,
        "[Service]\nExecStart=/bin/fdguard run --stop-grace 30s -- a\nTimeoutStopSec=1min\n",
    ),
    (
        "systemd-no-delegate",
        "[Service]\nExecStart=/bin/fdguard run -- a\n",
        1,
        "[Service]\nExecStart=/bin/fdguard run -- a\nDelegate=yes\n",
    ),
    (
        "systemd-not-notified",
        "[Service]\nExecStart=/bin/fdguard run -- a\nType=simple\n",
        3,
        "[Service]\nExecStart=/bin/fdguard run -- a\nType=notify\n",
    ),
];

const LAUNCHD: &[Case] = &[
    (
        "launchd-keepalive-crashed",
        "<key>KeepAlive</key><dict>\n<key>Crashed</key><false/></dict>",
        3,
        "<key>KeepAlive</key><dict>\n<key>Crashed</key><true/></dict>",
    ),
    (
        "launchd-keepalive-success",
        "<key>KeepAlive</key><dict>\n<key>SuccessfulExit</key><true/></dict>",
        3,
        "<key>KeepAlive</key><dict>\n<key>SuccessfulExit</key><false/></dict>",
    ),
    (
        "launchd-keepalive-always",
        "<key>KeepAlive</key><true/>\n<key>ProgramArguments</key><array><string>/usr/bin/python3</string><string>bootstrap.py</string></array>",
        2,
        "<key>KeepAlive</key><true/>\n<key>ProgramArguments</key><array><string>/usr/bin/python3</string><string>server.py</string></array>",
    ),
    (
        "launchd-daemonises",
        "<key>ProgramArguments</key><array><string>/bin/redis</string><string>--daemonize</string></array>",
        2,
        "<key>ProgramArguments</key><array><string>/bin/redis</string></array>",
    ),
    (
        "launchd-relative-program",
        "<key>Program</key><string>server</string>",
        2,
        "<key>Program</key><string>/bin/server</string>\n<key>ProgramArguments</key><array><string>server</string></array>",
    ),
    (
        "launchd-no-file-limit",
        "<key>SoftResourceLimits</key><dict><key>Core</key><integer>0</integer></dict>",
        2,
        "<key>SoftResourceLimits</key><dict><key>NumberOfFiles</key><integer>4096</integer></dict>",
    ),
    (
        "launchd-abandon-group",
        "<key>AbandonProcessGroup</key><true/>",
        2,
        "<key>AbandonProcessGroup</key><false/>",
    ),
    (
        "launchd-stop-too-soon",
        "<key>ProgramArguments</key><array><string>/bin/fdguard</string><string>run</string><string>--</string><string>a</string></array>\n<key>ExitTimeOut</key><integer>5</integer>",
        3,
        "<key>ProgramArguments</key><array><string>/bin/fdguard</string><string>run</string><string>--</string><string>a</string></array>\n<key>ExitTimeOut</key><integer>0</integer>",
    ),
    (
        "launchd-no-throttle",
        "<key>ThrottleInterval</key><integer>0</integer>",
        2,
        "<key>ThrottleInterval</key><integer>10</integer>",
    ),
];

const SUPERVISORD: &[Case] = &[
    (
        "supervisord-daemonises",
        "[program:a]\ncommand=nohup a\n",
        2,
        "[program:a]\ncommand=a\n",
    ),
    (
        "supervisord-no-group",
        "[program:a]\ncommand=a\n",
        1,
        "[program:a]\ncommand=a\nstopasgroup=true\n",
    ),
    (
        "supervisord-no-minfds",
        "[program:a]\ncommand=a\n[supervisord]\n",
        3,
        "[program:a]\ncommand=a\n[supervisord]\nminfds=4096\n",
    ),
    (
        "supervisord-no-startsecs",
        "[program:a]\nstartsecs=0 ; at once\n",
        2,
        "[program:a]\nstartsecs=1\n",
    ),
    (
        "supervisord-restart-of-no-use",
        "[program:a]\ncommand=fdguard run -- a\nautorestart=true\n",
        3,
        "[program:a]\ncommand=a\nautorestart=true\n",
    ),
    (
        "supervisord-stop-too-soon",
        "[program:a]\ncommand=fdguard run -- a\n",
        1,
        "[program:a]\ncommand=fdguard run -- a\nstopwaitsecs=25\n",
    ),
];

const COMPOSE: &[Case] = &[
    (
        "compose-no-init",
        "services:\n  a:\n    image: x\n",
        2,
        "services:\n  a:\n    init: true\n",
    ),
    (
        "compose-no-file-limit",
        "services:\n  a:\n    ulimits:\n      nproc: 5\n",
        2,
        "services:\n  a:\n    ulimits:\n      nofile: 4096\n",
    ),
    (
        "compose-restart-blind",
        "services:\n  a:\n    restart: always\n",
        3,
        "services:\n  a:\n    restart: always\n    healthcheck:\n      test: [x]\n",
    ),
    (
        "compose-daemonises",
        "services:\n  a:\n    command: sh -c 'a &'\n",
        3,
        "services:\n  a:\n    command: [\"npm\", \"start\"]\n",
    ),
    (
        "compose-stop-too-soon",
        "services:\n  a:\n    command: fdguard run -- a\n",
        2,
        "services:\n  a:\n    command: fdguard run -- a\n    stop_grace_period: 1m\n",
    ),
];

fn cases(target: UnitTarget) -> &'static [Case] {
    match target {
        UnitTarget::Systemd => SYSTEMD,
        UnitTarget::Launchd => LAUNCHD,
        UnitTarget::Supervisord => SUPERVISORD,
        UnitTarget::Compose => COMPOSE,
    }
}

#[test]
fn every_rule_fires_at_its_line_and_is_quiet_beside_it() {
    for target in ALL {
        for (rule, bad, line, good) in cases(target) {
            let whole = |text: &str| match target {
                UnitTarget::Launchd => plist(text),
                _ => text.to_owned(),
            };
            assert_eq!(has(target, &whole(bad), rule), Some(*line), "{rule}: {bad}");
            assert_eq!(has(target, &whole(good), rule), None, "{rule}: {good}");
        }
    }
}

#[test]
fn every_rule_has_its_case_and_a_name_of_its_target() {
    for target in ALL {
        for rule in rules(target) {
            let tested = cases(target).iter().any(|case| case.0 == rule.id);
            assert!(tested, "{} has no case", rule.id);
            assert!(rule.id.starts_with(target.name()) && !rule.fix.unwrap_or_default().is_empty());
        }
    }
}

#[test]
fn a_file_of_conf_d_says_nothing_about_minfds() {
    let text = "[program:a]\ncommand=a\n";
    assert_eq!(
        has(UnitTarget::Supervisord, text, "supervisord-no-minfds"),
        None
    );
}

#[test]
fn the_bootstrap_of_source_001_is_found_under_launchd_and_systemd() {
    let list = plist(
        "<key>Label</key><string>x</string>\n<key>ProgramArguments</key><array><string>/usr/bin/python3</string><string>bootstrap.py</string></array>\n<key>KeepAlive</key><dict>\n<key>Crashed</key><false/>\n</dict>",
    );
    assert!(has(UnitTarget::Launchd, &list, "launchd-keepalive-crashed").is_some());
    let unit = "[Service]\nType=simple\nExecStart=/opt/app/ctl.sh start\nRestart=always\n";
    assert_eq!(
        has(UnitTarget::Systemd, unit, "systemd-daemonises"),
        Some(3)
    );
}

#[test]
fn a_unit_without_a_service_has_no_findings() {
    assert_eq!(
        findings(UnitTarget::Systemd, "[Timer]\nOnCalendar=daily\n"),
        []
    );
    assert_eq!(findings(UnitTarget::Compose, "volumes: {}\n"), []);
}

#[test]
fn several_findings_come_in_the_order_of_their_lines() {
    let text = "[program:a]\ncommand=fdguard run -- nohup x\nautorestart=true\nstartsecs=0\n";
    let lines: Vec<usize> = findings(UnitTarget::Supervisord, text)
        .iter()
        .map(|it| it.line)
        .collect();
    assert_eq!(lines, [1, 1, 2, 3, 4]);
}
