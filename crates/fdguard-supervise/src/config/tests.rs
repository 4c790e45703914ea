use super::{ConfigMistake, Overrides, RunSettings, SocketConfig, explain};
use crate::lifecycle::RestartWhen;

fn said(flags: &[(&'static str, &str)]) -> Overrides {
    Overrides {
        command: vec!["./web".into(), "8080".into()],
        flags: flags
            .iter()
            .map(|(key, text)| (*key, vec![(*text).to_owned()]))
            .collect(),
        ..Overrides::default()
    }
}

const FILE: &str = "\
log_format = \"json\"

[service.web]
command = [\"./web\"]
after = [\"db\"]
restart = \"always\"
listen = [\"tcp:8080\", \"fd:admin\"]
budget = { fds = \"80%:90%\", memory = \"1GiB\" }

[service.db]
command = [\"./db\"]
";

fn of_file(text: &str) -> Result<RunSettings, ConfigMistake> {
    RunSettings::resolve(&Overrides::default(), Some(("services.toml", text)))
}

#[test]
fn a_command_alone_is_enough() {
    let settings = RunSettings::resolve(&said(&[]), None).unwrap();
    let [web] = &settings.services[..] else {
        panic!()
    };
    assert_eq!((web.name.as_str(), web.command.len()), ("web", 2));
    assert_eq!(web.policy.restart, RestartWhen::OnFailure);
    assert_eq!(web.stop.signal, 15);
}

#[test]
fn a_file_has_its_services_in_the_order_of_their_start() {
    let settings = of_file(FILE).unwrap();
    let names: Vec<&str> = settings
        .services
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(names, ["db", "web"]);
    let web = &settings.services[1];
    assert!(matches!(&web.listen[1], SocketConfig::Inherited(name) if name == "admin"));
    assert!(
        web.budgets
            .iter()
            .any(|budget| budget.to_string() == "fds=80%:90%")
    );
}

#[test]
fn a_flag_wins_over_the_file_and_the_file_over_the_environment() {
    let over = Overrides {
        command: Vec::new(),
        environment: vec![("log_format", "FDGUARD_LOG_FORMAT", "text".to_owned())],
        ..said(&[("restart", "never")])
    };
    let settings = RunSettings::resolve(&over, Some(("services.toml", FILE))).unwrap();
    assert!(
        settings
            .services
            .iter()
            .all(|one| one.policy.restart == RestartWhen::Never)
    );
    let text = explain(&settings);
    let has = |key: &str, source: &str| {
        let mut lines = text.lines();
        lines.any(|line| line.starts_with(key) && line.ends_with(source))
    };
    assert!(has("log_format = \"json\"", "# services.toml:1"), "{text}");
    assert!(has("restart = \"never\"", "# --restart"), "{text}");
    assert!(
        has("listen = [\"tcp:8080\", \"fd:admin\"]", "# services.toml:7"),
        "{text}"
    );
    assert!(has("stop_grace = \"10s\"", "# default"), "{text}");
}

#[test]
fn a_mistake_is_told_with_its_place_or_its_flag() {
    let of = |text: &str| of_file(text).unwrap_err().to_string();
    let one = "[service.a]\ncommand = [\"true\"]\n";
    let text = of(&format!("{one}restart = \"sometimes\"\n"));
    assert_eq!(
        text,
        "services.toml: line 3, column 11: restart: \"sometimes\" is not one of always, on-failure, never"
    );
    for wrong in [
        "stop_grace = \"soon\"",
        "listen = [\"udp:1\"]",
        "ready = \"smoke\"",
        "health = [\"notify\"]",
        "budget = { fds = \"120%\" }",
        "stop_signal = \"PLEASE\"",
        "stop_on = [300]",
        "raise_limit = \"high\"",
        "env = [\"A\"]",
        "crash_loop = \"5\"",
        "command = [\"\"]",
    ] {
        let text = of(&format!(
            "[service.a]\n{wrong}\n{}",
            if wrong.starts_with("command") {
                ""
            } else {
                "command = [\"true\"]\n"
            }
        ));
        let key = wrong.split(' ').next().unwrap();
        assert!(
            text.starts_with("services.toml: line 2, column ") && text.contains(key),
            "{text}"
        );
        assert!(!text.contains('\n'), "{text}");
    }
    let flag = RunSettings::resolve(&said(&[("stop_grace", "soon")]), None).unwrap_err();
    assert!(!flag.is_in_file());
    assert!(flag.to_string().starts_with("--stop-grace: "), "{flag}");
}

#[test]
fn a_circle_of_dependencies_is_a_mistake_of_the_file() {
    let text = FILE.replace("[\"./db\"]", "[\"./db\"]\nafter = [\"web\"]");
    let mistake = of_file(&text).unwrap_err();
    assert!(mistake.is_in_file());
    assert!(
        mistake.to_string().contains("dependency cycle"),
        "{mistake}"
    );
}

#[test]
fn where_a_value_stands_is_no_change() {
    let one = of_file(FILE).unwrap();
    let moved = of_file(&format!("\n\n{FILE}")).unwrap();
    let other = of_file(&FILE.replace("always", "never")).unwrap();
    let says = |a: &RunSettings, b: &RunSettings| {
        a.services[1].values.says_the_same(&b.services[1].values)
    };
    assert!(says(&one, &moved) && !says(&one, &other));
}

#[test]
fn once_is_never_restarted_and_keeps_nothing_in_the_background() {
    let once = Overrides {
        once: true,
        ..said(&[("restart", "always")])
    };
    let settings = RunSettings::resolve(&once, None).unwrap();
    assert_eq!(settings.services[0].policy.restart, RestartWhen::Never);
    assert_eq!(settings.services[0].background, super::Background::End);
}

proptest::proptest! {
    #[test]
    fn any_text_as_a_file_is_survived(text: String) {
        let _either = of_file(&text);
    }

    #[test]
    fn any_value_of_any_key_is_survived(value in "\\PC{0,20}", at in 0_usize..40) {
        let keys: Vec<&str> = super::flags().collect();
        let key = keys[at % keys.len()];
        let text = format!("[service.a]\ncommand = [\"true\"]\n{key} = {value:?}\n");
        match of_file(&text) {
            Ok(_) => {}
            Err(mistake) => proptest::prop_assert!(!mistake.to_string().contains('\n')),
        }
    }
}
