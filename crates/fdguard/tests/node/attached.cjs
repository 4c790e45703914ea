// Opens what it is told to, one line at a time, after fdguard has attached.
const fs = require('fs');
const { openSync, promises } = fs;
const { open } = promises;
const net = require('net');
const keep = [];
const server = net.createServer((one) => keep.push(one));
const orders = {
  sync: () => fs.openSync('/dev/null'), // SYNC
  open: () => new Promise((done) => fs.open('/dev/null', (error, fd) => done(fd))), // OPEN
  promise: async () => keep.push(await fs.promises.open('/dev/null')), // PROMISE
  kept: () => openSync('/dev/null'), // KEPT
  kept2: async () => keep.push(await open('/dev/null')), // KEPT2
  connect: () => new Promise((done) => {
    keep.push(net.connect(server.address().port, '127.0.0.1', () => done('yes'))); // CONNECT
  }),
  patched: () => fs.openSync.toString().includes('insidePublic'),
  nothing: () => 'nothing',
};
if (process.env.OWN_HANDLER) process.on('SIGUSR1', () => console.log('my SIGUSR1'));
if (process.env.OWN_HANDLER === 'removed') process.removeAllListeners('SIGUSR1');
const input = require('readline').createInterface({ input: process.stdin });
input.on('line', async (order) => console.log(`${order} ${await orders[order]()}`));
input.on('close', () => {
  console.log('DONE');
  process.exit(7);
});
server.listen(0, '127.0.0.1', () => console.log(`READY ${process.pid}`));
