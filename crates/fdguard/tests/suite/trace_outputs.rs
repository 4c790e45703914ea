//! `fdguard trace` to files: folded stacks, flame graph, profile and page.

use std::fs;
use std::path::{Path, PathBuf};

use super::{CommandOutput, fdguard, profile};

/// A file name that no page may take for its own.
const EVIL: &str = "<script>alert(2)&.conf";

fn victim() -> PathBuf {
    testkit::c_variant("two_sites", "O2", &["-O2", "-g"]).expect("a victim that compiles")
}

fn line(mark: &str) -> usize {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testkit/c/two_sites.c");
    let text = fs::read_to_string(path).unwrap();
    text.lines().position(|line| line.contains(mark)).unwrap() + 1
}

fn trace(arguments: &[&str], dir: &Path) -> CommandOutput {
    let settings = dir.join(EVIL);
    fs::write(&settings, "").unwrap();
    let mut command = fdguard();
    command.current_dir(dir).args(["trace", "--for", "2s"]);
    command
        .args(arguments)
        .arg("--")
        .arg(victim())
        .arg(settings);
    CommandOutput::of(command.output().unwrap())
}

#[test]
fn r20_one_run_is_told_in_every_form() {
    let dir = tempfile::tempdir().unwrap();
    let files = ["a.folded", "a.svg", "a.pb.gz", "a.html"];
    let arguments = [
        "--folded",
        files[0],
        "--flamegraph",
        files[1],
        "--pprof",
        files[2],
        "--html",
        files[3],
    ];
    let said = trace(&arguments, dir.path());
    assert_eq!((said.code, said.text()), (0, "held\n"), "{}", said.stderr);
    let read = |name: &str| fs::read(dir.path().join(name)).unwrap();
    let text = |name: &str| String::from_utf8(read(name)).unwrap();
    folded(&text(files[0]));
    flame_graph(&text(files[1]));
    pprof(&read(files[2]));
    page(&text(files[3]));
    let mut left: Vec<_> = fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    left.sort();
    let mut expected = files.to_vec();
    expected.insert(0, EVIL);
    expected.sort_unstable();
    assert_eq!(left, expected, "nothing else is left");
}

fn folded(text: &str) {
    let ending = |end: String| {
        let found: Vec<&str> = text.lines().filter(|line| line.ends_with(&end)).collect();
        let [line] = found[..] else {
            panic!("{end}: {text}")
        };
        assert!(line.starts_with("two_sites-O2;"), "{line}");
        assert!(line.contains(";main (two_sites.c:"), "outer first: {line}");
    };
    ending(format!(
        ";read_settings (two_sites.c:{}) 6",
        line("/* FILE */")
    ));
    ending(format!(";arm (two_sites.c:{}) 4", line("/* EVENT */")));
    ending(";strange (<script>alert(1)<b>\\u{3b}.c:7) 1".to_owned());
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.lines().is_sorted(), "{text}");
}

fn flame_graph(svg: &str) {
    well_formed(svg);
    let title = format!(
        "<title>arm (two_sites.c:{}): 4 descriptors still open, 36.4 %, c</title>",
        line("/* EVENT */")
    );
    assert!(svg.contains(&title), "{title}: {svg}");
    assert_eq!(svg.matches("<script").count(), 1, "only our own: {svg}");
    assert!(
        svg.contains("strange (&lt;script&gt;alert(1)&lt;b&gt;;.c:7)"),
        "{svg}"
    );
}

fn pprof(bytes: &[u8]) {
    let profile = profile::read(bytes);
    assert_eq!(
        profile.types,
        ["open_descriptors/count", "opened/count", "closed/count"]
    );
    let of = |function: &str| {
        let samples = profile.samples.iter();
        let found: Vec<_> = samples
            .filter(|one| one.stack[0].starts_with(function))
            .collect();
        let [sample] = found[..] else {
            panic!("{function}: {:?}", profile.samples)
        };
        sample
    };
    let file = of("read_settings ");
    assert!(
        file.stack[0].ends_with(&format!("two_sites.c:{}", line("/* FILE */"))),
        "{file:?}"
    );
    assert!(file.stack[1].starts_with("main "), "{file:?}");
    assert_eq!(
        (&file.values[..], &*file.labels["class"]),
        (&[6, 6, 0][..], "regular")
    );
    assert_eq!(file.labels["process"], "two_sites-O2");
    assert!(file.labels["pid"].parse::<u32>().unwrap() > 1);
    let events = of("arm ");
    assert_eq!(
        (&events.values[..], &*events.labels["class"]),
        (&[4, 4, 0][..], "eventfd")
    );
    let closed = of("careful ");
    assert!(
        closed.stack[0].ends_with(&format!(":{}", line("/* CLOSED */"))),
        "{closed:?}"
    );
    assert_eq!(
        (&closed.values[..], closed.labels.get("class")),
        (&[0, 3, 3][..], None)
    );
    assert!(
        profile.modules[0].ends_with("/two_sites-O2"),
        "the program first: {:?}",
        profile.modules
    );
}

