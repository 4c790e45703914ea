//! Whose code a file is: the program's own, a package's, or Python's.

/// Whose code it is; the first is the most likely reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CodeOrigin {
    /// The program's own.
    Own,
    /// Of an installed package.
    Package,
    /// Of Python itself.
    Standard,
}

/// Where Python's own modules are.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    standard: Option<String>,
}

impl Origins {
    /// By the file of the module `os`.
    pub(crate) fn new(os: Option<&str>) -> Self {
        let dir = os.and_then(|file| file.rsplit_once('/'));
        Self {
            standard: dir.map(|(dir, _)| format!("{dir}/")),
        }
    }

    pub(crate) fn of_file(&self, file: &str) -> CodeOrigin {
        if file.contains("/site-packages/") || file.contains("/dist-packages/") {
            return CodeOrigin::Package;
        }
        let is_standard = |dir: &String| file.starts_with(dir.as_str());
        match file.starts_with("<frozen") || self.standard.as_ref().is_some_and(is_standard) {
            true => CodeOrigin::Standard,
            false => CodeOrigin::Own,
        }
    }

    pub(crate) fn of_module(&self, name: &str, file: Option<&str>) -> CodeOrigin {
        match file {
            _ if name == "__main__" => CodeOrigin::Own,
            Some(file) => self.of_file(file),
            None => CodeOrigin::Standard,
        }
    }
}

/// The last part of a path.
pub(crate) fn base_name(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}
