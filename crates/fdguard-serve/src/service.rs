//! What belongs together: a service is a pod, a container, a systemd unit, a program of a
//! supervisor, or else a command.
//!
//! A service outlives its processes. The pods of one Deployment, the runs of one unit and a
//! container that was created again under its name are one service, so that a restart continues its
//! series.

use std::fmt;

use fdguard_core::workload::Workload;
use serde::{Deserialize, Serialize};

/// The longest name that is kept: a process may call itself anything.
const LONGEST: usize = 160;

/// What kind of thing a service is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceKind {
    /// Pods of one workload.
    Pod,
    /// A container.
    Container,
    /// A systemd unit.
    Unit,
    /// A program of supervisord, runit, s6 or daemontools.
    Program,
    /// Processes of the same command.
    Command,
}

impl ServiceKind {
    /// Every kind.
    pub const ALL: [Self; 5] = [
        Self::Pod,
        Self::Container,
        Self::Unit,
        Self::Program,
        Self::Command,
    ];

    /// Its word in labels and documents.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::Container => "container",
            Self::Unit => "unit",
            Self::Program => "program",
            Self::Command => "command",
        }
    }

    /// The kind of a word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

/// The identity of a service on this host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ServiceKey {
    /// Its kind.
    pub kind: ServiceKind,
    /// Its name.
    pub name: String,
}

impl ServiceKey {
    /// A service of this kind and name.
    #[must_use]
    pub fn new(kind: ServiceKind, name: impl Into<String>) -> Self {
        let mut name = name.into();
        if let Some((end, _)) = name.char_indices().nth(LONGEST) {
            name.truncate(end);
        }
        Self { kind, name }
    }

    /// The service of a process: the most specific owner that is known.
    #[must_use]
    pub fn of(workload: Option<&Workload>, program: Option<&str>, command: &str) -> Self {
        let pod = workload.and_then(|one| one.pod.as_ref());
        let container = workload.and_then(|one| one.container.as_ref());
        let unit = workload.and_then(|one| one.unit.as_deref());
        if let Some(pod) = pod {
            let label = pod.label();
            return Self::new(ServiceKind::Pod, pod_workload(&label));
        }
        if let Some(container) = container {
            return Self::new(ServiceKind::Container, container.label());
        }
        match (unit.filter(|unit| is_service(unit)), program) {
            (_, Some(program)) => Self::new(ServiceKind::Program, program),
            (Some(unit), None) => Self::new(ServiceKind::Unit, unit),
            (None, None) => Self::new(ServiceKind::Command, command),
        }
    }
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.word(), self.name)
    }
}

/// Whether a unit is a service of its own. Everything that a user types runs in one session scope,
/// and a user manager holds all services of a user.
fn is_service(unit: &str) -> bool {
    let is_session = unit.starts_with("session-") || unit == "init.scope";
    !is_session && !unit.starts_with("user@")
}

/// Letters of the suffixes that Kubernetes generates: no vowels, so that they form no words.
const SUFFIX_LETTERS: &str = "bcdfghjklmnpqrstvwxz2456789";

/// The name that the pods of a workload share: `shop/cart-7d4b9cf5d8-x2k5z` and
/// `shop/cart-6c9f8bd7b4-qq8tv` are both `shop/cart`. A StatefulSet's number stays: each of its
/// pods is its own.
#[must_use]
pub fn pod_workload(name: &str) -> &str {
    let is_suffix = |part: &str, lengths: std::ops::RangeInclusive<usize>| {
        lengths.contains(&part.len()) && part.chars().all(|c| SUFFIX_LETTERS.contains(c))
    };
    let Some((base, last)) = name.rsplit_once('-') else {
        return name;
    };
    if !is_suffix(last, 5..=5) || base.ends_with('/') {
        return name;
    }
    match base.rsplit_once('-') {
        Some((workload, hash)) if is_suffix(hash, 6..=10) && !workload.ends_with('/') => workload,
        _ => base,
    }
}

/// Programs whose command names the interpreter rather than the program.
const INTERPRETERS: &[&str] = &[
    "python", "node", "java", "ruby", "perl", "php", "deno", "bun", "bash", "sh", "dash", "dotnet",
];
/// Options of interpreters whose next word is their value.
const WITH_VALUE: &[&str] = &[
    "-cp",
    "-classpath",
    "--class-path",
    "-W",
    "-X",
    "-r",
    "--require",
];
/// Options whose value is the text of a program: it has no name.
const TEXT_FOLLOWS: &[&str] = &["-c", "-e", "--eval", "-p"];

/// Whether the command alone says little, so that the arguments are worth a read.
#[must_use]
pub fn is_interpreter(command: &str) -> bool {
    let stem = command.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.contains(&stem)
}

/// `python3 app.py` for an interpreter, the command itself otherwise.
#[must_use]
pub fn command_name(command: &str, arguments: &[&str]) -> String {
    if !is_interpreter(command) {
        return command.to_owned();
    }
    match script(arguments.get(1..).unwrap_or_default()) {
        Some(script) => format!("{command} {script}"),
        None => command.to_owned(),
    }
}

/// The name of the program in the arguments of an interpreter.
fn script(words: &[&str]) -> Option<String> {
    let (ProgramWord::File(word) | ProgramWord::Module(word)) = program_word(words)?;
    let name = word.rsplit('/').next().unwrap_or(word);
    (!name.is_empty()).then(|| name.to_owned())
}

