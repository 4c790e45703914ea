//! Sizes, times, rates and counts as people write and read them: the only parser and the only
//! printers of the workspace.
//!
//! `parse_*` reads what a command line, a file or a unit option says. `exact_*` prints what these
//! read back to the same value. The others print for sentences, rounded.

use std::fmt::Display;
use std::time::Duration;

/// Nanoseconds of each unit of time, by every accepted name; the first of each is printed.
const TIMES: &[(u128, &[&str])] = &[
    (86_400_000_000_000, &["d", "day", "days"]),
    (3_600_000_000_000, &["h", "hr", "hour", "hours"]),
    (60_000_000_000, &["m", "min", "minute", "minutes"]),
    (1_000_000_000, &["s", "sec", "second", "seconds"]),
    (1_000_000, &["ms", "msec"]),
    (1_000, &["us", "usec"]),
    (1, &["ns", "nsec"]),
];

/// Bytes of each unit of size, by every accepted name in lower case. A letter alone is a power of
/// two, as in systemd, Docker and `dd`.
const SIZES: &[(u128, &[&str])] = &[
    (1 << 40, &["tib", "t"]),
    (1 << 30, &["gib", "g"]),
    (1 << 20, &["mib", "m"]),
    (1 << 10, &["kib", "k"]),
    (1, &["b"]),
    (1_000, &["kb"]),
    (1_000_000, &["mb"]),
    (1_000_000_000, &["gb"]),
    (1_000_000_000_000, &["tb"]),
];

/// A hundred years: adding that to a clock cannot overflow.
const LONGEST: Duration = Duration::from_secs(36_500 * 86_400);

/// More than any machine has, and exact as a floating-point number.
const LARGEST: u64 = 1 << 53;

/// Ten thousand days, in seconds.
const YEARS: f64 = 8.64e8;

/// `20s`, `500ms`, `5m`, `1h30m`, `1min 30s`, `2d`, `0.5s`; a number alone is seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let shown = text.escape_debug();
    let wrong = || format!("'{shown}' is not a time: use a number with ms, s, m, h or d");
    let long = || format!("'{shown}' is too long: the maximum is 36500d");
    let mut rest = text.trim();
    if let Some((number, "")) = Decimal::split(rest) {
        let seconds = number.times(1_000_000_000);
        return seconds.and_then(duration_of).ok_or_else(long);
    }
    let mut total = Some(0_u128);
    loop {
        let (number, behind) = Decimal::split(rest).ok_or_else(wrong)?;
        let (name, behind) = split_letters(behind.trim_start());
        let unit = unit_named(TIMES, name).ok_or_else(wrong)?;
        total = total.and_then(|total| total.checked_add(number.times(unit)?));
        rest = behind.trim_start();
        if rest.is_empty() {
            break;
        }
    }
    total.and_then(duration_of).ok_or_else(long)
}

/// Parses a time that must not be zero.
pub fn parse_positive_duration(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("must be greater than zero".to_owned()),
        length => Ok(length),
    }
}

/// A number of seconds, as some files have it; `None` if negative, not a number, or longer than a
/// clock can represent.
#[must_use]
pub fn duration_from_seconds(seconds: f64) -> Option<Duration> {
    let length = Duration::try_from_secs_f64(seconds).ok()?;
    (length <= LONGEST).then_some(length)
}

/// The shortest form that [`parse_duration`] reads back: `30m`, `90s`, `250ms`.
#[must_use]
pub fn exact_duration(length: Duration) -> String {
    let nanos = length.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    let whole = TIMES.iter().find(|(unit, _)| nanos.is_multiple_of(*unit));
    let (unit, name) = whole.map_or((1, "ns"), |(unit, names)| (*unit, names[0]));
    format!("{}{name}", nanos / unit)
}

/// `64M`, `10MiB`, `8MB`, `1.5G`, `64 KiB`; a number alone is bytes.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let shown = text.escape_debug();
    let wrong = || format!("'{shown}' is not a size: use a number with K, M or G, such as 512M");
    let (number, unit) = Decimal::split(text.trim()).ok_or_else(wrong)?;
    let unit = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" => 1,
        name => unit_named(SIZES, name).ok_or_else(wrong)?,
    };
    let bytes = number
        .times(unit)
        .and_then(|bytes| u64::try_from(bytes).ok());
    bytes
        .filter(|bytes| *bytes <= LARGEST)
        .ok_or_else(|| format!("'{shown}' is too large: the maximum is 8192T"))
}

