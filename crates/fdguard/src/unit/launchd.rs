//! A property list of launchd.

use std::fmt::Write as _;

use fdguard_core::rule::RuleTable;

use super::lint::{self, Check, Unit};
use super::read::{self, UnitNode, UnreadableUnit};
use super::{UnitError, UnitKind, UnitSpec};

/// Property lists of launchd.
pub(super) struct Launchd;

impl UnitKind for Launchd {
    fn name(&self) -> &'static str {
        "launchd"
    }

    fn signs(&self) -> (&'static [&'static str], &'static [&'static str]) {
        (&["plist"], &["<plist"])
    }

    fn write(&self, spec: &UnitSpec) -> Result<String, UnitError> {
        let name = &spec.name;
        // An XML comment cannot contain every name.
        let place = if spec.user {
            "~/Library/LaunchAgents and run `launchctl bootstrap gui/UID` with its path"
        } else {
            "/Library/LaunchDaemons and run `launchctl bootstrap system` with its path"
        };
        let (soft, hard) = spec.files;
        let mut list = List::default();
        list.key("Label").string(name)?;
        list.key("ProgramArguments").line("<array>");
        for word in spec.words() {
            list.string(&word)?;
        }
        list.line("</array>");
        if let Some(dir) = &spec.dir {
            list.key("WorkingDirectory").string(dir)?;
        }
        list.key("RunAtLoad").line("<true/>");
        list.line(
            "<!-- Restart only after a failure. KeepAlive=true would also restart after exit status 0. -->",
        );
        list.key("KeepAlive").line("<dict>");
        list.key("SuccessfulExit").line("<false/>").line("</dict>");
        list.key("ThrottleInterval").integer(10);
        list.line("<!-- Must exceed fdguard's grace period, or fdguard is killed while it stops the program. -->");
        list.key("ExitTimeOut").integer(spec.patience());
        list.line("<!-- End the rest of the process group with the job. -->");
        list.key("AbandonProcessGroup").line("<false/>");
        list.line("<!-- Without these the soft limit is 256. -->");
        for (key, files) in [("SoftResourceLimits", soft), ("HardResourceLimits", hard)] {
            list.key(key).line("<dict>");
            list.key("NumberOfFiles").integer(files).line("</dict>");
        }
        for (key, end) in [("StandardOutPath", "out"), ("StandardErrorPath", "err")] {
            let dir = match (&spec.home, spec.user) {
                (Some(home), true) => format!("{home}/Library/Logs"),
                (None, true) => continue,
                (_, false) => "/var/log".to_owned(),
            };
            list.key(key).string(&format!("{dir}/{name}.{end}.log"))?;
        }
        let body = list.text;
        Ok(format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n\
         <!-- Written by `fdguard unit launchd`. Save it as LABEL.plist in {place}. -->\n\
         <plist version=\"1.0\">\n<dict>\n{body}</dict>\n</plist>\n"
        ))
    }

    fn read(&self, text: &str) -> Result<UnitNode, UnreadableUnit> {
        read::plist::read(text)
    }

    fn services<'a>(&self, file: &'a UnitNode) -> Vec<Unit<'a>> {
        lint::launchd::units(file)
    }

    fn rules(&self) -> RuleTable<Check> {
        lint::launchd::RULES
    }
}

/// The lines between the outermost tags.
#[derive(Default)]
struct List {
    text: String,
    depth: usize,
}

impl List {
    fn line(&mut self, line: &str) -> &mut Self {
        if line.starts_with("</") {
            self.depth -= 1;
        }
        self.text.push_str(&"  ".repeat(self.depth + 1));
        self.text.push_str(line);
        self.text.push('\n');
        if matches!(line, "<dict>" | "<array>") {
            self.depth += 1;
        }
        self
    }

    fn key(&mut self, key: &str) -> &mut Self {
        self.line(&format!("<key>{key}</key>"))
    }

    fn integer(&mut self, number: u64) -> &mut Self {
        self.line(&format!("<integer>{number}</integer>"))
    }

    fn string(&mut self, text: &str) -> Result<&mut Self, UnitError> {
        let escaped = escape(text)?;
        Ok(self.line(&format!("<string>{escaped}</string>")))
    }
}

/// Text between tags. XML cannot represent most control characters.
fn escape(text: &str) -> Result<String, UnitError> {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            // Unescaped, these would be read as spaces or as another line break.
            '\t' | '\n' | '\r' => {
                // Writing to a string cannot fail.
                let _ = write!(escaped, "&#{};", u32::from(c));
            }
            c if c.is_ascii_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                let why = format!("{text:?} cannot be written to a property list");
                return Err(UnitError(why));
            }
            c => escaped.push(c),
        }
    }
    Ok(escaped)
}
