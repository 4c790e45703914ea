//! Modules that belong to a runtime: they contain no line of the user's code.

use std::path::Path;

use fdguard_core::Text;
use fdguard_core::origin::{Frame, Language, Stack};

use crate::table::RawFrame;

/// The owner of a module's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Module {
    /// The runtime of a language whose own frames are read.
    Runtime(Language),
    /// The C library and the startup code of a program.
    System,
    /// Any other code.
    Other,
}

/// Libraries of the JVM that open descriptors, and its launcher.
const JAVA: &[&str] = &[
    "java",
    "libjvm.so",
    "libjava.so",
    "libjli.so",
    "libjimage.so",
    "libnio.so",
    "libnet.so",
    "libzip.so",
];

/// The prefix of the name of a runtime's program or library; a version may follow.
const BEGINS: &[(&str, Language)] = &[
    ("python", Language::Python),
    ("libpython", Language::Python),
    ("libnode.so", Language::Node),
    ("libuv.so", Language::Node),
];

/// The prefix of the name of a library that belongs to the C library.
const SYSTEM: &[&str] = &["libc.so", "libc-2", "libpthread", "ld-linux", "ld-2"];

impl Module {
    /// Determined by the name of its file.
    pub(crate) fn from_path(path: &Path) -> Self {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            return Self::Other;
        };
        if name == "node" || name == "nodejs" {
            return Self::Runtime(Language::Node);
        }
        if JAVA.contains(&name) {
            return Self::Runtime(Language::Java);
        }
        if let Some((_, language)) = BEGINS.iter().find(|(begin, _)| name.starts_with(begin)) {
            return Self::Runtime(*language);
        }
        match SYSTEM.iter().any(|begin| name.starts_with(begin)) {
            true => Self::System,
            false => Self::Other,
        }
    }

    /// The language whose runtime this is.
    pub(crate) fn language(self) -> Option<Language> {
        match self {
            Self::Runtime(language) => Some(language),
            Self::System | Self::Other => None,
        }
    }
}

/// The stack of something that a runtime opened by itself: the runtime's file, and no names. `None`
/// if any other code was involved.
pub(crate) fn outline(stack: &[RawFrame]) -> Option<Stack> {
    let mut runtime = None;
    for raw_frame in stack {
        let RawFrame::Native { module, .. } = raw_frame else {
            return None;
        };
        match Module::from_path(module) {
            Module::Runtime(language) => runtime = Some((module, language)),
            Module::System => {}
            Module::Other => return None,
        }
    }
    let (module, language) = runtime?;
    Some(vec![Frame {
        file: None,
        function: None,
        line: None,
        module: Some(Text::from(module.display().to_string())),
        language,
    }])
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use fdguard_core::origin::Language;

    use super::{Module, outline};
    use crate::table::RawFrame;

    fn native(module: &str) -> RawFrame {
        RawFrame::Native {
            module: module.into(),
            offset: 0x1000,
        }
    }

    #[test]
    fn modules_are_known_by_their_names() {
        for (path, module) in [
            ("/usr/bin/node", Module::Runtime(Language::Node)),
            ("/usr/lib/libnode.so.108", Module::Runtime(Language::Node)),
            ("/usr/bin/python3.11", Module::Runtime(Language::Python)),
            (
                "/opt/libpython3.12.so.1.0",
                Module::Runtime(Language::Python),
            ),
            ("/jvm/lib/server/libjvm.so", Module::Runtime(Language::Java)),
            ("/lib/x86_64-linux-gnu/libc.so.6", Module::System),
            ("/lib64/ld-linux-x86-64.so.2", Module::System),
            ("/srv/nodeserver", Module::Other),
            ("/srv/javac-tool", Module::Other),
            ("/usr/lib/libcurl.so.4", Module::Other),
            ("/", Module::Other),
        ] {
            assert_eq!(Module::from_path(Path::new(path)), module, "{path}");
        }
    }

    #[test]
    fn only_what_the_runtime_opened_alone_has_an_outline() {
        let libc = native("/lib/libc.so.6");
        let node = native("/usr/bin/node");
        let addon = native("/srv/node_modules/x/build/x.node");
        let frames = outline(&[libc.clone(), node.clone(), libc.clone()]).unwrap();
        assert_eq!(frames.len(), 1);
        assert_eq!(frames[0].language, Language::Node);
        assert_eq!(frames[0].function, None);
        assert_eq!(outline(&[libc.clone(), addon, node.clone()]), None);
        assert_eq!(outline(&[libc]), None);
        assert_eq!(outline(&[RawFrame::Unknown(4096), node]), None);
        assert_eq!(outline(&[]), None);
    }
}