fn page(html: &str) {
    assert!(html.starts_with("<!DOCTYPE html>") && html.ends_with("</html>\n"));
    let row = format!(
        "<tr><td data-v=\"two_sites.c:{} read_settings\">",
        line("/* FILE */")
    );
    assert!(html.contains(&row), "{row}: {html}");
    assert_eq!(html.matches("<tr><td data-v=").count(), 3);
    assert!(
        html.contains("<td class=\"n\" data-v=\"6\">6</td><td class=\"n\" data-v=\"6\">6</td>"),
        "{html}"
    );
    assert!(
        html.contains("&lt;script&gt;alert(2)&amp;.conf</td>"),
        "{html}"
    );
    assert!(
        html.contains("/&lt;script&gt;alert(1)&lt;b&gt;;.c\">"),
        "the whole path of a frame: {html}"
    );
    assert!(
        html.contains("<svg class=\"flame\"") && html.contains("<h2>descriptors over time</h2>")
    );
    assert_eq!(html.matches("<script").count(), 1, "only our own");
    for never in ["http:", "https:", "src=", "href=", "url(", "@import"] {
        assert!(!html.contains(never), "{never}");
    }
}

/// Tags close in their order, attributes are quoted, and `&` and `<` are nowhere else.
fn well_formed(xml: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = xml.split_once("?>").expect("a declaration").1;
    while let Some((text, after)) = rest.split_once('<') {
        plain(text);
        if let Some(data) = after.strip_prefix("![CDATA[") {
            rest = data.split_once("]]>").expect("an end of the data").1;
            continue;
        }
        let (tag, after) = after.split_once('>').expect("an end of the tag");
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
            continue;
        }
        let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        for (index, part) in attributes.trim_end_matches('/').split('"').enumerate() {
            plain(part);
            let is_name = part.trim().is_empty() || part.ends_with('=');
            assert!(index % 2 == 1 || is_name, "{tag}");
        }
        if !tag.ends_with('/') {
            open.push(name.trim_end_matches('/'));
        }
    }
    assert_eq!((open.as_slice(), rest.trim()), (&[][..], ""));
}

fn plain(text: &str) {
    for entity in text.split('&').skip(1) {
        let (name, _) = entity.split_once(';').expect("an entity ends");
        assert!(
            ["amp", "lt", "gt", "quot", "#39", "#96"].contains(&name),
            "{name}"
        );
    }
    let is_bad = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    assert!(!text.contains(is_bad), "{text:?}");
}

#[test]
fn a_file_that_cannot_be_written_is_told_before_the_program_starts() {
    let dir = tempfile::tempdir().unwrap();
    for option in ["--folded", "--flamegraph", "--pprof", "--html"] {
        for place in ["none/there", "."] {
            let said = trace(&[option, place], dir.path());
            assert_eq!(
                (said.code, said.text()),
                (125, ""),
                "{option} {place}: {}",
                said.stderr
            );
            assert!(
                said.stderr.starts_with(&format!("fdguard: {place}: ")),
                "{}",
                said.stderr
            );
            assert_eq!(said.stderr.lines().count(), 1, "{}", said.stderr);
        }
        let said = trace(&[option, "-"], dir.path());
        assert_eq!((said.code, said.text()), (2, ""), "{}", said.stderr);
        assert!(
            said.stderr.contains("stdout belongs to the program"),
            "{}",
            said.stderr
        );
    }
    let twice = trace(&["--folded", "x", "--html", "x"], dir.path());
    assert_eq!((twice.code, twice.text()), (2, ""), "{}", twice.stderr);
    assert!(
        twice
            .stderr
            .starts_with("fdguard: x: used for two outputs\n"),
        "{}",
        twice.stderr
    );
    let names = fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), [EVIL], "nothing is left behind");
}

#[test]
fn a_file_that_fails_at_the_end_is_told_and_the_others_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let said = trace(&["--folded", "/dev/full", "--pprof", "a.pb.gz"], dir.path());
    assert_eq!((said.code, said.text()), (125, "held\n"), "{}", said.stderr);
    assert!(
        said.stderr.contains("fdguard: --folded: "),
        "{}",
        said.stderr
    );
    assert!(
        said.stderr.contains("still open in "),
        "the report is there: {}",
        said.stderr
    );
    pprof(&fs::read(dir.path().join("a.pb.gz")).unwrap());
}
