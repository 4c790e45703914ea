// Package fdguardtest fails a test that leaves descriptors behind.
//
//	func TestFetch(t *testing.T) {
//		fdguardtest.Check(t)
//		...
//	}
//
// Go programs call the kernel without the C library, so that only root can name their lines: by the
// kernel. The failure shows the number and the target of each descriptor, the call of Check, and the
// command that names the lines.
package fdguardtest

import (
	"fmt"
	"os"
	"path"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Settle is the time that goroutines have to close what they hold after a test.
var Settle = time.Second

// remedy is the command that names the lines. A program that go test starts by itself has no debug
// information.
const remedy = "  to see the lines, as root: go test -c -o a.test && fdguard check -- ./a.test"

// The runtime opens its poller when it is first needed. A pipe is polled: from then on it is there.
func init() {
	if read, write, err := os.Pipe(); err == nil {
		read.Close()
		write.Close()
	}
}

// Check fails the test at its end if it left descriptors behind. Call it first, so that it runs after
// all other cleanups. Targets that match a pattern of allowed (as in path.Match) are accepted.
// Tests that call Check must not run in parallel with others: descriptors belong to the process.
func Check(t testing.TB, allowed ...string) {
	t.Helper()
	before, err := descriptors()
	if err != nil {
		t.Fatalf("fdguard: %v", err)
	}
	t.Cleanup(func() {
		t.Helper()
		if left := settled(before, allowed); len(left) > 0 {
			name, _, _ := strings.Cut(t.Name(), "/")
			t.Errorf("fdguard: %s\n%s -test.run '^%s$'", text(left), remedy, name)
		}
	})
}

// Main runs all tests, and fails the run if they left descriptors behind together. Use it as TestMain:
//
//	func TestMain(m *testing.M) { fdguardtest.Main(m) }
func Main(m *testing.M, allowed ...string) {
	before, err := descriptors()
	if err != nil {
		fmt.Fprintf(os.Stderr, "fdguard: %v\n", err)
		os.Exit(2)
	}
	code := m.Run()
	if left := settled(before, allowed); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "fdguard: all tests together: %s\n%s\n", text(left), remedy)
		if code == 0 {
			code = 1
		}
	}
	os.Exit(code)
}

// descriptors returns the target of each descriptor, without the one that reads the directory.
func descriptors() (map[int]string, error) {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	own := int(dir.Fd())
	found := make(map[int]string, len(names))
	for _, name := range names {
		number, err := strconv.Atoi(name)
		if err != nil || number == own {
			continue
		}
		// A descriptor may be closed meanwhile.
		if target, err := os.Readlink("/proc/self/fd/" + name); err == nil {
			found[number] = target
		}
	}
	return found, nil
}

// settled returns what is still there that was not there before.
func settled(before map[int]string, allowed []string) map[int]string {
	until := time.Now().Add(Settle)
	for {
		left := map[int]string{}
		now, err := descriptors()
		if err != nil {
			return map[int]string{-1: err.Error()}
		}
		for number, target := range now {
			if before[number] != target && !accepts(allowed, target) {
				left[number] = target
			}
		}
		if len(left) == 0 || time.Now().After(until) {
			return left
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func accepts(allowed []string, target string) bool {
	for _, pattern := range allowed {
		if matched, err := path.Match(pattern, target); err == nil && matched {
			return true
		}
	}
	return false
}

func text(left map[int]string) string {
	numbers := make([]int, 0, len(left))
	for number := range left {
		numbers = append(numbers, number)
	}
	sort.Ints(numbers)
	lines := []string{fmt.Sprintf("%d left behind", len(left))}
	for _, number := range numbers {
		lines = append(lines, fmt.Sprintf("  fd %d  %s", number, left[number]))
	}
	return strings.Join(lines, "\n")
}