/// The shortest form that [`parse_size`] reads back: `1GiB`, `1536KiB`, `1000B`.
#[must_use]
pub fn exact_size(bytes: u64) -> String {
    let units = [
        (1 << 40, "TiB"),
        (1 << 30, "GiB"),
        (1 << 20, "MiB"),
        (1 << 10, "KiB"),
    ];
    let whole = units
        .iter()
        .find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit));
    let (unit, name) = whole.copied().unwrap_or((1, "B"));
    format!("{}{name}", bytes / unit)
}

fn unit_named(units: &[(u128, &[&str])], name: &str) -> Option<u128> {
    let unit = units.iter().find(|(_, names)| names.contains(&name));
    unit.map(|(unit, _)| *unit)
}

fn split_letters(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_alphabetic());
    text.split_at(end.unwrap_or(text.len()))
}

fn duration_of(nanos: u128) -> Option<Duration> {
    let (seconds, nanos) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    let length = Duration::new(u64::try_from(seconds).ok()?, u32::try_from(nanos).ok()?);
    (length <= LONGEST).then_some(length)
}

/// A number with a decimal point, kept exactly; signs, exponents and words are not numbers here.
struct Decimal {
    /// `None` if it is larger than anything that is measured.
    whole: Option<u64>,
    /// The fraction is this many parts of `scale`.
    fraction: u64,
    scale: u64,
}

impl Decimal {
    /// The leading number and what follows it.
    fn split(text: &str) -> Option<(Self, &str)> {
        // What follows does not change the eighteenth digit of a number of bytes or seconds.
        const DIGITS: usize = 18;
        let digits = |text: &str| {
            text.find(|c: char| !c.is_ascii_digit())
                .unwrap_or(text.len())
        };
        let (whole, rest) = text.split_at(digits(text));
        let (fraction, rest) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(digits(rest)),
            None => ("", rest),
        };
        if whole.is_empty() && fraction.is_empty() || rest.starts_with('.') {
            return None;
        }
        let fraction = &fraction[..fraction.len().min(DIGITS)];
        let number = |text: &str| match text {
            "" => Some(0),
            text => text.parse().ok(),
        };
        let number = Self {
            whole: number(whole),
            fraction: number(fraction)?,
            scale: fraction.bytes().fold(1, |scale, _| scale * 10),
        };
        Some((number, rest))
    }

    /// This many units, to the nearest whole number.
    fn times(&self, unit: u128) -> Option<u128> {
        let scale = u128::from(self.scale);
        let part = (u128::from(self.fraction) * unit + scale / 2) / scale;
        u128::from(self.whole?).checked_mul(unit)?.checked_add(part)
    }
}

/// `40 s`, `3.0 min`, `5.0 h`, `12 days`; `years` where the number says nothing.
#[must_use]
pub fn duration(seconds: f64) -> String {
    let (length, unit) = time_unit(seconds);
    match unit {
        "s" => format!("{seconds:.0} s"),
        _ if seconds >= YEARS => "years".to_owned(),
        _ => format!("{} {unit}", rounded(seconds / length)),
    }
}

/// The same, with the tenths of a few seconds: `0.5 s`, `3 s`.
#[must_use]
pub fn short_duration(seconds: f64) -> String {
    let tenths = (seconds * 10.0).round() / 10.0;
    match tenths < 10.0 {
        true => format!("{tenths} s"),
        false => duration(seconds),
    }
}

/// A limit in seconds, exactly: `10 s`, `0.5 s`.
#[must_use]
pub fn exact_seconds(length: Duration) -> String {
    format!("{} s", length.as_secs_f64())
}

/// A moment of a run: `12.3 s`.
#[must_use]
pub fn moment(seconds: f64) -> String {
    format!("{seconds:.1} s")
}

/// How long a program was stopped: `1.8 ms`.
#[must_use]
pub fn milliseconds(length: Duration) -> String {
    format!("{:.1} ms", length.as_secs_f64() * 1e3)
}

/// A limit of a call, or how long one took, in whole milliseconds: `500 ms`.
#[must_use]
pub fn whole_milliseconds(length: Duration) -> String {
    format!("{:.0} ms", length.as_secs_f64() * 1e3)
}

