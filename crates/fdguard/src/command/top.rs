//! `fdguard top`: which processes are near a limit, or growing?

use std::collections::{HashMap, HashSet};
use std::io::IsTerminal as _;

use fdguard_core::host::HostView;
use fdguard_core::workload::{ProcessGroup, Workload};
use fdguard_core::{Gap, Pid, Summary};
use fdguard_probe::{Options, Probe, Radar};
use fdguard_proc::ProcKey;

use super::pick;
use crate::cli::TopArgs;
use crate::exit::{self, HintedError};
use crate::report::host;
use crate::tui::top::{self, Holdings, HostSource};
use crate::{output, terminal};

pub(super) fn run(args: &TopArgs) -> anyhow::Result<u8> {
    let probe = Probe::new()?;
    if args.json {
        let view = look(&probe, args)?;
        let mut text = Vec::with_capacity(4096 + 400 * view.rows.len());
        serde_json::to_writer(&mut text, &host::document(&view, None))?;
        text.push(b'\n');
        output::emit(args.output.as_deref(), |out| Ok(out.write_all(&text)?))?;
    } else if args.once || args.output.is_some() {
        let view = look(&probe, args)?;
        let width = args.output.as_ref().map_or_else(terminal::width, |_| None);
        let text = host::table(&view, None, host::TableOptions { width, limit: None });
        output::emit(args.output.as_deref(), |out| {
            Ok(out.write_all(text.as_bytes())?)
        })?;
    } else {
        watch(probe, args)?;
    }
    Ok(exit::CLEAN)
}

fn look(probe: &Probe, args: &TopArgs) -> anyhow::Result<HostView> {
    let mut view = Radar::single(args.peaks).scan(probe)?;
    if !args.groups.is_empty() {
        let picked: HashSet<Pid> = pick::in_groups(probe, &args.groups)?.into_iter().collect();
        view.rows.retain(|row| picked.contains(&row.pid));
    }
    probe.name_rows(&mut view.rows);
    if let Some(filter) = args.filter.as_deref() {
        view.rows.retain(|row| {
            let label = row.workload.as_ref().and_then(|one| one.label());
            row.comm.to_lossy().contains(filter)
                || row.pid.to_string().contains(filter)
                || label.is_some_and(|label| label.contains(filter))
        });
    }
    Ok(view)
}

fn watch(probe: Probe, args: &TopArgs) -> anyhow::Result<()> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(HintedError::usage(
            "the live view needs a terminal",
            "use fdguard top --once or fdguard top --json",
        )
        .into());
    }
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && anstream::ColorChoice::global() != anstream::ColorChoice::Never;
    let options = top::Options {
        interval: args.interval,
        colour,
        filter: args.filter.clone().unwrap_or_default(),
    };
    let groups = pick::groups(&probe, &args.groups)?;
    let mut host = Host {
        probe,
        radar: Radar::new(),
        groups,
        known: HashMap::new(),
    };
    top::run(&mut host, options)
}

/// The running host.
struct Host {
    probe: Probe,
    radar: Radar,
    /// Only processes of one of these are shown; all if there are none.
    groups: Vec<ProcessGroup>,
    /// What is known of the processes of the last look.
    known: HashMap<ProcKey, ProcessOwner>,
}

/// Who a process belongs to.
#[derive(Clone)]
struct ProcessOwner {
    workload: Option<Box<Workload>>,
    is_selected: bool,
}

impl Host {
    /// Names the processes and leaves out those of other groups; only new ones are read.
    fn name(&mut self, view: &mut HostView) {
        let mut known = HashMap::with_capacity(view.rows.len());
        view.rows.retain_mut(|row| {
            let Some(key) = row.key() else {
                return self.groups.is_empty();
            };
            let owner = self.known.remove(&key);
            let owner = owner.unwrap_or_else(|| self.owner(row.pid));
            row.workload = owner.workload.clone();
            let is_selected = owner.is_selected;
            known.insert(key, owner);
            is_selected
        });
        self.known = known;
    }

    fn owner(&self, pid: Pid) -> ProcessOwner {
        let is_in = |group: &ProcessGroup| self.probe.is_in_group(pid, group);
        ProcessOwner {
            workload: self.probe.workload(pid).map(Box::new),
            is_selected: self.groups.is_empty() || self.groups.iter().any(is_in),
        }
    }
}

impl HostSource for Host {
    fn look(&mut self) -> HostView {
        let view = self.radar.scan(&self.probe);
        let mut view = view.unwrap_or_else(|error| HostView {
            gaps: vec![Gap::new(
                "all processes",
                error.to_string(),
                "check that /proc is mounted and readable",
            )],
            ..HostView::default()
        });
        self.name(&mut view);
        view
    }

    fn detail(&mut self, pid: Pid) -> Result<Holdings, String> {
        // The view is redrawn often: scanning every process each time would cost too much.
        let options = Options {
            peers: false,
            ..Options::default()
        };
        let snapshot = self
            .probe
            .snapshot(pid, options)
            .map_err(|error| error.to_string())?;
        let summary = Summary::summarize(&snapshot);
        Ok(Holdings { snapshot, summary })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use fdguard_probe::Probe;
    use testkit::FakeProc;

    use super::look;
    use crate::cli::TopArgs;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        top: TopArgs,
    }

    fn args(words: &[&str]) -> TopArgs {
        let line = [&["top"][..], words].concat();
        Line::try_parse_from(line).unwrap().top
    }

    #[test]
    fn one_table_names_every_row_however_many_processes_there_are() {
        let mut tree = FakeProc::new();
        for pid in 10..1_050 {
            let _process = tree
                .process(pid)
                .file("cgroup", format!("0::/system.slice/s{pid}.service\n"));
        }
        let probe = Probe::at(tree.root()).unwrap();
        let view = look(&probe, &args(&["--once"])).unwrap();
        assert_eq!(view.rows.len(), 1_040);
        assert!(view.rows.iter().all(|row| row.workload.is_some()));
        let view = look(&probe, &args(&["--once", "--unit", "s77"])).unwrap();
        assert_eq!(
            view.rows.iter().map(|row| row.pid).collect::<Vec<_>>(),
            [77]
        );
    }
}
