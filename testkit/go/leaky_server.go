// An HTTP server that keeps a file open with each request to /leak, and closes it with each other
// request. It prints its address, and serves until its input ends.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
)

var (
	lock sync.Mutex
	kept []*os.File
)

func load() *os.File {
	file, err := os.Open("/etc/hostname") // LEAK
	if err != nil {
		panic(err)
	}
	return file
}

func keep(writer http.ResponseWriter, request *http.Request) {
	file := load()
	lock.Lock()
	kept = append(kept, file)
	lock.Unlock()
	io.WriteString(writer, "kept")
}

func serve(writer http.ResponseWriter, request *http.Request) {
	file := load()
	defer file.Close()
	io.Copy(writer, file)
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr())
	mux := http.NewServeMux()
	mux.HandleFunc("/leak", keep)
	mux.HandleFunc("/", serve)
	go http.Serve(listener, mux)
	io.Copy(io.Discard, os.Stdin)
}
