//! The classes of a JVM: which of them come from libraries.
//!
//! The JVM cannot be asked where a class comes from at the moment at which it opens something: that
//! would run Java code. So the class path is read from outside: from the command line and from the
//! archives that the process holds open.

mod archive;
mod code_source;
mod command;

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use code_source::{ArchiveContents, MainSource, is_library, is_packed_in, package};
use command::{JavaCommand, JavaMain};
use fdguard_proc::{cmdline, environ};

/// More archives than a class path has.
const MOST: usize = 4096;
/// How often the open archives are listed again for a package that is in none of the known ones.
const LISTINGS: u32 = 16;

/// Where the classes of a process come from. What cannot be found out is not in it, and its classes
/// count as the application's.
#[derive(Debug)]
pub(crate) struct JavaClasses {
    /// Its directory in `/proc`.
    proc: PathBuf,
    /// How often its open archives were listed.
    listings: u32,
    sources: Vec<CodeSource>,
    /// The main class, and which of the sources has it.
    main: Option<(String, usize)>,
    /// The library of each package that was asked for.
    known: HashMap<String, Option<String>>,
}

/// A directory or an archive with classes.
#[derive(Debug)]
enum CodeSource {
    Directory(PathBuf),
    Archive(PathBuf, ArchiveContents),
}

impl CodeSource {
    fn path(&self) -> &PathBuf {
        match self {
            Self::Directory(path) | Self::Archive(path, _) => path,
        }
    }
}

impl JavaClasses {
    /// Reads the class path of a running process; `None` if it is not `java`, or not readable.
    pub(crate) fn read(pid: u32) -> Option<Self> {
        let proc = PathBuf::from(format!("/proc/{pid}"));
        let bytes = fs::read(proc.join("cmdline")).ok()?;
        let words = cmdline::arguments(&bytes);
        let words: Vec<_> = words
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        let environment = fs::read(proc.join("environ")).unwrap_or_default();
        let path = environ::values(&environment, "CLASSPATH").next();
        let path = path.map(String::from_utf8_lossy);
        let command = command::parse(&words, path.as_deref())?;
        let home = fs::read_link(proc.join("cwd")).unwrap_or_else(|_| "/".into());
        let mut found = Self {
            proc,
            listings: 0,
            sources: Vec::new(),
            main: None,
            known: HashMap::new(),
        };
        found.add(found.class_path(&command, &home));
        if let JavaMain::Archive(archive) = &command.main {
            found.add(found.manifest_path(&home.join(archive)));
        }
        found.main = found.find_main(&command.main);
        Some(found)
    }

    /// The archive of the library that a method belongs to: of `io.netty.channel.Channel.read` its
    /// archive. `None` if it is the application's own, or not known.
    pub(crate) fn library(&mut self, method: &str) -> Option<String> {
        let class = method.rsplit_once('.')?.0;
        let package = package(class);
        if let Some(known) = self.known.get(package) {
            return known.clone();
        }
        // Runtimes with class loaders of their own open archives that are on no class path.
        if !self.has(class, package) && !is_of_runtime(package) && self.listings < LISTINGS {
            self.listings += 1;
            self.add(open_archives(&self.proc));
        }
        let found = self.find_library(class, package);
        self.known.insert(package.to_owned(), found.clone());
        found
    }

    fn has(&self, class: &str, package: &str) -> bool {
        self.sources.iter().any(|source| match source {
            CodeSource::Directory(path) => self.inside(&path.join(class_file(class))).exists(),
            CodeSource::Archive(_, contents) => contents.has(package),
        })
    }

    fn find_library(&self, class: &str, package: &str) -> Option<String> {
        let main = self.main.as_ref().map(|(class, at)| MainSource {
            class,
            archive: match self.sources.get(*at) {
                Some(CodeSource::Archive(_, contents)) => Some(contents),
                _ => None,
            },
        });
        let started = self.main.as_ref().map(|(_, at)| *at);
        for (at, source) in self.sources.iter().enumerate() {
            match source {
                CodeSource::Directory(directory) => {
                    if self.inside(&directory.join(class_file(class))).exists() {
                        return None;
                    }
                }
                CodeSource::Archive(path, contents) if contents.has(package) => {
                    let place = path.to_string_lossy();
                    let is_foreign = match &main {
                        Some(main) if started == Some(at) => {
                            code_source::is_installed(&place)
                                || is_packed_in(package, contents, main)
                        }
                        main => is_library(&place, package, contents, main.as_ref()),
                    };
                    return is_foreign.then(|| place.into_owned());
                }
                CodeSource::Archive(..) => {}
            }
        }
        // Of the archives in an archive, only the outer one is listed.
        let (_, at) = self.main.as_ref()?;
        match self.sources.get(*at) {
            Some(CodeSource::Archive(path, contents)) if contents.is_nested() => {
                Some(format!("{}!", path.display()))
            }
            _ => None,
        }
    }

