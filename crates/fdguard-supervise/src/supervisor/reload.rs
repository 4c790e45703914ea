//! SIGHUP: reads the file again. Changed services are restarted, new ones started, removed ones
//! stopped.

use std::mem;
use std::path::Path;

use super::{Supervisor, pages};
use crate::config::{self, RunSettings};
use crate::event::LogEvent;
use crate::lifecycle::Request;
use crate::service::Service;
use fdguard_process::input_file;

/// Services by the effect of a reload.
#[derive(Debug, Default)]
struct Differences {
    kept: usize,
    changed: Vec<String>,
    added: Vec<String>,
    removed: Vec<String>,
}

impl<'p> Supervisor<'p> {
    pub(super) fn reload(&mut self) {
        if self.stopping.is_some() {
            return;
        }
        let Some(file) = self.settings.file.clone() else {
            // Without a file there is nothing to read: HUP means a graceful restart.
            self.sink
                .emit(&LogEvent::new("reload").with("changed", "all"));
            return self.renew_all();
        };
        let read = input_file::read_text(Path::new(&file), input_file::WRITTEN)
            .map_err(|error| format!("{file}: {error}"));
        let fresh = read.and_then(|text| {
            RunSettings::resolve(&self.said, Some((&file, &text)))
                .map_err(|mistake| mistake.to_string())
        });
        match fresh {
            Ok(fresh) => self.take_over(fresh),
            Err(text) => self.keep_the_old(&text),
        }
    }

    fn keep_the_old(&mut self, text: &str) {
        let event = LogEvent::new("reload").with("ok", false).with("text", text);
        self.sink.emit(&event.with("kept", "previous values"));
    }

    fn renew_all(&mut self) {
        let settings = self.settings.services.clone();
        let is_single = settings.len() == 1;
        self.above.reloading(&mut self.sink);
        for one in settings {
            let name = one.name.clone();
            match self.fresh_service(one, is_single) {
                Ok(fresh) => self.renew(&name, fresh),
                Err(refusal) => self.keep_the_old(&refusal.message),
            }
        }
    }

    fn take_over(&mut self, fresh: RunSettings) {
        let is_single = fresh.services.len() == 1;
        let mut services = Vec::new();
        for one in &fresh.services {
            match self.fresh_service(one.clone(), is_single) {
                Ok(service) => services.push(service),
                Err(refusal) => return self.keep_the_old(&refusal.message),
            }
        }
        if let Err(text) = self.move_pages(&fresh) {
            return self.keep_the_old(&text);
        }
        self.above.reloading(&mut self.sink);
        let differences = compare(&self.settings.services, &fresh.services);
        let list = |names: &[String]| names.join(",");
        let event = LogEvent::new("reload")
            .with("ok", true)
            .with("kept", differences.kept)
            .with("changed", list(&differences.changed))
            .with("added", list(&differences.added))
            .with("removed", list(&differences.removed));
        self.sink.emit(&event);
        let old = mem::take(&mut self.services);
        let (mut staying, mut all) = (old, Vec::new());
        for service in services {
            let at = staying
                .iter()
                .position(|one| one.name() == service.name() && !one.is_removed);
            match at.map(|at| staying.remove(at)) {
                None => all.push(service),
                Some(known) => {
                    let is_changed = differences.changed.contains(&known.name().to_owned());
                    let name = known.name().to_owned();
                    all.push(known);
                    if is_changed {
                        mem::swap(&mut self.services, &mut all);
                        self.renew(&name, service);
                        mem::swap(&mut self.services, &mut all);
                    }
                }
            }
        }
        for service in &mut staying {
            service.is_removed = true;
        }
        all.append(&mut staying);
        self.services = all;
        self.each(|service, cx, _| {
            if service.is_removed {
                service.ask(Request::Stop, cx);
            }
        });
        self.sockets.keep_only(&fresh.services);
        self.sink.set_form(fresh.form);
        self.settings = fresh;
    }

    /// Serves the pages at the new address; on failure at the old one.
    fn move_pages(&mut self, fresh: &RunSettings) -> Result<(), String> {
        let place = |settings: &RunSettings| (settings.metrics, settings.metrics_token.clone());
        if place(fresh) == place(&self.settings) {
            return Ok(());
        }
        // The address may be the same: it must be free first.
        self.pages = None;
        match pages::open(fresh) {
            Ok(pages) => {
                self.pages = pages;
                Ok(())
            }
            Err(text) => {
                self.pages = pages::open(&self.settings).unwrap_or_default();
                Err(text)
            }
        }
    }

    fn renew(&mut self, name: &str, fresh: Service<'p>) {
        let mut fresh = Some(fresh);
        self.each(|service, cx, _| {
            if service.name() == name
                && !service.is_removed
                && let Some(fresh) = fresh.take()
            {
                service.renew(fresh, cx);
            }
        });
    }
}

fn compare(old: &[config::ServiceConfig], new: &[config::ServiceConfig]) -> Differences {
    let mut differences = Differences::default();
    for one in new {
        match old.iter().find(|other| other.name == one.name) {
            None => differences.added.push(one.name.clone()),
            Some(other) if other.values.says_the_same(&one.values) => differences.kept += 1,
            Some(_) => differences.changed.push(one.name.clone()),
        }
    }
    let is_gone = |one: &&config::ServiceConfig| new.iter().all(|other| other.name != one.name);
    let removed = old.iter().filter(is_gone).map(|one| one.name.clone());
    differences.removed = removed.collect();
    differences
}
