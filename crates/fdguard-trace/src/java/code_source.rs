//! Where classes come from, and whether that is the application or one of its libraries.
//!
//! What the build wrote into a directory is the application's own. Of archives, the one that was
//! started is its own; another is one of its libraries, unless both have a Maven group or the stem
//! of their packages (`com.example`) in common. An archive that contains its libraries is divided:
//! by their directory, or by the groups that it lists.

use std::collections::BTreeSet;

/// Where archives keep other archives, beside their own classes.
const NESTED: &[&str] = &["BOOT-INF/", "WEB-INF/"];

/// Directories of archives that somebody else made.
const INSTALLED: &[&str] = &[
    "/usr/share/java/",
    "/usr/lib/jvm/",
    "/.m2/",
    "/.gradle/",
    "/.ivy2/",
    "/.cache/coursier/",
    "/WEB-INF/lib/",
];

/// The contents of an archive, as far as they tell whose it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ArchiveContents {
    /// The packages at its top level: `io.netty.channel`.
    packages: BTreeSet<String>,
    /// Packages of its own classes beside the archives in it.
    inner: BTreeSet<String>,
    /// The Maven groups in it.
    groups: BTreeSet<String>,
}

impl ArchiveContents {
    /// From the names of its entries.
    pub(super) fn from_names(names: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let mut contents = Self::default();
        for name in names {
            let name = name.as_ref();
            if let Some(rest) = name.strip_prefix("META-INF/maven/") {
                let group = rest.split('/').next().filter(|group| !group.is_empty());
                contents.groups.extend(group.map(str::to_owned));
                continue;
            }
            let Some((package, _)) = name.rsplit_once('/').filter(|_| name.ends_with(".class"))
            else {
                continue;
            };
            let nested = NESTED.iter().find_map(|dir| package.strip_prefix(dir));
            match nested.map(|rest| rest.strip_prefix("classes/").unwrap_or_default()) {
                Some(inner) => contents.inner.insert(inner.replace('/', ".")),
                None => contents.packages.insert(package.replace('/', ".")),
            };
        }
        contents
    }

    /// Whether classes of the package come from here.
    pub(super) fn has(&self, package: &str) -> bool {
        self.packages.contains(package) || self.inner.contains(package)
    }

    /// Whether it contains other archives, whose classes the directory does not list.
    pub(super) fn is_nested(&self) -> bool {
        !self.inner.is_empty()
    }
}

/// What was started.
#[derive(Clone, Copy, Debug)]
pub(super) struct MainSource<'a> {
    /// The main class: `com.example.Main`.
    pub(super) class: &'a str,
    /// The archive with it; `None` if it is in a directory.
    pub(super) archive: Option<&'a ArchiveContents>,
}

impl MainSource<'_> {
    fn has_stem(&self, wanted: &str) -> bool {
        stem(package(self.class)) == Some(wanted)
    }

    fn has_group(&self, groups: &BTreeSet<String>) -> bool {
        let archive = self.archive.map(|archive| &archive.groups);
        archive.is_some_and(|own| own.len() == 1 && !own.is_disjoint(groups))
    }
}

