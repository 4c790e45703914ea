//! A limit of the host or the user that causes the same errors.

use super::{Case, Rule, RuleKind};
use crate::finding::Finding;
use crate::lint::Severity;
use crate::{Class, forecast::Forecast};

pub(super) const RULE: Rule = Rule {
    id: "host-ceiling",
    kind: RuleKind::Growth,
    severity: Severity::Warning,
    summary: "a host-wide or per-user limit is close: open files, ptys, inotify, tasks",
    cwe: Some(770),
    requirement: "R9",
    fix: None,
};

struct Ceiling {
    name: &'static str,
    filled_by: Filler,
    /// Where it is set.
    setting: &'static str,
}

enum Filler {
    /// Every descriptor.
    All,
    One(Class),
    /// Not descriptors: processes and threads.
    Children,
}

const CEILINGS: &[Ceiling] = &[
    Ceiling {
        name: "system-files",
        filled_by: Filler::All,
        setting: "fs.file-max",
    },
    Ceiling {
        name: "ptys",
        filled_by: Filler::One(Class::PtyMaster),
        setting: "kernel.pty.max",
    },
    Ceiling {
        name: "inotify-instances",
        filled_by: Filler::One(Class::Inotify),
        setting: "fs.inotify.max_user_instances",
    },
    Ceiling {
        name: "inotify-watches",
        filled_by: Filler::One(Class::Inotify),
        setting: "fs.inotify.max_user_watches",
    },
    Ceiling {
        name: "tasks",
        filled_by: Filler::Children,
        setting: "kernel.threads-max and kernel.pid_max",
    },
];

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let near = CEILINGS.iter().filter_map(|ceiling| {
        let wall = case.wall(ceiling.name)?;
        let severity = case.settings.levels.judge(wall.percent, None)?;
        Some(found(case, wall, severity, ceiling))
    });
    near.collect()
}

fn found(case: &Case<'_>, wall: &Forecast, severity: Severity, ceiling: &Ceiling) -> Finding {
    let (class, own) = match &ceiling.filled_by {
        Filler::All => (case.largest_class(), case.timeline.count()),
        Filler::One(class) if case.timeline.is_listed() => {
            let own = case.timeline.count_of(|held, _| held == class);
            (Some(class.clone()), Some(own))
        }
        Filler::One(class) => (Some(class.clone()), None),
        Filler::Children => {
            let families = case.timeline.families();
            (None, families.map(|(_, last)| last.children))
        }
    };
    // Other processes may have filled it. Then it is information, not this process's fault.
    let severity = if own == Some(0) {
        Severity::Info
    } else {
        severity
    };
    let whose = if wall.name.starts_with("inotify") {
        "counting all processes of its user"
    } else {
        "counting all processes on this host"
    };
    Finding {
        class,
        count: own,
        why: format!(
            "{}: {} of {} in use ({} %), {whose}",
            wall.name,
            wall.used.unwrap_or(0),
            wall.at,
            wall.percent.unwrap_or(0.0),
        ),
        next_step: format!(
            "Find the process that uses most of it. The limit is set by {}.",
            ceiling.setting
        ),
        ..case.finding(&RULE, severity)
    }
}

#[cfg(test)]
mod tests {
    use crate::Class;
    use crate::finding::Finding;
    use crate::lint::Severity;
    use crate::snapshot::Ceilings;
    use crate::testing::watch_script::{ceiling, settings, watched};

    fn on_host(held: &Class, set: impl FnOnce(&mut Ceilings)) -> Vec<Finding> {
        let told = watched(|t| {
            t.host(set);
            t.open(held.clone(), "x", 3);
            t.looks(8);
        });
        told.found("host-ceiling", &settings())
    }

    #[test]
    fn r9_the_ceiling_that_is_near_is_named_with_its_setting() {
        let found = on_host(&Class::PtyMaster, |host| host.ptys = ceiling(3950, 4096));
        assert_eq!(found[0].severity, Severity::Critical);
        assert_eq!(
            (&found[0].class, found[0].count),
            (&Some(Class::PtyMaster), Some(3))
        );
        let said = "ptys: 3950 of 4096 in use (96.4 %), counting all processes on this host";
        assert_eq!(found[0].why, said);
        assert!(found[0].next_step.ends_with("set by kernel.pty.max."));
    }

    #[test]
    fn r9_the_ceilings_of_inotify_are_the_users() {
        let near = |host: &mut Ceilings| host.inotify_instances = ceiling(100, 128);
        let found = on_host(&Class::Inotify, near);
        assert_eq!(found[0].severity, Severity::Warning);
        assert!(found[0].why.ends_with("counting all processes of its user"));
    }

    #[test]
    fn r9_what_others_filled_is_no_fault_of_this_process() {
        let found = on_host(&Class::Pipe, |host| host.ptys = ceiling(4096, 4096));
        assert_eq!(found[0].severity, Severity::Info);
    }

    #[test]
    fn r9_tasks_are_no_class_of_descriptors() {
        let found = on_host(&Class::Pidfd, |host| host.tasks = ceiling(99, 100));
        assert_eq!((&found[0].class, found[0].count), (&None, None));
    }

    #[test]
    fn r9_far_or_unknown_ceilings_are_quiet() {
        assert_eq!(
            on_host(&Class::PtyMaster, |host| host.ptys = ceiling(70, 100)),
            []
        );
        let unknown = |host: &mut Ceilings| host.ptys.at = Some(100);
        assert_eq!(on_host(&Class::PtyMaster, unknown), []);
    }
}
