//! Java programs under `fdguard trace`: the lines that opened what is open, and nothing else changed.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use testkit::{have, skip};

use super::{Said, fdguard};

/// Opens by each of Java's ways, from threads of its own; each line that does so is marked.
const HOLDER: &str = r#"
package shop.stock;
import java.io.*;
import java.net.*;
import java.nio.channels.*;
import java.nio.file.*;
import java.util.*;

public class Holder {
    static final List<Object> kept = Collections.synchronizedList(new ArrayList<>());
    interface Work { void run() throws Exception; }

    static class Reader {
        void stream(String path) throws IOException {
            kept.add(new FileInputStream(path)); // STREAM
        }
    }
    static void channel(String path) throws IOException {
        kept.add(FileChannel.open(Path.of(path))); // CHANNEL
    }
    static void listen() throws IOException {
        kept.add(new ServerSocket(0)); // SOCKET
    }
    static void random(String path) throws IOException {
        kept.add(new RandomAccessFile(path, "r")); // RANDOM
    }
    static Thread start(Work work) {
        Thread thread = new Thread(() -> {
            try {
                for (int i = 0; i < 20; i++) work.run();
            } catch (Exception e) {
                throw new RuntimeException(e);
            }
        });
        thread.start();
        return thread;
    }
    public static void main(String[] args) throws Exception {
        String path = args[0];
        Thread[] threads = {
            start(() -> new Reader().stream(path)), start(() -> channel(path)),
            start(Holder::listen), start(() -> random(path)),
        };
        for (Thread thread : threads) thread.join();
        System.gc();
        System.out.println("opened " + kept.size());
        System.err.println("and said so");
        if (args.length > 1) System.exit(Integer.parseInt(args[1]));
        Thread.currentThread().join();
    }
}
"#;

fn compile() -> Option<TempDir> {
    if !have("java") || !have("javac") {
        skip("needs java and javac");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("Holder.java");
    fs::write(&source, HOLDER).unwrap();
    let compiled = Command::new("javac")
        .arg("-g")
        .arg("-d")
        .arg(folder.path())
        .arg(&source)
        .status()
        .unwrap();
    assert!(compiled.success());
    Some(folder)
}

/// The words that start it.
fn words<'a>(folder: &'a Path, options: &[&'a str]) -> Vec<&'a str> {
    let mut words = vec!["java", "-Xmx64m"];
    words.extend(options);
    words.extend(["-cp", folder.to_str().unwrap(), "shop.stock.Holder"]);
    words.push("/etc/passwd");
    words
}

/// The line of a mark.
fn line(mark: &str) -> usize {
    let at = HOLDER.lines().position(|line| line.ends_with(mark));
    at.unwrap() + 1
}

fn names_every_line(options: &[&str]) {
    let Some(folder) = compile() else {
        return;
    };
    let result = folder.path().join("result");
    let output = fdguard()
        .args(["trace", "--for", "3s", "-o"])
        .arg(&result)
        .arg("--")
        .args(words(folder.path(), options))
        .output()
        .unwrap();
    let said = Said::of(output);
    assert_eq!(
        (said.text(), &*said.stderr),
        ("opened 80\n", "and said so\n")
    );
    let report = fs::read_to_string(result).unwrap();
    for (mark, function) in [
        ("// STREAM", "Holder$Reader.stream (open,"),
        ("// CHANNEL", "Holder.channel (open,"),
        ("// SOCKET", "Holder.listen (socket,"),
        ("// RANDOM", "Holder.random (open,"),
    ] {
        let site = format!(": Holder.java:{} shop.stock.{function}", line(mark));
        let found = report.lines().find(|line| line.contains(&site));
        let found = found.unwrap_or_else(|| panic!("{site}: {report}"));
        // Java's classes for channels and sockets open a socket pair of their own at first use, by the same line.
        let live = found.split(" live of ").next().unwrap();
        let live: u32 = live.rsplit(' ').next().unwrap().parse().unwrap();
        assert!((20..=22).contains(&live), "{found}");
    }
    assert!(report.contains(" java.io.FileInputStream.<init>\n"));
    assert!(!report.contains("$$Lambda"), "{report}");
}

#[test]
fn java_lines_are_named() {
    names_every_line(&[]);
}

#[test]
fn java_lines_are_named_in_interpreted_and_checked_code() {
    names_every_line(&["-Xint", "-Xcheck:jni", "-XX:+UseSerialGC"]);
}

#[test]
fn a_java_program_says_and_ends_as_by_itself() {
    let Some(folder) = compile() else {
        return;
    };
    let mut words = words(folder.path(), &[]);
    words.push("7");
    let (program, arguments) = words.split_first().unwrap();
    let alone = Said::of(Command::new(program).args(arguments).output().unwrap());
    let result = folder.path().join("result");
    let traced = fdguard()
        .args(["trace", "-o"])
        .arg(result)
        .arg("--")
        .args(&words)
        .output()
        .unwrap();
    let traced = Said::of(traced);
    assert_eq!(
        (traced.code, traced.text(), &traced.stderr),
        (alone.code, alone.text(), &alone.stderr)
    );
    assert_eq!(alone.code, 7);
}
