//! What to change at a line that leaks, by its language, the call and the library it goes through.

use crate::Class;
use crate::origin::{Culprit, Language};

/// What is known about a site that leaks.
#[derive(Clone, Copy, Debug)]
pub struct LeakSuspicion<'a> {
    /// The line.
    pub culprit: Option<&'a Culprit>,
    /// The packages between the line and the call, the application's direct one first.
    pub through: &'a [String],
    /// What it leaves open.
    pub class: Option<&'a Class>,
}

/// One piece of advice, for a language and a package or a class.
struct Entry {
    language: Option<Language>,
    package: Option<&'static str>,
    class: Option<Class>,
    text: &'static str,
}

const fn entry(
    language: Option<Language>,
    package: Option<&'static str>,
    class: Option<Class>,
    text: &'static str,
) -> Entry {
    Entry {
        language,
        package,
        class,
        text,
    }
}

const PYTHON: Option<Language> = Some(Language::Python);
const NODE: Option<Language> = Some(Language::Node);
const JAVA: Option<Language> = Some(Language::Java);

/// The first match wins.
const ENTRIES: &[Entry] = &[
    entry(
        PYTHON,
        Some("pexpect"),
        None,
        "call `close()` on the pexpect child: `terminate()` ends the process but leaves the terminal open",
    ),
    entry(
        PYTHON,
        Some("ptyprocess"),
        None,
        "call `close()` on the child: `terminate()` ends the process but leaves the terminal open",
    ),
    entry(
        PYTHON,
        Some("subprocess"),
        None,
        "use `with subprocess.Popen(…)`, or close its pipes and call `wait()`",
    ),
    entry(
        PYTHON,
        Some("sqlite3"),
        None,
        "call `close()` on the connection: `with connection` only ends the transaction",
    ),
    entry(
        PYTHON,
        Some("httpx"),
        None,
        "share one client in the whole program, or use `with httpx.Client()` (`async with httpx.AsyncClient()`)",
    ),
    entry(
        PYTHON,
        Some("aiohttp"),
        None,
        "share one `ClientSession` in the whole program, or use `async with`",
    ),
    entry(
        PYTHON,
        Some("requests"),
        None,
        "use `with requests.Session()`, and read or close each response",
    ),
    entry(
        PYTHON,
        Some("urllib3"),
        None,
        "read or close each response so that its connection returns to the pool",
    ),
    entry(
        PYTHON,
        Some("tempfile"),
        None,
        "use `with tempfile.NamedTemporaryFile()`, or close it in `finally`",
    ),
    entry(
        PYTHON,
        Some("multiprocessing"),
        None,
        "close and join the pool or process: `with Pool()`, or `close()` and `join()`",
    ),
    entry(
        PYTHON,
        Some("asyncio"),
        Some(Class::Eventpoll),
        "call `loop.close()`, or use `asyncio.run()`, which closes the loop",
    ),
    entry(
        PYTHON,
        Some("asyncio"),
        Some(Class::Unix),
        "these belong to an event loop: call `loop.close()`, or use `asyncio.run()`, which closes the loop",
    ),
    entry(
        PYTHON,
        Some("asyncio"),
        None,
        "close the transport or writer, and await `wait_closed()`",
    ),
    entry(
        PYTHON,
        Some("logging"),
        None,
        "add the handler once, at start-up; call `removeHandler()` and `close()` on each one you replace",
    ),
    entry(
        PYTHON,
        None,
        Some(Class::Regular),
        "use `with open(…)`, or close it in `finally`",
    ),
    entry(
        PYTHON,
        None,
        Some(Class::Directory),
        "use `with os.scandir(…)`, or `os.close()` in `finally`",
    ),
    entry(PYTHON, None, None, "use `with`, or close it in `finally`"),
    entry(
        NODE,
        None,
        Some(Class::Regular),
        "close it in `finally` (`fs.closeSync(fd)`, `await handle.close()`), so that an exception closes it too",
    ),
    entry(
        NODE,
        None,
        Some(Class::Eventpoll),
        "close the event loop: `loop.close()`",
    ),
    entry(
        NODE,
        None,
        None,
        "call `destroy()` or `close()` on every path, including exceptions",
    ),
    entry(
        JAVA,
        None,
        None,
        "use try-with-resources: nothing else closes `Files` streams and channels",
    ),
    entry(
        Some(Language::Rust),
        None,
        None,
        "make sure it is dropped: look for `mem::forget`, `into_raw_fd`, `Box::leak` and `Rc` cycles",
    ),
    entry(
        Some(Language::Go),
        None,
        None,
        "`defer` its `Close()` right after the error check; close response bodies even if you do not read them",
    ),
];

/// What to change.
#[must_use]
pub fn advice(suspicion: &LeakSuspicion<'_>) -> &'static str {
    let language = suspicion.culprit.map(|culprit| culprit.language);
    let class = suspicion.class.map(Class::family);
    let fits = |entry: &&Entry| {
        let is_package = |name: &&str| suspicion.through.iter().any(|one| one == name);
        let is_class = |wanted: &Class| class.as_ref() == Some(wanted);
        entry.language.is_none_or(|wanted| language == Some(wanted))
            && entry.package.as_ref().is_none_or(is_package)
            && entry.class.as_ref().is_none_or(is_class)
    };
    let found = ENTRIES.iter().find(fits);
    let native = "close it on every path out of the function that owns it, including error paths";
    found.map_or(native, |entry| entry.text)
}

#[cfg(test)]
mod tests {
    use super::{LeakSuspicion, advice};
    use crate::Class;
    use crate::origin::{Culprit, Language};

    fn given(language: Language, through: &[&str], class: &Class) -> &'static str {
        let culprit = Culprit {
            file: Some("/srv/a".into()),
            function: None,
            line: Some(3),
            language,
        };
        let through: Vec<String> = through.iter().map(|name| (*name).to_owned()).collect();
        advice(&LeakSuspicion {
            culprit: Some(&culprit),
            through: &through,
            class: Some(class),
        })
    }

    #[test]
    fn advice_fits_the_site_and_not_the_class_in_general() {
        let node = given(Language::Node, &[], &Class::Regular);
        assert!(node.contains("closeSync"), "{node}");
        let event_loop = given(Language::Python, &["asyncio"], &Class::Eventpoll);
        assert!(event_loop.contains("loop.close()"), "{event_loop}");
        let pty = given(
            Language::Python,
            &["pexpect", "ptyprocess", "pty"],
            &Class::PtyMaster,
        );
        assert!(pty.contains("terminate()"), "{pty}");
        let c = given(Language::C, &[], &Class::Pipe);
        assert!(c.starts_with("close it on every path"), "{c}");
    }
}
