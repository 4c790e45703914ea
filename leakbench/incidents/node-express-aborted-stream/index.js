// An Express route streams a file with pipe(). When the client goes away in the
// middle of the download, pipe() stops writing but does not destroy the read stream,
// and its file stays open.
'use strict';
const express = require('express');
const fs = require('fs');
const http = require('http');
const path = require('path');

const SECONDS = parseFloat(process.env.LB_SECONDS || '20');
const RATE = parseFloat(process.env.LB_RATE || '4');
const WORK = process.env.LB_WORK;
const sleep = (ms) => new Promise((r) => setTimeout(r, ms));

const app = express();

function sendFile(name, res) {
  const file = fs.createReadStream(path.join(WORK, name));
  file.pipe(res);
}

app.get('/download/:name', (req, res) => sendFile(req.params.name, res));

function request(port, name, onResponse) {
  return new Promise((resolve) => {
    const req = http.get({ port, host: '127.0.0.1', path: '/download/' + name, agent: false }, onResponse);
    req.on('close', resolve);
    req.on('error', () => {});
  });
}

function readAll(port) {
  return request(port, 'small.bin', (res) => res.resume());
}

function giveUp(port) {
  return request(port, 'large.bin', (res) => {
    res.on('error', () => {});
    res.once('data', () => res.destroy());
  });
}

async function readers(port) {
  for (;;) {
    await readAll(port);
    await sleep(30);
  }
}

async function parts() {
  for (let i = 0; ; i++) {
    const h = await fs.promises.open(path.join(WORK, 'part-' + (i % 4)), 'w');
    await h.write('data');
    await sleep(15);
    await h.close();
  }
}

async function main() {
  console.log('READY ' + process.pid);
  fs.writeFileSync(path.join(WORK, 'small.bin'), Buffer.alloc(20000));
  fs.writeFileSync(path.join(WORK, 'large.bin'), '');
  fs.truncateSync(path.join(WORK, 'large.bin'), 64 << 20);
  const server = await new Promise((r) => { const s = app.listen(0, '127.0.0.1', () => r(s)); });
  const port = server.address().port;
  readers(port);
  readers(port);
  parts();
  await sleep(1000);
  console.log('PHASE run');
  const begin = Date.now();
  let n = 0;
  while (n < RATE * SECONDS) {
    await giveUp(port);
    n++;
    await sleep(Math.max(0, begin + (n / RATE) * 1000 - Date.now()));
  }
  console.log('DONE leaked=' + n);
  await sleep(1500);
  process.exit(0);
}

main();
