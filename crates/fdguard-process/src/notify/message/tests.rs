use std::time::Duration;

use proptest::prelude::*;

use super::{Access, NotifyMessage, Watchdog, is_name};

#[test]
fn what_programs_really_send() {
    let ready = NotifyMessage::parse(b"READY=1\nSTATUS=Serving on 8787\nMAINPID=4711\n");
    assert!(ready.ready && !ready.stopping);
    assert_eq!(ready.status.as_deref(), Some("Serving on 8787"));
    assert_eq!(
        (ready.main_pid, ready.unknown, ready.invalid),
        (Some(4711), 0, 0)
    );

    let reload = NotifyMessage::parse(b"RELOADING=1\nMONOTONIC_USEC=8600000000");
    assert_eq!(reload.monotonic, Some(Duration::from_secs(8600)));
    assert!(reload.reloading);

    let dying =
        NotifyMessage::parse(b"WATCHDOG=trigger\nERRNO=24\nEXIT_STATUS=75\nNOTIFYACCESS=all");
    assert_eq!(dying.watchdog, Some(Watchdog::Trigger));
    assert_eq!((dying.errno, dying.exit_status), (Some(24), Some(75)));
    assert_eq!(dying.access, Some(Access::All));

    let kept = NotifyMessage::parse(b"FDSTORE=1\nFDNAME=listen-0\nFDPOLL=0");
    assert!(kept.store && !kept.poll && !kept.store_remove);
    assert_eq!(kept.name.as_deref(), Some("listen-0"));
}

#[test]
fn unknown_keys_are_ignored_and_counted_apart_from_nonsense() {
    let message =
        NotifyMessage::parse(b"X_MINE=1\nMAINPIDFD=1\nREADY=1\nREADY\n=5\nERRNO=many\nREADY=2");
    assert!(message.ready, "nonsense does not take back what was said");
    assert_eq!((message.unknown, message.invalid), (2, 4));
}

#[test]
fn a_status_that_is_no_text_is_kept_as_far_as_it_is() {
    let message = NotifyMessage::parse(b"STATUS=caf\xe9");
    assert_eq!(message.status.as_deref(), Some("caf\u{fffd}"));
    assert_eq!(message.invalid, 0);
}

#[test]
fn a_zero_at_the_end_is_no_part_of_the_message() {
    assert!(NotifyMessage::parse(b"READY=1\0").ready);
}

#[test]
fn names_are_printable_without_a_colon_and_255_characters_at_most() {
    assert!(is_name("listen 0") && is_name("") && is_name(&"x".repeat(255)));
    for wrong in ["a:b", "a\tb", "é", &"x".repeat(256), "\x7f"] {
        assert!(!is_name(wrong), "{wrong:?}");
        let message = NotifyMessage::parse(format!("FDSTORE=1\nFDNAME={wrong}").as_bytes());
        assert_eq!((message.name, message.invalid), (None, 1));
    }
}

#[test]
fn a_status_cannot_forge_another_line() {
    let message = NotifyMessage {
        status: Some("fine\nREADY=1".to_owned()),
        ..NotifyMessage::default()
    };
    assert_eq!(message.format(), b"STATUS=fine READY=1");
}

fn flags() -> impl Strategy<Value = NotifyMessage> {
    any::<[bool; 8]>().prop_map(|flags| NotifyMessage {
        ready: flags[0],
        reloading: flags[1],
        stopping: flags[2],
        restart_reset: flags[3],
        store: flags[4],
        store_remove: flags[5],
        poll: flags[6],
        barrier: flags[7],
        ..NotifyMessage::default()
    })
}

fn lengths() -> impl Strategy<Value = [Option<Duration>; 3]> {
    any::<[Option<u64>; 3]>().prop_map(|all| all.map(|it| it.map(Duration::from_micros)))
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(
        flags in flags(),
        status in proptest::option::of("[^\\n\\x00]{0,40}"),
        name in proptest::option::of("[ -9;-~]{0,255}"),
        numbers in any::<(Option<i32>, Option<u8>, Option<std::num::NonZeroU32>)>(),
        lengths in lengths(),
        words in (0..3usize, 0..5usize),
    ) {
        let message = NotifyMessage {
            status,
            name,
            errno: numbers.0,
            exit_status: numbers.1,
            main_pid: numbers.2.map(u32::from),
            monotonic: lengths[0],
            watchdog_interval: lengths[1],
            extend_timeout: lengths[2],
            watchdog: [None, Some(Watchdog::Ping), Some(Watchdog::Trigger)][words.0],
            access: Access::NAMES.get(words.1).map(|it| it.0),
            ..flags
        };
        prop_assert_eq!(NotifyMessage::parse(&message.format()), message);
    }

    #[test]
    fn any_bytes_are_survived(bytes: Vec<u8>) {
        let lines = bytes.split(|byte| *byte == b'\n').count();
        let message = NotifyMessage::parse(&bytes);
        prop_assert!((message.unknown + message.invalid) as usize <= lines);
    }
}
