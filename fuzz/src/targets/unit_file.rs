//! Units of supervisors: whatever is wrong is said on one line.

use fdguard::unit::{UnitTarget, lint, read};

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let targets = [
        UnitTarget::Systemd,
        UnitTarget::Launchd,
        UnitTarget::Supervisord,
        UnitTarget::Compose,
    ];
    let _guess = read::guess("unit", text);
    for target in targets {
        match read::read(target, text) {
            Ok(unit) => drop(lint::lint(target, &unit)),
            Err(error) => assert!(!error.why.contains('\n'), "{}", error.why),
        }
    }
}