    /// The entries of the class path as absolute paths, in order.
    fn class_path(&self, command: &JavaCommand, home: &Path) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for entry in &command.class_path {
            let path = home.join(entry);
            match path.file_name() {
                Some(name) if name == "*" => paths.extend(self.archives_in(path.parent())),
                _ => paths.push(path),
            }
        }
        paths
    }

    /// The archives that the manifest of an archive names, beside it.
    fn manifest_path(&self, archive: &Path) -> Vec<PathBuf> {
        let file = File::open(self.inside(archive)).ok();
        let manifest = file.and_then(|file| archive::manifest(&file));
        let names = manifest.map(|manifest| manifest.class_path);
        let names = names.unwrap_or_default().into_iter().take(MOST);
        names.map(|name| archive.with_file_name(name)).collect()
    }

    fn archives_in(&self, directory: Option<&Path>) -> Vec<PathBuf> {
        let listed = directory.and_then(|path| fs::read_dir(self.inside(path)).ok());
        let names = listed.into_iter().flatten().filter_map(Result::ok);
        let paths = names.filter_map(|entry| Some(directory?.join(entry.file_name())));
        let mut paths: Vec<PathBuf> = paths.filter(|path| is_archive(path)).take(MOST).collect();
        paths.sort();
        paths
    }

    /// Reads those that are not known yet.
    fn add(&mut self, paths: Vec<PathBuf>) {
        for path in paths {
            let is_known = self.sources.iter().any(|source| *source.path() == path);
            if is_known || self.sources.len() >= MOST {
                continue;
            }
            let place = self.inside(&path);
            if place.is_dir() {
                self.sources.push(CodeSource::Directory(path));
            } else if let Ok(names) = File::open(place).and_then(|file| archive::names(&file)) {
                let contents = ArchiveContents::from_names(names);
                self.sources.push(CodeSource::Archive(path, contents));
            }
        }
    }

    /// The main class, and the source that has it.
    fn find_main(&self, main: &JavaMain) -> Option<(String, usize)> {
        match main {
            JavaMain::Archive(_) => {
                let CodeSource::Archive(path, _) = self.sources.first()? else {
                    return None;
                };
                let file = File::open(self.inside(path)).ok()?;
                Some((archive::manifest(&file)?.main_class?, 0))
            }
            JavaMain::Class(class) => {
                let has_it = |source: &CodeSource| match source {
                    CodeSource::Directory(path) => {
                        self.inside(&path.join(class_file(class))).exists()
                    }
                    CodeSource::Archive(_, contents) => contents.has(package(class)),
                };
                let at = self.sources.iter().position(has_it)?;
                Some((class.clone(), at))
            }
        }
    }

    /// A path of the process as one of ours.
    fn inside(&self, path: &Path) -> PathBuf {
        let root = self.proc.join("root");
        root.join(path.strip_prefix("/").unwrap_or(path))
    }
}

/// Whether it is known to be of the JVM without a look at archives.
fn is_of_runtime(package: &str) -> bool {
    let parts = ["java", "javax", "jdk", "sun"];
    parts.contains(&package.split('.').next().unwrap_or_default())
}

/// `com/example/Main.class` for `com.example.Main$1`.
fn class_file(class: &str) -> String {
    let outer = class.split('$').next().unwrap_or(class);
    format!("{}.class", outer.replace('.', "/"))
}

/// The archives that a process holds open: those of class loaders that are on no class path.
fn open_archives(proc: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(proc.join("fd")).into_iter().flatten();
    let links = listed.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let mut paths: Vec<PathBuf> = links.filter(|path| is_archive(path)).take(MOST).collect();
    paths.sort();
    paths
}

fn is_archive(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    bytes.ends_with(b".jar") || bytes.ends_with(b".JAR") || bytes.ends_with(b".war")
}
