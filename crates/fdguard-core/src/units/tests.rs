use std::time::Duration;

use proptest::prelude::*;

use super::{
    LARGEST, LONGEST, SIZES, TIMES, clock, counted, duration, duration_from_seconds,
    exact_duration, exact_seconds, exact_size, milliseconds, moment, narrow_duration,
    parse_duration, parse_positive_duration, parse_size, plural, rate, short_duration, short_rate,
    singular, size, whole_milliseconds,
};

#[test]
fn times_as_people_write_them() {
    for (text, milliseconds) in [
        ("20s", 20_000),
        ("250ms", 250),
        ("5m", 300_000),
        ("5min", 300_000),
        ("1h", 3_600_000),
        ("1m30s", 90_000),
        ("1h30m", 5_400_000),
        ("1min 30s", 90_000),
        ("90 sec", 90_000),
        ("2d", 172_800_000),
        ("0.5s", 500),
        (".5s", 500),
        ("1.5s", 1500),
        ("7", 7_000),
        ("0", 0),
        ("0s", 0),
    ] {
        let length = Duration::from_millis(milliseconds);
        assert_eq!(parse_duration(text), Ok(length), "{text}");
    }
}

#[test]
fn a_limit_is_in_whole_milliseconds() {
    assert_eq!(whole_milliseconds(Duration::from_millis(500)), "500 ms");
    assert_eq!(whole_milliseconds(Duration::from_secs(30)), "30000 ms");
    assert_eq!(whole_milliseconds(Duration::from_micros(12_400)), "12 ms");
}

#[test]
fn a_singular_is_what_has_this_plural() {
    for noun in [
        "socket",
        "file",
        "inotify",
        "process",
        "child",
        "pty",
        "watch",
        "index",
        "descriptor",
        "epoll",
        "day",
    ] {
        assert_eq!(singular(&plural(2_u32, noun)), noun);
    }
    assert_eq!(singular("data"), "data");
}

#[test]
fn sizes_as_people_write_them() {
    for (text, bytes) in [
        ("512MiB", 512 << 20),
        ("64M", 64 << 20),
        ("64m", 64 << 20),
        ("8MB", 8_000_000),
        ("500kB", 500_000),
        ("500KB", 500_000),
        ("64 KiB", 64 << 10),
        ("1GiB", 1 << 30),
        ("1.5K", 1536),
        ("1.3K", 1331),
        ("2T", 2 << 40),
        ("12", 12),
        ("12B", 12),
        ("0", 0),
    ] {
        assert_eq!(parse_size(text), Ok(bytes), "{text}");
    }
}

#[test]
fn a_wrong_value_is_an_error_of_one_line() {
    for text in [
        "", " ", "s", "5x", "-5s", "+5s", "1.2.3s", "1..2s", "1e400", "1e9s", "∞", "1s2", "2 1s",
        "5 weeks", "inf", "infinity", "5\ns x", ".",
    ] {
        let error = parse_duration(text).unwrap_err();
        assert!(error.contains("is not a time"), "{text}: {error}");
        assert!(!error.contains('\n'), "{text}: {error}");
    }
    let said = "'5x' is not a time: use a number with ms, s, m, h or d";
    assert_eq!(parse_duration("5x").unwrap_err(), said);
    for text in [
        "",
        "MiB",
        "-1MiB",
        "1TiBs",
        "1MiB2",
        "1e3K",
        "3 bananas",
        "1..5K",
        "nan",
    ] {
        let error = parse_size(text).unwrap_err();
        assert!(error.contains("is not a size"), "{text}: {error}");
        assert!(!error.contains('\n'), "{text}: {error}");
    }
}

#[test]
fn too_much_is_an_error_and_never_wraps() {
    let endless = "9".repeat(400);
    let days = format!("{endless}d 1s");
    for text in [
        "36501d",
        "200000000000000d",
        "18446744073709551615d",
        &endless,
        &days,
    ] {
        assert!(
            parse_duration(text).unwrap_err().contains("too long"),
            "{text}"
        );
    }
    for text in ["8193T", "99999999999GiB", "18446744073709551615K", &endless] {
        assert!(
            parse_size(text).unwrap_err().contains("too large"),
            "{text}"
        );
    }
    assert_eq!(parse_size("8192T"), Ok(LARGEST));
    assert_eq!(parse_duration("36500d"), Ok(LONGEST));
    assert_eq!(
        duration_from_seconds(1.5),
        Some(Duration::from_millis(1500))
    );
    for seconds in [-1.0, f64::NAN, f64::INFINITY, 3.3e9] {
        assert_eq!(duration_from_seconds(seconds), None, "{seconds}");
    }
}

#[test]
fn zero_is_refused_where_a_length_is_needed() {
    assert_eq!(
        parse_positive_duration("0ms").unwrap_err(),
        "must be greater than zero"
    );
    assert!(parse_positive_duration("1ms").is_ok());
}

#[test]
fn exact_forms_are_short() {
    let length = |seconds| exact_duration(Duration::from_secs(seconds));
    assert_eq!(
        [1800, 90, 7200, 86_400].map(length),
        ["30m", "90s", "2h", "1d"]
    );
    assert_eq!(exact_duration(Duration::from_millis(1500)), "1500ms");
    assert_eq!(exact_duration(Duration::ZERO), "0s");
    assert_eq!(
        [512 << 20, 3 << 30, 1000, 1536 << 10, 0].map(exact_size),
        ["512MiB", "3GiB", "1000B", "1536KiB", "0B"]
    );
}

