// Prints its own frames, as the runtime knows them: the oracle of the reader of Go's tables.
//
// First the address of main.main. Then "at PC FUNCTION|FILE|LINE": the innermost call at program
// counters all over the program. Then "stack" and "frame PC FUNCTION|FILE|LINE": every call of real
// stacks, with what was inlined.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"sort"
	"strings"
)

var out = bufio.NewWriter(os.Stdout)

type shower interface{ show(deep int) }

type plain struct{ name string }

func (p plain) show(deep int) { inlined(deep) }

func inlined(deep int) { inlinedToo(deep) }

func inlinedToo(deep int) {
	if deep > 0 {
		dump()
	}
}

//go:noinline
func dump() {
	pcs := make([]uintptr, 64)
	pcs = pcs[:runtime.Callers(1, pcs)]
	fmt.Fprintln(out, "stack")
	frames := runtime.CallersFrames(pcs)
	for _, pc := range pcs {
		frame, _ := frames.Next()
		line("frame", pc, frame)
	}
}

func line(kind string, pc uintptr, frame runtime.Frame) {
	if frame.Function == "" {
		return
	}
	fmt.Fprintf(out, "%s %x %s|%s|%d\n", kind, pc, frame.Function, frame.File, frame.Line)
}

func generic[T any](value T, use func(T)) { use(value) }

func main() {
	fmt.Fprintf(out, "main %x\n", reflect.ValueOf(main).Pointer())
	everywhere()
	dump()
	inlined(1)
	var one shower = plain{"a"}
	one.show(1)
	(&plain{"b"}).show(1)
	generic(3, func(deep int) { inlined(deep) })
	generic("x", func(string) { dump() })
	sort.Slice([]int{2, 1}, func(a, b int) bool { inlined(1); return a < b })
	strings.Map(func(r rune) rune { dump(); return r }, "x")
	filepath.Walk("/dev/null", func(string, os.FileInfo, error) error { dump(); return nil })
	done := make(chan bool)
	go func() { defer close(done); defer dump(); inlined(1) }()
	<-done
	out.Flush()
}

// Every 13th address of the program's code.
func everywhere() {
	maps, _ := os.ReadFile("/proc/self/maps")
	self, _ := os.Readlink("/proc/self/exe")
	for _, mapping := range bytes.Split(maps, []byte("\n")) {
		text := string(mapping)
		if !strings.HasSuffix(text, self) || !strings.Contains(text, " r-xp ") {
			continue
		}
		var first, last uintptr
		fmt.Sscanf(text, "%x-%x", &first, &last)
		for pc := first; pc < last; pc += 13 {
			here, next := runtime.FuncForPC(pc), runtime.FuncForPC(pc+1)
			if here == nil || next == nil || here.Entry() != next.Entry() {
				continue
			}
			// The runtime expects a return address: the call is before it.
			frame, _ := runtime.CallersFrames([]uintptr{pc + 1}).Next()
			line("at", pc, frame)
		}
	}
}
