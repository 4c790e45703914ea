// Each line with a mark asks for as many descriptors as the mark says, which stay open.
import fs from 'node:fs';
import { openSync, open, createReadStream } from 'node:fs';
import { open as promised } from 'node:fs/promises';
import * as all from 'fs';
import net, { connect } from 'node:net';
import { Worker, isMainThread } from 'node:worker_threads';
if (isMainThread) {
  for (let i = 0; i < 3; i++) openSync('/etc/passwd'); // ASK named 3
  for (let i = 0; i < 3; i++) fs.openSync('/etc/passwd'); // ASK default 3
  for (let i = 0; i < 3; i++) all.openSync('/etc/passwd'); // ASK all 3
  globalThis.keep = [await promised('/etc/passwd'), // ASK promised 1
    createReadStream('/dev/zero')]; // ASK stream 1
  open('/etc/passwd', () => {}); // ASK callback 1
  new Worker(new URL(import.meta.url)); // ASK worker 4+
  const server = net.createServer();
  server.listen(0, () => { // ASK listen 2
    keep.push(connect(server.address().port)); // ASK connect 1
  });
} else {
  for (let i = 0; i < 4; i++) openSync('/etc/passwd'); // ASK within 4
  globalThis.keep = [await promised('/etc/passwd')]; // ASK within promised 1
}
setInterval(() => {}, 1000);