/// A time as a clock shows it: `0:07`, `12:30`, `3:05:00`, `2d 3:05:00`.
#[must_use]
pub fn clock(seconds: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast of a float saturates, and nobody watches for so long"
    )]
    let seconds = seconds.round() as u64;
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let (minutes, seconds) = (seconds / 60 % 60, seconds % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes}:{seconds:02}"),
        (0, _) => format!("{hours}:{minutes:02}:{seconds:02}"),
        _ => format!("{days}d {hours}:{minutes:02}:{seconds:02}"),
    }
}

/// A time in at most five columns: `42s`, `5m`, `3h05m`, `12h`, `3d`.
#[must_use]
pub fn narrow_duration(length: Duration) -> String {
    let seconds = length.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}m"),
        3600..36_000 => format!("{hours}h{:02}m", minutes % 60),
        36_000..172_800 => format!("{hours}h"),
        _ if days < 1000 => format!("{days}d"),
        _ => ">999d".to_owned(),
    }
}

/// The unit in which a time is shown, and its length in seconds.
#[must_use]
pub fn time_unit(seconds: f64) -> (f64, &'static str) {
    match seconds {
        s if s < 120.0 => (1.0, "s"),
        s if s < 7200.0 => (60.0, "min"),
        s if s < 172_800.0 => (3600.0, "h"),
        _ => (86_400.0, "days"),
    }
}

/// With one decimal below ten, without any from there on.
#[must_use]
pub fn rounded(value: f64) -> String {
    let digits = usize::from(value.abs() < 10.0);
    format!("{value:.digits$}")
}

/// `600 MiB`, `12 KiB`.
#[must_use]
pub fn size(bytes: f64) -> String {
    let (value, unit) = match bytes {
        b if b < 1_048_576.0 => (b / 1024.0, "KiB"),
        b => (b / 1_048_576.0, "MiB"),
    };
    format!("{value:.0} {unit}")
}

/// `2.5 a second`, `40 a minute`, `3 an hour`, `1.2 a day`.
#[must_use]
pub fn rate(per_second: f64) -> String {
    let (value, words, _) = scaled(per_second);
    format!("{value} {words}")
}

/// `2.5/s`, `40/min`, `3.0/h`, `1.2/day`: the same in parentheses and columns.
#[must_use]
pub fn short_rate(per_second: f64) -> String {
    let (value, _, symbol) = scaled(per_second);
    format!("{value}/{symbol}")
}

/// A rate in the unit of its size: the value, the unit in words and its symbol.
fn scaled(per_second: f64) -> (String, &'static str, &'static str) {
    let (value, words, symbol) = match per_second.abs() {
        r if r >= 1.0 => (per_second, "a second", "s"),
        r if r * 60.0 >= 1.0 => (per_second * 60.0, "a minute", "min"),
        r if r * 3600.0 >= 1.0 => (per_second * 3600.0, "an hour", "h"),
        _ => (per_second * 86_400.0, "a day", "day"),
    };
    (rounded(value), words, symbol)
}

/// `1 pipe`, `3 pipes`, `2 entries`, `5 processes`, `4 children`.
#[must_use]
pub fn counted<N: Copy + Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    format!("{count} {}", plural(count, noun))
}

/// The noun for this many.
#[must_use]
pub fn plural<N: PartialEq + From<u8>>(count: N, noun: &str) -> String {
    if count == N::from(1) {
        return noun.to_owned();
    }
    if let Some(stem) = noun.strip_suffix('y')
        && !stem.ends_with(['a', 'e', 'i', 'o', 'u'])
        && noun != "pty"
    {
        return format!("{stem}ies");
    }
    let hisses = ["s", "x", "ch", "sh"].iter().any(|end| noun.ends_with(end));
    let ending = match noun {
        "child" => "ren",
        _ if hisses => "es",
        _ => "s",
    };
    format!("{noun}{ending}")
}

/// The noun that has this plural.
#[must_use]
pub fn singular(nouns: &str) -> String {
    let ending = |end: &str, instead: &str| Some(nouns.strip_suffix(end)?.to_owned() + instead);
    let candidates = [
        ending("ies", "y"),
        ending("ren", ""),
        ending("es", ""),
        ending("s", ""),
    ];
    let mut nouns_of_it = candidates.into_iter().flatten();
    let noun = nouns_of_it.find(|noun| plural(2_u32, noun) == nouns);
    noun.unwrap_or_else(|| nouns.to_owned())
}

#[cfg(test)]
mod tests;
