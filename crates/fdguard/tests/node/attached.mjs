// The same as a module, with names that were imported before.
import { openSync, open, promises } from 'node:fs';
import * as kept from 'node:fs';
import { open as promised } from 'node:fs/promises';
import net, { connect } from 'node:net';
import { createInterface } from 'node:readline';
const keep = [];
const server = net.createServer((one) => keep.push(one));
const orders = {
  sync: () => openSync('/dev/null'), // SYNC
  open: () => new Promise((done) => open('/dev/null', (error, fd) => done(fd))), // OPEN
  promise: async () => keep.push(await promised('/dev/null')), // PROMISE
  kept: () => kept.openSync('/dev/null'), // KEPT
  kept2: async () => keep.push(await promises.open('/dev/null')), // KEPT2
  connect: () => new Promise((done) => {
    keep.push(connect(server.address().port, '127.0.0.1', () => done('yes'))); // CONNECT
  }),
  nothing: () => typeof promises,
};
const input = createInterface({ input: process.stdin });
input.on('line', async (order) => console.log(`${order} ${await orders[order]()}`));
input.on('close', () => {
  console.log('DONE');
  process.exit(7);
});
server.listen(0, '127.0.0.1', () => console.log(`READY ${process.pid}`));
