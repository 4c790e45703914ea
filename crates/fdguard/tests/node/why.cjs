// Holds descriptors in all ways that it can, says which number is held how, and then obeys: `more`
// opens more plain numbers, `check` says which of the dropped handles are still open.
'use strict';
const { AsyncLocalStorage } = require('async_hooks');
const fs = require('fs');
const http = require('http');
const net = require('net');
const readline = require('readline');

const say = (name, fds) => console.log([name, ...fds].join(' '));
const sessions = new Map();
const handles = new Set();
const agent = new http.Agent({ keepAlive: true });
global.numbers = [];
class Writer {
  constructor() {
    this.fd = fs.openSync('/proc/self/stat');
  }
}
exports.writers = [];
const registry = { open: [] };

function timed() {
  const stream = fs.createReadStream('/dev/zero');
  stream.on('open', (fd) => {
    say('timer', [fd]);
    setInterval(() => stream.bytesRead, 1e6);
  });
  return new Promise((resolve) => stream.on('open', resolve));
}

async function waits() {
  const held = await fs.promises.open('/proc/self/stat');
  say('waits', [held.fd]);
  await new Promise((resolve) => setTimeout(resolve, 1e8));
  await held.read();
}

const generators = [];
function* generates(held) {
  yield held.fd;
  yield held;
}

const storage = new AsyncLocalStorage();

async function suspended() {
  const held = await fs.promises.open('/proc/self/stat');
  say('generator', [held.fd]);
  generators.push(generates(held));
  generators[0].next();
}

async function stored() {
  const fds = [];
  for (let at = 0; at < 3; at += 1) {
    const kept = await fs.promises.open('/proc/self/stat');
    fds.push(kept.fd);
    storage.run({ kept }, () => setTimeout(() => {}, 1e8));
  }
  say('stored', fds);
}

async function onProcess() {
  process.kept = [await fs.promises.open('/proc/self/stat')];
  say('process', [process.kept[0].fd]);
}

async function dropped() {
  const fds = [];
  for (let at = 0; at < 3; at += 1) fds.push((await fs.promises.open('/proc/self/maps')).fd);
  return fds;
}

function more() {
  const numbers = [];
  const writers = [];
  const lost = [];
  for (let at = 0; at < 5; at += 1) {
    numbers.push(fs.openSync('/proc/self/stat'));
    global.numbers.push(numbers[at]);
    exports.writers.push(new Writer());
    writers.push(exports.writers[exports.writers.length - 1].fd);
    lost.push(fs.openSync('/proc/self/stat'));
  }
  say('numbers', numbers);
  say('writers', writers);
  say('lost', lost);
}

const listening = (server) => new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const fdOf = (socket) => socket._handle.fd;

async function main() {
  const accepted = [];
  const server = net.createServer((socket) => {
    accepted.push(1);
    sessions.set(socket.remotePort, socket);
  });
  await listening(server);
  const clients = [];
  for (let at = 0; at < 4; at += 1) {
    await new Promise((resolve) => {
      const socket = net.connect(server.address().port, '127.0.0.1', () => {
        clients.push(fdOf(socket));
        resolve();
      });
    });
  }
  while (sessions.size < 4) await new Promise(setImmediate);
  say('map', [...sessions.values()].map(fdOf));
  say('loop', clients);
  say('server', [fdOf(server)]);
  const web = http.createServer((request, response) => response.end('ok'));
  web.keepAliveTimeout = 1e8;
  await listening(web);
  for (let at = 0; at < 2; at += 1) {
    await new Promise((resolve) => {
      http.get({ port: web.address().port, host: '127.0.0.1', agent }, (response) => {
        response.resume().on('end', () => setImmediate(resolve));
      });
    });
  }
  const free = Object.values(agent.freeSockets).flat();
  say('agent', free.map(fdOf));
  for (let at = 0; at < 3; at += 1) handles.add(await fs.promises.open('/proc/self/stat'));
  say('set', [...handles].map((one) => one.fd));
  registry.open.push({ stream: await fs.promises.open('/proc/self/stat') });
  say('nested', [registry.open[0].stream.fd]);
  await timed();
  await suspended();
  await stored();
  await onProcess();
  waits();
  while (global.numbers.length === 0) {
    await new Promise(setImmediate);
    more();
  }
  const garbage = await dropped();
  say('dropped', garbage);
  // `signals` says how many children were heard of, `raise` sends such a signal.
  let signals = 0;
  process.on('SIGCHLD', () => { signals += 1; });
  const input = readline.createInterface({ input: process.stdin });
  input.on('line', (line) => {
    if (line === 'more') more();
    if (line === 'check') say('open', garbage.filter((fd) => fs.existsSync(`/proc/self/fd/${fd}`)));
    if (line === 'signals') say('signals', [signals]);
    if (line === 'raise') process.kill(process.pid, 'SIGCHLD');
    console.log('DONE');
  });
  input.on('close', () => process.exit(0));
  console.log('DONE');
}

main();
