// Leaks descriptors in the ways that Go programs do. The argument chooses one; a mark `// LEAK` is on
// the line to blame. It opens three of each, prints "READY", and waits for its input to end.
package main

import (
	"bufio"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"time"
)

const count = 3

var kept []any

func files() {
	for i := 0; i < count; i++ {
		file, _ := os.Open("/dev/null") // LEAK files
		kept = append(kept, file)
	}
}

// The library dials on a goroutine of its own.
func checkHealth(client *http.Client, url string) {
	response, err := client.Get(url) // LEAK body
	if err != nil {
		panic(err)
	}
	kept = append(kept, response)
}

func bodies() {
	listener, _ := net.Listen("tcp", "127.0.0.1:0")
	big := make([]byte, 1<<20)
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write(big) }))
	client := &http.Client{}
	for i := 0; i < count; i++ {
		checkHealth(client, "http://"+listener.Addr().String())
	}
}

// So many goroutines that open nothing that a tracer ceases to look at them.
func crowd() {
	for i := 0; i < 40; i++ {
		var group sync.WaitGroup
		for j := 0; j < 1000; j++ {
			group.Add(1)
			go group.Done()
		}
		group.Wait()
		time.Sleep(50 * time.Millisecond)
	}
}

func commands() {
	for i := 0; i < count; i++ {
		command := exec.Command("true")
		output, _ := command.StdoutPipe() // LEAK command
		kept = append(kept, output)
	}
}

// A driver whose connections are sockets. It is the program's own code, too, and nearer to the call
// than the query that needs a connection.
type fakeDriver struct{ address string }
type fakeConn struct{ net.Conn }
type fakeRows struct{}

func (d fakeDriver) Open(string) (driver.Conn, error) {
	conn, err := net.Dial("unix", d.address) // LEAK rows
	return fakeConn{conn}, err
}
func (c fakeConn) Prepare(string) (driver.Stmt, error)               { return nil, driver.ErrSkip }
func (c fakeConn) Begin() (driver.Tx, error)                         { return nil, driver.ErrSkip }
func (c fakeConn) Query(string, []driver.Value) (driver.Rows, error) { return fakeRows{}, nil }
func (fakeRows) Columns() []string                                   { return []string{"a"} }
func (fakeRows) Close() error                                        { return nil }
func (fakeRows) Next([]driver.Value) error                           { return nil }

func query(db *sql.DB) {
	rows, err := db.Query("select")
	if err != nil {
		panic(err)
	}
	kept = append(kept, rows)
}

func databases() {
	path := fmt.Sprintf("%s/fdguard-go-%d.sock", os.TempDir(), os.Getpid())
	listener, err := net.Listen("unix", path)
	if err != nil {
		panic(err)
	}
	defer os.Remove(path)
	go func() {
		var accepted []net.Conn
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted = append(accepted, conn)
		}
	}()
	sql.Register("fake", fakeDriver{path})
	db, _ := sql.Open("fake", "")
	for i := 0; i < count; i++ {
		query(db)
	}
}

func main() {
	switch os.Args[1] {
	case "files":
		files()
	case "body":
		bodies()
	case "late":
		crowd()
		bodies()
		time.Sleep(2 * time.Second)
		bodies()
	case "command":
		commands()
	case "rows":
		databases()
	}
	fmt.Println("READY")
	io.Copy(io.Discard, bufio.NewReader(os.Stdin))
}
