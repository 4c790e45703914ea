//! A flame graph as SVG. A frame is as wide as the number of descriptors open below it; its colour
//! is the language. The root is at the top.
//!
//! Frames are placed in percent and clip their own text, so the picture fits every width without a
//! script. The script only zooms.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use fdguard_core::Text;
use fdguard_core::origin::Language;

use super::name;
use super::tree::StackNode;
use crate::report::html::escape;
use crate::report::table::{counted, thousands};

/// Colours and fonts, shared with the page.
pub const STYLE: &str = include_str!("flame.css");
/// A click makes a frame as wide as the picture.
pub const SCRIPT: &str = include_str!("flame.js");

const ROW: usize = 19;
/// Frames narrower than this fraction of the whole are not drawn: they would be invisible.
const NARROWEST: f64 = 1.0 / 4000.0;
/// Frames narrower than this have no room for letters.
const NO_LETTERS: f64 = 0.02;
/// Height above the frames of a stand-alone picture.
const HEAD: usize = 66;

/// A stand-alone file about the descriptors of a program.
#[must_use]
pub fn file(comm: &Text, tree: &StackNode) -> String {
    let root = tree.picture();
    let comm = crate::terminal::sanitize(comm);
    let title = format!("Descriptors that {comm} still holds, by the line that opened them");
    let (frames, left) = frames(root, HEAD);
    let height = HEAD + ROW * root.depth() + 12;
    let mut head = format!(
        "<text class=\"h\" x=\"10\" y=\"24\">{}</text>\n<text class=\"s\" x=\"10\" y=\"44\">{}</text>\n",
        xml(&title),
        xml(&about(root, left)),
    );
    let mut x = 10;
    for language in languages(root) {
        let name = name::language(language);
        let _infallible = writeln!(
            head,
            "<rect class=\"{}\" x=\"{x}\" y=\"50\" width=\"9\" height=\"9\"/><text class=\"s\" x=\"{}\" y=\"58\">{name}</text>",
            class(Some(language)),
            x + 13,
        );
        x += 26 + 8 * name.len();
    }
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" class=\"flame alone\" width=\"100%\" height=\"{height}\">\n\
         <style>{STYLE}</style>\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n\
         {head}{frames}<script><![CDATA[\n{SCRIPT}]]></script>\n</svg>\n"
    )
}

/// A part of a page, which provides style and script, with its legend.
#[must_use]
pub fn figure(tree: &StackNode) -> String {
    let root = tree.picture();
    let (frames, left) = frames(root, 0);
    let height = ROW * root.depth();
    let about = xml(&about(root, left));
    let legend: String = languages(root)
        .into_iter()
        .map(|language| {
            let name = name::language(language);
            format!(
                "<span class=\"key {}\">{name}</span> ",
                class(Some(language))
            )
        })
        .collect();
    format!(
        "<figure>\n<svg class=\"flame\" role=\"img\" width=\"100%\" height=\"{height}\" style=\"height:{height}px\">\n\
         <title>flame graph</title>\n<desc>{about}</desc>\n{frames}</svg>\n\
         <figcaption>{legend}{about}</figcaption>\n</figure>\n"
    )
}

/// Text that is safe in XML: characters that XML cannot represent become visible escapes.
fn xml(text: &str) -> String {
    let text = escape(text);
    text.replace('\u{fffe}', "\\u{fffe}")
        .replace('\u{ffff}', "\\u{ffff}")
}

fn about(root: &StackNode, left: u64) -> String {
    let count = counted(root.live, "descriptor");
    let verb = if root.live == 1 { "is" } else { "are" };
    let mut text = format!(
        "{count} {verb} still open. Width is the number of descriptors; the outermost frame is at the top; the outlined frame is the culprit."
    );
    if left > 0 {
        let _infallible = write!(text, " {} frames are too narrow to draw.", thousands(left));
    }
    text
}

fn languages(root: &StackNode) -> BTreeSet<Language> {
    let mut found: BTreeSet<Language> = root.open().flat_map(languages).collect();
    found.extend(root.language());
    found
}

fn class(language: Option<Language>) -> &'static str {
    match language {
        Some(Language::C) => "c",
        Some(Language::Cpp) => "cpp",
        Some(Language::Rust) => "rust",
        Some(Language::Go) => "go",
        Some(Language::Java) => "java",
        Some(Language::Node) => "node",
        Some(Language::Python) => "python",
        Some(_) => "native",
        None => "process",
    }
}

/// `begin (main.c:23): 312 descriptors still open, 75.0 %, c`.
fn describe(node: &StackNode, whole: u64) -> String {
    let share = 100.0 * share(node.live, whole);
    let count = counted(node.live, "descriptor");
    let language = node.language().map(name::language);
    let language = language.map_or_else(String::new, |name| format!(", {name}"));
    format!(
        "{}: {count} still open, {share:.1} %{language}",
        node.name()
    )
}

