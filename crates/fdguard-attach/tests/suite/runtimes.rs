//! Programs whose stacks end in code that was made while they run.

use std::fs;
use std::process::Command;

use fdguard_attach::Target;

use super::victim::{Borrowed, library};

/// Computes and allocates until a line arrives; each round must have the same result.
const JAVA: &str = r#"
import java.util.ArrayList;
public class Busy {
    static long round() {
        ArrayList<int[]> kept = new ArrayList<>();
        long sum = 7;
        for (int i = 1; i < 20000; i++) {
            int[] block = new int[i % 200 + 1];
            block[i % block.length] = i;
            if (i % 10 == 0) kept.add(block);
            sum = sum * 31 + block[i % block.length] + (long) (Math.sqrt(sum & 0xffff) * 1000);
        }
        return sum + kept.size();
    }
    public static void main(String[] unused) throws Exception {
        long wanted = round(), wrong = 0, rounds = 0;
        System.out.println("READY");
        while (System.in.available() == 0) { rounds++; if (round() != wanted) wrong++; }
        System.out.println("java " + (rounds > 0 ? wrong : -1) + " 0 0");
    }
}
"#;

/// The same; the line is looked for between rounds.
const NODE: &str = r#"
function round() {
    const kept = [];
    let sum = 7;
    for (let i = 1; i < 20000; i++) {
        const block = new Array(i % 200 + 1).fill(i);
        if (i % 10 === 0) kept.push({ block, text: 'x' + i });
        sum = (sum * 31 + block[i % block.length] + Math.sqrt(sum)) % 1000003;
    }
    return sum + kept.length;
}
const wanted = round();
let wrong = 0, rounds = 0, over = false;
process.stdin.on('data', () => { over = true; });
console.log('READY');
(function again() {
    rounds++;
    if (round() !== wanted) wrong++;
    if (!over) return setImmediate(again);
    console.log(`node ${rounds > 0 ? wrong : -1} 0 0`);
    process.exit(0);
})();
"#;

fn entered_often(command: &mut Command) {
    let victim = Borrowed::of(command);
    let target = Target::examine(victim.pid()).unwrap();
    for calls in 1..=20 {
        let call = target.call(&library(), c"count", b"").unwrap();
        assert_eq!(call.returned, calls);
    }
    assert_eq!(victim.scratch_pages(), 0);
    assert_eq!(victim.finish().outcome(), (0, 0));
}

#[test]
fn a_busy_java_program() {
    if !testkit::have("javac") {
        return testkit::skip("needs javac");
    }
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("Busy.java");
    fs::write(&source, JAVA).unwrap();
    let built = Command::new("javac").arg(&source).status().unwrap();
    assert!(built.success());
    entered_often(Command::new("java").arg("-cp").arg(dir.path()).arg("Busy"));
}

#[test]
fn a_busy_node_program() {
    if !testkit::have("node") {
        return testkit::skip("needs node");
    }
    entered_often(Command::new("node").args(["-e", NODE]));
}
