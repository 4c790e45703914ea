// A Node web server. With `file` it reads a file for each request, over persistent connections;
// otherwise it uses one connection per request.
const fs = require("fs"), http = require("http");
const isFile = process.argv[2] === "file";
const server = http.createServer((request, response) => {
  if (!isFile) {
    response.setHeader("Connection", "close");
    response.end("hello");
    return;
  }
  fs.readFile(__filename, (error) => {
    response.statusCode = error ? 500 : 200;
    response.end("hello");
  });
});
server.listen(0, "127.0.0.1", 1024, () => console.error("READY", process.pid, server.address().port));
