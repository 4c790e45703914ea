//! Which program a service runs, so that a restart with another one is a deploy.
//!
//! The executable of a Python, Node or Java program is the interpreter, which no deploy changes: so
//! the script or the archive counts, too. In a container the image counts. What cannot be known is
//! `None`, not "the same".

use fdguard_core::{Pid, Text};
use fdguard_probe::{ContainerImage, FileStamp, Probe};
use serde::{Deserialize, Serialize};

use crate::service::{ProgramWord, is_interpreter, program_word};

/// A program at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProgramStamp {
    pub(crate) executable: FileStamp,
    pub(crate) script: ScriptStamp,
    pub(crate) image: ContainerImage,
}

/// What an interpreter runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ScriptStamp {
    /// The executable is the program.
    NotInterpreted,
    /// A module, a class path, text on the command line.
    Unknown,
    /// A script or an archive.
    File(FileStamp),
    /// A script of an installed package, such as gunicorn, that loads the program.
    Launcher(FileStamp),
}

impl ProgramStamp {
    /// The program of a process; `None` if its executable cannot be read.
    pub(crate) fn read(probe: &Probe, pid: Pid) -> Option<Self> {
        Some(Self {
            executable: probe.executable(pid)?,
            script: script(probe, pid),
            image: probe.image(pid),
        })
    }

    /// Whether the program was replaced by another one; `None` if that is unknown.
    pub(crate) fn is_replaced_by(&self, new: &Self) -> Option<bool> {
        use ContainerImage::{Id, Outside};
        match (&self.image, &new.image) {
            (Outside, Outside) => self.are_files_replaced_by(new),
            (Id(old), Id(new)) if old != new => Some(true),
            (Id(_), Id(_)) => Some(!self.is_copy_of(new)),
            _ => None,
        }
    }

    fn are_files_replaced_by(&self, new: &Self) -> Option<bool> {
        use ScriptStamp::{File, Launcher, NotInterpreted};
        if self.executable != new.executable {
            return Some(true);
        }
        match (&self.script, &new.script) {
            (NotInterpreted, NotInterpreted) => Some(false),
            (File(old), File(new)) => Some(old != new),
            (Launcher(old), Launcher(new)) => (old != new).then_some(true),
            _ => None,
        }
    }

    /// For two containers of one image: what differs was put there from outside.
    fn is_copy_of(&self, other: &Self) -> bool {
        use ScriptStamp::File;
        let is_script_same = match (&self.script, &other.script) {
            (File(old), File(new)) => new.is_copy_of(old),
            _ => true,
        };
        is_script_same && other.executable.is_copy_of(&self.executable)
    }
}

fn script(probe: &Probe, pid: Pid) -> ScriptStamp {
    let name = probe.executable_name(pid);
    if !name.is_some_and(|name| is_interpreter(&name.to_lossy())) {
        return ScriptStamp::NotInterpreted;
    }
    let arguments = probe.arguments(pid).unwrap_or_default();
    let words: Vec<_> = arguments.iter().skip(1).map(Text::to_lossy).collect();
    let words: Vec<&str> = words.iter().map(|word| &**word).collect();
    let Some(ProgramWord::File(path)) = program_word(&words) else {
        return ScriptStamp::Unknown;
    };
    match probe.file_of(pid, path) {
        None => ScriptStamp::Unknown,
        Some(stamp) if is_installed(path) => ScriptStamp::Launcher(stamp),
        Some(stamp) => ScriptStamp::File(stamp),
    }
}

/// Whether a script came with a package: it starts programs and is not changed by their deploys.
fn is_installed(path: &str) -> bool {
    let dirs: Vec<&str> = path.split('/').collect();
    let is_package = |dir: &&str| matches!(*dir, "site-packages" | "node_modules");
    dirs.iter().any(is_package) || matches!(dirs.iter().nth_back(1), Some(&("bin" | "sbin")))
}

#[cfg(test)]
mod tests {
    use fdguard_probe::{ContainerImage, FileStamp, Probe};
    use testkit::FakeProc;

    use super::{ProgramStamp, ScriptStamp};

    fn file(inode: u64, size: i64) -> FileStamp {
        FileStamp {
            file: (1, inode),
            size,
            modified: (7, 0),
        }
    }

