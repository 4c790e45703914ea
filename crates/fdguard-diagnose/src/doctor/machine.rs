//! Where a process runs: versions and times, without anything that identifies the host.

use fdguard_core::evidence::Machine;

/// Reads what every report needs.
pub(super) fn read() -> Machine {
    let system = rustix::system::uname();
    let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    let since_boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Machine {
        fdguard: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: Some(text(system.release())),
        os: pretty_name(&os_release()),
        arch: text(system.machine()),
        uptime_seconds: u64::try_from(since_boot.tv_sec).ok(),
    }
}

fn os_release() -> String {
    let places = ["/etc/os-release", "/usr/lib/os-release"];
    let mut texts = places
        .iter()
        .filter_map(|place| std::fs::read_to_string(place).ok());
    texts.next().unwrap_or_default()
}

/// The human-readable line of the file.
fn pretty_name(text: &str) -> Option<String> {
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(value.trim_matches(['"', '\'']).to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::pretty_name;

    #[test]
    fn the_name_for_people_is_taken() {
        let text = "NAME=Debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\n";
        assert_eq!(
            pretty_name(text).as_deref(),
            Some("Debian GNU/Linux 12 (bookworm)")
        );
        assert_eq!(pretty_name("ID=x\n"), None);
    }
}
