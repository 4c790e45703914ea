//! The live view: the growing sites of a program that this or another fdguard launched.

use std::io::IsTerminal as _;
use std::time::Instant;

use fdguard_core::diagnosis::WatchEnd;
use fdguard_core::watch::Watch;
use fdguard_diagnose::trace::{GrowingSites, SiteNow};
use fdguard_diagnose::watching::{LiveWatch, WatchProgress};
use fdguard_trace::{StateParts, TraceSession, TraceState};
use rustix::process::Signal;

use super::observer::NoObserver;
use super::run_loop::{RunningTrace, TraceObserver};
use crate::exit::HintedError;
use crate::report::trace::name;
use crate::terminal::{sanitize, sanitize_str};
use crate::tui::trace::{SiteFeed, SiteRow, TraceHeadline, run};
use crate::tui::{DrawTarget, ViewEnd, has_terminal};

/// The view may use the terminal only if the program does not.
pub(super) fn check_free() -> anyhow::Result<()> {
    let is_used = std::io::stdin().is_terminal()
        || std::io::stdout().is_terminal()
        || std::io::stderr().is_terminal();
    if !is_used && has_terminal() {
        return Ok(());
    }
    let message = if is_used {
        "cannot show the live view: the program uses this terminal"
    } else {
        "cannot show the live view: there is no terminal"
    };
    let hint = "redirect the program (fdguard trace --live -- COMMAND </dev/null >out.log 2>&1), or run fdguard trace --report PID --live in a second terminal";
    Err(HintedError::usage(message, hint).into())
}

/// The view of a program that fdguard did not start uses fdguard's own terminal.
pub(super) fn check_own() -> anyhow::Result<()> {
    if std::io::stdout().is_terminal() && std::io::stdin().is_terminal() {
        return Ok(());
    }
    let message = "the live view needs a terminal";
    Err(HintedError::usage(message, "leave out --live to print a report").into())
}

/// Shows a running trace until the user leaves or the program ends.
pub(super) fn show(live: &mut LiveWatch<'_>, session: &mut TraceSession) -> anyhow::Result<()> {
    check_own()?;
    session.poll()?;
    let mut source = ObservedView {
        live,
        session,
        shown: SiteRows::default(),
    };
    let outcome = run(
        &mut source,
        DrawTarget::Stdout,
        is_coloured(&std::io::stdout()),
    )?;
    if outcome != ViewEnd::Ended {
        live.stop(WatchEnd::Interrupted)?;
    }
    Ok(())
}

fn is_coloured(stream: &impl anstream::stream::RawStream) -> bool {
    anstream::AutoStream::choice(stream) != anstream::ColorChoice::Never
}

/// The live view on a terminal that the program does not use.
pub(super) struct Viewer;

impl TraceObserver for Viewer {
    fn observe(&mut self, running: &mut RunningTrace<'_, '_>) -> anyhow::Result<()> {
        let mut source = LaunchedView {
            running,
            shown: SiteRows::default(),
        };
        if source.running.is_attached() {
            let coloured = is_coloured(&std::io::stdout());
            let is_over = run(&mut source, DrawTarget::Stdout, coloured)? == ViewEnd::Ended;
            return if is_over { Ok(()) } else { running.stop() };
        }
        let is_coloured = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        match run(&mut source, DrawTarget::Terminal, is_coloured)? {
            ViewEnd::Ended => return Ok(()),
            ViewEnd::Quit => {}
            // As the terminal would have done.
            ViewEnd::Interrupted => {
                rustix::process::kill_current_process_group(Signal::INT)?;
            }
        }
        NoObserver.observe(running)
    }
}

/// What is on the screen.
#[derive(Default)]
struct SiteRows {
    sites: GrowingSites,
    rows: Vec<SiteRow>,
}

impl SiteRows {
    fn update(&mut self, watch: &Watch, state: &TraceState) {
        self.sites.update(watch, state);
        self.rows = self.sites.now().iter().map(row).collect();
    }
}

fn row(one: &SiteNow) -> SiteRow {
    let class = one.class.as_ref().map(ToString::to_string);
    let clean = |text: &str| sanitize_str(text).into_owned();
    let frames = one.site.stack.iter().map(|frame| clean(&name::line(frame)));
    SiteRow {
        pid: one.pid,
        comm: clean(&one.comm),
        live: one.site.open.len(),
        rate: one.rate,
        is_growing: one.is_growing,
        opened: one.site.opened,
        closed: one.site.closed,
        oldest: one.oldest,
        class: class.map_or("?".to_owned(), |class| clean(&class)),
        target: one.target.as_ref().map(sanitize),
        line: clean(&name::site(one.site.culprit.as_ref(), &one.site.stack)),
        stack: frames.collect(),
    }
}

fn headline(watch: &Watch) -> TraceHeadline {
    let running = || watch.subjects().filter(|subject| subject.gone.is_none());
    let counts = running().map(|subject| subject.timeline.count());
    let first = watch.subjects().next();
    TraceHeadline {
        name: first.map_or(String::new(), |one| sanitize(&one.process.comm)),
        pid: first.map_or(0, |one| one.process.pid),
        processes: running().count(),
        descriptors: counts.sum(),
    }
}

struct LaunchedView<'r, 'a, 'p> {
    running: &'r mut RunningTrace<'a, 'p>,
    shown: SiteRows,
}

impl SiteFeed for LaunchedView<'_, '_, '_> {
    fn advance(&mut self, deadline: Instant) -> anyhow::Result<WatchProgress> {
        let (progress, _) = self.running.step(deadline)?;
        if progress != WatchProgress::Waiting {
            let state = self.running.state(StateParts::OPEN);
            self.shown.update(self.running.live().watch(), &state);
        }
        Ok(progress)
    }

    fn rows(&self) -> &[SiteRow] {
        &self.shown.rows
    }

    fn headline(&self) -> TraceHeadline {
        headline(self.running.live().watch())
    }
}

struct ObservedView<'r, 'p> {
    live: &'r mut LiveWatch<'p>,
    session: &'r mut TraceSession,
    shown: SiteRows,
}

impl SiteFeed for ObservedView<'_, '_> {
    fn advance(&mut self, deadline: Instant) -> anyhow::Result<WatchProgress> {
        let progress = self.live.advance(deadline)?;
        self.live.take_entries();
        if progress != WatchProgress::Waiting {
            // The tables of an ended program may be gone: then the last ones count.
            drop(self.session.poll());
            let state = self.session.state(StateParts::OPEN);
            self.shown.update(self.live.watch(), &state);
        }
        Ok(progress)
    }

    fn rows(&self) -> &[SiteRow] {
        &self.shown.rows
    }

    fn headline(&self) -> TraceHeadline {
        headline(self.live.watch())
    }
}
