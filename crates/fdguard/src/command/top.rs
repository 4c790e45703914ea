//! `fdguard top`: which processes are near a limit, or growing?

use std::collections::HashMap;
use std::io::IsTerminal as _;

use fdguard_core::host::HostView;
use fdguard_core::workload::Workload;
use fdguard_core::{Gap, Pid, Summary};
use fdguard_probe::{Options, Probe, Radar};
use fdguard_proc::ProcKey;

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
    if args.peaks || view.rows.len() <= CROWD {
        probe.name_rows(&mut view.rows);
    } else {
        view.gaps.push(Gap::new(
            "units, containers and pods",
            format!("a single sample of more than {CROWD} processes omits them"),
            "use --peaks or the live view",
        ));
    }
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

/// From this many processes on, a single look does not read their cgroups.
const CROWD: usize = 1000;

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
    let radar = Radar::new();
    let names = HashMap::new();
    top::run(
        &mut Host {
            probe,
            radar,
            names,
        },
        options,
    )
}

/// The running host.
struct Host {
    probe: Probe,
    radar: Radar,
    /// What is known of the processes of the last look.
    names: HashMap<ProcKey, Option<Box<Workload>>>,
}

impl Host {
    /// Reads the names of new processes only.
    fn name(&mut self, view: &mut HostView) {
        let mut names = HashMap::with_capacity(view.rows.len());
        for row in &mut view.rows {
            let Some(key) = row.key() else { continue };
            let known = self.names.remove(&key);
            row.workload = known.unwrap_or_else(|| self.probe.workload(row.pid).map(Box::new));
            names.insert(key, row.workload.clone());
        }
        self.names = names;
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
