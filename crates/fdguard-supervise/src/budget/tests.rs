use super::{Amount, Budget, BudgetSetting, Measure, defaults, effective};

fn given(text: &str) -> BudgetSetting {
    text.parse().unwrap()
}

fn budget(text: &str) -> Budget {
    match given(text) {
        BudgetSetting::Set(budget) => budget,
        BudgetSetting::Off(what) => panic!("{what} is off"),
    }
}

fn refused(text: &str) -> String {
    let error = text.parse::<BudgetSetting>().unwrap_err().to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}

#[test]
fn budgets_as_people_write_them_read_back_as_they_were() {
    for text in [
        "fds=80%:90%",
        "fds=700:900",
        "highest=900:1000",
        "class:tcp:CLOSE_WAIT=200:500",
        "class:sqlite-*=20:40",
        "wall=30m:5m",
        "growth=30/min:600/min",
        "zombies=5:50",
        "memory=512MiB:1GiB",
        "children=10:20",
        "fds=80%:",
        "memory=:1GiB",
    ] {
        assert_eq!(budget(text).to_string(), text);
    }
    assert_eq!(
        given("class:tcp:CLOSE_WAIT=off"),
        BudgetSetting::Off("class:tcp:CLOSE_WAIT".parse().unwrap())
    );
}

#[test]
fn one_level_is_to_act_at_and_the_warning_comes_a_little_earlier() {
    for (text, both) in [
        ("fds=900", "fds=720:900"),
        ("fds=90%", "fds=72%:90%"),
        ("wall=5m", "wall=10m:5m"),
        ("memory=1000MiB", "memory=800MiB:1000MiB"),
        ("zombies=2", "zombies=:2"),
        ("growth=10", "growth=8/min:10/min"),
    ] {
        assert_eq!(budget(text).to_string(), both, "{text}");
    }
}

#[test]
fn a_family_may_be_named_by_its_bare_name() {
    assert_eq!(budget("class:tcp=5:9").what.to_string(), "class:tcp:*");
    assert_eq!(
        budget("class:sqlite=5:9").what.to_string(),
        "class:sqlite-*"
    );
}

#[test]
fn a_slip_is_told_with_what_was_likely_meant() {
    assert_eq!(
        refused("fsd=9"),
        "unknown budget \"fsd\": did you mean \"fds\"?"
    );
    assert_eq!(
        refused("zombie=9"),
        "unknown budget \"zombie\": did you mean \"zombies\"?"
    );
    assert_eq!(
        refused("pipe=9"),
        "unknown budget \"pipe\": did you mean \"class:pipe\"?"
    );
    let all = refused("threads=9");
    assert!(all.contains("use one of fds, highest, class:NAME"), "{all}");
    let class = refused("class:tcp:CLOSE_WAITS=9");
    assert!(
        class.ends_with("(did you mean \"class:tcp:CLOSE_WAIT\"?)"),
        "{class}"
    );
    let class = refused("class:inotfy=9");
    assert!(
        class.ends_with("(did you mean \"class:inotify\"?)"),
        "{class}"
    );
}

#[test]
fn levels_that_cannot_be_meant_are_refused() {
    let order = refused("fds=90%:80%");
    assert!(
        order.contains("must not be lower than the warn level (90%)"),
        "{order}"
    );
    assert!(refused("wall=5m:30m").contains("(30m) must not be shorter than the warn level (5m)"));
    assert!(refused("fds=101%").contains("100% at most"));
    assert!(refused("fds=50%:200%").contains("100% at most"));
    assert!(refused("memory=80%").contains("use a size"));
    assert!(refused("zombies=10%").contains("percentages are not supported"));
    assert!(refused("class:pipe=10%:20%").contains("use a number"));
    assert!(refused("fds=0").contains("greater than 0"));
    assert!(refused("fds=0%").contains("greater than 0%"));
    assert!(refused("fds=").contains("level missing"));
    assert!(refused("fds=:").contains("level missing"));
    assert!(refused("fds=nan%").contains("is not a percentage"));
    assert!(refused("fds=-3").contains("is not a number"));
    assert!(refused("fds=1e3").contains("is not a number"));
    assert!(refused("memory=512").contains("is not a size"));
    assert!(refused("fds").contains("NAME=WARN:ACT"));
    assert!(refused("fds=1:2:3").contains("is not a number"));
}

#[test]
fn wall_is_warned_of_with_more_time_left_than_it_is_acted_on() {
    let wall = budget("wall=30m:5m");
    assert_eq!(
        wall.warn.map(|warn| warn.to_string()).as_deref(),
        Some("30m")
    );
    assert_eq!(wall.what, Measure::Wall);
}

#[test]
fn what_is_given_takes_the_place_of_its_default_only() {
    let all = effective(&[given("fds=10:20"), given("zombies=5"), given("highest=off")]);
    let names: Vec<String> = all.iter().map(ToString::to_string).collect();
    assert_eq!(
        names,
        ["class:tcp:CLOSE_WAIT=100:", "fds=10:20", "zombies=4:5"]
    );
}

#[test]
fn r33_without_a_word_of_the_user_dead_peers_are_warned_of() {
    let all = defaults();
    let names: Vec<String> = all.iter().map(ToString::to_string).collect();
    assert_eq!(
        names,
        [
            "fds=70%:90%",
            "highest=900:1000",
            "class:tcp:CLOSE_WAIT=100:"
        ]
    );
    assert!(all[1].only_select, "only select() runs into that wall");
    assert_eq!(all[2].act, None, "a warning and no more");
    assert_eq!(all[2].warn, Some(Amount::Count(100)));
}
