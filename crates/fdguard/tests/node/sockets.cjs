// Each line with a mark asks for as many descriptors as the mark says, which stay open.
const net = require('net');
const http = require('http');
const https = require('https');
const dgram = require('dgram');
const keep = (globalThis.keep = []);
const server = net.createServer((socket) => keep.push(socket));
const connect = () => {
  const { port } = server.address();
  for (let i = 0; i < 3; i++) {
    keep.push(net.connect(port, '127.0.0.1')); // ASK address 3
    keep.push(net.connect(port, 'localhost')); // ASK name 3
    keep.push(http.get({ port, host: 'localhost', agent: false }).on('error', () => {})); // ASK http 3
    keep.push(new net.Socket().connect(port)); // ASK socket 3
    keep.push(require('tls').connect(port, '127.0.0.1').on('error', () => {})); // ASK tls 3
    keep.push(https.get({ port, host: 'localhost' }).on('error', () => {})); // ASK https 3
  }
};
server.listen(0, '127.0.0.1', connect); // ASK listen 19
for (let i = 0; i < 3; i++) {
  const socket = dgram.createSocket('udp4'); // ASK datagrams 3
  socket.bind(0);
  keep.push(socket);
  const sender = dgram.createSocket('udp4'); // ASK sender 3
  sender.send('x', 9, '127.0.0.1');
  keep.push(sender);
}
const web = http.createServer((request, response) => response.end('well'));
const agent = new http.Agent({ keepAlive: true });
web.keepAliveTimeout = 60000;
web.listen(0, () => { // ASK web 3
  const { port } = web.address();
  http.get({ port, agent }, (response) => response.resume()); // ASK alive 1
  fetch(`http://127.0.0.1:${port}/`).then((answer) => answer.text()); // ASK fetch 1
});
const path = `${__dirname}/socket`;
const local = net.createServer((socket) => keep.push(socket));
local.listen(path, () => { // ASK local 3
  keep.push(net.connect(path)); // ASK pipe 1
  keep.push(net.createConnection({ path })); // ASK pipe 2 1
});
setInterval(() => {}, 1000);
