//! The last judgement, and the user's choices in the view.

use std::cmp::Reverse;

use crossterm::event::{KeyCode, KeyEvent};
use fdguard_core::config::Levels;
use fdguard_core::diagnosis::ProcessDiagnosis;
use fdguard_core::finding::Finding;
use fdguard_core::judge::Verdict;
use fdguard_core::rule::RuleSettings;
use fdguard_core::watch::{Watch, WatchedProcess};
use fdguard_core::{Class, Text, command_line};

use super::class_row::{ClassRow, class_rows};
use super::sparkline::History;
use super::{WatchOptions, draw};
use crate::terminal::sanitize_str;
use crate::tui::keys::{Step, is_control};
use crate::tui::selection::Selection;

/// Everything on the screen that is not in the watch itself.
#[derive(Clone, Debug)]
pub struct WatchViewState {
    pub(super) name: String,
    pub(super) ends_after: Option<f64>,
    pub(super) levels: Levels,
    pub(super) judged: Vec<JudgedProcess>,
    pub(super) pane: Option<Pane>,
    pub(super) scroll: usize,
    pub(super) size: (u16, u16),
    /// The process that the user selected; by default the worst one.
    chosen: Option<u32>,
    /// The selected finding; it may come and go.
    selection: Selection<Identity>,
    turns: u64,
}

/// The open overlay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pane {
    /// Everything about the selected finding.
    Finding,
    /// What could not be seen.
    Gaps,
}

/// The latest verdict about one process.
#[derive(Clone, Debug)]
pub(super) struct JudgedProcess {
    pub(super) id: u32,
    pub(super) opinion: ProcessDiagnosis,
    /// `None` if the descriptors could not be listed.
    pub(super) classes: Option<Vec<ClassRow>>,
    pub(super) total: History,
    /// When it was last judged.
    turn: u64,
}

/// Identifies a finding across judgements.
type Identity = (String, Option<Class>, Option<Text>);

fn identity(finding: &Finding) -> Identity {
    let Finding {
        rule,
        class,
        target,
        ..
    } = finding;
    (rule.clone(), class.clone(), target.clone())
}

impl WatchViewState {
    /// The initial state: nothing judged, nothing chosen.
    #[must_use]
    pub fn new(options: &WatchOptions) -> Self {
        Self {
            name: sanitize_str(&options.name).into_owned(),
            ends_after: options.ends_after,
            levels: options.settings.levels,
            judged: Vec::new(),
            pane: None,
            scroll: 0,
            size: (80, 24),
            chosen: None,
            selection: Selection::default(),
            turns: 0,
        }
    }

    /// Judges what changed since the last time: always the process on the screen, the others in
    /// turn while there is time. Returns whether there was enough time for all.
    pub fn judge(
        &mut self,
        watch: &Watch,
        settings: &RuleSettings,
        mut has_time: impl FnMut() -> bool,
    ) -> bool {
        self.turns += 1;
        self.judged
            .retain(|judged| watch.subjects().any(|subject| subject.id == judged.id));
        let shown = self.current(watch).map(|subject| subject.id);
        let mut due: Vec<(Reverse<bool>, u64, &WatchedProcess)> = watch
            .subjects()
            .filter_map(|subject| {
                let before = self.judged(subject.id);
                let is_new = before.is_none_or(|b| b.opinion.samples != subject.timeline.looks());
                let turn = before.map_or(0, |before| before.turn);
                is_new.then_some((Reverse(Some(subject.id) == shown), turn, subject))
            })
            .collect();
        due.sort_by_key(|(is_shown, turn, _)| (*is_shown, *turn));
        let mut is_complete = true;
        for (nth, (_, _, subject)) in due.into_iter().enumerate() {
            if nth > 0 && !has_time() {
                is_complete = false;
                break;
            }
            self.judge_one(subject, settings);
        }
        self.follow_selected(watch);
        is_complete
    }

    fn judge_one(&mut self, subject: &WatchedProcess, settings: &RuleSettings) {
        let timeline = &subject.timeline;
        let mut opinion = subject.opinion(settings);
        let has_ended = subject.gone.is_some();
        command_line::add_trace(&mut opinion.findings, &subject.process, has_ended);
        let judged = JudgedProcess {
            id: subject.id,
            classes: timeline.is_listed().then(|| class_rows(timeline, &opinion)),
            total: History::of(timeline, timeline.total()),
            opinion,
            turn: self.turns,
        };
        match self.judged.iter_mut().find(|old| old.id == subject.id) {
            Some(old) => *old = judged,
            None => self.judged.push(judged),
        }
    }