    fn stamp(script: ScriptStamp, image: ContainerImage) -> ProgramStamp {
        ProgramStamp {
            executable: file(1, 1),
            script,
            image,
        }
    }

    fn outside(script: ScriptStamp) -> ProgramStamp {
        stamp(script, ContainerImage::Outside)
    }

    #[test]
    fn a_changed_script_is_a_deploy_although_the_interpreter_is_the_same() {
        use ScriptStamp::{File, Launcher, NotInterpreted, Unknown};
        let is_replaced = |old, new| outside(old).is_replaced_by(&outside(new));
        assert_eq!(is_replaced(NotInterpreted, NotInterpreted), Some(false));
        assert_eq!(is_replaced(File(file(2, 9)), File(file(3, 9))), Some(true));
        assert_eq!(is_replaced(File(file(2, 9)), File(file(2, 9))), Some(false));
        assert_eq!(is_replaced(Unknown, Unknown), None);
        // gunicorn is the same; the program that it loads may be another one.
        let same = is_replaced(Launcher(file(2, 9)), Launcher(file(2, 9)));
        assert_eq!(same, None);
        let old = outside(Unknown);
        let new = ProgramStamp {
            executable: file(8, 1),
            ..old.clone()
        };
        assert_eq!(old.is_replaced_by(&new), Some(true));
    }

    #[test]
    fn in_a_container_the_image_counts() {
        let of = |image: ContainerImage, inode| ProgramStamp {
            executable: file(inode, 1),
            ..stamp(ScriptStamp::NotInterpreted, image)
        };
        let id = |id: &str| ContainerImage::Id(id.to_owned());
        let is_replaced = |old, new| of(old, 1).is_replaced_by(&of(new, 2));
        assert_eq!(is_replaced(id("a"), id("b")), Some(true));
        assert_eq!(is_replaced(id("a"), id("a")), Some(false), "another copy");
        assert_eq!(is_replaced(id("a"), ContainerImage::Unknown), None);
        assert_eq!(
            is_replaced(ContainerImage::Unknown, ContainerImage::Unknown),
            None
        );
    }

    #[test]
    fn the_script_of_an_interpreter_is_read_where_the_process_sees_it() {
        let mut tree = FakeProc::new();
        let program = |tree: &mut FakeProc, pid: u32, exe: &str, arguments: &str| {
            let _process = tree
                .process(pid)
                .file("cgroup", "0::/system.slice/app.service\n")
                .file("cmdline", arguments.replace(' ', "\0") + "\0");
            tree.file(&format!("root{exe}"), "#!");
            let at = |path: String| tree.root().join(path);
            let link = |from: String, to: String| std::os::unix::fs::symlink(at(from), at(to));
            link(format!("root{exe}"), format!("{pid}/exe")).unwrap();
            link("root".to_owned(), format!("{pid}/root")).unwrap();
            link("root/srv".to_owned(), format!("{pid}/cwd")).unwrap();
        };
        program(&mut tree, 10, "/usr/bin/python3.11", "python3 -u app.py");
        program(
            &mut tree,
            11,
            "/usr/bin/java",
            "java -Xmx1g -jar /srv/app.jar",
        );
        program(&mut tree, 12, "/usr/bin/python3.12", "python3 -m shop");
        program(
            &mut tree,
            13,
            "/usr/bin/node",
            "node /srv/node_modules/.bin/next",
        );
        program(&mut tree, 14, "/usr/sbin/nginx", "nginx -g app.py");
        for script in ["app.py", "app.jar", "node_modules/.bin/next", "shop"] {
            tree.file(&format!("root/srv/{script}"), script);
        }
        let probe = Probe::at(tree.root()).unwrap();
        let script = |pid| ProgramStamp::read(&probe, pid).unwrap().script;
        assert!(matches!(script(10), ScriptStamp::File(stamp) if stamp.size == 6));
        assert!(matches!(script(11), ScriptStamp::File(stamp) if stamp.size == 7));
        assert_eq!(script(12), ScriptStamp::Unknown);
        assert!(matches!(script(13), ScriptStamp::Launcher(_)));
        assert_eq!(script(14), ScriptStamp::NotInterpreted);
    }
}
