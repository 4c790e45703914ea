//! The syntax of a check: `tcp:8080` as a flag, or a table with Kubernetes' names in the
//! configuration.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use fdguard_core::units;
use regex::bytes::Regex;

use super::series::Timing;
use super::target::Endpoint;
use super::url::Url;

/// A check: what to probe, and how often.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckSpec {
    /// What to probe.
    pub kind: Kind,
    /// How often, and how many times in a row.
    pub timing: Timing,
}

/// What a check probes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Kind {
    /// A connection can be established.
    Tcp(Endpoint),
    /// A page responds.
    Http(Page),
    /// A shell command exits with 0.
    Exec(String),
    /// The service sent `READY=1`.
    Notify,
    /// The service wrote a newline to this descriptor, as in s6.
    Newline(u32),
    /// A line of its output matches.
    Line(BodyPattern),
    /// It has been up for this long.
    Up(Duration),
    /// It accepts the connections that wait at its listening sockets.
    Accept,
}

/// A page and the expected response.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// Which.
    pub url: Url,
    /// The accepted statuses.
    pub status: RangeInclusive<u16>,
    /// What the body must contain.
    pub body: Option<BodyPattern>,
}

/// 2xx and 3xx, as in Kubernetes.
pub(super) const WELL: RangeInclusive<u16> = 200..=399;

/// A regular expression over bytes.
#[derive(Clone, Debug)]
pub struct BodyPattern(pub Regex);

impl PartialEq for BodyPattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl FromStr for BodyPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let built = regex::bytes::RegexBuilder::new(text)
            .size_limit(1 << 20)
            .dfa_size_limit(256 << 10)
            .build();
        // The message has several lines; the last has the reason.
        built.map(Self).map_err(|why| {
            let why = why.to_string();
            let last = why.lines().last().unwrap_or_default();
            format!(
                "{text:?} is not a valid regular expression: {}",
                last.trim_start_matches("error: ")
            )
        })
    }
}

impl CheckSpec {
    /// Whether it happens once after a start and stays true: suitable for readiness, not for
    /// liveness.
    #[must_use]
    pub fn is_once(&self) -> bool {
        matches!(
            self.kind,
            Kind::Notify | Kind::Newline(_) | Kind::Line(_) | Kind::Up(_)
        )
    }
}

impl From<Kind> for CheckSpec {
    fn from(kind: Kind) -> Self {
        Self {
            kind,
            timing: Timing::default(),
        }
    }
}

const FORMS: &str =
    "use tcp:PORT, tcp:HOST:PORT, http:URL, exec:CMD, notify, fd:N, line:REGEX, up:5s or accept";

impl FromStr for CheckSpec {
    type Err = String;

    /// `tcp:` and `http:` may be followed by words:
    /// `period=5s timeout=1s delay=2s success=1 failure=3`, and for pages `status=200-299` and, as
    /// the last, `body=REGEX`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        match (kind, rest) {
            ("notify", "") => Ok(Kind::Notify.into()),
            ("accept", "") => Ok(Kind::Accept.into()),
            (_, "") => Err(format!("{text:?} is not a check: {FORMS}")),
            ("tcp", rest) => tcp(rest),
            // `http://…` is already a URL.
            ("http", rest) if rest.starts_with("//") => http(text),
            ("http", rest) => http(rest),
            ("https", _) => http(text),
            ("exec", command) => Ok(Kind::Exec(command.to_owned()).into()),
            ("fd", number) => newline(number).map(Self::from),
            ("line", pattern) => Ok(Kind::Line(pattern.parse()?).into()),
            ("up", time) => Ok(Kind::Up(units::parse_duration(time)?).into()),
            _ => Err(format!("{text:?} is not a check: {FORMS}")),
        }
    }
}

fn tcp(text: &str) -> Result<CheckSpec, String> {
    let (target, words) = text.split_once(' ').unwrap_or((text, ""));
    let mut spec = CheckSpec::from(Kind::Tcp(target.parse()?));
    for word in words.split_whitespace() {
        time(&mut spec.timing, word)?;
    }
    spec.timing.check()?;
    Ok(spec)
}

fn http(text: &str) -> Result<CheckSpec, String> {
    let (url, mut words) = text.split_once(' ').unwrap_or((text, ""));
    let mut page = Page {
        url: url.parse()?,
        status: WELL,
        body: None,
    };
    let mut timing = Timing::default();
    loop {
        words = words.trim_start();
        // The pattern may contain spaces: it takes the rest of the text.
        if let Some(pattern) = words.strip_prefix("body=") {
            page.body = Some(pattern.parse()?);
            break;
        }
        if words.is_empty() {
            break;
        }
        let (word, rest) = words.split_once(' ').unwrap_or((words, ""));
        match word.strip_prefix("status=") {
            Some(status) => page.status = statuses(status)?,
            None => time(&mut timing, word)?,
        }
        words = rest;
    }
    timing.check()?;
    Ok(CheckSpec {
        kind: Kind::Http(page),
        timing,
    })
}

fn newline(text: &str) -> Result<Kind, String> {
    let number = text.parse::<u32>().ok();
    let number = number.filter(|number| (3..1024).contains(number));
    let number =
        number.ok_or_else(|| format!("{text:?} is not a readiness descriptor: use 3 to 1023"))?;
    Ok(Kind::Newline(number))
}

/// The same for the table, where it is already a number.
pub(super) fn newline_of(number: u32) -> Result<Kind, String> {
    newline(&number.to_string())
}

/// `200` or `200-299`.
pub(super) fn statuses(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| {
        let number = text.parse::<u16>().ok();
        number.filter(|number| (100..=599).contains(number))
    };
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        _ => Err(format!(
            "{text:?} is not a status range: use 200 or 200-399"
        )),
    }
}

fn time(timing: &mut Timing, word: &str) -> Result<(), String> {
    let wrong = || {
        format!(
            "{word:?} is not a check option: use period=, timeout=, delay=, success= or failure=; http also has status= and body="
        )
    };
    let (name, value) = word.split_once('=').ok_or_else(wrong)?;
    let count = || {
        value
            .parse::<u32>()
            .map_err(|_why| format!("{value:?} is not a number"))
    };
    match name {
        "period" => timing.period = units::parse_duration(value)?,
        "timeout" => timing.timeout = units::parse_duration(value)?,
        "delay" => timing.initial_delay = units::parse_duration(value)?,
        "success" => timing.success_threshold = count()?,
        "failure" => timing.failure_threshold = count()?,
        _ => return Err(wrong()),
    }
    Ok(())
}

impl Timing {
    /// Whether the timing is valid.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.period < Duration::from_millis(10) {
            return Err("the period must be at least 10ms".to_owned());
        }
        if self.timeout.is_zero() {
            return Err("the timeout must be greater than 0".to_owned());
        }
        if self.success_threshold == 0 || self.failure_threshold == 0 {
            return Err("thresholds must be at least 1".to_owned());
        }
        Ok(())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(target) => write!(f, "tcp:{target}"),
            Self::Http(page) => write!(f, "{}", page.url),
            Self::Exec(command) => write!(f, "exec:{command}"),
            Self::Notify => f.write_str("notify"),
            Self::Newline(number) => write!(f, "fd:{number}"),
            Self::Line(pattern) => write!(f, "line:{}", pattern.0),
            Self::Up(time) => write!(f, "up:{}", units::exact_duration(*time)),
            Self::Accept => f.write_str("accept"),
        }
    }
}
