// An HTTP server that opens and closes one file for each request. It prints its address, and serves
// until its input ends.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
)

func serve(writer http.ResponseWriter, request *http.Request) {
	file, err := os.Open("/etc/hostname")
	if err != nil {
		http.Error(writer, err.Error(), 500)
		return
	}
	defer file.Close()
	io.Copy(writer, file)
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr())
	go http.Serve(listener, http.HandlerFunc(serve))
	io.Copy(io.Discard, os.Stdin)
}
