//! The failures of a check, in the one form that all reports for other tools use.

use std::path::{Component, Path, PathBuf};

use fdguard_core::Text;
use fdguard_core::diagnosis::Diagnosis;
use fdguard_core::finding::Finding;
use fdguard_core::hazard::{Fault, Hazard, Party};
use fdguard_core::lint::Severity;
use fdguard_core::origin::{Culprit, Frame};
use fdguard_core::proof;
use fdguard_core::rule;

/// The guide on the web.
const GUIDE: &str = "https://github.com/fdguard/fdguard/blob/main/docs/guide/rules";

/// A problem that fails a check, or would if it were not cleared.
#[derive(Clone, Debug)]
pub struct CheckProblem {
    /// The id of its rule.
    pub rule: String,
    /// How much it matters.
    pub severity: Severity,
    /// What happened, in words.
    pub message: String,
    /// What to do about it.
    pub fix: String,
    /// The line of the application.
    pub culprit: Option<Culprit>,
    /// The whole stack.
    pub stack: Vec<Frame>,
    /// The class of the descriptors.
    pub class: Option<String>,
    /// Why it does not count.
    pub cleared: Option<String>,
}

/// The results in a form for other tools.
#[derive(Debug)]
pub struct ProblemReport {
    /// The name of the checked program.
    pub name: String,
    /// The problems, the most severe first.
    pub problems: Vec<CheckProblem>,
    /// How long it took.
    pub seconds: f64,
    /// Paths under this directory are reported relative to it.
    pub base: PathBuf,
    /// The file of the checked program: the place of a problem whose line is unknown.
    pub program: Option<PathBuf>,
}

impl ProblemReport {
    /// The findings selected by `fails`, accepted ones, and every hazard.
    #[must_use]
    pub fn of(diagnosis: &Diagnosis, name: String, fails: impl Fn(&Finding) -> bool) -> Self {
        let chosen = diagnosis.findings.iter();
        let chosen = chosen.filter(|one| fails(one) || one.cleared.is_some());
        let hazards = diagnosis.hazards.iter().map(of_hazard);
        let problems = chosen.map(of_finding).chain(hazards).collect();
        let passed = diagnosis.ended_at.duration_since(diagnosis.started_at);
        let base = std::env::current_dir().unwrap_or_default();
        let path = |text: &Text| PathBuf::from(text.to_lossy().as_ref());
        let process = &diagnosis.process;
        let words: Vec<PathBuf> = process.cmdline.iter().map(path).collect();
        // A program that exited at once was never sampled: search PATH for it.
        let executable = process.exe.as_ref().map(path);
        let executable = executable.or_else(|| on_search_path(words.first()?));
        Self {
            name,
            problems,
            seconds: passed.as_secs_f64().max(0.0),
            program: program_file(&words, executable, &base, Path::is_file),
            base,
        }
    }

    /// The file of a problem, relative to the repository if known.
    #[must_use]
    pub fn file(&self, problem: &CheckProblem) -> Option<String> {
        let file = problem.culprit.as_ref()?.file.as_ref()?;
        Some(relative(&file.to_lossy(), &self.base))
    }
}

/// The file that represents a program: the first word of its command line that names a file below
/// `base` (the script, if an interpreter runs one), otherwise its executable.
fn program_file(
    words: &[PathBuf],
    executable: Option<PathBuf>,
    base: &Path,
    is_file: impl Fn(&Path) -> bool,
) -> Option<PathBuf> {
    let goes_up = |path: &Path| path.components().any(|part| part == Component::ParentDir);
    let mut paths = words.iter().map(|word| base.join(word));
    let first = paths.clone().next();
    let own = paths.find(|path| path.starts_with(base) && !goes_up(path) && is_file(path));
    own.or(executable.filter(|path| path.is_absolute()))
        .or(first)
}

/// Finds the program of a bare name, as a shell would.
fn on_search_path(name: &Path) -> Option<PathBuf> {
    let is_bare = name.components().count() == 1 && !name.is_absolute();
    let search = std::env::var_os("PATH").filter(|_| is_bare)?;
    let mut places = std::env::split_paths(&search).map(|dir| dir.join(name));
    places.find(|place| place.is_file())
}

/// A path relative to `base` if it is below it.
#[must_use]
pub fn relative(path: &str, base: &Path) -> String {
    let path = Path::new(path);
    let short = path.strip_prefix(base).unwrap_or(path);
    short
        .strip_prefix("./")
        .unwrap_or(short)
        .display()
        .to_string()
}

impl CheckProblem {
    /// The place in one line: `main.c:12 load`.
    #[must_use]
    pub fn place(&self) -> Option<String> {
        self.culprit.as_ref().map(proof::place)
    }

