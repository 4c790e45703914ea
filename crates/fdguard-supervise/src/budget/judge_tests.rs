use std::time::Duration;

use fdguard_core::snapshot::Limits;
use fdguard_core::{Class, Gap, TcpState};

use super::{
    Budget, BudgetHistory, BudgetSetting, BudgetVerdict, HighestFd, Kind, LimitAhead, MemoryUse,
    Observation, ProcessReading, ServiceReading, defaults, judge,
};

fn process(count: u64) -> ProcessReading {
    ProcessReading {
        pid: 7,
        start_ticks: Some(1),
        count: Observation::Seen(count),
        limits: Limits {
            soft: Some(1000),
            hard: Some(4096),
        },
        highest: HighestFd::NotAsked,
        selects: None,
        classes: Observation::NotYet,
    }
}

fn reading(at: u64, process: ProcessReading) -> ServiceReading {
    ServiceReading {
        at: Duration::from_millis(at),
        main: 7,
        processes: vec![process],
        children: 0,
        zombies: Observation::NotYet,
        memory: Observation::NotYet,
        growth: Observation::NotYet,
        wall: Observation::NotYet,
    }
}

fn budget(text: &str) -> Budget {
    match text.parse().unwrap() {
        BudgetSetting::Set(budget) => budget,
        BudgetSetting::Off(_) => panic!("off"),
    }
}

/// The verdicts of each look, a second apart, in one word each.
fn told(text: &str, counts: &[u64]) -> Vec<&'static str> {
    let budgets = [budget(text)];
    let mut memory = BudgetHistory::default();
    let looks = counts.iter().zip(0..);
    looks
        .map(|(count, at)| {
            words(&judge(
                &budgets,
                &reading(at * 1000, process(*count)),
                &mut memory,
            ))
        })
        .collect()
}

fn words(news: &[BudgetVerdict]) -> &'static str {
    match news {
        [] => "-",
        [one] => match one.kind {
            Kind::Warn(_) => "warn",
            Kind::Act(_) => "act",
            Kind::Cleared(_) => "cleared",
            Kind::Unmeasured(_) => "gap",
        },
        _ => "several",
    }
}

#[test]
fn a_warning_is_told_once_until_it_fell_well_below() {
    let told = told("fds=700:", &[600, 700, 720, 650, 700, 631, 629, 700]);
    assert_eq!(told, ["-", "warn", "-", "-", "-", "-", "cleared", "warn"]);
}

#[test]
fn a_burst_is_warned_of_and_not_acted_on() {
    let told = told("fds=700:900", &[600, 910, 600, 910, 600]);
    assert_eq!(told, ["-", "warn", "cleared", "warn", "cleared"]);
}

#[test]
fn two_looks_in_a_row_are_acted_on_once() {
    let told = told("fds=70%:90%", &[800, 905, 910, 920, 930]);
    assert_eq!(told, ["warn", "-", "act", "-", "-"]);
}

#[test]
fn memory_that_is_well_exceeded_is_acted_on_at_the_first_look() {
    let told = |looks: &[u64]| -> Vec<&'static str> {
        let budgets = [budget("memory=:100MiB")];
        let mut memory = BudgetHistory::default();
        let one = |(size, at): (&u64, u64)| {
            let mut look = reading(at * 1000, process(1));
            let (bytes, exact) = (size << 20, true);
            look.memory = Observation::Seen(MemoryUse { bytes, exact });
            words(&judge(&budgets, &look, &mut memory))
        };
        looks.iter().zip(0..).map(one).collect()
    };
    assert_eq!(told(&[90, 149, 149]), ["-", "warn", "act"]);
    assert_eq!(told(&[90, 150, 200]), ["-", "act", "-"]);
}

#[test]
fn two_looks_within_a_moment_are_one() {
    let budgets = [budget("fds=:900")];
    let mut memory = BudgetHistory::default();
    let mut look = |at| words(&judge(&budgets, &reading(at, process(910)), &mut memory));
    assert_eq!(
        [look(0), look(50), look(900), look(1000)],
        ["warn", "-", "-", "act"]
    );
}