    /// Handles a key; returns whether to quit.
    pub(super) fn press(&mut self, key: KeyEvent, watch: &Watch) -> bool {
        match key.code {
            _ if is_control(key) => self.step(key, watch),
            KeyCode::Char('q') | KeyCode::Esc => return self.pane.take().is_none(),
            KeyCode::Enter | KeyCode::Char(' ') => self.toggle(Pane::Finding, watch),
            KeyCode::Char('g') => self.toggle(Pane::Gaps, watch),
            KeyCode::Tab => self.switch(watch, 1),
            KeyCode::BackTab => self.switch(watch, -1),
            _ => self.step(key, watch),
        }
        false
    }

    /// Moves to another finding, or scrolls the pane.
    fn step(&mut self, key: KeyEvent, watch: &Watch) {
        let Some(step) = Step::of(key) else { return };
        if self.pane == Some(Pane::Gaps) || step.is_page() {
            let extent = draw::pane_extent(self, watch, self.size);
            self.scroll = step.scroll(self.scroll, extent);
            return;
        }
        let before = self.cursor();
        self.select(watch, |selection, findings| {
            selection.step(step, 1, findings, identity, false);
        });
        if self.cursor() != before {
            self.scroll = 0;
        }
    }

    fn select(&mut self, watch: &Watch, change: impl FnOnce(&mut Selection<Identity>, &[Finding])) {
        let mut selection = std::mem::take(&mut self.selection);
        change(&mut selection, self.findings(watch));
        self.selection = selection;
    }

    fn toggle(&mut self, pane: Pane, watch: &Watch) {
        self.scroll = 0;
        let is_empty = match pane {
            Pane::Finding => self.findings(watch).is_empty(),
            Pane::Gaps => watch.gaps().is_empty(),
        };
        let is_open = self.pane == Some(pane);
        self.pane = Some(pane).filter(|_| !is_open && !is_empty);
        if self.pane == Some(Pane::Finding) {
            self.select(watch, |selection, findings| {
                selection.pin(findings, identity);
            });
        }
    }

    fn switch(&mut self, watch: &Watch, by: isize) {
        let order = self.order(watch);
        let shown = self.current(watch).map(|subject| subject.id);
        let at = order.iter().position(|one| Some(one.id) == shown);
        let next = match (at, by) {
            (Some(at), 1..) => (at + 1) % order.len(),
            (Some(at), _) => (at + order.len() - 1) % order.len(),
            (None, _) => 0,
        };
        self.chosen = order.get(next).map(|subject| subject.id);
        (self.selection, self.scroll) = (Selection::default(), 0);
        self.pane = self.pane.filter(|pane| *pane == Pane::Gaps);
    }

    fn follow_selected(&mut self, watch: &Watch) {
        self.select(watch, |selection, findings| {
            selection.follow(findings, identity);
        });
        let is_empty = self.findings(watch).is_empty();
        self.pane = self.pane.filter(|pane| *pane != Pane::Finding || !is_empty);
    }

    /// The processes in list order: running before ended ones, the worst first.
    pub(super) fn order<'a>(&self, watch: &'a Watch) -> Vec<&'a WatchedProcess> {
        let mut order: Vec<&WatchedProcess> = watch.subjects().collect();
        order.sort_by_key(|subject| (subject.gone.is_some(), Reverse(self.verdict(subject.id))));
        order
    }

    /// The process on the screen.
    pub(super) fn current<'a>(&self, watch: &'a Watch) -> Option<&'a WatchedProcess> {
        let chosen = watch
            .subjects()
            .find(|subject| Some(subject.id) == self.chosen);
        chosen.or_else(|| self.order(watch).first().copied())
    }

    /// The latest verdict about a process; `None` before the first one.
    pub(super) fn judged(&self, id: u32) -> Option<&JudgedProcess> {
        self.judged.iter().find(|judged| judged.id == id)
    }

    /// The verdict on a process.
    pub(super) fn verdict(&self, id: u32) -> Verdict {
        let judged = self.judged(id);
        judged.map_or(Verdict::Unknown, |judged| judged.opinion.verdict)
    }

    /// The findings of the process on the screen.
    pub(super) fn findings(&self, watch: &Watch) -> &[Finding] {
        let judged = self.current(watch).and_then(|one| self.judged(one.id));
        judged.map_or(&[], |judged| &judged.opinion.findings)
    }

    /// The index of the selected finding.
    pub(super) fn cursor(&self) -> usize {
        self.selection.cursor()
    }

    /// The selected finding.
    pub(super) fn finding(&self, watch: &Watch) -> Option<&Finding> {
        self.findings(watch).get(self.cursor())
    }
}