/// Whether a package of the started archive belongs to a library that was packed into it.
pub(super) fn is_packed_in(
    package: &str,
    archive: &ArchiveContents,
    main: &MainSource<'_>,
) -> bool {
    if archive.is_nested() {
        return !archive.inner.contains(package);
    }
    let has_stem = stem(package).is_some_and(|stem| main.has_stem(stem));
    // The groups of libraries are how their packages begin. An archive that lists one group lists
    // its own.
    let is_of = |group: &String| {
        let rest = package.strip_prefix(group.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    !has_stem && archive.groups.len() > 1 && archive.groups.iter().any(is_of)
}

/// Whether an archive that was not started is a library of the application.
pub(super) fn is_library(
    path: &str,
    package: &str,
    contents: &ArchiveContents,
    main: Option<&MainSource<'_>>,
) -> bool {
    if is_installed(path) {
        return true;
    }
    // Without knowing what was started, nothing is known of the others.
    main.is_some_and(|main| {
        let has_stem = stem(package).is_some_and(|stem| main.has_stem(stem));
        !has_stem && !main.has_group(&contents.groups)
    })
}

/// Whether an archive is where archives of others are installed.
pub(super) fn is_installed(path: &str) -> bool {
    INSTALLED.iter().any(|dir| path.contains(dir))
}

/// `io.netty.channel` of `io.netty.channel.Channel`.
pub(super) fn package(class: &str) -> &str {
    class.rsplit_once('.').map_or("", |(package, _)| package)
}

/// The first two parts of a package; `None` if there are fewer.
fn stem(package: &str) -> Option<&str> {
    let (first, rest) = package.split_once('.')?;
    let second = rest.split('.').next()?;
    package.get(..first.len() + 1 + second.len())
}

#[cfg(test)]
mod tests {
    use super::{ArchiveContents, MainSource, is_library, is_packed_in, package};

    const NETTY: &[&str] = &[
        "META-INF/maven/io.netty/netty-transport/pom.xml",
        "io/netty/channel/nio/NioEventLoop.class",
    ];

    fn contents(names: &[&str]) -> ArchiveContents {
        ArchiveContents::from_names(names)
    }

    fn is_foreign(
        path: &str,
        package: &str,
        names: &[&str],
        class: &str,
        main: Option<&[&str]>,
    ) -> bool {
        let main = main.map(contents);
        let main = MainSource {
            class,
            archive: main.as_ref(),
        };
        is_library(path, package, &contents(names), Some(&main))
    }

    #[test]
    fn packages_and_groups_are_read_from_names() {
        let found = contents(NETTY);
        assert!(found.has("io.netty.channel.nio") && !found.has("io.netty"));
        assert!(found.groups.contains("io.netty"));
        assert_eq!(package("io.netty.Channel"), "io.netty");
        assert_eq!(package("Main"), "");
    }

    #[test]
    fn another_archive_is_a_library_unless_it_is_of_the_same_house() {
        let place = "/srv/lib/a.jar";
        assert!(is_foreign(
            place,
            "io.netty.channel.nio",
            NETTY,
            "Main",
            None
        ));
        assert!(is_foreign(
            place,
            "io.netty.channel.nio",
            NETTY,
            "com.example.Main",
            None
        ));
        let shop = &["com/example/shop/Till.class"][..];
        assert!(!is_foreign(
            place,
            "com.example.shop",
            shop,
            "com.example.Main",
            None
        ));
        assert!(is_foreign(
            place,
            "com.example.shop",
            shop,
            "com.sample.Main",
            None
        ));
        // Other packages, but one group.
        let main = &["META-INF/maven/com.example/app/pom.xml", "app/Main.class"][..];
        let other = &[
            "META-INF/maven/com.example/base/pom.xml",
            "base/Store.class",
        ][..];
        assert!(!is_foreign(place, "base", other, "app.Main", Some(main)));
        assert!(is_foreign(
            place,
            "io.netty.channel.nio",
            NETTY,
            "app.Main",
            Some(main)
        ));
    }

    #[test]
    fn archives_of_others_are_known_by_their_place() {
        let shop = &["com/example/shop/Till.class"][..];
        for place in ["/usr/share/java/a.jar", "/home/u/.m2/repository/a.jar"] {
            assert!(is_foreign(
                place,
                "com.example.shop",
                shop,
                "com.example.Main",
                None
            ));
            assert!(is_library(place, "com.example.shop", &contents(shop), None));
        }
        assert!(!is_library(
            "/srv/a.jar",
            "com.example.shop",
            &contents(shop),
            None
        ));
    }

    #[test]
    fn libraries_that_were_packed_in_are_told_apart() {
        let shaded = contents(&[
            "META-INF/maven/com.example/app/pom.xml",
            "META-INF/maven/io.netty/netty-transport/pom.xml",
            "com/example/Main.class",
            "io/netty/channel/Channel.class",
        ]);
        let nested = contents(&[
            "org/springframework/boot/loader/JarLauncher.class",
            "BOOT-INF/classes/com/example/Main.class",
            "BOOT-INF/lib/netty-transport.jar",
        ]);
        let launcher = "org.springframework.boot.loader.JarLauncher";
        for (archive, class) in [(&shaded, "com.example.Main"), (&nested, launcher)] {
            let main = MainSource {
                class,
                archive: Some(archive),
            };
            assert!(!is_packed_in("com.example", archive, &main));
            assert!(is_packed_in("io.netty.channel", archive, &main));
        }
        assert!(shaded.has("io.netty.channel") && nested.has("com.example"));
    }
}