#[test]
fn at_the_wall_nobody_waits_for_a_second_look() {
    assert_eq!(told("fds=70%:90%", &[100, 981]), ["-", "act"]);
    assert_eq!(told("fds=70%:90%", &[100, 979]), ["-", "warn"]);
    assert_eq!(
        told("fds=:50", &[60, 981]),
        ["warn", "act"],
        "the wall is the limit, not the level"
    );
}

#[test]
fn after_a_restart_everything_may_be_told_again() {
    let budgets = [budget("fds=700:")];
    let mut memory = BudgetHistory::default();
    let over = reading(0, process(800));
    assert_eq!(words(&judge(&budgets, &over, &mut memory)), "warn");
    assert_eq!(words(&judge(&budgets, &over, &mut memory)), "-");
    memory.restarted();
    assert_eq!(words(&judge(&budgets, &over, &mut memory)), "warn");
}

#[test]
fn unknown_is_not_nothing_and_is_told_once_with_its_remedy() {
    let gap = Gap::new("the count", "permission denied", "run as root");
    let hidden = ProcessReading {
        count: Observation::Hidden(gap.clone()),
        ..process(0)
    };
    let budgets = [budget("fds=70%:90%")];
    let mut memory = BudgetHistory::default();
    let news = judge(&budgets, &reading(0, hidden.clone()), &mut memory);
    assert_eq!(news[0].kind, Kind::Unmeasured(gap));
    memory.restarted();
    assert!(judge(&budgets, &reading(1, hidden), &mut memory).is_empty());
}

#[test]
fn what_cannot_be_seen_for_a_while_is_not_taken_for_a_fall() {
    let budgets = [budget("fds=700:")];
    let mut memory = BudgetHistory::default();
    assert_eq!(
        words(&judge(&budgets, &reading(0, process(800)), &mut memory)),
        "warn"
    );
    let blind = ProcessReading {
        count: Observation::NotYet,
        ..process(0)
    };
    assert_eq!(
        words(&judge(&budgets, &reading(1, blind), &mut memory)),
        "-"
    );
    assert_eq!(
        words(&judge(&budgets, &reading(2, process(800)), &mut memory)),
        "-"
    );
}

#[test]
fn a_share_of_no_limit_is_a_gap_and_a_number_is_not() {
    let unlimited = ProcessReading {
        limits: Limits::default(),
        ..process(900)
    };
    let look = reading(0, unlimited);
    let share = judge(&[budget("fds=80%")], &look, &mut BudgetHistory::default());
    assert_eq!(words(&share), "gap");
    let number = judge(&[budget("fds=800:")], &look, &mut BudgetHistory::default());
    assert_eq!(words(&number), "warn");
}

#[test]
fn the_process_that_is_furthest_is_the_one_that_is_named() {
    let mut look = reading(0, process(100));
    look.processes.push(ProcessReading {
        pid: 8,
        ..process(800)
    });
    look.processes.push(ProcessReading {
        pid: 9,
        ..process(300)
    });
    let news = judge(&[budget("fds=70%:")], &look, &mut BudgetHistory::default());
    let Kind::Warn(passed) = &news[0].kind else {
        panic!("{news:?}")
    };
    assert_eq!(
        (passed.pid, passed.value, passed.level),
        (Some(8), 800.0, 700.0)
    );
}

#[test]
fn r28_the_number_1024_matters_to_those_who_select_unless_somebody_asked() {
    let high = |selects| {
        let high = ProcessReading {
            highest: HighestFd::Is(950),
            selects,
            ..process(10)
        };
        reading(0, high)
    };
    let news = |selects, budgets: &[Budget]| {
        words(&judge(
            budgets,
            &high(selects),
            &mut BudgetHistory::default(),
        ))
    };
    assert_eq!(news(Some(true), &defaults()), "warn");
    assert_eq!(news(Some(false), &defaults()), "-");
    assert_eq!(news(None, &defaults()), "-");
    assert_eq!(news(Some(false), &[budget("highest=900:1000")]), "warn");
    assert_eq!(news(Some(false), &[budget("highest=90%:95%")]), "warn");
}

