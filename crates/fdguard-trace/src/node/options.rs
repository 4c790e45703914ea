//! The options that a Node program was started with, as far as they concern its inspector.

/// The port of an inspector without another one in the options.
const PORT: u16 = 9229;

/// Options whose value may be the next word.
const WITH_VALUE: [&[u8]; 15] = [
    b"-r",
    b"--require",
    b"--import",
    b"--loader",
    b"--experimental-loader",
    b"-C",
    b"--conditions",
    b"--env-file",
    b"--inspect-port",
    b"--debug-port",
    b"--title",
    b"-e",
    b"--eval",
    b"-p",
    b"--print",
];

/// What the options say about the inspector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeOptions {
    /// Where it listens or would listen; 0 for any free port.
    pub(crate) port: u16,
    /// `--disable-sigusr1`.
    pub(crate) is_disabled: bool,
    /// `--permission`: the inspector is denied, too.
    pub(crate) is_restricted: bool,
}

impl NodeOptions {
    /// From the arguments of the process, the first being its own name, and from `NODE_OPTIONS`,
    /// over which the arguments win.
    pub(crate) fn parse<'a>(arguments: impl Iterator<Item = &'a [u8]>, variable: &'a [u8]) -> Self {
        let mut options = Self {
            port: PORT,
            is_disabled: false,
            is_restricted: false,
        };
        let separated = variable.split(|byte| *byte == b' ');
        options.read(separated.filter(|word| !word.is_empty()));
        options.read(arguments.skip(1));
        options
    }

    /// Reads up to the script's name: the words after it are the program's own.
    fn read<'a, W: Iterator<Item = &'a [u8]>>(&mut self, words: W) {
        let mut before: &'a [u8] = b"";
        for word in words {
            let is_value = WITH_VALUE.contains(&before);
            if !is_value && (!word.starts_with(b"-") || word == b"--" || word == b"-") {
                return;
            }
            match is_value {
                true if before.ends_with(b"-port") => self.set_port(word),
                true => {}
                false => self.read_option(word),
            }
            // A value is not an option that takes one.
            before = if is_value { b"" } else { word };
        }
    }

    fn read_option(&mut self, word: &[u8]) {
        let mut parts = word.splitn(2, |byte| *byte == b'=');
        let name = parts.next().unwrap_or_default();
        match name {
            b"--disable-sigusr1" => self.is_disabled = true,
            b"--permission" | b"--experimental-permission" => self.is_restricted = true,
            b"--inspect" | b"--inspect-brk" | b"--inspect-wait" | b"--inspect-port"
            | b"--debug-port" => {
                if let Some(value) = parts.next() {
                    self.set_port(value);
                }
            }
            _ => {}
        }
    }

    /// `9230`, `127.0.0.1:9230`, `[::1]:9230`, or a host alone.
    fn set_port(&mut self, value: &[u8]) {
        let last = value.rsplit(|byte| *byte == b':').next();
        let digits = last.and_then(|text| std::str::from_utf8(text).ok());
        if let Some(port) = digits.and_then(|text| text.parse().ok()) {
            self.port = port;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::NodeOptions;

    fn parse(line: &str, variable: &str) -> NodeOptions {
        NodeOptions::parse(line.split(' ').map(str::as_bytes), variable.as_bytes())
    }

    #[test]
    fn the_port_is_that_of_the_last_option() {
        for (line, variable, port) in [
            ("node a.js", "", 9229),
            ("node --inspect a.js", "", 9229),
            ("node --inspect=9300 a.js", "", 9300),
            ("node --inspect=0.0.0.0:9300 a.js", "--inspect=9301", 9300),
            ("node --inspect-port 9300 a.js", "", 9300),
            ("node --inspect-port=0 a.js", "", 0),
            ("node -r x --inspect-brk=[::1]:9302 a.js", "", 9302),
            ("node --inspect=localhost a.js", "", 9229),
            ("node a.js --inspect=9300", "", 9229),
            (
                "node a.js",
                " --max-http-header-size=1 --inspect=9301",
                9301,
            ),
        ] {
            assert_eq!(parse(line, variable).port, port, "{line}");
        }
    }

    #[test]
    fn what_forbids_the_inspector_is_found_before_the_script_only() {
        assert!(parse("node --disable-sigusr1 a.js", "").is_disabled);
        assert!(parse("node a.js", "--disable-sigusr1").is_disabled);
        assert!(parse("node --permission a.js", "").is_restricted);
        let own = parse("node a.js --permission --disable-sigusr1", "");
        assert!(!own.is_restricted && !own.is_disabled);
        assert!(!parse("", "").is_disabled);
    }
}
