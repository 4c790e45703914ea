//! Datagrams of services to `NOTIFY_SOCKET`: what is understood is written and read again as the
//! same.

use fdguard_process::notify::NotifyMessage;

pub(crate) fn run(bytes: &[u8]) {
    let message = NotifyMessage::parse(bytes);
    let lines = bytes.split(|byte| *byte == b'\n').count();
    assert!(message.invalid as usize + message.unknown as usize <= lines);
    let written = message.format();
    assert_eq!(NotifyMessage::parse(&written).format(), written);
}
