//! Playbooks of users: any text gives a playbook, or an error in one line.

use fdguard_core::explain::LogScanner;
use fdguard_core::playbook::Playbook;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match Playbook::parse(text) {
        Ok(playbook) => {
            let mut scanner = LogScanner::new(&playbook).expect("few patterns can be looked for");
            scanner.feed(bytes);
            let _explanation = scanner.finish(&[]);
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
}
