//! Decides from the objects of a process whether it can call `select()`. Decision 012 has the
//! measurements behind these rules.

use fdguard_core::{SelectUse, Text};

use crate::parse::elf::ElfObject;

/// Libraries that import `select()` but never pass it a number that could be too high, by the
/// beginning of their file names.
const HARMLESS: [&[u8]; 5] = [
    // Compares the number with 1024 first and refuses higher ones.
    b"libcrypto.so",
    // Only in a child, to talk to the debugger that it starts for a stack trace.
    b"libglib-2.0.so",
    // Has five ways to wait, and uses epoll.
    b"libevent-",
    b"libevent_core-",
    // Waits for the terminal, which is number 0.
    b"libreadline.so",
];

/// An object that was read.
#[derive(Clone, Debug)]
pub(super) struct ObjectRead {
    pub(super) name: Text,
    pub(super) object: ElfObject,
    /// Whether it is the program itself.
    pub(super) program: bool,
}

impl ObjectRead {
    fn can_select(&self) -> bool {
        let object = &self.object;
        if object.python {
            // Its module `select` may be loaded at any moment, and calls it with any number.
            return true;
        }
        if object.node {
            // Waits by epoll; the import belongs to the bundled OpenSSL.
            return false;
        }
        // A fortified object that sets bits imports the check; one without it only sleeps, or
        // passes on a set made elsewhere.
        let sets_bits = object.imports_set_check || !object.fortified;
        let name = self.name.as_bytes();
        let harmless = HARMLESS.iter().any(|start| name.starts_with(start));
        object.imports_select && sets_bits && !harmless
    }

    /// Whether this is a statically linked program, with its own copy of everything.
    fn is_complete(&self) -> bool {
        let loaders: [&[u8]; 4] = [b"ld-linux", b"ld-musl", b"ld.so", b"ld64.so"];
        // `ld.so PROGRAM` runs as the loader: the program then is one of the libraries.
        let is_loader = |start: &&[u8]| self.name.as_bytes().starts_with(start);
        self.program && !self.object.interpreted && !loaders.iter().any(is_loader)
    }
}

/// An object that could not be read.
#[derive(Clone, Debug)]
pub(super) struct Unread {
    pub(super) name: Text,
    pub(super) why: String,
}

impl Unread {
    pub(super) fn new(name: &str, why: String) -> Self {
        let name = Text::from(name);
        Self { name, why }
    }
}

/// One import is enough for yes; for no, everything must have been read and must be dynamically
/// linked.
pub(super) fn verdict(seen: &[ObjectRead], unread: &[Unread]) -> SelectUse {
    let importers = seen.iter().filter(|one| one.can_select());
    let objects: Vec<Text> = importers.map(|one| one.name.clone()).collect();
    if !objects.is_empty() {
        return SelectUse::Imports { objects };
    }
    if let Some(one) = unread.first() {
        return SelectUse::unknown(format!("{}: {}", one.name.to_lossy(), one.why));
    }
    match seen.iter().find(|one| one.program) {
        None => SelectUse::unknown("the program is not an ELF file"),
        // Go's runtime waits by epoll and makes its own system calls.
        Some(program) if program.is_complete() && !program.object.go => SelectUse::unknown(
            "the program is statically linked and does not list the functions it calls",
        ),
        Some(_) => SelectUse::Absent,
    }
}

#[cfg(test)]
mod tests {
    use fdguard_core::{SelectUse, Text};

    use super::{ObjectRead, Unread, verdict};
    use crate::parse::elf::ElfObject;

    const PLAIN: ElfObject = ElfObject {
        interpreted: true,
        imports_select: false,
        imports_set_check: false,
        fortified: false,
        python: false,
        node: false,
        go: false,
    };

    fn seen(name: &str, program: bool, object: ElfObject) -> ObjectRead {
        let name = Text::from(name);
        ObjectRead {
            name,
            object,
            program,
        }
    }

    /// A program that imports nothing of interest, with this library.
    fn with(library: &str, object: ElfObject) -> SelectUse {
        let all = [seen("app", true, PLAIN), seen(library, false, object)];
        verdict(&all, &[])
    }

    fn imports(name: &str) -> SelectUse {
        let objects = vec![Text::from(name)];
        SelectUse::Imports { objects }
    }

    const SELECTS: ElfObject = ElfObject {
        imports_select: true,
        ..PLAIN
    };

    #[test]
    fn r7_an_import_counts_unless_a_fortified_object_sets_no_bits() {
        assert_eq!(with("libsasl2.so.2", SELECTS), imports("libsasl2.so.2"));
        let sleeps = ElfObject {
            fortified: true,
            ..SELECTS
        };
        assert_eq!(with("libmount.so.1", sleeps), SelectUse::Absent);
        let sets = ElfObject {
            imports_set_check: true,
            ..sleeps
        };
        assert_eq!(with("libtirpc.so.3", sets), imports("libtirpc.so.3"));
        let only_sets = ElfObject {
            imports_select: false,
            ..sets
        };
        assert_eq!(with("libcurl.so.4", only_sets), SelectUse::Absent);
    }

    #[test]
    fn r7_libraries_that_are_known_to_be_harmless_do_not_count() {
        for name in ["libcrypto.so.3", "libglib-2.0.so.0", "libreadline.so.8.2"] {
            assert_eq!(with(name, SELECTS), SelectUse::Absent, "{name}");
        }
    }

    #[test]
    fn r7_python_can_always_and_node_does_not() {
        let python = ElfObject {
            python: true,
            ..PLAIN
        };
        assert_eq!(
            with("libpython3.11.so.1.0", python),
            imports("libpython3.11.so.1.0")
        );
        let node = ElfObject {
            node: true,
            ..SELECTS
        };
        assert_eq!(verdict(&[seen("node", true, node)], &[]), SelectUse::Absent);
    }

    #[test]
    fn r7_a_static_program_is_not_known_unless_it_is_of_go() {
        let alone = ElfObject {
            interpreted: false,
            ..PLAIN
        };
        let answer = verdict(&[seen("app", true, alone)], &[]);
        assert!(matches!(answer, SelectUse::Unknown { .. }), "{answer}");
        let go = ElfObject { go: true, ..alone };
        assert_eq!(verdict(&[seen("app", true, go)], &[]), SelectUse::Absent);
        let linked = ElfObject {
            go: true,
            ..SELECTS
        };
        assert_eq!(verdict(&[seen("app", true, linked)], &[]), imports("app"));
        let by_hand = [
            seen("ld-linux-x86-64.so.2", true, alone),
            seen("app", false, PLAIN),
        ];
        assert_eq!(verdict(&by_hand, &[]), SelectUse::Absent);
    }

    #[test]
    fn r7_what_was_not_read_forbids_a_no_but_not_a_yes() {
        let unread = [Unread::new("libx.so", "gone".to_owned())];
        let no = verdict(&[seen("app", true, PLAIN)], &unread);
        assert_eq!(no, SelectUse::unknown("libx.so: gone"));
        let yes = verdict(&[seen("app", true, SELECTS)], &unread);
        assert_eq!(yes, imports("app"));
        assert!(matches!(verdict(&[], &[]), SelectUse::Unknown { .. }));
    }
}
