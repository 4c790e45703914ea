// An HTTP client with a keep-alive agent of at most forty sockets, and an Express
// server in the same process. Callers arrive until the agent is at its limit after a
// third of the run; ten more have to wait for a free socket. It looks like a leak
// until then and is level afterwards.
'use strict';
const express = require('express');
const fs = require('fs');
const http = require('http');
const path = require('path');

const SECONDS = parseFloat(process.env.LB_SECONDS || '20');
const WORK = process.env.LB_WORK;
const LIMIT = 40;
const sleep = (ms) => new Promise((r) => setTimeout(r, ms));
const agent = new http.Agent({ keepAlive: true, maxSockets: LIMIT, maxFreeSockets: LIMIT });

const app = express();
app.get('/quote', async (req, res) => {
  await sleep(300);
  res.json({ price: 4.2 });
});

function quote(port) {
  return new Promise((resolve, reject) => {
    http.get({ port, host: '127.0.0.1', path: '/quote', agent }, (res) => {
      res.resume();
      res.on('end', resolve);
    }).on('error', reject);
  });
}

async function caller(port) {
  for (;;) {
    await quote(port);
    await sleep(5);
  }
}

async function files() {
  for (let i = 0; ; i++) {
    const h = await fs.promises.open(path.join(WORK, 'page-' + (i % 5)), 'w');
    await sleep(15);
    await h.close();
  }
}

async function main() {
  console.log('READY ' + process.pid);
  const server = await new Promise((r) => { const s = app.listen(0, '127.0.0.1', () => r(s)); });
  server.keepAliveTimeout = 0;
  const port = server.address().port;
  files();
  await sleep(1000);
  console.log('PHASE run');
  const begin = Date.now();
  const step = (0.3 * SECONDS * 1000) / LIMIT;
  for (let n = 0; Date.now() - begin < SECONDS * 1000; n++) {
    if (n < LIMIT + 10) caller(port);
    await sleep(Math.max(0, begin + (n + 1) * step - Date.now()));
  }
  console.log('DONE leaked=0');
  await sleep(1000);
  process.exit(0);
}

main();