/// The argument of an interpreter that names its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramWord<'a> {
    /// A path, if it is one: Java's classes look the same.
    File(&'a str),
    /// A name that the interpreter looks for.
    Module(&'a str),
}

/// The program in the arguments of an interpreter, without its own name.
#[must_use]
pub fn program_word<'a>(words: &[&'a str]) -> Option<ProgramWord<'a>> {
    let mut words = words.iter().copied();
    loop {
        let word = words.next()?;
        if word == "-m" {
            return words.next().map(ProgramWord::Module);
        }
        if word == "-jar" {
            return words.next().map(ProgramWord::File);
        }
        if TEXT_FOLLOWS.contains(&word) {
            return None;
        }
        if WITH_VALUE.contains(&word) {
            words.next()?;
        } else if !word.starts_with('-') && !word.is_empty() {
            return Some(ProgramWord::File(word));
        }
    }
}

#[cfg(test)]
mod tests {
    use fdguard_core::workload::{ContainerName, PodName, Workload};
    use proptest::prelude::*;

    use super::{ServiceKey, ServiceKind, command_name, pod_workload};

    #[test]
    fn pods_of_one_workload_share_their_name() {
        for (pod, workload) in [
            ("shop/cart-7d4b9cf5d8-x2k5z", "shop/cart"),
            ("shop/cart-api-6c9f8bd7b4-qq8tv", "shop/cart-api"),
            ("kube-system/kube-proxy-8x7kz", "kube-system/kube-proxy"),
            ("shop/db-0", "shop/db-0"),
            ("shop/nginx", "shop/nginx"),
            ("shop/my-nginx", "shop/my-nginx"),
            ("shop/x2k5z", "shop/x2k5z"),
            ("pod 1234", "pod 1234"),
        ] {
            assert_eq!(pod_workload(pod), workload, "{pod}");
        }
    }

    #[test]
    fn the_most_specific_owner_names_the_service() {
        let mut workload = Workload {
            unit: Some("web.service".to_owned()),
            ..Workload::default()
        };
        let of = |workload: &Workload, program| ServiceKey::of(Some(workload), program, "nginx");
        let key = |kind, name: &str| ServiceKey::new(kind, name);
        assert_eq!(of(&workload, None), key(ServiceKind::Unit, "web.service"));
        let program = key(ServiceKind::Program, "web:web_0");
        assert_eq!(of(&workload, Some("web:web_0")), program);
        workload.container = Some(ContainerName {
            id: "0123456789abcdef".to_owned(),
            ..ContainerName::default()
        });
        let container = key(ServiceKind::Container, "0123456789ab");
        assert_eq!(of(&workload, None), container);
        workload.pod = Some(PodName {
            uid: "u".to_owned(),
            namespace: Some("shop".to_owned()),
            name: Some("cart-7d4b9cf5d8-x2k5z".to_owned()),
        });
        assert_eq!(of(&workload, None), key(ServiceKind::Pod, "shop/cart"));
        let nothing = ServiceKey::of(None, None, "nginx");
        assert_eq!(nothing, key(ServiceKind::Command, "nginx"));
    }

    #[test]
    fn a_login_session_is_not_a_service() {
        for unit in ["session-3.scope", "user@1000.service", "init.scope"] {
            let workload = Workload {
                unit: Some(unit.to_owned()),
                ..Workload::default()
            };
            let key = ServiceKey::of(Some(&workload), None, "vim");
            assert_eq!(key, ServiceKey::new(ServiceKind::Command, "vim"), "{unit}");
        }
    }

    #[test]
    fn an_interpreter_is_named_with_its_program() {
        for (command, arguments, name) in [
            ("nginx", "nginx -g daemon", "nginx"),
            (
                "python3",
                "python3 -u /srv/app.py --port 1",
                "python3 app.py",
            ),
            (
                "python3.11",
                "python3.11 -m gunicorn app",
                "python3.11 gunicorn",
            ),
            ("python3", "python3 -c print(1)", "python3"),
            (
                "node",
                "node --inspect -r dotenv server.js",
                "node server.js",
            ),
            (
                "java",
                "java -Xmx1g -cp a.jar:b.jar com.example.Main x",
                "java com.example.Main",
            ),
            ("java", "java -jar /opt/app.jar", "java app.jar"),
            ("bash", "bash", "bash"),
        ] {
            assert_eq!(
                command_name(command, &arguments.split(' ').collect::<Vec<_>>()),
                name,
                "{arguments}"
            );
        }
    }

    #[test]
    fn words_of_kinds_are_read_back() {
        for kind in ServiceKind::ALL {
            assert_eq!(ServiceKind::from_word(kind.word()), Some(kind));
        }
        assert_eq!(ServiceKind::from_word("other"), None);
    }

    proptest! {
        #[test]
        fn any_name_is_cut_at_a_character(name in "\\PC{0,400}") {
            let key = ServiceKey::new(ServiceKind::Command, name.clone());
            prop_assert!(key.name.chars().count() <= 160 && name.starts_with(&key.name));
            prop_assert!(name.starts_with(pod_workload(&name)));
        }
    }
}
