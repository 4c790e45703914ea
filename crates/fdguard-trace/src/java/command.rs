//! The command line of a JVM: its class path and its main class.

/// Options of `java` whose value is the next argument.
const WITH_VALUE: &[&str] = &[
    "-p",
    "--module-path",
    "--upgrade-module-path",
    "--add-modules",
    "--limit-modules",
    "--enable-native-access",
    "--add-exports",
    "--add-opens",
    "--add-reads",
    "--patch-module",
    "--source",
];

/// What was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum JavaMain {
    /// A class on the class path: `com.example.Main`.
    Class(String),
    /// An archive that names its main class.
    Archive(String),
}

/// The command line, as far as it says where classes come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JavaCommand {
    pub(super) main: JavaMain,
    /// Directories, archives and `DIRECTORY/*`.
    pub(super) class_path: Vec<String>,
}

/// Reads the arguments; `None` if they are not those of `java`.
pub(super) fn parse(arguments: &[String], class_path: Option<&str>) -> Option<JavaCommand> {
    let (program, words) = arguments.split_first()?;
    if program.rsplit('/').next() != Some("java") {
        return None;
    }
    let mut path = class_path.map(str::to_owned);
    let mut words = words.iter().map(String::as_str);
    let main = loop {
        let word = words.next()?;
        match word {
            "-cp" | "-classpath" | "--class-path" => path = words.next().map(str::to_owned),
            "-jar" => break JavaMain::Archive(words.next()?.to_owned()),
            "-m" | "--module" => break JavaMain::Class(of_module(words.next()?)?),
            word if WITH_VALUE.contains(&word) => drop(words.next()),
            word => match word.split_once('=') {
                Some(("--class-path", value)) => path = Some(value.to_owned()),
                Some(("--module", value)) => break JavaMain::Class(of_module(value)?),
                _ if word.starts_with(['-', '@']) => {}
                // A source file is compiled in memory: its classes are in no file.
                _ if word.ends_with(".java") => return None,
                _ => break JavaMain::Class(word.replace('/', ".")),
            },
        }
    };
    let class_path = match &main {
        JavaMain::Archive(archive) => vec![archive.clone()],
        JavaMain::Class(_) => split(path.as_deref().unwrap_or(".")),
    };
    Some(JavaCommand { main, class_path })
}

/// `MODULE/CLASS`; the class may be missing.
fn of_module(value: &str) -> Option<String> {
    value.split_once('/').map(|(_, class)| class.to_owned())
}

fn split(path: &str) -> Vec<String> {
    let entries = path.split(':');
    // An empty entry is the working directory.
    let entries = entries.map(|entry| if entry.is_empty() { "." } else { entry });
    entries.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::{JavaCommand, JavaMain, parse};

    fn of(line: &str) -> Option<JavaCommand> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&words, None)
    }

    fn class(name: &str, path: &[&str]) -> Option<JavaCommand> {
        Some(JavaCommand {
            main: JavaMain::Class(name.to_owned()),
            class_path: path.iter().map(|&entry| entry.to_owned()).collect(),
        })
    }

    #[test]
    fn class_paths_in_every_spelling() {
        let wanted = class("com.example.Main", &["/srv/app", "lib/*"]);
        for line in [
            "java -cp /srv/app:lib/* com.example.Main -jar x",
            "/usr/bin/java -Xmx1g -classpath /srv/app:lib/* -ea com.example.Main",
            "java --add-opens java.base/java.lang=ALL-UNNAMED --class-path /srv/app:lib/* com.example.Main",
            "java --class-path=/srv/app:lib/* -p mods com/example/Main a",
        ] {
            assert_eq!(of(line), wanted, "{line}");
        }
        assert_eq!(of("java Main"), class("Main", &["."]));
        assert_eq!(of("java -cp a: Main"), class("Main", &["a", "."]));
        assert_eq!(
            of("java -p mods -m app/com.example.Main"),
            class("com.example.Main", &["."])
        );
    }

    #[test]
    fn an_archive_is_the_whole_class_path() {
        let found = of("java -cp ignored -Dx=y -jar app.jar -cp other").unwrap();
        assert_eq!(found.main, JavaMain::Archive("app.jar".to_owned()));
        assert_eq!(found.class_path, ["app.jar"]);
    }

    #[test]
    fn the_environment_has_a_class_path_too() {
        let words = ["java", "Main"].map(str::to_owned);
        let found = parse(&words, Some("/srv/classes")).unwrap();
        assert_eq!(found.class_path, ["/srv/classes"]);
    }

    #[test]
    fn what_is_no_java_with_classes_is_left_alone() {
        for line in [
            "",
            "python3 -m java",
            "java",
            "java -version",
            "java -jar",
            "java Main.java",
        ] {
            assert_eq!(of(line), None, "{line}");
        }
    }
}