/// A fraction, from 0 to 1.
#[expect(clippy::cast_precision_loss, reason = "places in a picture")]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// The frames, and how many were omitted.
fn frames(root: &StackNode, top: usize) -> (String, u64) {
    let mut drawing = Drawing {
        text: String::new(),
        left: 0,
        whole: root.live,
    };
    drawing.draw(root, 0.0, top);
    (drawing.text, drawing.left)
}

struct Drawing {
    text: String,
    left: u64,
    whole: u64,
}

impl Drawing {
    fn draw(&mut self, node: &StackNode, from: f64, y: usize) {
        let width = match self.whole {
            0 => 1.0,
            whole => share(node.live, whole),
        };
        if width < NARROWEST {
            self.left += 1;
            return;
        }
        let (mut x, tiny) = (from, if width < NO_LETTERS { " tiny" } else { "" });
        let culprit = if node.is_culprit { " culprit" } else { "" };
        let _infallible = writeln!(
            self.text,
            "<svg class=\"f {}{culprit}{tiny}\" x=\"{:.4}%\" y=\"{y}\" width=\"{:.4}%\" height=\"{ROW}\"><title>{}</title>\
             <rect width=\"100%\" height=\"{}\" rx=\"2\"/><text x=\"4\" y=\"13\">{}</text></svg>",
            class(node.language()),
            100.0 * from,
            100.0 * width,
            xml(&describe(node, self.whole)),
            ROW - 1,
            xml(&node.name()),
        );
        for inner in node.open() {
            self.draw(inner, x, y + ROW);
            x += share(inner.live, self.whole);
        }
    }
}

#[cfg(test)]
mod tests {
    use fdguard_core::origin::Language;

    use super::figure;
    use crate::report::trace::testing::{MadeReport, frame};
    use crate::report::trace::tree::StackNode;

    fn file(made: &MadeReport) -> String {
        super::file(&"srv".into(), &StackNode::from_report(&made.report()))
    }

    fn made() -> MadeReport {
        let evil = "<script>alert(1)</script>\u{ffff}\u{1b}&\"";
        let main = frame(evil, Some(("<b>.py", 9)), Language::Python);
        let one = vec![frame("arm", Some(("main.c", 3)), Language::C), main.clone()];
        MadeReport::default()
            .site("srv", &one, 75)
            .site("srv", &[main], 25)
    }

    #[test]
    fn a_frame_is_as_wide_as_what_is_open_along_it() {
        let svg = file(&made());
        assert!(
            svg.contains("<title>arm (main.c:3): 75 descriptors still open, 75.0 %, c</title>"),
            "{svg}"
        );
        assert!(
            svg.contains("class=\"f c culprit\" x=\"0.0000%\" y=\"104\" width=\"75.0000%\""),
            "{svg}"
        );
        assert!(
            svg.contains("class=\"f process\" x=\"0.0000%\" y=\"66\" width=\"100.0000%\""),
            "{svg}"
        );
    }

    #[test]
    fn foreign_names_are_text_and_the_file_is_complete() {
        let svg = file(&made());
        assert_eq!(svg.matches("<script").count(), 1, "only our own");
        assert!(
            svg.contains("&lt;script&gt;alert(1)&lt;/script&gt;\\u{ffff}\\u{1b}&amp;&quot;"),
            "{svg}"
        );
        let rest = svg.replacen("http://www.w3.org/2000/svg", "", 1);
        for never in [
            "http:", "https:", "href", "url(", "@import", "\u{1b}", "\u{ffff}", "<b>",
        ] {
            assert!(!rest.contains(never), "{never}");
        }
        let figure = figure(&StackNode::from_report(&made().report()));
        assert!(
            !figure.contains("<script") && figure.contains("class=\"key python\""),
            "{figure}"
        );
    }

    #[test]
    fn frames_that_no_eye_can_see_are_counted_and_left_out() {
        let wide = [frame("wide", None, Language::C)];
        let mut made = MadeReport::default().site("srv", &wide, 100_000);
        for index in 0..3 {
            made = made.site(
                "srv",
                &[frame(&format!("thin{index}"), None, Language::C)],
                2,
            );
        }
        let svg = file(&made);
        assert!(svg.contains("3 frames are too narrow to draw"), "{svg}");
        assert!(!svg.contains("thin0") && svg.contains(">wide<"), "{svg}");
    }

    #[test]
    fn nothing_open_is_still_a_picture() {
        let svg = file(&MadeReport::default());
        assert!(svg.contains("0 descriptors are still open"), "{svg}");
    }
}
