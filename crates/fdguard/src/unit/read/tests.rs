use proptest::prelude::*;

use super::{UnitNode, UnitTarget, guess, read};

fn get<'a>(node: &'a UnitNode, path: &[&str]) -> &'a UnitNode {
    path.iter().fold(node, |node, name| {
        node.get(name).unwrap_or_else(|| panic!("{name}: {node:?}"))
    })
}

#[test]
fn systemd_continues_by_a_backslash_and_leaves_comments_out() {
    let text = "# first\n[Service]\nExecStart=/bin/a \\\n# not this\n   b \\\n   c\nType = simple\n[Unit]\nX=1\n[Service]\nType=notify\n";
    let unit = read(UnitTarget::Systemd, text).unwrap();
    let start = get(&unit, &["Service", "ExecStart"]);
    let words: Vec<_> = start.text().unwrap().split_whitespace().collect();
    assert_eq!((words, start.line), (vec!["/bin/a", "b", "c"], 3));
    let kind = get(&unit, &["Service", "Type"]);
    assert_eq!(
        (kind.text(), kind.line),
        (Some("notify"), 11),
        "the last wins"
    );
}

#[test]
fn supervisord_continues_by_indentation_and_comments_follow_a_space() {
    let text = "[program:x] ; the program\ncommand = a ; not this\n   b;c\nautorestart: true\n";
    let unit = read(UnitTarget::Supervisord, text).unwrap();
    let command = get(&unit, &["program:x", "command"]);
    assert_eq!((command.text(), command.line), (Some("a b;c"), 2));
    assert!(get(&unit, &["program:x", "autorestart"]).is_yes());
}

#[test]
fn a_property_list_has_the_lines_of_its_keys() {
    let text = "<?xml version=\"1.0\"?>\n<!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n<plist version=\"1.0\">\n<dict>\n<key>A</key>\n<array><string>x &amp; y</string></array>\n<key>B</key><true/>\n</dict>\n</plist>\n";
    let unit = read(UnitTarget::Launchd, text).unwrap();
    let list = get(&unit, &["A"]);
    assert_eq!(
        (list.line, list.list().unwrap()[0].text()),
        (5, Some("x & y"))
    );
    assert!(get(&unit, &["B"]).is_yes());
}

#[test]
fn yaml_has_lines_anchors_and_merges() {
    let text = "x-base: &base\n  init: true\n  restart: always\nservices:\n  web:\n    <<: *base\n    restart: \"no\"\n    command: [a, 'b c']\n";
    let unit = read(UnitTarget::Compose, text).unwrap();
    let web = get(&unit, &["services", "web"]);
    assert_eq!(web.line, 5);
    assert!(get(web, &["init"]).is_yes());
    assert_eq!(get(web, &["restart"]).text(), Some("no"), "its own wins");
    let words: Vec<_> = get(web, &["command"])
        .list()
        .unwrap()
        .iter()
        .map(|it| it.text().unwrap())
        .collect();
    assert_eq!(words, ["a", "b c"]);
}

#[test]
fn what_cannot_be_read_says_where_and_why() {
    for (target, text, line) in [
        (UnitTarget::Systemd, "[Service]\nnonsense\n", Some(2)),
        (UnitTarget::Systemd, "A=1\n", Some(1)),
        (UnitTarget::Systemd, "", None),
        (UnitTarget::Supervisord, "[program:x\n", Some(1)),
        (UnitTarget::Launchd, "bplist00", Some(1)),
        (
            UnitTarget::Launchd,
            "<plist><dict>\n<key>A</key>\n</dict></plist>",
            Some(2),
        ),
        (UnitTarget::Launchd, "<plist>\n<dict></array>", Some(2)),
        (UnitTarget::Launchd, "<html/>", Some(1)),
        (UnitTarget::Compose, "a: [1,\nb: }", Some(2)),
        (UnitTarget::Compose, "", None),
    ] {
        let error = read(target, text).unwrap_err();
        assert_eq!(error.line, line, "{text:?}: {error:?}");
        assert!(!error.why.is_empty());
    }
}

#[test]
fn anchors_that_multiply_are_refused_and_not_followed() {
    let mut text = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..9 {
        let before = format!("*a{},", level - 1).repeat(10);
        text.push_str(&format!("a{level}: &a{level} [{before}]\n"));
    }
    let error = read(UnitTarget::Compose, &text).unwrap_err();
    assert!(error.why.contains("too large"), "{error:?}");
}

#[test]
fn for_whom_a_file_is() {
    for (name, text, target) in [
        ("web.service", "", Some(UnitTarget::Systemd)),
        ("org.example.plist", "", Some(UnitTarget::Launchd)),
        ("compose.yaml", "", Some(UnitTarget::Compose)),
        (
            "web.conf",
            "; x\n[program:web]\n",
            Some(UnitTarget::Supervisord),
        ),
        ("override.conf", "[Service]\n", Some(UnitTarget::Systemd)),
        ("-", "services:\n", Some(UnitTarget::Compose)),
        ("notes.txt", "hello", None),
    ] {
        assert_eq!(guess(name, text), target, "{name}");
    }
}

proptest! {
    #[test]
    fn any_text_is_survived(text: String) {
        for target in [UnitTarget::Systemd, UnitTarget::Launchd, UnitTarget::Supervisord, UnitTarget::Compose] {
            drop(read(target, &text));
        }
    }

    #[test]
    fn any_lines_are_survived(lines in proptest::collection::vec("[\\[\\]a-c =:;#&*<>/-]{0,12}", 0..8)) {
        for target in [UnitTarget::Systemd, UnitTarget::Launchd, UnitTarget::Supervisord, UnitTarget::Compose] {
            drop(read(target, &lines.join("\n")));
        }
    }
}
