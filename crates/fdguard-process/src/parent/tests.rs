use super::{Facts, Kind, VARIABLES, judge};

/// A process 42 below a shell.
fn facts(variables: &[(&'static str, &str)]) -> Facts {
    for (name, _) in variables {
        assert!(VARIABLES.contains(name), "{name} is never read");
    }
    Facts {
        pid: 42,
        parent_pid: 41,
        parent_name: Some("bash".to_owned()),
        variables: variables.iter().map(|(n, v)| (*n, v.into())).collect(),
        ..Facts::default()
    }
}

fn below(name: &str) -> Facts {
    Facts {
        parent_name: Some(name.to_owned()),
        ..facts(&[])
    }
}

#[test]
fn r22_each_row_of_the_table() {
    for (variables, kind) in [
        (&[("SYSTEMD_EXEC_PID", "42")][..], Kind::Systemd),
        (&[("NOTIFY_SOCKET", "/run/systemd/notify")], Kind::Systemd),
        (&[("SUPERVISOR_ENABLED", "1")], Kind::Supervisord),
        (&[("pm_id", "0"), ("PM2_HOME", "/root/.pm2")], Kind::Pm2),
        (&[("RC_SVCNAME", "web")], Kind::OpenRc),
        (&[("container", "podman")], Kind::Container),
        (&[("KUBERNETES_SERVICE_HOST", "10.0.0.1")], Kind::Container),
        (&[("FDGUARD_RUN", "7.9:web")], Kind::Fdguard),
        (&[], Kind::Nobody),
    ] {
        let parent = judge(&facts(variables));
        assert_eq!(parent.kind, kind, "{variables:?}: {}", parent.reason);
        assert!(!parent.reason.contains('\n') && !parent.reason.is_empty());
    }
    for (name, kind) in [
        ("s6-supervise", Kind::S6),
        ("runsv", Kind::Runit),
        ("circusd", Kind::Circus),
        ("supervise", Kind::Daemontools),
    ] {
        let parent = judge(&below(name));
        assert_eq!(parent.kind, kind);
        assert!(parent.reason.contains(name));
    }
}

#[test]
fn process_1_and_the_files_of_containers() {
    let first = Facts {
        pid: 1,
        ..facts(&[])
    };
    assert_eq!(judge(&first).kind, Kind::Container);
    let inside = Facts {
        container_file: Some("/.dockerenv"),
        ..facts(&[])
    };
    assert_eq!(judge(&inside).kind, Kind::Container);
    let with_s6 = Facts {
        parent_name: Some("s6-supervise".to_owned()),
        ..inside
    };
    assert_eq!(judge(&with_s6).kind, Kind::S6, "the closer one");
}

#[test]
fn r22_an_invocation_id_in_a_desktop_terminal_is_not_systemd() {
    let terminal = [("INVOCATION_ID", "abc"), ("JOURNAL_STREAM", "8:4711")];
    let shell = Facts {
        stderr: Some((25, 3)),
        ..facts(&terminal)
    };
    assert_eq!(judge(&shell).kind, Kind::Nobody);
    let other = facts(&[("INVOCATION_ID", "abc"), ("SYSTEMD_EXEC_PID", "17")]);
    assert_eq!(judge(&other).kind, Kind::Nobody);
    assert_eq!(
        judge(&facts(&[("JOURNAL_STREAM", "8:4711")])).kind,
        Kind::Nobody
    );
}

#[test]
fn an_invocation_id_with_the_manager_as_parent_or_its_journal_is_systemd() {
    let variables = [("INVOCATION_ID", "abc"), ("JOURNAL_STREAM", "8:4711")];
    let by_journal = Facts {
        stderr: Some((8, 4711)),
        ..facts(&variables)
    };
    assert_eq!(judge(&by_journal).kind, Kind::Systemd);
    let by_user_manager = Facts {
        parent_name: Some("systemd".to_owned()),
        ..facts(&variables[..1])
    };
    assert_eq!(judge(&by_user_manager).kind, Kind::Systemd);
    let by_first = Facts {
        parent_pid: 1,
        ..facts(&variables[..1])
    };
    assert_eq!(judge(&by_first).kind, Kind::Systemd);
}

#[test]
fn r22_the_noise_of_xpc_is_not_launchd() {
    let on_mac = |value: &str, parent_pid| Facts {
        macos: true,
        parent_pid,
        ..facts(&[("XPC_SERVICE_NAME", value)])
    };
    assert_eq!(judge(&on_mac("org.example.web", 1)).kind, Kind::Launchd);
    for noise in ["0", "application.com.apple.Terminal.1152"] {
        assert_eq!(judge(&on_mac(noise, 1)).kind, Kind::Nobody, "{noise}");
    }
    let inherited = on_mac("org.example.web", 77);
    assert_eq!(judge(&inherited).kind, Kind::Nobody, "inherited by a shell");
    let on_linux = Facts {
        macos: false,
        ..on_mac("org.example.web", 1)
    };
    assert_eq!(judge(&on_linux).kind, Kind::Nobody);
}

#[test]
fn a_program_of_ours_does_not_take_our_socket_for_systemds() {
    let nested = facts(&[("FDGUARD_RUN", "7.9:web"), ("NOTIFY_SOCKET", "/run/x")]);
    let parent = judge(&nested);
    assert_eq!(parent.kind, Kind::Fdguard);
    assert_eq!(parent.within.unwrap().service, "web");
}

#[test]
fn what_systemd_started_itself_is_its_own_but_still_within_our_run() {
    let both = facts(&[("FDGUARD_RUN", "7.9:web"), ("SYSTEMD_EXEC_PID", "42")]);
    let parent = judge(&both);
    assert_eq!(parent.kind, Kind::Systemd);
    assert!(parent.within.is_some() && parent.is_supervisor());
}

#[test]
fn supervisord_says_1_and_pm2_says_two_things() {
    assert_eq!(
        judge(&facts(&[("SUPERVISOR_ENABLED", "0")])).kind,
        Kind::Nobody
    );
    assert_eq!(judge(&facts(&[("pm_id", "0")])).kind, Kind::Nobody);
}

#[test]
fn every_kind_has_a_name_that_reads_back() {
    for (kind, name) in Kind::NAMES {
        assert_eq!((kind.to_string().as_str(), name.parse()), (name, Ok(kind)));
    }
    assert!("init".parse::<Kind>().unwrap_err().contains("systemd"));
}

#[test]
fn the_facts_of_this_process_are_read() {
    let facts = Facts::read();
    assert_eq!(facts.pid, std::process::id());
    assert!(facts.parent_name.is_some() && facts.stderr.is_some());
    assert!(!judge(&facts).reason.is_empty());
}
