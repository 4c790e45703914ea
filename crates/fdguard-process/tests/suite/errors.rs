//! Programs that cannot be started.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use fdguard_process::tree::{Exit, StartError, Tree};

use super::harness::{output, plan};

fn script(dir: &Path, name: &str, text: &str, mode: u32) -> String {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_program_that_is_nowhere_is_not_found() {
    for program in ["fdguard-no-such-program", "/no/such/program", ""] {
        let error = Tree::start(&plan(&[program])).unwrap_err();
        assert!(matches!(error, StartError::NotFound { .. }), "{error}");
        assert_eq!(error.code(), Some(127));
    }
    let error = Tree::start(&plan(&["nosuch"])).unwrap_err();
    assert_eq!(error.to_string(), "nosuch: command not found");
}

#[test]
fn a_file_that_may_not_be_run_is_not_runnable() {
    let dir = tempfile::tempdir().unwrap();
    let file = script(dir.path(), "file", "#!/bin/sh\n", 0o644);
    let error = Tree::start(&plan(&[&file])).unwrap_err();
    assert!(matches!(error, StartError::NotRunnable { .. }), "{error}");
    assert_eq!(error.code(), Some(126));
    let error = Tree::start(&plan(&["/"])).unwrap_err();
    assert_eq!(error.code(), Some(126), "{error}");
}

#[test]
fn a_script_whose_interpreter_is_missing_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let file = script(dir.path(), "file", "#!/no/such/interpreter\n", 0o755);
    let error = Tree::start(&plan(&[&file])).unwrap_err();
    assert_eq!(error.code(), Some(126));
    assert!(error.to_string().contains("interpreter"), "{error}");
}

#[test]
fn a_text_without_an_interpreter_is_run_by_the_shell() {
    let dir = tempfile::tempdir().unwrap();
    let file = script(dir.path(), "file", "echo \"$0 $1\"; exit 3\n", 0o755);
    let (text, exit) = output(plan(&[&file, "word"]));
    assert_eq!(text, format!("{file} word\n"));
    assert_eq!(exit, Exit::Code(3));
}

#[test]
fn the_path_of_the_new_environment_is_searched() {
    let dir = tempfile::tempdir().unwrap();
    let hidden = dir.path().join("hidden");
    fs::create_dir(&hidden).unwrap();
    script(&hidden, "fdguard-said", "#!/bin/sh\n", 0o644);
    script(dir.path(), "fdguard-said", "#!/bin/sh\necho found\n", 0o755);
    let mut plan = plan(&["fdguard-said"]);
    // The first exists and is not executable: the search continues, as execvp's does.
    let path = format!("/nowhere:{}:{}", hidden.display(), dir.path().display());
    plan.environment = vec![("PATH".into(), path.into())];
    assert_eq!(output(plan).0, "found\n");
}

#[test]
fn a_dir_that_is_missing_is_named_as_such() {
    let mut plan = plan(&["true"]);
    plan.dir = Some("/no/such/folder".into());
    let error = Tree::start(&plan).unwrap_err();
    let StartError::Refused { step, source } = &error else {
        panic!("{error}");
    };
    assert_eq!(*step, "cannot change to its directory");
    assert_eq!(source.kind(), ErrorKind::NotFound);
    assert_eq!(error.code(), None);
}

#[test]
fn a_command_without_words_is_refused() {
    let error = Tree::start(&plan(&[])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot start the program: the command is empty"
    );
    let error = Tree::start(&plan(&["a\0b"])).unwrap_err();
    assert!(error.to_string().contains("NUL byte"), "{error}");
}
