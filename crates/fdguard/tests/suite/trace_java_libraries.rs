//! Archives on the class path of a Java program: a library's lines are not the application's.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use testkit::{have, skip};

use super::fdguard;

/// The library, and the application in two parts.
const SOURCES: &[(&str, &str)] = &[
    (
        "lib/org/shelf/Shelf.java",
        "package org.shelf;
public class Shelf {
    public static java.io.InputStream take(String path) throws java.io.IOException {
        return new java.io.FileInputStream(path); // LIBRARY
    }
}
",
    ),
    (
        "base/shop/stock/base/Base.java",
        "package shop.stock.base;
public class Base {
    public static java.io.InputStream open(String path) throws java.io.IOException {
        return org.shelf.Shelf.take(path); // BASE
    }
}
",
    ),
    (
        "app/shop/stock/Main.java",
        "package shop.stock;
public class Main {
    public static void main(String[] arguments) throws Exception {
        java.util.List<Object> kept = new java.util.ArrayList<>();
        for (int i = 0; i < 20; i++) {
            kept.add(org.shelf.Shelf.take(arguments[0])); // MAIN
            kept.add(shop.stock.base.Base.open(arguments[0]));
        }
        System.exit(kept.size() == 40 ? 0 : 1);
    }
}
",
    ),
];

fn run(program: &str, arguments: &[&str], dir: &Path) {
    let mut command = Command::new(program);
    let status = command.args(arguments).current_dir(dir).status().unwrap();
    assert!(status.success(), "{program} {arguments:?}");
}

/// Compiles all three, each into a directory and an archive of its name.
fn build(dir: &Path) {
    for (file, text) in SOURCES {
        let path = dir.join("src").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        let part = file.split('/').next().unwrap();
        let source = format!("src/{file}");
        let path = "classes/lib:classes/base";
        let target = format!("classes/{part}");
        let options = ["--release", "11", "-g", "-cp", path, "-d", &target, &source];
        run("javac", &options, dir);
        let archive = format!("{part}.jar");
        run(
            "jar",
            &["--create", "--file", &archive, "-C", &target, "."],
            dir,
        );
    }
    let manifest = "Main-Class: shop.stock.Main\nClass-Path: lib.jar base.jar\n";
    fs::write(dir.join("manifest"), manifest).unwrap();
    let words = [
        "--create",
        "--file",
        "started.jar",
        "--manifest",
        "manifest",
        "-C",
        "classes/app",
        ".",
    ];
    run("jar", &words, dir);
}

/// The culprits of what is open of the file, with their lines.
fn culprits(dir: &Path, words: &[&str]) -> Vec<(String, u64)> {
    let mut command = fdguard();
    command.args([
        "trace",
        "--json",
        "--error-exitcode",
        "0",
        "--",
        "java",
        "-Xmx64m",
    ]);
    command.args(words).arg("/etc/passwd").current_dir(dir);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let sites = report["sites"].as_array().unwrap().iter();
    // The class loader opens an archive for whichever line is the first to use it.
    let of_file = sites.filter(|site| site["live"].as_u64() >= Some(20));
    let culprit = |site: &Value| {
        let file = site["culprit"]["file"].as_str().unwrap().to_owned();
        (file, site["culprit"]["line"].as_u64().unwrap())
    };
    let mut found: Vec<_> = of_file.map(culprit).collect();
    found.sort();
    found.dedup();
    found
}

fn line_of(mark: &str) -> u64 {
    let all = SOURCES.iter().flat_map(|(_, text)| (1..).zip(text.lines()));
    let mut found = all.filter(|(_, line)| line.ends_with(mark));
    found.next().unwrap().0
}

#[test]
fn the_lines_of_a_library_in_an_archive_are_not_the_applications() {
    if !have("javac") || !have("jar") {
        return skip("needs javac");
    }
    let dir = tempfile::tempdir().unwrap();
    build(dir.path());
    let main = ("shop/stock/Main.java".to_owned(), line_of("// MAIN"));
    let base = ("shop/stock/base/Base.java".to_owned(), line_of("// BASE"));
    for words in [
        &["-cp", "classes/app:base.jar:lib.jar", "shop.stock.Main"][..],
        &["-cp", "app.jar:base.jar:lib.jar", "shop.stock.Main"],
        &["-cp", "*", "shop.stock.Main"],
        &["-jar", "started.jar"],
    ] {
        let found = culprits(dir.path(), words);
        assert_eq!(found, [main.clone(), base.clone()], "{words:?}");
    }
    // A directory is where the application's own classes are.
    let words = [
        "-cp",
        "classes/app:classes/base:classes/lib",
        "shop.stock.Main",
    ];
    let found = culprits(dir.path(), &words);
    let library = ("org/shelf/Shelf.java".to_owned(), line_of("// LIBRARY"));
    assert_eq!(found, [library]);
}
