//! The journal of a scope: the resources that the next host must clean up if this host is killed.
//!
//! One file of lines per open scope, in a directory of the host's state. Sessions, programs and
//! descriptors are not in it: they end with the host. It is not synced: it covers the end of a
//! process. After a crash of the machine only files are left, and they stay where they are.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use fdguard_core::Text;
use fdguard_proc::ProcessId;
use serde::{Deserialize, Serialize};

use super::resource::{Entry, FileEnd, Ownership, Resource, ResourceRole};

const DIR: &str = "scopes";
const SCHEMA: &str = "fdguard.will/1";
const SUFFIX: &str = ".jsonl";

/// The directory of journals.
#[derive(Clone, Debug)]
pub struct Journals {
    dir: PathBuf,
}

/// The owner; the first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) schema: String,
    pub(super) scope: String,
    pub(super) name: String,
    pub(super) root: Text,
    pub(super) archive_to: Option<Text>,
    pub(super) client: Option<String>,
    /// The mark in the environment of its processes.
    pub(super) mark: Option<String>,
    /// The host process that owned the scope.
    pub(super) host: String,
}

/// A resource to clean up, or one that was released.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Line {
    File {
        number: u64,
        path: Text,
        end: FileEnd,
    },
    Directory {
        number: u64,
        path: Text,
        id: (u64, u64),
    },
    Process {
        number: u64,
        identity: String,
    },
    Released {
        number: u64,
    },
}

/// The journal that a host left behind.
#[derive(Debug)]
pub(super) struct Journal {
    pub(super) head: Head,
    pub(super) entries: Vec<Entry>,
}

/// Journal of a scope whose host is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct UnfinishedJournal {
    /// Scope id.
    pub scope: String,
    /// Scope name.
    pub name: String,
    /// Directory of its files.
    pub root: String,
    /// Number of files, directories and processes that must still be cleaned up.
    pub resources: usize,
}

/// A journal that could not be read, and why.
#[derive(Debug)]
pub(super) struct UnreadableJournal {
    pub(super) scope: String,
    pub(super) error: String,
}

impl Journals {
    /// Opens the journals in a state directory, creating their directory if missing.
    pub fn make(state: &Path) -> io::Result<Self> {
        let dir = state.join(DIR);
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&dir)?;
        Ok(Self { dir })
    }

    /// The journals of dead hosts in a state directory; nothing is created or changed.
    #[must_use]
    pub fn unfinished(state: &Path) -> Vec<UnfinishedJournal> {
        let dir = state.join(DIR);
        let (wills, _unreadable) = Self { dir }.left();
        let told = wills.into_iter().map(|will| UnfinishedJournal {
            scope: will.head.scope,
            name: will.head.name,
            root: will.head.root.to_lossy().into_owned(),
            resources: will.entries.len(),
        });
        told.collect()
    }

    /// Creates a journal.
    pub(super) fn create(&self, head: &Head) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        put(options.open(self.path(&head.scope))?, head)
    }

    /// Adds a line. A journal that was removed is not started again.
    pub(super) fn add(&self, scope: &str, line: &Line) -> io::Result<()> {
        let file = OpenOptions::new().append(true).open(self.path(scope));
        match file {
            // Its scope is closed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            file => put(file?, line),
        }
    }

    /// It is done.
    pub(super) fn forget(&self, scope: &str) -> io::Result<()> {
        match fs::remove_file(self.path(scope)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    /// The journals whose hosts are gone, and those that cannot be read.
    pub(super) fn left(&self) -> (Vec<Journal>, Vec<UnreadableJournal>) {
        let (mut wills, mut unreadable) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(scope) = name.to_str().and_then(|name| name.strip_suffix(SUFFIX)) else {
                continue;
            };
            let read = fs::read(entry.path()).map_err(|error| error.to_string());
            match read.and_then(|bytes| parse(&bytes)) {
                Ok(will) if is_kept(&will.head.host) => {}
                Ok(will) => wills.push(will),
                Err(error) => unreadable.push(UnreadableJournal {
                    scope: scope.to_owned(),
                    error,
                }),
            }
        }
        wills.sort_by(|a, b| a.head.scope.cmp(&b.head.scope));
        (wills, unreadable)
    }

    fn path(&self, scope: &str) -> PathBuf {
        self.dir.join(format!("{scope}{SUFFIX}"))
    }
}

impl Head {
    pub(super) fn new(
        scope: &str,
        spec: &super::ScopeSpec,
        mark: Option<&str>,
    ) -> io::Result<Self> {
        Ok(Self {
            schema: SCHEMA.to_owned(),
            scope: scope.to_owned(),
            name: spec.name.clone(),
            root: text(&spec.root),
            archive_to: spec.archive_to.as_deref().map(text),
            client: spec.client.clone(),
            mark: mark.map(str::to_owned),
            host: ProcessId::current()?.to_string(),
        })
    }

    pub(super) fn spec(&self) -> super::ScopeSpec {
        super::ScopeSpec {
            name: self.name.clone(),
            root: path_of(&self.root),
            client: self.client.clone(),
            archive_to: self.archive_to.as_ref().map(path_of),
        }
    }
}

/// Whether the host is running. An unknown one is gone: only hosts write journals.
fn is_kept(host: &str) -> bool {
    host.parse::<ProcessId>().is_ok_and(|host| host.is_alive())
}

/// One write: a line is there or not.
fn put(mut file: fs::File, line: &impl Serialize) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    file.write_all(&bytes)
}