#[test]
fn r33_a_class_and_its_family_are_counted() {
    let waiting = Class::Tcp(TcpState::CloseWait);
    let holder = ProcessReading {
        classes: Observation::Seen(vec![
            (waiting, 150),
            (Class::Tcp(TcpState::Listen), 60),
            (Class::Pipe, 900),
        ]),
        ..process(300)
    };
    let look = reading(0, holder);
    let news = |text: &str| {
        words(&judge(
            &[budget(text)],
            &look,
            &mut BudgetHistory::default(),
        ))
    };
    assert_eq!(news("class:tcp:CLOSE_WAIT=150:"), "warn");
    assert_eq!(news("class:tcp:CLOSE_WAIT=151:"), "-");
    assert_eq!(news("class:tcp=210:"), "warn");
    assert_eq!(news("class:tcp=211:"), "-");
    assert_eq!(
        words(&judge(&defaults(), &look, &mut BudgetHistory::default())),
        "warn"
    );
}

#[test]
fn less_time_to_the_wall_is_worse_and_none_is_all_the_time() {
    let budgets = [budget("wall=30m:5m")];
    let mut memory = BudgetHistory::default();
    let mut look = |at: u64, minutes: Option<u64>| {
        let wall = minutes.map(|minutes| LimitAhead {
            name: "soft-limit".into(),
            left: Duration::from_secs(60 * minutes),
        });
        let mut seen = reading(at * 1000, process(1));
        seen.wall = Observation::Seen(wall);
        words(&judge(&budgets, &seen, &mut memory))
    };
    let told = [
        look(0, None),
        look(1, Some(29)),
        look(2, Some(32)),
        look(3, Some(4)),
        look(4, Some(3)),
    ];
    assert_eq!(told, ["-", "warn", "-", "-", "act"]);
    assert_eq!(look(5, None), "cleared");
}

#[test]
fn what_is_of_all_together_is_measured_too() {
    let mut look = reading(0, process(1));
    look.zombies = Observation::Seen(6);
    look.memory = Observation::Seen(MemoryUse {
        bytes: 600 << 20,
        exact: true,
    });
    look.growth = Observation::Seen(60.0);
    look.children = 12;
    for text in [
        "zombies=5:50",
        "memory=512MiB:1GiB",
        "growth=30:90",
        "children=10:20",
    ] {
        assert_eq!(
            words(&judge(
                &[budget(text)],
                &look,
                &mut BudgetHistory::default()
            )),
            "warn",
            "{text}"
        );
    }
}

#[test]
fn news_tell_where_it_began() {
    let budgets = [budget("fds=700:")];
    let mut memory = BudgetHistory::default();
    assert!(judge(&budgets, &reading(500, process(20)), &mut memory).is_empty());
    let news = judge(&budgets, &reading(10_500, process(720)), &mut memory);
    let Kind::Warn(passed) = &news[0].kind else {
        panic!("{news:?}")
    };
    assert_eq!(passed.first, Some((20.0, Duration::from_secs(10))));
    assert_eq!(passed.wall, Some(1000.0));
}

#[test]
fn too_few_of_everything_are_too_few_of_a_class_and_enough_say_nothing() {
    let budgets = [budget("class:pipe=100:")];
    let mut memory = BudgetHistory::default();
    let listed = ProcessReading {
        classes: Observation::Seen(vec![(Class::Pipe, 120)]),
        ..process(200)
    };
    assert_eq!(
        words(&judge(&budgets, &reading(0, listed), &mut memory)),
        "warn"
    );
    assert_eq!(
        words(&judge(&budgets, &reading(1, process(120)), &mut memory)),
        "-"
    );
    assert_eq!(
        words(&judge(&budgets, &reading(2, process(80)), &mut memory)),
        "cleared"
    );
    assert_eq!(
        words(&judge(&budgets, &reading(3, process(120)), &mut memory)),
        "-"
    );
}
