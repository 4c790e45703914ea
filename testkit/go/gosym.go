// Prints the function, the file and the line of addresses all over another Go program, as Go's own
// library debug/gosym reads them: the oracle for programs of versions that are not here.
package main

import (
	"debug/elf"
	"debug/gosym"
	"fmt"
	"os"
)

func main() {
	file, err := elf.Open(os.Args[1])
	if err != nil {
		panic(err)
	}
	data, err := file.Section(".gopclntab").Data()
	if err != nil {
		panic(err)
	}
	text := file.Section(".text")
	table, err := gosym.NewTable(nil, gosym.NewLineTable(data, text.Addr))
	if err != nil {
		panic(err)
	}
	for pc := text.Addr; pc < text.Addr+text.Size; pc += 997 {
		if name, line, function := table.PCToLine(pc); function != nil {
			fmt.Printf("%x %s|%s|%d\n", pc, function.Name, name, line)
		}
	}
}