/// The journal line of a resource; none for resources that end with the host or stay.
pub(super) fn line(entry: &Entry) -> Option<Line> {
    let number = entry.number;
    let is_owned = entry.ownership == Ownership::Owned;
    match &entry.resource {
        Resource::File { path, end } if *end != FileEnd::Keep => Some(Line::File {
            number,
            path: text(path),
            end: *end,
        }),
        Resource::Directory { path, id } => Some(Line::Directory {
            number,
            path: text(path),
            id: *id,
        }),
        Resource::Process { identity } if is_owned => Some(Line::Process {
            number,
            identity: identity.to_string(),
        }),
        _ => None,
    }
}

/// Parses a journal. An incomplete last line is ignored.
fn parse(bytes: &[u8]) -> Result<Journal, String> {
    let end = bytes.iter().rposition(|byte| *byte == b'\n');
    let whole = bytes.get(..end.unwrap_or(0)).unwrap_or_default();
    let mut lines = whole.split(|byte| *byte == b'\n');
    let words = |error: serde_json::Error| error.to_string();
    let head: Head = serde_json::from_slice(lines.next().unwrap_or_default()).map_err(words)?;
    if head.schema != SCHEMA {
        return Err(format!("schema is {}, not {SCHEMA}", head.schema));
    }
    let mut entries: Vec<Entry> = Vec::new();
    for line in lines {
        match entry(serde_json::from_slice(line).map_err(words)?)? {
            Ok(entry) => entries.push(entry),
            Err(released) => entries.retain(|entry| entry.number != released),
        }
    }
    Ok(Journal { head, entries })
}

/// The entry of a line, or the number that it removes.
fn entry(line: Line) -> Result<Result<Entry, u64>, String> {
    let (number, resource) = match line {
        Line::Released { number } => return Ok(Err(number)),
        Line::File { number, path, end } => {
            let path = path_of(&path);
            (number, Resource::File { path, end })
        }
        Line::Directory { number, path, id } => {
            let path = path_of(&path);
            (number, Resource::Directory { path, id })
        }
        Line::Process { number, identity } => {
            let identity = identity.parse();
            let identity = identity.map_err(|_none| "invalid process identity".to_owned())?;
            (number, Resource::Process { identity })
        }
    };
    Ok(Ok(Entry {
        number,
        resource,
        ownership: Ownership::Owned,
        role: ResourceRole::Helper,
    }))
}

fn text(path: &Path) -> Text {
    Text::from(path.as_os_str().as_bytes())
}

fn path_of(text: &Text) -> PathBuf {
    OsStr::from_bytes(text.as_bytes()).into()
}

/// Parses any file, for the fuzz target: a journal that is written again is the same.
#[cfg(feature = "fuzzing")]
pub fn fuzz_journal(bytes: &[u8]) {
    let Ok(journal) = parse(bytes) else {
        return;
    };
    let mut written = serde_json::to_vec(&journal.head).unwrap_or_default();
    for entry in &journal.entries {
        // A file that is to be kept has no line.
        let Some(line) = line(entry) else { return };
        written.push(b'\n');
        written.extend(serde_json::to_vec(&line).unwrap_or_default());
    }
    written.push(b'\n');
    let again = parse(&written);
    assert!(again.is_ok_and(|again| format!("{again:?}") == format!("{journal:?}")));
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = r#"{"schema":"fdguard.will/1","scope":"s","name":"n","root":"/r","archive_to":null,"client":null,"mark":null,"host":"b:1:1:-"}"#;

    fn numbers(text: &str) -> Vec<u64> {
        let will = parse(text.as_bytes()).unwrap();
        will.entries.iter().map(|entry| entry.number).collect()
    }

    #[test]
    fn what_was_released_and_what_is_torn_is_not_in_it() {
        let file = r#"{"file":{"number":1,"path":"log","end":"archive"}}"#;
        let dir = r#"{"directory":{"number":2,"path":"tmp","id":[1,2]}}"#;
        let gone = r#"{"released":{"number":1}}"#;
        assert_eq!(numbers(&format!("{HEAD}\n")), [0_u64; 0]);
        assert_eq!(numbers(&format!("{HEAD}\n{file}\n{dir}\n")), [1, 2]);
        assert_eq!(numbers(&format!("{HEAD}\n{file}\n{dir}\n{gone}\n")), [2]);
        assert_eq!(numbers(&format!("{HEAD}\n{file}\n{{\"direc")), [1]);
    }

    #[test]
    fn any_name_of_a_file_comes_back() {
        let name = Path::new(OsStr::from_bytes(b"a\xff\n b"));
        let line = line(&Entry {
            number: 7,
            resource: Resource::File {
                path: name.to_owned(),
                end: FileEnd::Delete,
            },
            ownership: Ownership::Owned,
            role: ResourceRole::Helper,
        });
        let line = serde_json::to_string(&line.unwrap()).unwrap();
        let will = parse(format!("{HEAD}\n{line}\n").as_bytes()).unwrap();
        let [entry] = &will.entries[..] else {
            panic!("{:?}", will.entries)
        };
        assert!(
            matches!(&entry.resource, Resource::File { path, end: FileEnd::Delete } if path == name)
        );
    }

    #[test]
    fn what_is_no_will_is_refused() {
        let other = HEAD.replace("will/1", "will/2");
        for text in [
            "",
            "\n",
            "{}\n",
            HEAD,
            &format!("{other}\n"),
            &format!("{HEAD}\nx\n"),
        ] {
            parse(text.as_bytes()).unwrap_err();
        }
    }
}