    /// The page of its rule.
    #[must_use]
    pub fn page(&self) -> String {
        page(&self.rule)
    }
}

/// The page of a rule.
#[must_use]
pub fn page(rule: &str) -> String {
    format!("{GUIDE}/{rule}.md")
}

fn of_finding(finding: &Finding) -> CheckProblem {
    let origin = finding.origin.as_ref();
    CheckProblem {
        rule: finding.rule.clone(),
        severity: finding.severity,
        message: finding.why.clone(),
        fix: finding.next_step.clone(),
        culprit: origin.and_then(|origin| origin.culprit.clone()),
        stack: origin
            .map(|origin| origin.stack.clone())
            .unwrap_or_default(),
        class: finding.class.as_ref().map(ToString::to_string),
        cleared: finding.cleared.as_ref().map(|note| note.reason.clone()),
    }
}

/// The line to change if it is clear; otherwise the line that was affected.
fn of_hazard(hazard: &Hazard) -> CheckProblem {
    let blamed: Option<&Party> = match hazard.fault {
        Some(Fault::Closer) => hazard.closer.as_ref(),
        Some(Fault::User) => hazard.user.as_ref(),
        None => None,
    };
    let anybody = [&hazard.user, &hazard.closer, &hazard.opener];
    let party = blamed.or_else(|| anybody.into_iter().flatten().next());
    let rule = rule::find(&hazard.rule);
    CheckProblem {
        rule: hazard.rule.clone(),
        severity: hazard.severity,
        message: hazard.message.clone(),
        fix: rule
            .and_then(|rule| rule.fix)
            .unwrap_or_default()
            .to_owned(),
        culprit: party.and_then(|party| party.culprit.clone()),
        stack: party.map(|party| party.stack.clone()).unwrap_or_default(),
        class: hazard.class.as_ref().map(ToString::to_string),
        cleared: hazard.cleared.as_ref().map(|note| note.reason.clone()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::{Path, PathBuf};

    use fdguard_core::lint::Severity;
    use fdguard_core::origin::{Culprit, Frame, Language};

    use super::{CheckProblem, ProblemReport, program_file, relative};

    /// One problem at a line.
    pub(in crate::report) fn told(line: u32) -> ProblemReport {
        let frame = Frame {
            file: Some("/repo/src/a,b:c.py".into()),
            function: Some("load".to_owned()),
            line: Some(line),
            module: None,
            language: Language::Python,
        };
        ProblemReport {
            name: "./tests <all> & more".to_owned(),
            problems: vec![CheckProblem {
                rule: "leftover-descriptor".to_owned(),
                severity: Severity::Warning,
                message: "1 descriptor, 100 % \"open\" <here>\nand\u{1} there".to_owned(),
                fix: "close it".to_owned(),
                culprit: Some(Culprit::from(&frame)),
                stack: vec![frame],
                class: Some("regular".to_owned()),
                cleared: None,
            }],
            seconds: 1.5,
            base: "/repo".into(),
            program: Some("/repo/start.sh".into()),
        }
    }

    #[test]
    fn the_file_of_a_program_is_its_script_then_its_executable() {
        let files = ["/repo/start.sh", "/repo/tool", "/usr/bin/bash"];
        let is_file = |path: &Path| files.iter().any(|file| path == Path::new(file));
        let file = |exe, words: &[&str]| {
            let words: Vec<PathBuf> = words.iter().map(PathBuf::from).collect();
            let exe: Option<&str> = exe;
            let file = program_file(&words, exe.map(PathBuf::from), Path::new("/repo"), is_file);
            file.map(|file| file.display().to_string())
        };
        let script = ["bash", "./start.sh", "--fast"];
        assert_eq!(
            file(Some("/usr/bin/bash"), &script).unwrap(),
            "/repo/./start.sh"
        );
        let inline = ["bash", "-c", "sleep 9 &"];
        assert_eq!(
            file(Some("/usr/bin/bash"), &inline).unwrap(),
            "/usr/bin/bash"
        );
        // A program that exited at once was never sampled: only its command is known.
        assert_eq!(file(None, &["/opt/x"]).unwrap(), "/opt/x");
        assert_eq!(file(None, &[]), None);
    }

    #[test]
    fn paths_are_told_as_the_repository_knows_them() {
        let base = Path::new("/repo");
        assert_eq!(relative("/repo/src/a.c", base), "src/a.c");
        assert_eq!(relative("/usr/src/a.c", base), "/usr/src/a.c");
        assert_eq!(relative("./a.c", base), "a.c");
        assert_eq!(relative("/repository/a.c", base), "/repository/a.c");
    }
}
