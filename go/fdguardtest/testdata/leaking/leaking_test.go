// Package leaking has tests that leak on purpose.
package leaking

import (
	"net"
	"os"
	"testing"

	"github.com/fdguard/fdguard/go/fdguardtest"
)

// What leaks must not be closed by a finalizer.
var kept []any

func TestMain(m *testing.M) { fdguardtest.Main(m) }

func TestClean(t *testing.T) {
	fdguardtest.Check(t)
	file, err := os.Open("/etc/hosts")
	if err != nil {
		t.Fatal(err)
	}
	go file.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
}

func TestLeaks(t *testing.T) {
	fdguardtest.Check(t)
	file, _ := os.Open("/etc/hosts")
	kept = append(kept, file)
}

func TestListens(t *testing.T) {
	fdguardtest.Check(t)
	listener, _ := net.Listen("tcp", "127.0.0.1:0")
	kept = append(kept, listener)
}

func TestUnchecked(t *testing.T) {
	file, _ := os.Open("/etc/hosts")
	kept = append(kept, file)
}
