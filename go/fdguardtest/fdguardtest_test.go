package fdguardtest

import (
	"os"
	"os/exec"
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
		`leaking_test.go:\d+: fdguard: 1 left behind\n\s+fd \d+  /etc/hosts`,
		`--- FAIL: TestListens`,
		`fd \d+  socket:\[\d+\]`,
		`fdguard: all tests together: 2 left behind`,
	} {
		if !regexp.MustCompile(wanted).MatchString(said) {
			t.Errorf("no %s in:\n%s", wanted, said)
		}
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