#[test]
fn sentences_have_the_unit_of_the_value() {
    let said = [1.0, 119.0, 180.0, 7200.0, 172_800.0].map(duration);
    assert_eq!(said, ["1 s", "119 s", "3.0 min", "2.0 h", "2.0 days"]);
    assert_eq!([629_145_600.0, 12_288.0].map(size), ["600 MiB", "12 KiB"]);
    assert_eq!(rate(1.0 / 86_400.0), "1.0 a day");
    assert_eq!(rate(2.5), "2.5 a second");
    assert_eq!(rate(0.5), "30 a minute");
    let said = [2.5, 0.5, 1.0 / 3600.0].map(short_rate);
    assert_eq!(said, ["2.5/s", "30/min", "1.0/h"]);
}

#[test]
fn durations_beyond_every_clock_are_years() {
    assert_eq!(duration(8.63e8), "9988 days");
    assert_eq!(duration(8.64e8), "years");
    assert_eq!(duration(f64::INFINITY), "years");
}

#[test]
fn a_few_seconds_have_their_tenths() {
    let said = [0.0, 0.52, 3.0, 9.94, 9.96, 90.4, 180.0].map(short_duration);
    assert_eq!(
        said,
        ["0 s", "0.5 s", "3 s", "9.9 s", "10 s", "90 s", "3.0 min"]
    );
}

#[test]
fn a_clock_has_as_many_parts_as_it_needs() {
    assert_eq!(
        [7.4, 750.0, 11_100.0, 183_900.0].map(clock),
        ["0:07", "12:30", "3:05:00", "2d 3:05:00"]
    );
}

#[test]
fn narrow_durations_fit_into_five_columns() {
    for (seconds, text) in [
        (0, "0s"),
        (59, "59s"),
        (3599, "59m"),
        (7500, "2h05m"),
        (36_000, "10h"),
        (172_800, "2d"),
        (u64::MAX, ">999d"),
    ] {
        assert_eq!(narrow_duration(Duration::from_secs(seconds)), text);
    }
}

#[test]
fn a_falling_rate_has_the_unit_of_a_rising_one() {
    let said = [-2.5, -0.5, -0.05 / 60.0, 0.0].map(short_rate);
    assert_eq!(said, ["-2.5/s", "-30/min", "-3.0/h", "0.0/day"]);
}

#[test]
fn one_is_singular() {
    assert_eq!(counted(1_u64, "pipe"), "1 pipe");
    assert_eq!(counted(2_usize, "pipe"), "2 pipes");
    let said = ["entry", "process", "child", "key", "match"].map(|noun| counted(0_u32, noun));
    assert_eq!(
        said,
        [
            "0 entries",
            "0 processes",
            "0 children",
            "0 keys",
            "0 matches"
        ]
    );
}

proptest! {
    #[test]
    fn a_printed_time_reads_back(nanos in 0..=LONGEST.as_nanos(), unit in 0..TIMES.len()) {
        let unit = TIMES[unit].0;
        let nanos = nanos / unit * unit;
        let length = super::duration_of(nanos).unwrap();
        prop_assert_eq!(parse_duration(&exact_duration(length)), Ok(length));
    }

    #[test]
    fn a_printed_size_reads_back(bytes in 0..=LARGEST, shift in 0..44_u32) {
        let bytes = bytes >> shift << shift;
        prop_assert_eq!(parse_size(&exact_size(bytes)), Ok(bytes));
    }

    #[test]
    fn every_name_of_a_unit_is_read(value in 0..1000_u64, at in any::<prop::sample::Index>()) {
        let (unit, names) = TIMES[at.index(TIMES.len())];
        for name in names {
            let read = parse_duration(&format!("{value}{name}")).unwrap();
            prop_assert_eq!(read.as_nanos(), u128::from(value) * unit);
            let split = parse_duration(&format!(" {value} {name} 3s ")).unwrap();
            prop_assert_eq!(split, read + Duration::from_secs(3));
        }
        let (unit, names) = SIZES[at.index(SIZES.len())];
        for name in names {
            for name in [(*name).to_owned(), name.to_uppercase()] {
                let read = parse_size(&format!("{value}{name}")).unwrap();
                prop_assert_eq!(u128::from(read), u128::from(value) * unit);
            }
        }
    }

    #[test]
    fn any_text_is_read_or_refused_in_one_line(text in "[0-9. a-zA-Z]{0,12}|.{0,20}") {
        if let Err(error) = parse_duration(&text) {
            prop_assert!(!error.contains('\n'));
        }
        if let Err(error) = parse_size(&text) {
            prop_assert!(!error.contains('\n'));
        }
    }
}

#[test]
fn limits_are_exact_and_moments_have_tenths() {
    assert_eq!(exact_seconds(Duration::from_millis(1500)), "1.5 s");
    assert_eq!(exact_seconds(Duration::from_secs(600)), "600 s");
    assert_eq!(moment(12.34), "12.3 s");
    assert_eq!(milliseconds(Duration::from_micros(1840)), "1.8 ms");
    assert_eq!(milliseconds(Duration::from_millis(120)), "120.0 ms");
}
