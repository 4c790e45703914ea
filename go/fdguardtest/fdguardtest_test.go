package fdguardtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// run runs the tests of testdata/leaking, which leak on purpose.
func run(t *testing.T, name string) (string, bool) {
	t.Helper()
	command := exec.Command("go", "test", "-count=1", "-v", "-run", name, "./testdata/leaking")
	said, err := command.CombinedOutput()
	return string(said), err == nil
}

func TestACleanTestPasses(t *testing.T) {
	if said, passed := run(t, "^TestClean$"); !passed {
		t.Fatal(said)
	}
}

func TestALeakingTestFailsWithItsTargets(t *testing.T) {
	said, passed := run(t, "^(TestClean|TestLeaks|TestListens)$")
	if passed {
		t.Fatal("passed:\n" + said)
	}
	for _, wanted := range []string{
		`--- PASS: TestClean`,
		`--- FAIL: TestLeaks`,
		`leaking_test.go:\d+: fdguard: 1 left behind\n\s+fd \d+  /etc/hosts\n\s+to see the lines, as root: ` +
			`go test -c -o a.test && fdguard check -- ./a.test -test.run '\^TestLeaks\$'\n`,
		`--- FAIL: TestListens`,
		`fd \d+  socket:\[\d+\]`,
		`fdguard: all tests together: 2 left behind`,
	} {
		if !regexp.MustCompile(wanted).MatchString(said) {
			t.Errorf("no %s in:\n%s", wanted, said)
		}
	}
}

// lineOf returns the place in testdata/leaking with this text in a function.
func lineOf(t *testing.T, function, text string) string {
	t.Helper()
	source, err := os.ReadFile("testdata/leaking/leaking_test.go")
	if err != nil {
		t.Fatal(err)
	}
	isInside := false
	for number, line := range strings.Split(string(source), "\n") {
		isInside = isInside && line != "}" || strings.HasPrefix(line, "func "+function+"(")
		if isInside && strings.Contains(line, text) {
			return fmt.Sprintf("leaking_test.go:%d ", number+1)
		}
	}
	t.Fatalf("no %s in %s", text, function)
	return ""
}

// go/test sets FDGUARD where the kernel can be asked.
func TestTheCommandOfAFailureNamesTheLines(t *testing.T) {
	program := os.Getenv("FDGUARD")
	if program == "" {
		t.Skip("FDGUARD names no program, or this is not root")
	}
	tests := filepath.Join(t.TempDir(), "a.test")
	if said, err := exec.Command("go", "test", "-c", "-o", tests, "./testdata/leaking").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	// Not with Check, which waits: what is opened long before the end may be meant to stay.
	said, err := exec.Command(program, "check", "--", tests, "-test.run", "^TestUnchecked$").CombinedOutput()
	if err == nil {
		t.Fatalf("passed:\n%s", said)
	}
	place := "descriptor from " + lineOf(t, "TestUnchecked", "os.Open")
	if !strings.Contains(strings.Join(strings.Fields(string(said)), " "), strings.TrimSpace(place)) {
		t.Fatalf("no %s in:\n%s", place, said)
	}
}

func TestWhatIsAllowedPasses(t *testing.T) {
	Check(t, "/etc/*")
	file, err := os.Open("/etc/hosts")
	if err != nil {
		t.Fatal(err)
	}
	// The finalizer must not close it before the comparison.
	kept = file
}

var kept *os.File

func TestMainFailsARunWhoseTestsDoNotCheck(t *testing.T) {
	said, passed := run(t, "^TestUnchecked$")
	if passed || !strings.Contains(said, "--- PASS: TestUnchecked") || !strings.Contains(said, "all tests together: 1 left behind") {
		t.Fatal(said)
	}
}
